"""One partition's commands, many in a transaction, over a Kafka in memory."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.adapters.clock import SystemClock
from cachemind.agents import batching
from cachemind.agents.batching import Batching, BatchingDeps
from cachemind.agents.commanding import Commanding, CommandingDeps
from cachemind.agents.known_answers import (
    Known,
    KnownAnswers,
    answer_headers,
    key_of,
)
from cachemind.agents.outbox import MOST_REPLY_BYTES, OutboxTopics
from cachemind.agents.own_thread import OwnThread
from cachemind.codec.codec import Codec
from cachemind.codec.commands import decode_reply, encode_command
from cachemind.core.access import ACCESS_NAMESPACE, Role
from cachemind.core.cache_commands import (
    Answered,
    CacheCommand,
    Complete,
    FindReceipt,
    Invalidate,
    Logged,
    Lookup,
)
from cachemind.core.commands import Command, Problem, ProblemCode, Reply, Rollback
from cachemind.core.grant_topics import Grant, RequestTopic
from cachemind.core.identifiers import format_traceparent
from cachemind.errors import LogUnavailable
from cachemind.events import Outcome, SelectorKind
from cachemind.ports import Headers, LogRecord, LogWriter
from cachemind.ports.commands import (
    Asked,
    CommandPast,
    DeadLetter,
    Outgoing,
    Undeliverable,
)
from cachemind.types import (
    EventId,
    Lsn,
    Namespace,
    Offset,
    Partition,
    TraceId,
    Version,
    WriterId,
)

SPACE = Namespace("shop")
PARTITION = Partition(0)
TRACE = TraceId(bytes(range(1, 17)))
TOPIC = RequestTopic(name="requests")
HEADERS: Headers = (("reply-to", b"replies"), ("correlation-id", b"7"))
STEPS = ("request.taken", "batch.decided", "batch.committed")


@dataclass
class Cluster:
    """What of Kafka outlives a process: committed records, the group's offset."""

    wal: list[bytes] = field(default_factory=list)
    topics: dict[str, list[Outgoing]] = field(default_factory=dict)
    offset: int = 0
    owner: int = 0
    refuses: str = ""
    away: int = 0
    most: int = 1_000_000
    transactions: int = 0

    def on(self, topic: str) -> list[Outgoing]:
        return self.topics.setdefault(topic, [])

    @property
    def replies(self) -> list[Reply]:
        return [decode_reply(one.value) for one in self.on("replies")]


class Session:
    """One process's `BatchSession`; what is appended shows once it is committed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.epoch = -1
        self.appended: list[bytes] = []
        self.is_open = False

    @property
    def wal(self) -> LogWriter:
        return OpenLog(self)

    def take_over(self) -> Offset:
        self.cluster.owner += 1
        self.epoch, self.is_open = self.cluster.owner, False
        return Offset(self.cluster.offset)

    def refuses(self, reply_to: str) -> str | None:
        return f"there is no topic {reply_to}" if reply_to == "nowhere" else None

    def begin(self) -> None:
        self._require_owned()
        self.appended, self.is_open = [], True

    def serve(self, until: threading.Event) -> None:
        until.wait()

    def append(self, key: bytes, value: bytes, headers: Headers) -> Lsn:
        if not self.is_open:
            raise LogUnavailable("no transaction is open")
        self.appended.append(value)
        return Lsn(PARTITION, Offset(len(self.cluster.wal) + len(self.appended) - 1))

    def commit(self, records: Sequence[Outgoing], after: Offset) -> None:
        self._require_owned()
        self.is_open = False
        if self.cluster.away:
            self.cluster.away -= 1
            raise LogUnavailable("the broker is away")
        if len(self.appended) > self.cluster.most:
            raise LogUnavailable("append: the queue to Kafka is full")
        for number, record in enumerate(records):
            if record.topic == self.cluster.refuses:
                raise Undeliverable(number, f"append to {record.topic}: not allowed")
        self.cluster.wal += self.appended
        for record in records:
            self.cluster.on(record.topic).append(record)
        self.cluster.offset = after
        self.cluster.transactions += 1

    def give_up(self) -> None:
        self.is_open, self.epoch = False, -1

    def answers(self) -> Iterator[LogRecord]:
        for at, one in enumerate(self.cluster.on("answers")):
            yield LogRecord(
                lsn=Lsn(PARTITION, Offset(at)),
                key=one.key,
                value=one.value,
                headers=one.headers,
                timestamp_ms=0,
            )

    def answer(
        self, topic: str, key: bytes, value: bytes, headers: Headers, after: Offset
    ) -> None:
        raise AssertionError("no rollback is asked for")

    def bury(self, letter: DeadLetter, after: Offset) -> None:
        raise AssertionError("no rollback is asked for")

    def close(self) -> None:
        """Nothing is held."""

    def _require_owned(self) -> None:
        if self.epoch != self.cluster.owner:
            raise LogUnavailable("another one has begun a transaction since")


@dataclass
class OpenLog:
    """A `LogWriter` inside of a session's transaction."""

    session: Session

    def append(self, key: bytes, value: bytes, headers: Headers) -> Future[Lsn]:
        future: Future[Lsn] = Future()
        try:
            future.set_result(self.session.append(key, value, headers))
        except LogUnavailable as error:
            future.set_exception(error)
        return future

    def close(self, timeout_s: float) -> int:
        return 0


@dataclass
class Desk:
    """Answers every command with its own events, as many as were decided before."""

    wal: LogWriter | None = None
    opened: int = 0
    decided: list[Asked] = field(default_factory=list)
    foreseen: list[Asked] = field(default_factory=list)
    forgotten: list[Asked] = field(default_factory=list)
    gates: dict[bytes, asyncio.Event] = field(default_factory=dict)
    message: bytes = b"{}"
    code: ProblemCode | None = None

    async def open(self, wal: LogWriter) -> None:
        self.wal = wal
        self.opened += 1

    async def foresee(self, asked: Asked) -> None:
        self.foreseen.append(asked)
        gate = self.gates.get(asked.command.request_id)
        if gate is not None:
            await gate.wait()

    async def decide(self, asked: Sequence[Asked]) -> Sequence[Reply]:
        assert self.wal is not None
        replies = []
        for one in asked:
            self.decided.append(one)
            sent = self.wal.append(b"", one.command.request_id, ())
            lsn = await asyncio.wrap_future(sent)
            replies.append(self._reply(one, lsn))
        return replies

    def _reply(self, asked: Asked, lsn: Lsn) -> Reply:
        body: Answered | Logged | Problem = Logged()
        if self.code is not None:
            body = Problem(code=self.code, field="", message="")
        elif isinstance(asked.command.body, Lookup | Complete):
            body = Answered(
                outcome=Outcome.MISS,
                reason="",
                key=None,
                similarity=None,
                status=200,
                stored=False,
                message=self.message,
            )
        return Reply(
            request_id=asked.command.request_id,
            namespace=asked.command.namespace,
            trace_id=asked.trace,
            lsn=lsn,
            body=body,
            version=len(self.decided),
        )

    def forget(self, asked: Asked) -> None:
        self.forgotten.append(asked)

    async def close(self) -> None:
        """Nothing is held."""


class Died(BaseException):
    """The process was killed."""


@dataclass
class Process:
    """A process that answers."""

    session: Session
    desk: Desk
    inbox: asyncio.Queue[LogRecord]
    task: asyncio.Task[None]

    async def died(self) -> None:
        with pytest.raises(Died):
            await self.task


def no_past(namespace: Namespace) -> CommandPast:
    raise AssertionError(f"no rollback of {namespace} is asked for")


@asynccontextmanager
async def process(
    cluster: Cluster,
    failpoint: Callable[[str], None] = lambda _: None,
    topic: RequestTopic = TOPIC,
) -> AsyncIterator[Process]:
    session, desk, thread = Session(cluster), Desk(), OwnThread("test")
    commanding = Commanding(
        CommandingDeps(
            session=session,
            topic=topic,
            past=no_past,
            codec=Codec(),
            clock=SystemClock(),
            random=secrets.token_bytes,
            writer=WriterId("requests-1"),
            failpoint=failpoint,
            stopping=lambda: False,
        )
    )
    running = Batching(
        BatchingDeps(
            session=session,
            thread=thread,
            commanding=commanding,
            desk=desk,
            topics=OutboxTopics(
                requests=topic, answers="answers", kept_at=PARTITION, dlq="dlq"
            ),
            clock=SystemClock(),
            random=secrets.token_bytes,
            failpoint=failpoint,
        )
    )
    inbox: asyncio.Queue[LogRecord] = asyncio.Queue()
    task = asyncio.create_task(running.run(inbox))
    yield Process(session, desk, inbox, task)
    task.cancel()
    await asyncio.wait([task])
    await running.close()
    thread.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "RETRY_S", 0.01)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def identity(number: int) -> EventId:
    return EventId(number.to_bytes(16, "big"))


def record(
    at: int,
    body: CacheCommand | Rollback | None = None,
    *,
    number: int | None = None,
    headers: Headers = (),
    raw: bytes | None = None,
    namespace: Namespace = SPACE,
) -> LogRecord:
    command = Command(
        request_id=identity(at + 1 if number is None else number),
        namespace=namespace,
        body=Lookup(request=b"{}") if body is None else body,
    )
    return LogRecord(
        lsn=Lsn(PARTITION, Offset(at)),
        key=namespace.encode(),
        value=encode_command(command) if raw is None else raw,
        headers=tuple({**dict(HEADERS), **dict(headers)}.items()),
        timestamp_ms=0,
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.002)


async def test_what_waits_is_one_transaction_in_order(cluster: Cluster) -> None:
    async with process(cluster) as first:
        for at in range(20):
            first.inbox.put_nowait(record(at))
        await until(lambda: cluster.offset == 20)
    assert cluster.wal == [identity(number) for number in range(1, 21)]
    assert [reply.request_id for reply in cluster.replies] == cluster.wal
    assert cluster.transactions <= 2
    assert len(cluster.on("answers")) == 20
    assert {one.partition for one in cluster.on("answers")} == {PARTITION}
    assert len(first.desk.forgotten) == 20


@pytest.mark.parametrize("step", STEPS)
async def test_a_process_that_dies_at_a_step_leaves_each_command_done_once(
    cluster: Cluster, step: str
) -> None:
    def dies(name: str) -> None:
        if name == step:
            raise Died

    records = [record(at) for at in range(5)]
    async with process(cluster, dies) as first:
        for one in records:
            first.inbox.put_nowait(one)
        await first.died()
    async with process(cluster) as second:
        for one in records:
            second.inbox.put_nowait(one)
        await until(lambda: cluster.offset == 5)
    assert cluster.wal == [identity(number) for number in range(1, 6)]
    assert [reply.request_id for reply in cluster.replies] == cluster.wal


@pytest.mark.parametrize("step", STEPS)
async def test_a_process_that_was_shut_out_commits_nothing_more(
    cluster: Cluster, step: str
) -> None:
    other = Session(cluster)
    shut_out: list[str] = []

    def is_shut_out(name: str) -> None:
        if name == step and not shut_out:
            shut_out.append(name)
            # The other one answers the first command and goes.
            other.take_over()
            if cluster.offset == 0:
                other.begin()
                other.append(b"", identity(1), ())
                other.commit([], Offset(1))

    async with process(cluster, is_shut_out) as first:
        for at in range(3):
            first.inbox.put_nowait(record(at))
        await until(lambda: cluster.offset == 3)
    assert cluster.wal == [identity(number) for number in range(1, 4)]


async def test_the_same_id_again_is_answered_so_again_and_done_once(
    cluster: Cluster,
) -> None:
    async with process(cluster) as first:
        first.inbox.put_nowait(record(0, number=9))
        first.inbox.put_nowait(record(1, number=9))
        await until(lambda: cluster.offset == 2)
    async with process(cluster) as second:  # which has read it back
        second.inbox.put_nowait(record(2, number=9))
        await until(lambda: cluster.offset == 3)
    assert second.desk.decided == []
    assert cluster.wal == [identity(9)]
    assert len({one.value for one in cluster.on("replies")}) == 1
    assert len(cluster.replies) == 3
    traces = {dict(one.headers)["traceparent"][3:35] for one in cluster.on("replies")}
    assert len(traces) == 1


async def test_what_a_rebalance_has_delivered_again_is_answered_once(
    cluster: Cluster,
) -> None:
    async with process(cluster) as first:
        for at in (0, 1, 2, 0, 1, 2, 3, 1, 2, 3, 4):
            first.inbox.put_nowait(record(at))
        await until(lambda: cluster.offset == 5)
    assert [reply.request_id for reply in cluster.replies] == [
        identity(number) for number in range(1, 6)
    ]


async def test_an_id_that_is_used_for_another_command_is_refused(
    cluster: Cluster,
) -> None:
    body = Invalidate(kind=SelectorKind.ALL)
    async with process(cluster) as first:
        first.inbox.put_nowait(record(0, number=9))
        await until(lambda: cluster.offset == 1)
        first.inbox.put_nowait(record(1, body, number=9))
        await until(lambda: cluster.offset == 2)
        first.inbox.put_nowait(record(2, number=9))
        await until(lambda: cluster.offset == 3)
    assert cluster.wal == [identity(9)]
    _, refused, again = cluster.replies
    assert isinstance(refused.body, Problem)
    assert refused.body.code is ProblemCode.INVALID_REQUEST
    assert refused.body.field == "request_id"
    assert again == cluster.replies[0]


async def test_an_id_of_another_namespace_tells_nothing(cluster: Cluster) -> None:
    async with process(cluster) as first:
        first.inbox.put_nowait(record(0, number=9))
        first.inbox.put_nowait(record(1, number=9, namespace=Namespace("other")))
        await until(lambda: cluster.offset == 2)
    assert [reply.namespace for reply in cluster.replies] == [SPACE, "other"]
    assert len(first.desk.decided) == 2


async def test_what_may_be_tried_again_is_not_remembered(cluster: Cluster) -> None:
    async with process(cluster) as first:
        first.desk.code = ProblemCode.UNAVAILABLE
        first.inbox.put_nowait(record(0, number=9))
        await until(lambda: cluster.offset == 1)
        first.desk.code = None
        first.inbox.put_nowait(record(1, number=9))
        await until(lambda: cluster.offset == 2)
    before, after = cluster.replies
    assert isinstance(before.body, Problem)
    assert isinstance(after.body, Answered)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(record(1, raw=b"noise"), b"undecodable", id="noise"),
        pytest.param(
            record(1, raw=b"\xc3\x01" + bytes(9)), b"unknown_schema", id="schema"
        ),
        pytest.param(
            record(1, headers=(("reply-to", b"nowhere"),)), b"no_reply", id="nowhere"
        ),
        pytest.param(
            record(1, headers=(("reply-to", b""),)), b"invalid_request", id="no-reply"
        ),
        pytest.param(
            record(1, headers=(("deadline", b"1"),)), b"expired", id="expired"
        ),
        pytest.param(
            record(1, headers=(("deadline", b"soon"),)),
            b"invalid_request",
            id="deadline",
        ),
        pytest.param(
            replace(record(1), key=b"other"), b"invalid_request", id="other-key"
        ),
        pytest.param(
            record(1, namespace=ACCESS_NAMESPACE), b"invalid_request", id="reserved"
        ),
    ],
)
async def test_what_cannot_be_answered_is_buried_and_the_rest_is_answered(
    cluster: Cluster, bad: LogRecord, reason: bytes
) -> None:
    async with process(cluster) as first:
        for one in (record(0), bad, record(2)):
            first.inbox.put_nowait(one)
        await until(lambda: cluster.offset == 3)
    assert cluster.wal == [identity(1), identity(3)]
    assert len(cluster.replies) == 2
    (letter,) = cluster.on("dlq")
    assert (letter.key, letter.value) == (b"requests", bad.value)
    assert dict(letter.headers)["cachemind-dlq-reason"] == reason


async def test_an_answer_that_may_not_be_written_is_buried_and_nothing_is_done(
    cluster: Cluster,
) -> None:
    cluster.refuses = "theirs"
    async with process(cluster) as first:
        first.inbox.put_nowait(record(0))
        first.inbox.put_nowait(record(1, headers=(("reply-to", b"theirs"),)))
        first.inbox.put_nowait(record(2))
        await until(lambda: cluster.offset == 3)
    assert cluster.wal == [identity(1), identity(3)]
    (letter,) = cluster.on("dlq")
    assert dict(letter.headers)["cachemind-dlq-reason"] == b"no_reply"
    assert len(cluster.replies) == 2


async def test_a_broker_that_is_away_is_waited_for(cluster: Cluster) -> None:
    cluster.away = 2
    async with process(cluster) as first:
        first.inbox.put_nowait(record(0))
        await until(lambda: cluster.offset == 1)
    assert cluster.wal == [identity(1)]
    assert first.desk.opened == 3


@pytest.mark.parametrize(
    "body", [Complete(request=b"{}"), FindReceipt(trace_id=TraceId(bytes([1] * 16)))]
)
async def test_what_takes_long_is_waited_for_before_a_transaction_begins(
    cluster: Cluster, body: CacheCommand
) -> None:
    async with process(cluster) as first:
        gate = first.desk.gates[identity(2)] = asyncio.Event()
        first.inbox.put_nowait(record(0))
        first.inbox.put_nowait(record(1, body))
        first.inbox.put_nowait(record(2, body))
        await until(lambda: cluster.offset == 1)
        # Those that come while it waits are asked for as well.
        first.inbox.put_nowait(record(3, body))
        await until(lambda: len(first.desk.foreseen) == 3)
        assert not first.session.is_open
        gate.set()
        await until(lambda: cluster.offset == 4)
    assert cluster.wal == [identity(number) for number in range(1, 5)]


async def test_what_is_too_much_for_a_transaction_is_done_in_several(
    cluster: Cluster,
) -> None:
    cluster.most = 3
    async with process(cluster) as first:
        for at in range(20):
            first.inbox.put_nowait(record(at))
        await until(lambda: cluster.offset == 20)
    assert cluster.wal == [identity(number) for number in range(1, 21)]


async def test_upstream_is_asked_for_so_many_at_a_time_the_first_ones_first(
    cluster: Cluster,
) -> None:
    count = batching.MOST_FORESEEN + 5
    async with process(cluster) as first:
        gates = first.desk.gates
        for at in range(count):
            gates[identity(at + 1)] = asyncio.Event()
            first.inbox.put_nowait(record(at, Complete(request=b"{}")))
        await until(lambda: len(first.desk.foreseen) >= batching.MOST_FORESEEN)
        asked = [one.command.request_id for one in first.desk.foreseen]
        assert asked == [identity(n + 1) for n in range(batching.MOST_FORESEEN)]
        for gate in gates.values():
            gate.set()
        await until(lambda: cluster.offset == count)
    assert len(first.desk.foreseen) == count
    assert cluster.wal == [identity(number) for number in range(1, count + 1)]


async def test_commands_are_read_ahead_by_their_size(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MOST_WAITING_BYTES", 1_000)
    async with process(cluster) as first:
        gate = first.desk.gates[identity(1)] = asyncio.Event()
        for at in range(20):
            body = Complete(request=b"{" + b" " * 400 + b"}")
            first.inbox.put_nowait(record(at, body))
        await until(lambda: len(first.desk.foreseen) >= 2)
        await asyncio.sleep(0.05)
        assert len(first.desk.foreseen) <= 4
        gate.set()
        await until(lambda: cluster.offset == 20)
    assert cluster.wal == [identity(number) for number in range(1, 21)]


async def test_a_deadline_that_passes_while_upstream_is_asked_is_a_dead_letter(
    cluster: Cluster,
) -> None:
    now_ms = SystemClock().now_ns() // 1_000_000
    late = (("deadline", str(now_ms + 200).encode()),)
    async with process(cluster) as first:
        first.desk.gates[identity(1)] = asyncio.Event()
        first.inbox.put_nowait(record(0, Complete(request=b"{}"), headers=late))
        first.inbox.put_nowait(record(1))
        await until(lambda: cluster.offset == 2)
    assert cluster.wal == [identity(2)]
    (letter,) = cluster.on("dlq")
    assert dict(letter.headers)["cachemind-dlq-reason"] == b"expired"


async def test_an_answer_that_no_topic_takes_is_told_to_be_too_large(
    cluster: Cluster,
) -> None:
    async with process(cluster) as first:
        first.desk.message = bytes(MOST_REPLY_BYTES)
        first.inbox.put_nowait(record(0))
        await until(lambda: cluster.offset == 1)
    (reply,) = cluster.replies
    assert isinstance(reply.body, Problem)
    assert reply.body.code is ProblemCode.TOO_LARGE
    assert reply.lsn is not None


def test_the_oldest_answers_go_first() -> None:
    known = KnownAnswers(limit_bytes=3_000)
    for number in range(5):
        known.put(bytes([number]), Known(b"c", bytes(600), TRACE))
    kept = [n for n in range(5) if known.get(bytes([n])) is not None]
    assert kept == [2, 3, 4]
    command = Command(request_id=identity(1), namespace=SPACE, body=Lookup(request=b""))
    assert key_of(command) != key_of(replace(command, namespace=Namespace("b")))


# ---- topics of grants ---------------------------------------------------------------


def granted(role: Role, namespace: Namespace = SPACE) -> RequestTopic:
    return RequestTopic(
        name=f"requests.{namespace}.{role}",
        grant=Grant(namespace=namespace, role=role),
    )


async def test_a_record_of_another_namespace_than_its_topic_is_buried(
    cluster: Cluster,
) -> None:
    other = Namespace("shop.b")
    wrong_key = replace(record(1), key=other.encode())
    async with process(cluster, topic=granted(Role.CACHE_ADMIN)) as first:
        for one in (record(0, namespace=other), wrong_key, record(2)):
            first.inbox.put_nowait(one)
        rollback = Rollback(to_version=Version(0))
        first.inbox.put_nowait(record(3, rollback, namespace=other))
        await until(lambda: cluster.offset == 4)
        assert [one.command.namespace for one in first.desk.decided] == [SPACE]
    assert [reply.request_id for reply in cluster.replies] == [identity(3)]
    letters = [dict(one.headers) for one in cluster.on("dlq")]
    assert {one["cachemind-dlq-reason"] for one in letters} == {b"misplaced"}
    assert [one["cachemind-dlq-lsn"] for one in letters] == [b"0@0", b"0@1", b"0@3"]
    assert all(
        b"is for the namespace shop" in one["cachemind-dlq-detail"] for one in letters
    )
    assert {one.key for one in cluster.on("dlq")} == {b"requests.shop.cache-admin"}


async def test_the_desk_is_told_who_asks_and_a_denied_rollback_is_its_to_answer(
    cluster: Cluster,
) -> None:
    topic = granted(Role.CACHE_READER)
    async with process(cluster, topic=topic) as first:
        first.inbox.put_nowait(record(0, Rollback(to_version=Version(0))))
        await until(lambda: cluster.offset == 1)
        (asked,) = first.desk.decided
    assert asked.caller == topic.caller
    assert asked.refusal is not None
    assert asked.refusal.right == "rollback"


async def test_an_id_that_another_topic_has_answered_is_not_known(
    cluster: Cluster,
) -> None:
    topics = [TOPIC, granted(Role.CACHE_ADMIN), granted(Role.CACHE_READER)]
    for at, topic in enumerate(topics):
        async with process(cluster, topic=topic) as first:
            first.inbox.put_nowait(record(at, number=9))
            await until(lambda at=at: cluster.offset == at + 1)  # type: ignore[misc]
            assert len(first.desk.decided) == 1
    assert len({one.key for one in cluster.on("answers")}) == len(topics)
    for at, topic in enumerate(topics, len(topics)):
        async with process(cluster, topic=topic) as again:
            again.inbox.put_nowait(record(at, number=9))
            await until(lambda at=at: cluster.offset == at + 1)  # type: ignore[misc]
            assert again.desk.decided == []
    assert len(cluster.replies) == 2 * len(topics)


@given(
    ids=st.binary(min_size=16, max_size=16).filter(any),
    topics=st.sampled_from(["", "requests.shop.cache-reader", "requests.shop.auditor"]),
    others=st.sampled_from(["", "requests.shop.cache-reader", "requests.a.b.auditor"]),
)
def test_an_answer_is_read_back_by_its_own_topic_alone(
    ids: bytes, topics: str, others: str
) -> None:
    command = Command(
        request_id=EventId(ids), namespace=SPACE, body=Lookup(request=b"")
    )
    found = Known(b"c", b"r", TRACE)
    kept = LogRecord(
        lsn=Lsn(PARTITION, Offset(0)),
        key=key_of(command, topics),
        value=found.reply,
        headers=answer_headers(found, format_traceparent(TRACE, b"12345678").encode()),
        timestamp_ms=0,
    )
    known = KnownAnswers()
    known.read_back([kept], others)
    assert (known.get(key_of(command, topics)) == found) == (topics == others)
