"""The dead-letter topic, opened for an operator: what is there, and putting it back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_dead_letters import KafkaReplays
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.codec import Codec
from cachemind.core.commands import DEADLINE, Command, address_of
from cachemind.core.dead_letter import Letter, Replay, Source, read_dead_letter
from cachemind.core.identifiers import NS_PER_MS
from cachemind.errors import (
    InvalidEvent,
    InvalidRequest,
    LogRejected,
    UndecodableRecord,
)
from cachemind.events import Envelope
from cachemind.ports import LogReader
from cachemind.types import Lsn, Offset, Partition
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.erasure import who_asks
from cachemind_services.bootstrap.log import (
    command_framing,
    identify,
    kafka_of,
    registry_of,
    topics_of,
)
from cachemind_services.settings import Settings

PARTITION: Final = Partition(0)
"""The dead-letter topic has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """A record of the dead-letter topic, at `at`.

    `letter` is None where it is none of ours, which `problem` says. `replayed` is the
    note that it was put back, if it was.
    """

    at: Lsn
    letter: Letter | None
    problem: str = ""
    replayed: Replay | None = None


class DeadLetterBox:
    """The dead-letter topic up to where it ended when it was opened."""

    def __init__(self, settings: Settings, reader: LogReader) -> None:
        self._settings = settings
        self._reader = reader
        self._first, self._end = reader.bounds(PARTITION)
        self._replays = {
            note.source: note
            for _, note in self._records(self._first, self._end)
            if isinstance(note, Replay)
        }

    def letters(self) -> Iterator[Buried]:
        """Yield every dead letter, the oldest first. Raises: `LogUnavailable`."""
        return self._letters(self._first, self._end)

    def one(self, at: Lsn) -> Buried:
        """Return the letter at `at`. Raises: `InvalidRequest`, `LogUnavailable`."""
        if at.partition == PARTITION and self._first <= at.offset < self._end:
            for found in self._letters(at.offset, Offset(at.offset + 1)):
                return found
        raise InvalidRequest("ID", f"there is no dead letter {at}")

    def content(self, letter: Letter) -> Envelope | Command:
        """Return what the record says.

        Raises: `UndecodableRecord`, `UnknownSchema`, `InvalidEvent`,
        `LogUnavailable` where a registry must be asked.
        """
        topics, value = topics_of(self._settings), letter.value
        if value is None:
            raise UndecodableRecord("it has no value")
        if letter.source.topic == topics.wal.name:
            return Codec(registry_of(self._settings)).decode(value)
        if is_of_requests(letter.source.topic, topics.requests.name):
            return command_framing(self._settings).decode(value)
        raise UndecodableRecord("nothing of ours is read from its topic")

    def _letters(self, first: Offset, end: Offset) -> Iterator[Buried]:
        for at, found in self._records(first, end):
            if isinstance(found, Letter):
                replayed = self._replays.get(found.source)
                yield Buried(at=at, letter=found, replayed=replayed)
            elif isinstance(found, UndecodableRecord):
                yield Buried(at=at, letter=None, problem=found.reason)

    def _records(
        self, first: Offset, end: Offset
    ) -> Iterator[tuple[Lsn, Letter | Replay | UndecodableRecord]]:
        for batch in self._reader.read(PARTITION, first, end):
            for record in batch:
                try:
                    yield (
                        record.lsn,
                        read_dead_letter(record.key, record.value, record.headers),
                    )
                except UndecodableRecord as error:
                    yield record.lsn, error


@contextmanager
def open_dead_letters(settings: Settings) -> Iterator[DeadLetterBox]:
    """Open the dead-letter topic to look at it.

    Raises: `TopicMisconfigured`, `LogUnavailable`, `LogRejected`, `BrokerError`.
    """
    identify(settings)
    reader = KafkaReader(kafka_of(settings), topics_of(settings).dlq.name)
    with closing(reader):
        yield DeadLetterBox(settings, reader)


class Replaying:
    """The dead-letter topic, opened by the only one that puts letters back."""

    def __init__(
        self,
        settings: Settings,
        box: DeadLetterBox,
        out: KafkaReplays,
        failpoint: Callable[[str], None],
    ) -> None:
        self.box = box
        self._out = out
        self._settings = settings
        self._failpoint = failpoint
        self._done: dict[Source, Replay] = {}

    def done_before(self, found: Buried) -> Replay | None:
        """Return the note that the letter's record was put back, None where not.

        A record that was buried twice, since who buried it died, is put back once.
        """
        if found.replayed is not None or found.letter is None:
            return found.replayed
        return self._done.get(found.letter.source)

    def replay(
        self, found: Buried, without: Collection[str] = ()
    ) -> tuple[Source, Lsn]:
        """Return where the record was, and where it is now but for some headers.

        Raises: `InvalidRequest` for what is not ours to put back; `LogRejected`;
        `LogUnavailable`, and then whether it was put back is not known: open it anew.
        """
        letter = found.letter
        if letter is None:
            raise InvalidRequest("ID", f"{found.at}: {found.problem}")
        self._check(found.at, letter)
        if DEADLINE not in without and _is_too_late(letter):
            raise InvalidRequest(
                "ID", "its deadline has passed; give --without-deadline"
            )
        by = who_asks()
        try:
            now = self._out.replay(letter, by, self._appended, without)
        except LogRejected:
            # Nothing was put back, so what was read still holds.
            self._out.take_over()
            raise
        self._failpoint("dlq.committed")
        self._done[letter.source] = Replay(source=letter.source, by=by)
        return letter.source, now

    def _appended(self) -> None:
        self._failpoint("dlq.appended")

    def _check(self, at: Lsn, letter: Letter) -> None:
        topics, topic = topics_of(self._settings), letter.source.topic
        if topic != topics.wal.name and not is_of_requests(topic, topics.requests.name):
            raise InvalidRequest("ID", f"{at}: its topic is none that we read")


@contextmanager
def open_replaying(settings: Settings, failpoint: str = "") -> Iterator[Replaying]:
    """Open the dead-letter topic to put letters back, and end who else does.

    The process dies where it reaches `failpoint`, for tests.
    Raises: `TopicMisconfigured`, `LogUnavailable`, `LogRejected`, `BrokerError`.
    """
    identify(settings)
    kafka, topics = kafka_of(settings), topics_of(settings)
    with closing(KafkaReplays(kafka, topics.dlq)) as out:
        # First: what another had open is committed or aborted before it is read.
        out.take_over()
        with closing(KafkaReader(kafka, topics.dlq.name)) as reader:
            box = DeadLetterBox(settings, reader)
            yield Replaying(settings, box, out, dying_at(failpoint))


def _is_too_late(letter: Letter) -> bool:
    """Return whether it would come back at once, since nobody waits for its answer."""
    try:
        deadline_ms = address_of(letter.headers).deadline_ms
    except InvalidEvent:
        return False
    now_ms = SystemClock().now_ns() // NS_PER_MS
    return deadline_ms is not None and deadline_ms <= now_ms


def is_of_requests(topic: str, requests: str) -> bool:
    """Return whether `topic` is that of requests, or one namespace's topic of them."""
    return topic == requests or topic.startswith(f"{requests}.")
