"""What a rollback would do to a namespace, worked out and validated in parts.

Of both versions only a few entries are held at a time; what is to become of them goes
to a `Placement`, whole and valid at the end or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge as merge_sorted
from typing import Final, Generic, Protocol, TypeVar

from cachemind.agents.past import Sources, Watch, entries_at, recalled, recorded_at
from cachemind.core.delta import ChangeKind, Delta, EntryChange, delta
from cachemind.core.entry_bytes import same
from cachemind.core.restoration import Restoration, nowhere
from cachemind.core.rollback import Base, Keys, Past, Plan, plan
from cachemind.core.rollback_check import require_totals
from cachemind.core.rollback_report import Strategy
from cachemind.core.state import EntryReader, NamespaceState
from cachemind.core.timeline import Span
from cachemind.core.totals import Changes
from cachemind.ports import LiveStore
from cachemind.types import ContextKey, ExactKey, Namespace, Offset, Version

SHOWN_CHANGES: Final = 100_000
"""Changes that a preview holds at most; see also `restoration.SHOWN_BYTES`."""

PART_KEYS: Final = 1_000
PART_BYTES: Final = 8 << 20
"""Of both versions, that are looked at together: what is held of them at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPreview:
    """What a rollback to `plan.target` would do to a namespace.

    `digest` and `entries` are the namespace's afterwards. `base` and `replayed`: see
    `RollbackReport`.
    """

    namespace: Namespace
    plan: Plan
    delta: Delta
    base: Offset
    replayed: int
    digest: int
    entries: int
    strategy: Strategy

    @property
    def restored(self) -> int:
        """Return how many entries would come back."""
        return self.delta.count(ChangeKind.RESTORED)

    @property
    def removed(self) -> int:
        """Return how many entries would go away."""
        return self.delta.count(ChangeKind.REMOVED)

    @property
    def changed(self) -> int:
        """Return how many entries would be others."""
        return self.delta.count(ChangeKind.CHANGED)


def preview(
    sources: Sources,
    namespace: Namespace,
    target: Version,
    strategy: Strategy = Strategy.FIELD_HASH,
    watch: Watch | None = None,
) -> RollbackPreview:
    """Return what a rollback to `target` would do now, validated; changes nothing.

    Raises: `UnknownVersion` for a version that never was; `RollbackRejected` where
    nothing that is kept leads there; `LogUnavailable`, `StoreError`.
    """
    ready = prepared(
        sources,
        namespace,
        target,
        strategy,
        watch,
        Unplaced,
        keep_changes=SHOWN_CHANGES,
    )
    done = ready.restoration
    return RollbackPreview(
        namespace=namespace,
        plan=ready.plan,
        delta=done.delta(),
        base=ready.base,
        replayed=ready.replayed,
        digest=done.after.digest,
        entries=done.after.entries,
        strategy=strategy,
    )


class Placement(Protocol):
    """Where what becomes of entries goes, for one attempt at a rollback."""

    def add(self, entries: Changes, left: Mapping[ExactKey, ContextKey]) -> None:
        """Take in what some more keys become. Raises: `StoreError`."""
        ...

    def complete(self, after: NamespaceState) -> None:
        """Note that this was all, and that `after` is what must come of it.

        Raises: `RollbackRejected`, `StoreError`.
        """
        ...

    def discard(self) -> None:
        """Forget all of it."""
        ...


class Unplaced:
    """A `Placement` for what is only looked at."""

    def add(self, entries: Changes, left: Mapping[ExactKey, ContextKey]) -> None:
        """Do nothing."""
        nowhere(entries, left)

    def complete(self, after: NamespaceState) -> None:
        """Do nothing."""

    def discard(self) -> None:
        """Do nothing."""


P = TypeVar("P", bound=Placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Generic[P]):
    """A validated rollback. `placed` has what becomes of the entries."""

    plan: Plan
    restoration: Restoration
    placed: P
    base: Offset
    replayed: int


def prepared(
    sources: Sources,
    namespace: Namespace,
    target: Version,
    strategy: Strategy,
    watch: Watch | None,
    placement: Callable[[], P],
    *,
    keep_changes: int = 0,
) -> Prepared[P]:
    """Return what a rollback to `target` is, rebuilt from the first base that does.

    Each base that is tried has a `placement` of its own. Raises: as `preview`.
    """
    store = sources.store
    way = plan(store.history(namespace), target)
    keys = _keys(sources, namespace, way)
    recorded = recorded_at(store, namespace, target)
    live, state = store.reader(namespace), store.namespace(namespace)

    def checked(past: Past, base: Base) -> Prepared[P]:
        placed = placement()
        try:
            done = Restoration(
                state, strategy, keep_changes=keep_changes, place=placed.add
            )
            asked = _all_keys(live, past) if keys is None else sorted(keys)
            for part in differences(asked, live, past):
                done.add(part)
            require_totals(done.after, *recorded)
            placed.complete(done.after)
        except BaseException:
            placed.discard()
            raise
        return Prepared(
            plan=way,
            restoration=done,
            placed=placed,
            base=base.offset,
            replayed=past.replayed,
        )

    return recalled(sources, namespace, target, keys, checked, watch)


def differences(
    keys: Iterable[ExactKey], live: EntryReader, past: Past
) -> Iterator[Delta]:
    """Yield what differs at `keys`, in their order, a few at a time."""
    part: list[EntryChange] = []
    held_bytes = 0
    for key in keys:
        before, after = live.entry(key), past.entry(key)
        if same(before, after):
            continue
        part.append(EntryChange(key, before, after))
        held_bytes += part[-1].held_bytes
        if len(part) >= PART_KEYS or held_bytes >= PART_BYTES:
            yield Delta(tuple(part))
            part, held_bytes = [], 0
    yield Delta(tuple(part))


def _all_keys(live: EntryReader, past: Past) -> Iterator[ExactKey]:
    """Yield the keys of both, in order, each once."""
    former = None
    for entry in merge_sorted(
        live.entries(), past.entries(), key=lambda entry: entry.exact_key
    ):
        if entry.exact_key != former:
            former = entry.exact_key
            yield former


def _keys(sources: Sources, namespace: Namespace, way: Plan) -> Keys:
    """Return the keys that may differ between head and target."""
    store = sources.store
    if store.quarantine(namespace) is not None:
        return None  # the live entries are not what history says
    return _touched(store, namespace, (*way.away, *way.back))


def _touched(store: LiveStore, namespace: Namespace, spans: Iterable[Span]) -> Keys:
    """Return the keys that the versions in `spans` changed.

    None, for whatever there is, where history does not go back that far: the empty
    version can always be gone back to.
    """
    found: set[ExactKey] = set()
    for span in spans:
        if span.first < store.horizon(namespace):
            return None
        for keys in store.touched(namespace, span).values():
            found.update(keys)
    return found


def version_delta(
    sources: Sources, namespace: Namespace, one: Version, other: Version
) -> Delta:
    """Return what differs between two versions. Raises: as `preview`."""
    history = sources.store.history(namespace)
    ancestor = history.common_ancestor(one, other)
    spans = (*history.path(ancestor, one), *history.path(ancestor, other))
    keys = _touched(sources.store, namespace, spans)
    before, after = (
        entries_at(sources, namespace, version, keys).entries
        for version in (one, other)
    )
    if keys is None:
        keys = {*before, *after}
        before, after = ({key: of.get(key) for key in keys} for of in (before, after))
    return delta(keys, before, after)
