"""One partition's commands, answered over a log and a fold in memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.agents.commanding import Commanding, CommandingDeps, Ending
from cachemind.codec.codec import Codec
from cachemind.codec.commands import decode_reply, encode_command
from cachemind.core.commands import (
    Command,
    Problem,
    ProblemCode,
    Reply,
    Rollback,
    RollbackDone,
    RollbackState,
)
from cachemind.core.grant_topics import RequestTopic
from cachemind.errors import LogRejected, LogUnavailable
from cachemind.events import RolledBack
from cachemind.ports import Headers, LogRecord
from cachemind.ports.commands import DeadLetter
from cachemind.types import EventId, Lsn, Offset, Partition, Timeline, Version, WriterId
from tests.gateways import NAMESPACE, PARTITIONS, Fold, past_of
from tests.upstreams import wait_until
from tests.wal_events import envelope, stored

KEY = NAMESPACE.encode()
ID = EventId(bytes(range(16)))
HEADERS: Headers = (("reply-to", b"answers"), ("correlation-id", b"7"))
STEPS = (
    "request.taken",
    "request.decided",
    "request.appended",
    "request.done",
    "request.answered",
)


@dataclass
class Cluster:
    """What of Kafka outlives a process: the WAL, answers, the group's offset."""

    log: MemoryLog = field(default_factory=lambda: MemoryLog(PARTITIONS, SystemClock()))
    answers: list[Reply] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    offset: int = 0
    owner: int = 0


class Session:
    """One process's `RequestSession`; whoever took over last may commit."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.epoch = -1
        self.rejects = False

    def take_over(self) -> Offset:
        self.cluster.owner += 1
        self.epoch = self.cluster.owner
        return Offset(self.cluster.offset)

    def refuses(self, reply_to: str) -> str | None:
        return f"there is no topic {reply_to}" if reply_to == "nowhere" else None

    def append(self, key: bytes, value: bytes, headers: Headers) -> Lsn:
        self._require_owned()
        return self.cluster.log.writer().append(key, value, headers).result(5)

    def answer(
        self, topic: str, key: bytes, value: bytes, headers: Headers, after: Offset
    ) -> None:
        self._require_owned()
        if self.rejects:
            self.epoch = -1
            raise LogRejected(f"append to {topic}: may not be written")
        assert key == dict(headers)["correlation-id"] == b"7"
        self.cluster.answers.append(decode_reply(value))
        self.cluster.offset = after

    def bury(self, letter: DeadLetter, after: Offset) -> None:
        self._require_owned()
        self.cluster.letters.append(letter)
        self.cluster.offset = after

    def close(self) -> None:
        """Nothing is held."""

    def _require_owned(self) -> None:
        if self.epoch != self.cluster.owner:
            raise LogUnavailable("another one has begun a transaction since")


class Died(BaseException):
    """The process was killed."""


@dataclass
class Desk:
    """A cluster with four versions of a namespace, and processes that answer."""

    cluster: Cluster
    fold: Fold
    stopping: bool = False

    def process(
        self, failpoint: Callable[[str], None] = lambda _: None, wait_s: float = 5.0
    ) -> tuple[Commanding, Session]:
        session, past = Session(self.cluster), past_of(self.fold)
        deps = CommandingDeps(
            session=session,
            topic=RequestTopic(name="requests"),
            past=lambda _: past,
            codec=Codec(),
            clock=SystemClock(),
            random=secrets.token_bytes,
            writer=WriterId("requests-1"),
            failpoint=failpoint,
            stopping=lambda: self.stopping,
            catch_up_s=0.2 if wait_s < 1 else 5.0,
            wait_s=wait_s,
        )
        return Commanding(deps), session

    def rollbacks(self) -> list[RolledBack]:
        reader, codec = self.cluster.log.reader(), Codec()
        bodies = [
            codec.decode(record.value or b"").body
            for partition in map(Partition, range(PARTITIONS))
            for batch in reader.read(partition, *reader.bounds(partition))
            for record in batch
        ]
        return [body for body in bodies if isinstance(body, RolledBack)]


@pytest.fixture
def desk() -> Iterator[Desk]:
    cluster = Cluster()
    fold = Fold(cluster.log, Codec())
    for number in range(4):
        event = Codec().encode(envelope(number, stored(number), NAMESPACE))
        cluster.log.writer().append(KEY, event, ()).result(5)
    yield Desk(cluster, fold)
    fold.close()


def record(
    at: int = 0,
    headers: Headers = HEADERS,
    raw: bytes | None = None,
    request_id: EventId = ID,
    key: bytes | None = KEY,
    to_version: int = 2,
) -> LogRecord:
    asked = Rollback(to_version=Version(to_version))
    command = Command(request_id=request_id, namespace=NAMESPACE, body=asked)
    return LogRecord(
        lsn=Lsn(Partition(0), Offset(at)),
        key=key,
        value=encode_command(command) if raw is None else raw,
        headers=headers,
        timestamp_ms=0,
    )


def settle(process: Commanding, wanted: LogRecord) -> None:
    """Hand a command in until it is dealt with, as the process does."""
    for _ in range(3):
        try:
            return process.handle(wanted)
        except LogUnavailable:
            continue
    pytest.fail("it was never dealt with")


def done(reply: Reply) -> RollbackDone:
    assert isinstance(reply.body, RollbackDone), reply.body
    return reply.body


def problem(reply: Reply) -> Problem:
    assert isinstance(reply.body, Problem), reply.body
    return reply.body


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_at_a_step_leaves_one_event_and_one_answer(
    desk: Desk, step: str
) -> None:
    def dies(name: str) -> None:
        if name == step:
            raise Died

    first, _ = desk.process(dies)
    with pytest.raises(Died):
        first.handle(record())
    second, _ = desk.process()
    second.handle(record())
    assert len(desk.rollbacks()) == 1
    (answer,) = desk.cluster.answers
    assert done(answer).status is RollbackState.COMMITTED
    assert (done(answer).new_version, done(answer).removed) == (5, 2)
    assert answer.lsn is not None
    assert desk.cluster.offset == 1


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_was_shut_out_answers_nothing_more(
    desk: Desk, step: str
) -> None:
    other, _ = desk.process()

    def is_shut_out(name: str) -> None:
        if name == step:
            other.handle(record())

    first, _ = desk.process(is_shut_out)
    settle(first, record())
    assert len(desk.rollbacks()) == 1
    assert len(desk.cluster.answers) == 1
    settle(first, record(1, request_id=EventId(bytes(15) + b"\1"), to_version=1))
    assert len(desk.cluster.answers) == 2


def test_the_same_id_again_is_the_same_answer_and_no_event(desk: Desk) -> None:
    process, _ = desk.process()
    for at in range(3):
        if at == 2:  # also when the head has moved on
            later = replace(envelope(9, stored(9), NAMESPACE), timeline=Timeline(5))
            event = Codec().encode(later)
            desk.cluster.log.writer().append(KEY, event, ()).result(5)
        process.handle(record(at))
    bodies = {repr(answer.body) for answer in desk.cluster.answers}
    assert (len(desk.cluster.answers), len(bodies), len(desk.rollbacks())) == (3, 1, 1)
    process.handle(record(3, to_version=3))
    assert problem(desk.cluster.answers[-1]).code is ProblemCode.INVALID_REQUEST
    assert problem(desk.cluster.answers[-1]).field == "rollback_id"


def test_a_fold_that_is_slow_is_running_and_then_done(desk: Desk) -> None:
    process, _ = desk.process(wait_s=0.1)
    past = past_of(desk.fold)
    wait_until(lambda: past.catch_up() == 3)
    desk.fold.pause()
    process.handle(record())
    running = done(desk.cluster.answers[0])
    assert (running.status, running.new_version) == (RollbackState.RUNNING, None)
    process.handle(record(1))
    assert problem(desk.cluster.answers[1]).code is ProblemCode.UNAVAILABLE
    desk.fold.resume()
    wait_until(lambda: past.catch_up() == 4)
    process.handle(record(2))
    assert done(desk.cluster.answers[2]).status is RollbackState.COMMITTED
    assert len(desk.rollbacks()) == 1


def test_a_process_that_is_about_to_end_leaves_the_answer_to_the_next(
    desk: Desk,
) -> None:
    past = past_of(desk.fold)
    wait_until(lambda: past.catch_up() == 3)
    desk.fold.pause()
    first, _ = desk.process()
    desk.stopping = True
    with pytest.raises(Ending):
        first.handle(record())
    assert (len(desk.rollbacks()), desk.cluster.answers) == (1, [])
    desk.stopping = False
    desk.fold.resume()
    second, _ = desk.process()
    second.handle(record())
    assert done(desk.cluster.answers[0]).status is RollbackState.COMMITTED
    assert len(desk.rollbacks()) == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(record(headers=HEADERS[1:]), b"invalid_request", id="reply-to"),
        pytest.param(record(headers=HEADERS[:1]), b"invalid_request", id="id"),
        pytest.param(record(key=b"other"), b"invalid_request", id="key"),
        pytest.param(record(key=None), b"invalid_request", id="no-key"),
        pytest.param(record(raw=b"noise"), b"undecodable", id="noise"),
        pytest.param(record(raw=b"\xc3\x01" + bytes(9)), b"unknown_schema", id="new"),
        pytest.param(
            record(headers=(("reply-to", b"nowhere"), HEADERS[1])),
            b"no_reply",
            id="nowhere",
        ),
    ],
)
def test_what_cannot_be_answered_is_buried_and_the_next_one_is_answered(
    desk: Desk, bad: LogRecord, reason: bytes
) -> None:
    process, _ = desk.process()
    process.handle(bad)
    ((key, value, headers),) = desk.cluster.letters
    assert (key, value) == (b"requests", bad.value)
    assert headers[: len(bad.headers)] == bad.headers
    assert dict(headers)["cachemind-dlq-reason"] == reason
    assert (desk.rollbacks(), desk.cluster.offset) == ([], 1)
    process.handle(record(1))
    assert len(desk.cluster.answers) == 1


def test_an_answer_that_may_not_be_written_is_buried_with_its_command(
    desk: Desk,
) -> None:
    process, session = desk.process()
    session.rejects = True
    process.handle(record())
    ((_, _, headers),) = desk.cluster.letters
    assert dict(headers)["cachemind-dlq-reason"] == b"no_reply"
    assert (desk.cluster.answers, desk.cluster.offset) == ([], 1)


def test_a_log_that_is_away_is_waited_for(desk: Desk) -> None:
    process, session = desk.process()
    process.handle(record())
    session.epoch = -1
    with pytest.raises(LogUnavailable):
        process.handle(record(1, request_id=EventId(bytes(15) + b"\2"), to_version=1))
    process.handle(record(1, request_id=EventId(bytes(15) + b"\2"), to_version=1))
    assert len(desk.cluster.answers) == 2
