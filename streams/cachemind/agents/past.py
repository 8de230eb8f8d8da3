"""The past of a namespace, rebuilt from checkpoints and the log.

Needs no materializer: whoever has a store to read history from, checkpoints and the
log can look at any version. A store view must not catch up meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from cachemind.core.replayed import Aside, InMemory
from cachemind.core.rollback import (
    CONTENT_KINDS,
    LOG_START,
    Base,
    Keys,
    NoEntries,
    Past,
    bases,
)
from cachemind.core.state import Entry, EntryReader, Hits, VersionRow
from cachemind.core.timeline import History, Span
from cachemind.errors import (
    CheckpointRefused,
    InvalidEvent,
    OffsetOutOfRange,
    RollbackRejected,
    StoreError,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.events import Envelope
from cachemind.ports import Checkpoints, Decoder, LiveStore, LogReader, LogRecord
from cachemind.types import EMPTY, ExactKey, Namespace, Offset, Partition, Version

log = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK_VERSIONS: Final = 10_000
GAP_RECORDS: Final = 5_000
"""Records that are read and dropped rather than sought over: each seek is a fetch."""


def _in_memory() -> AbstractContextManager[Aside]:
    return nullcontext(InMemory())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the past of one partition's namespaces is rebuilt from.

    `aside` opens a place for what is too much for memory.
    """

    partition: Partition
    store: LiveStore
    checkpoints: Checkpoints
    log: LogReader
    decoder: Decoder
    aside: Callable[[], AbstractContextManager[Aside]] = _in_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Entries as of a version, None for absent, and what it took.

    `base` is the checkpoint's offset, -1 for the log's start.
    """

    entries: Mapping[ExactKey, Entry | None]
    base: Offset
    replayed: int


class Watch(Protocol):
    """Is told how a rebuild goes on, and may raise to end it."""

    def base_opened(self, base: Base, versions: int) -> None:
        """`base` is open; `versions` lead from it to the target."""
        ...

    def replayed(self, events: int) -> None:
        """So many events are folded in since the base was opened."""
        ...

    def rebuilt(self) -> None:
        """The entries are there, and not checked yet."""
        ...


class Unwatched:
    """A `Watch` of a rebuild that nobody waits for."""

    def base_opened(self, base: Base, versions: int) -> None:
        """Do nothing."""

    def replayed(self, events: int) -> None:
        """Do nothing."""

    def rebuilt(self) -> None:
        """Do nothing."""


def entries_at(
    sources: Sources, namespace: Namespace, version: Version, keys: Keys
) -> Rebuilt:
    """Return the entries at `keys` (None: all there are) as of `version`.

    Raises: `UnknownVersion`; `RollbackRejected` where nothing that is kept leads
    there; `LogUnavailable`, `StoreError`.
    """

    def rebuilt(past: Past, base: Base) -> Rebuilt:
        return Rebuilt(
            entries=_asked(past, keys), base=base.offset, replayed=past.replayed
        )

    return recalled(sources, namespace, version, keys, rebuilt)


def recalled(
    sources: Sources,
    namespace: Namespace,
    version: Version,
    keys: Keys,
    use: Callable[[Past, Base], T],
    watch: Watch | None = None,
) -> T:
    """Return what `use` makes of the entries as of `version`, which it may read.

    Each base is tried, the nearest first, until one leads to entries that `use`
    does not reject. Raises: as `entries_at`, with the reason of every base.
    """
    history = sources.store.history(namespace)
    kept = sources.checkpoints.bases(namespace)
    problems: list[str] = []
    told = watch or Unwatched()
    for base in bases(history, version, kept):
        try:
            with (
                _opened(sources, namespace, base) as entries,
                sources.aside() as aside,
            ):
                past = Past(namespace, entries, keys, aside)
                _replay(sources, namespace, history, base, version, past, told)
                return use(past, base)
        except (RollbackRejected, CheckpointRefused) as error:
            problem = error.reason if isinstance(error, RollbackRejected) else error
            problems.append(f"from {_name(base)}: {problem}")
            log.warning("version %d of %s %s", version, namespace, problems[-1])
    raise RollbackRejected("; ".join(problems))


def _replay(
    sources: Sources,
    namespace: Namespace,
    history: History,
    base: Base,
    version: Version,
    past: Past,
    watch: Watch,
) -> None:
    spans = history.path(base.version, version)
    watch.base_opened(base, sum(map(len, spans)))
    # Nobody has to read what nothing is asked of.
    for span in spans if past.is_asked else ():
        for part in _parts(span):
            _follow(sources, namespace, past, part, watch)
    watch.rebuilt()


def _asked(past: Past, keys: Keys) -> Mapping[ExactKey, Entry | None]:
    if keys is None:
        return {entry.exact_key: entry for entry in past.entries()}
    return {key: past.entry(key) for key in sorted(keys)}


# ---- the base -----------------------------------------------------------------------


@contextmanager
def _opened(
    sources: Sources, namespace: Namespace, base: Base
) -> Iterator[EntryReader]:
    if base == LOG_START:
        yield NoEntries()
        return
    with sources.checkpoints.open(base.offset) as view:
        state = view.namespace(namespace)
        recorded = recorded_at(sources.store, namespace, base.version)
        if (state.version, state.digest) != (base.version, recorded[0]):
            raise RollbackRejected("it does not hold what history says of it")
        if view.quarantine(namespace) is not None:
            raise RollbackRejected("the namespace was in quarantine")
        yield _Kept(view.reader(namespace), _name(base))


def recorded_at(
    store: LiveStore, namespace: Namespace, version: Version
) -> tuple[int, int]:
    """Return the digest and the number of entries that history has of `version`.

    Raises: `RollbackRejected` where history does not have it any more.
    """
    if version == EMPTY:
        return 0, 0
    rows = store.versions(namespace, version, version)
    if not rows:
        raise RollbackRejected(f"history lacks version {version}")
    return rows[0].digest, rows[0].entries


class _Kept:
    """A checkpoint's entries. Whatever fails there is the checkpoint's fault."""

    def __init__(self, entries: EntryReader, name: str) -> None:
        self._entries = entries
        self._name = name

    def entry(self, key: ExactKey) -> Entry | None:
        with self._blamed():
            return self._entries.entry(key)

    def hits(self, key: ExactKey) -> Hits | None:
        with self._blamed():
            return self._entries.hits(key)

    def entries(self) -> Iterable[Entry]:
        with self._blamed():
            yield from self._entries.entries()

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise CheckpointRefused(self._name, str(error)) from error


def _name(base: Base) -> str:
    return "the log's start" if base == LOG_START else f"checkpoint {base.offset}"


# ---- the events from there ----------------------------------------------------------


def _parts(span: Span) -> Iterator[Span]:
    for first in range(span.first, span.last + 1, CHUNK_VERSIONS):
        last = min(first + CHUNK_VERSIONS - 1, span.last)
        yield Span(Version(first), Version(last))


def _follow(
    sources: Sources, namespace: Namespace, past: Past, span: Span, watch: Watch
) -> None:
    """Fold in those events of `span` that concern the keys asked about."""
    touched = sources.store.touched(namespace, span)
    if len(touched) != len(span):
        raise RollbackRejected(f"history lacks versions of {span.first} to {span.last}")
    concerned = {v: past.concerned(keys) for v, keys in touched.items()}
    rows = _rows(sources.store, namespace, [v for v, keys in concerned.items() if keys])
    for first, end in ranges(sorted(rows)):
        for record in _records(sources, first, end, rows):
            row = rows[record.lsn.offset]
            envelope = _decoded(sources.decoder, record, row)
            past.follow(row, concerned[row.version], envelope, record.lsn)
        watch.replayed(past.replayed)


def _rows(
    store: LiveStore, namespace: Namespace, versions: Sequence[Version]
) -> Mapping[Offset, VersionRow]:
    """Return the rows of those `versions` whose events change entries."""
    if not versions:
        return {}
    wanted = set(versions)
    found = store.versions(namespace, versions[0], versions[-1])
    rows = [row for row in found if row.version in wanted]
    if len(rows) != len(wanted):
        raise RollbackRejected("history lacks versions")
    return {row.offset: row for row in rows if row.kind in CONTENT_KINDS}


def ranges(offsets: Sequence[Offset]) -> Iterator[tuple[Offset, Offset]]:
    """Yield what to read so that all `offsets`, in order, are covered."""
    if not offsets:
        return
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset - last > GAP_RECORDS:
            yield first, Offset(last + 1)
            first = offset
        last = offset
    yield first, Offset(last + 1)


def _records(
    sources: Sources, first: Offset, end: Offset, rows: Mapping[Offset, VersionRow]
) -> Iterator[LogRecord]:
    """Yield the records in [first, end) that made one of `rows`; all of them."""
    missing = {offset for offset in rows if first <= offset < end}
    try:
        for batch in sources.log.read(sources.partition, first, end):
            for record in batch:
                if record.lsn.offset in missing:
                    missing.remove(record.lsn.offset)
                    yield record
    except OffsetOutOfRange as error:
        raise RollbackRejected(str(error)) from error
    if missing:
        raise RollbackRejected(
            f"{len(missing)} events are not on the log, the first at {min(missing)}"
        )


def _decoded(decoder: Decoder, record: LogRecord, row: VersionRow) -> Envelope:
    try:
        if record.value is None:
            raise UndecodableRecord("it has no value")
        return decoder.decode(record.value)
    except (UndecodableRecord, UnknownSchema, InvalidEvent) as error:
        raise RollbackRejected(
            f"the event of version {row.version} cannot be read: {error}"
        ) from error
