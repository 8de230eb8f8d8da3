"""Commands decided with the gateway's pieces, over a log and a fold in memory."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_embedder import MemoryEmbedder
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_receipts import MemoryReceiptIndex
from cachemind.codec.codec import Codec
from cachemind.core.access import (
    ACCESS_NAMESPACE,
    OPERATIONS,
    RIGHTS,
    Caller,
    Role,
)
from cachemind.core.cache_commands import (
    Answered,
    CacheCommand,
    Complete,
    FindReceipt,
    Foreseeable,
    Invalidate,
    Logged,
    Lookup,
    Put,
    PutDone,
    ReceiptFound,
)
from cachemind.core.commands import Command, Problem, ProblemCode, Reply, Rollback
from cachemind.core.grant_topics import Grant, RequestTopic
from cachemind.core.partitioner import partition_of
from cachemind.errors import LogUnavailable, UpstreamUnavailable
from cachemind.events import (
    Envelope,
    Feedback,
    Invalidated,
    Outcome,
    Reads,
    RolledBack,
    SelectorKind,
    Stored,
    Verdict,
)
from cachemind.ports import LogWriter, UpstreamRequest, UpstreamResponse
from cachemind.ports.commands import Asked
from cachemind.types import (
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Partition,
    TraceId,
    Version,
)
from cachemind_services.gateway.command_desk import CommandDesk, DeskPorts
from cachemind_services.gateway.deps import Access, GatewayDeps, OnWalFailure
from cachemind_services.gateway.held_upstream import HeldUpstream, Said
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.refusals import RATE
from tests.gateways import NAMESPACE, PARTITIONS, SETTINGS, Fold
from tests.receipt_log import ReceiptLog, trace
from tests.upstreams import completion

OTHER = Namespace("other")
KEYED = Namespace("keyed")
HOME = Partition(partition_of(NAMESPACE.encode(), PARTITIONS))


def chat(text: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


@dataclass
class Model:
    """An `Upstream` that answers at once, unless it is held up."""

    asked: list[UpstreamRequest] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 200
    away: bool = False

    @asynccontextmanager
    async def send(self, request: UpstreamRequest) -> AsyncIterator[UpstreamResponse]:
        self.asked.append(request)
        await self.open.wait()
        if self.away:
            raise UpstreamUnavailable("nobody is there", status=502)
        assert isinstance(request.body, bytes)
        text = f"answer {len(self.asked)}"
        body = json.dumps(completion(json.loads(request.body), text)).encode()
        yield Said(self.status, [(b"content-type", b"application/json")], body)

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class World:
    """A desk, what it stands on, and what was asked of it."""

    log: MemoryLog
    fold: Fold
    model: Model
    desk: CommandDesk
    index: MemoryReceiptIndex
    sent: int = 0

    def ask(
        self,
        body: CacheCommand | Rollback,
        namespace: Namespace = NAMESPACE,
        number: int = 0,
        caller: Caller | None = None,
    ) -> Asked:
        self.sent += 1
        request_id = EventId((number or self.sent).to_bytes(16, "big"))
        command = Command(request_id=request_id, namespace=namespace, body=body)
        return Asked(command=command, trace=TraceId(os.urandom(16)), caller=caller)

    async def all(self, *asked: Asked) -> Sequence[Reply]:
        await asyncio.gather(
            *(
                self.desk.foresee(a)
                for a in asked
                if isinstance(body_of(a), Foreseeable)
            )
        )
        replies = await self.desk.decide(asked)
        for each in asked:
            self.desk.forget(each)
        return replies

    async def one(self, body: CacheCommand, namespace: Namespace = NAMESPACE) -> Reply:
        (reply,) = await self.all(self.ask(body, namespace))
        return reply

    @property
    def envelopes(self) -> list[Envelope]:
        codec, reader = Codec(), self.log.reader()
        return [
            codec.decode(record.value or b"")
            for partition in map(Partition, range(PARTITIONS))
            for batch in reader.read(partition, *reader.bounds(partition))
            for record in batch
        ]

    def of(self, kind: type) -> list[Any]:
        return [one.body for one in self.envelopes if isinstance(one.body, kind)]


def body_of(asked: Asked) -> Any:
    return asked.command.body


def answered(reply: Reply) -> Answered:
    assert isinstance(reply.body, Answered), reply.body
    return reply.body


def problem(reply: Reply) -> Problem:
    assert isinstance(reply.body, Problem), reply.body
    return reply.body


@pytest.fixture
def memory() -> Iterator[tuple[MemoryLog, Fold]]:
    log = MemoryLog(PARTITIONS, SystemClock())
    fold = Fold(log, Codec())
    yield log, fold
    fold.close()


@pytest.fixture
async def world(memory: tuple[MemoryLog, Fold]) -> AsyncIterator[World]:
    log, fold = memory
    model, index = Model(), MemoryReceiptIndex(PARTITIONS)
    model.open.set()

    def opened(wal: LogWriter) -> GatewayDeps:
        reader = log.reader()
        return GatewayDeps(
            settings=replace(SETTINGS, on_wal_failure=OnWalFailure.REFUSE),
            views=[store.view() for store in fold.stores],
            wal=wal,
            codec=Codec(),
            embedder=MemoryEmbedder(),
            upstream=HeldUpstream(),
            clock=SystemClock(),
            random=os.urandom,
            log_ends=lambda: {
                Partition(p): reader.bounds(Partition(p))[1] for p in range(PARTITIONS)
            },
            metrics=GatewayMetrics(),
            receipts=index.view(),
            access=Access(upstream={KEYED: ((b"authorization", b"Bearer held"),)}),
        )

    def of(deps: GatewayDeps, namespace: Namespace) -> GatewayDeps:
        return replace(deps, settings=replace(deps.settings, namespace=namespace))

    desk = CommandDesk(DeskPorts(open=opened, of=of, upstream=model))
    await desk.open(log.writer())
    yield World(log, fold, model, desk, index)
    await desk.close()


async def test_a_completion_is_fetched_once_stored_and_then_a_hit(world: World) -> None:
    first = await world.one(Complete(request=chat("hello")))
    assert answered(first).outcome is Outcome.MISS
    assert (answered(first).status, answered(first).stored) == (200, True)
    assert json.loads(answered(first).message)["choices"]
    (stored,) = world.of(Stored)
    assert first.lsn is not None
    again = await world.one(Complete(request=chat("hello")))
    assert answered(again).outcome is Outcome.HIT_EXACT
    assert answered(again).key == stored.exact_key
    assert answered(again).similarity == 1
    assert answered(again).message == stored.response
    assert len(world.model.asked) == 1
    assert world.model.asked[0].target == "/v1/chat/completions"


async def test_a_lookup_never_asks_upstream(world: World) -> None:
    miss = await world.one(Lookup(request=chat("hello")))
    assert answered(miss) == Answered(
        outcome=Outcome.MISS,
        reason="",
        key=None,
        similarity=None,
        status=0,
        stored=False,
        message=b"",
    )
    assert miss.lsn is not None
    assert world.model.asked == []
    (reads,) = world.of(Reads)
    assert reads.items[0].trace_id == miss.trace_id


async def test_what_came_before_is_seen_by_what_comes_after(world: World) -> None:
    put = Put(
        request=chat("q"),
        response=json.dumps(completion(json.loads(chat("q")), "by hand")).encode(),
        tags=("t",),
        ttl_s=60,
    )
    asked = [
        world.ask(Lookup(request=chat("q"))),
        world.ask(put),
        world.ask(Lookup(request=chat("q"))),
        world.ask(Invalidate(kind=SelectorKind.TAG, value="t")),
        world.ask(Lookup(request=chat("q"))),
        world.ask(Complete(request=chat("q"))),
        world.ask(Lookup(request=chat("q"))),
    ]
    replies = await world.all(*asked)
    outcomes = [answered(replies[number]).outcome.value for number in (0, 2, 4, 5, 6)]
    assert outcomes == ["miss", "hit_exact", "miss", "miss", "hit_exact"]
    assert [reply.request_id for reply in replies] == [
        one.command.request_id for one in asked
    ]
    done = replies[1].body
    assert isinstance(done, PutDone)
    assert done.ttl_ms == 60_000
    assert replies[3].body == Logged()
    offsets = [reply.lsn.offset for reply in replies if reply.lsn is not None]
    assert offsets == sorted(offsets)
    assert len(offsets) == len(asked)


async def test_a_hit_is_judged(world: World) -> None:
    await world.one(Complete(request=chat("hello")))
    hit = await world.one(Lookup(request=chat("hello")))
    key = answered(hit).key
    assert key is not None
    said = Feedback(
        matched_key=key, served_trace_id=hit.trace_id, verdict=Verdict.WRONG
    )
    reply = await world.one(said)
    assert reply.body == Logged()
    assert world.of(Feedback) == [said]


async def test_many_lookups_at_once_are_one_record(world: World) -> None:
    await world.one(Complete(request=chat("hello")))
    before = len(world.envelopes)
    asked = [world.ask(Lookup(request=chat("hello"))) for _ in range(50)]
    replies = await world.all(*asked)
    assert {answered(reply).outcome for reply in replies} == {Outcome.HIT_EXACT}
    assert len(world.envelopes) == before + 1
    traces = {read.trace_id for read in world.of(Reads)[-1].items}
    assert traces == {one.trace for one in asked}


async def test_identical_completions_ask_upstream_once(world: World) -> None:
    world.model.open.clear()
    asked = [world.ask(Complete(request=chat("same"))) for _ in range(5)]
    foreseen = [asyncio.ensure_future(world.desk.foresee(one)) for one in asked]
    while not world.model.asked:
        await asyncio.sleep(0)
    world.model.open.set()
    await foreseen[0]
    assert [one.done() for one in foreseen[1:]] == [False] * 4
    (first,) = await world.desk.decide(asked[:1])
    assert answered(first).stored
    world.desk.forget(asked[0])
    await asyncio.gather(*foreseen[1:])
    rest = await world.desk.decide(asked[1:])
    assert {answered(reply).outcome for reply in rest} == {Outcome.HIT_EXACT}
    assert len(world.model.asked) == 1


async def test_what_may_not_be_shared_is_asked_for_each(world: World) -> None:
    body = Complete(request=chat("same"), cache_control="no-store")
    replies = await world.all(*(world.ask(body) for _ in range(3)))
    assert len(world.model.asked) == 3
    assert len({answered(reply).message for reply in replies}) == 3
    assert not any(answered(reply).stored for reply in replies)


async def test_upstream_is_asked_once_for_a_command_however_often_it_is_decided(
    world: World,
) -> None:
    asked = world.ask(Complete(request=chat("hello")))
    await world.desk.foresee(asked)
    (first,) = await world.desk.decide([asked])
    # Its transaction failed: begun anew, on what the log holds now.
    await world.desk.open(world.log.writer())
    await world.desk.foresee(asked)
    (second,) = await world.desk.decide([asked])
    assert len(world.model.asked) == 1
    said = [json.loads(answered(one).message)["choices"] for one in (first, second)]
    assert said[0] == said[1]


async def test_an_entry_that_went_after_it_was_foreseen_is_foreseen_again(
    world: World,
) -> None:
    await world.one(Complete(request=chat("hello")))
    asked = world.ask(Complete(request=chat("hello")))
    await world.desk.foresee(asked)
    assert len(world.model.asked) == 1
    await world.one(Invalidate(kind=SelectorKind.ALL))
    with pytest.raises(LogUnavailable):
        await world.desk.decide([asked])
    await world.desk.open(world.log.writer())
    await world.desk.foresee(asked)
    (reply,) = await world.desk.decide([asked])
    assert answered(reply).outcome is Outcome.MISS
    assert len(world.model.asked) == 2


async def test_the_same_id_in_two_namespaces_is_two_commands(world: World) -> None:
    mine = world.ask(Complete(request=chat("hello")), number=7)
    theirs = world.ask(Complete(request=chat("hello")), OTHER, number=7)
    replies = await world.all(mine, theirs)
    assert len(world.model.asked) == 2
    messages = {answered(reply).message for reply in replies}
    assert len(messages) == 2
    look = await world.one(Lookup(request=chat("hello")), Namespace("third"))
    assert answered(look).outcome is Outcome.MISS


async def test_upstream_is_told_what_is_held_for_the_namespace_alone(
    world: World,
) -> None:
    await world.one(Complete(request=chat("a")))
    await world.one(Complete(request=chat("a")), KEYED)
    fields = [dict(request.headers) for request in world.model.asked]
    assert [one.get(b"authorization") for one in fields] == [None, b"Bearer held"]
    answer = json.dumps(completion(json.loads(chat("b")), "by hand")).encode()
    await world.one(Put(request=chat("b"), response=answer), KEYED)
    hit = await world.one(Lookup(request=chat("b")), KEYED)
    assert answered(hit).outcome is Outcome.HIT_EXACT


async def test_upstream_away_is_a_problem_and_its_errors_are_passed_on(
    world: World,
) -> None:
    world.model.away = True
    reply = await world.one(Complete(request=chat("a")))
    assert problem(reply).code is ProblemCode.UPSTREAM_UNAVAILABLE
    world.model.away, world.model.status = False, 429
    reply = await world.one(Complete(request=chat("b")))
    assert (answered(reply).status, answered(reply).stored) == (429, False)
    assert answered(reply).reason == "upstream-status"
    assert world.of(Stored) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (Lookup(request=b"no json"), "request"),
        (Lookup(request=b"[]"), "request"),
        (Complete(request=chat("a", stream=True)), "request.stream"),
        (Lookup(request=chat("a"), cache_control="a\r\nb: c"), "cache_control"),
        (Lookup(request=chat("a"), mode="loud"), "mode"),
        (Lookup(request=chat("a"), threshold=2.0), "threshold"),
        (Lookup(request=chat("a"), threshold=float("nan")), "threshold"),
        (Complete(request=chat("a"), ttl_s=-1), "ttl_s"),
        (Put(request=chat("a"), response=b"{"), "response"),
        (Put(request=b"{", response=b"{}"), "request"),
        (Put(request=chat("a"), response=b"[]"), "response"),
        (Invalidate(kind=SelectorKind.KEY, value="x"), "value"),
        (Invalidate(kind=SelectorKind.ALL, reason="r" * 2000), "reason"),
    ],
)
async def test_what_makes_no_sense_is_a_problem_that_names_the_field(
    world: World, body: CacheCommand, field: str
) -> None:
    reply = await world.one(body)
    assert problem(reply).code is ProblemCode.INVALID_REQUEST
    assert problem(reply).field == field
    assert reply.lsn is None
    assert world.model.asked == []
    assert world.of(Stored) + world.of(Invalidated) == []


async def test_nothing_is_answered_that_the_log_does_not_take(world: World) -> None:
    await world.one(Complete(request=chat("hello")))
    world.log.go_away()
    for body in (
        Lookup(request=chat("hello")),
        Lookup(request=chat("unknown")),
        Invalidate(kind=SelectorKind.ALL),
    ):
        with pytest.raises(LogUnavailable):
            await world.desk.decide([world.ask(body)])


async def test_a_fold_that_lags_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachemind_services.gateway.command_desk.READY_S", 0.2)
    world.fold.pause()
    key = NAMESPACE.encode()
    event = Codec().encode(replace(_unrelated(), namespace=NAMESPACE))
    world.log.writer().append(key, event, ()).result(5)
    asked = world.ask(Lookup(request=chat("hello")))
    with pytest.raises(LogUnavailable):
        await world.desk.decide([asked])
    world.fold.resume()
    while world.fold.stores[HOME].view().catch_up() < Offset(0):
        await asyncio.sleep(0.01)
    (reply,) = await world.desk.decide([asked])
    assert answered(reply).outcome is Outcome.MISS


async def test_a_receipt_is_waited_for_before_it_is_decided_and_in_no_transaction(
    world: World,
) -> None:
    asked = world.ask(FindReceipt(trace_id=trace(1), wait_ms=1000))
    waiting = asyncio.ensure_future(world.desk.foresee(asked))
    audit = ReceiptLog(PARTITIONS)
    audit.sign(HOME, [trace(1)], NAMESPACE)
    audit.cut()
    assert world.index.add_receipts(audit.records[HOME])
    world.index.add_cuts(audit.cuts)
    await waiting
    (reply,) = await world.desk.decide([asked])
    assert isinstance(reply.body, ReceiptFound)
    # What was not foreseen is not waited for.
    late = world.ask(FindReceipt(trace_id=trace(2), wait_ms=1000))
    began = asyncio.get_running_loop().time()
    (reply,) = await world.desk.decide([late])
    assert asyncio.get_running_loop().time() - began < 0.9
    assert problem(reply).code is ProblemCode.NOT_FOUND
    other = world.ask(FindReceipt(trace_id=trace(1)), OTHER)
    (reply,) = await world.desk.decide([other])
    assert problem(reply).code is ProblemCode.NOT_FOUND
    assert world.envelopes == []


async def test_nobody_waits_for_receipts_of_a_tenure_that_ends(world: World) -> None:
    asked = world.ask(FindReceipt(trace_id=trace(1), wait_ms=1000))
    await world.one(Lookup(request=chat("a")))
    waiting = asyncio.ensure_future(world.desk.foresee(asked))
    while not any("find-receipts" in task.get_name() for task in asyncio.all_tasks()):
        await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    await world.desk.open(world.log.writer())
    await waiting
    assert asyncio.get_running_loop().time() - began < 0.9


def _unrelated() -> Envelope:
    from tests.wal_events import envelope, stored

    return envelope(1, stored(1), NAMESPACE)


# ---- who asks -----------------------------------------------------------------------

PUT = Put(
    request=chat("q"),
    response=json.dumps(completion(json.loads(chat("q")), "by hand")).encode(),
)
BODIES: dict[str, CacheCommand | Rollback] = {
    "Lookup": Lookup(request=chat("q")),
    "Complete": Complete(request=chat("q")),
    "Put": PUT,
    "Invalidate": Invalidate(kind=SelectorKind.ALL),
    "Feedback": Feedback(
        matched_key=ExactKey(bytes(32)),
        served_trace_id=TraceId(b"t" * 16),
        verdict=Verdict.RIGHT,
    ),
    "FindReceipt": FindReceipt(trace_id=TraceId(b"t" * 16)),
    "Rollback": Rollback(to_version=Version(0)),
}


def caller_of(role: Role, namespace: Namespace = NAMESPACE) -> Caller:
    return Grant(namespace=namespace, role=role).caller


def refused(world: World) -> list[tuple[Namespace, str, str]]:
    return [
        (one.namespace, read.principal, read.reason)
        for one in world.envelopes
        if isinstance(one.body, Reads)
        for read in one.body.items
        if read.strategy == "access"
    ]


def test_every_command_is_tried() -> None:
    assert set(BODIES) == {each.kafka for each in OPERATIONS.values() if each.kafka}


@pytest.mark.parametrize("command", BODIES)
@pytest.mark.parametrize("role", Role)
async def test_what_a_role_lacks_is_forbidden_and_on_the_log(
    world: World, role: Role, command: str
) -> None:
    right = next(s.right for s in OPERATIONS.values() if s.kafka == command)
    asked = world.ask(BODIES[command], caller=caller_of(role))
    if right in RIGHTS[role]:
        if asked.rolls_back:
            return  # it is the fold's to answer
        (reply,) = await world.all(asked)
        told = getattr(reply.body, "code", None)  # there may be no such receipt
        assert told in (None, ProblemCode.NOT_FOUND), reply.body
        assert refused(world) == []
        return
    (reply,) = await world.all(asked)
    assert problem(reply).code is ProblemCode.FORBIDDEN
    assert problem(reply).field == right
    assert str(right) in problem(reply).message
    principal = f"kafka:{NAMESPACE}.{role}"
    assert refused(world) == [(NAMESPACE, principal, f"forbidden:{right}")]
    changes = (Stored, Invalidated, Feedback, RolledBack)
    assert not any(isinstance(one.body, changes) for one in world.envelopes)
    assert world.model.asked == []


@pytest.mark.parametrize("command", BODIES)
async def test_who_has_nothing_in_a_namespace_is_refused_and_does_not_open_it(
    world: World, command: str
) -> None:
    stranger = RequestTopic(name="requests", trusted=False).caller
    (reply,) = await world.all(world.ask(BODIES[command], OTHER, caller=stranger))
    assert problem(reply).code is ProblemCode.FORBIDDEN
    assert OTHER not in world.desk._spaces
    right = problem(reply).field
    assert problem(reply).message.endswith("ask by the topics of a grant")
    assert refused(world) == [(ACCESS_NAMESPACE, "kafka", f"forbidden:{right}")]


async def test_a_reader_is_served_a_hit_and_leaves_no_entry_of_a_miss(
    world: World,
) -> None:
    reader = caller_of(Role.CACHE_READER)
    for number in (1, 2):
        miss = world.ask(Complete(request=chat("new")), caller=reader)
        (reply,) = await world.all(miss)
        assert answered(reply).status == 200
        assert not answered(reply).stored
        assert len(world.model.asked) == number
    assert world.of(Stored) == []
    await world.all(world.ask(PUT, caller=caller_of(Role.CACHE_WRITER)))
    (reply,) = await world.all(
        world.ask(Complete(request=chat("q")), caller=reader),
    )
    assert answered(reply).outcome is Outcome.HIT_EXACT
    principals = {
        one.principal for one in world.envelopes if isinstance(one.body, Stored)
    }
    assert principals == {f"kafka:{NAMESPACE}.cache-writer"}
    reads = [read for body in world.of(Reads) for read in body.items]
    assert {read.principal for read in reads} == {f"kafka:{NAMESPACE}.cache-reader"}


@pytest.mark.parametrize("role", [Role.CACHE_WRITER, Role.CACHE_ADMIN])
async def test_a_longer_life_than_the_policys_takes_a_right_of_its_own(
    world: World, role: Role
) -> None:
    longer_s = SETTINGS.policy.default_ttl_ms // 1_000 + 1
    put = replace(PUT, ttl_s=longer_s)
    (reply,) = await world.all(world.ask(put, caller=caller_of(role)))
    if role is Role.CACHE_ADMIN:
        assert isinstance(reply.body, PutDone)
        assert reply.body.ttl_ms == longer_s * 1_000
        return
    assert problem(reply).code is ProblemCode.FORBIDDEN
    assert problem(reply).field == "ttl_override"
    principal = f"kafka:{NAMESPACE}.{role}"
    assert refused(world) == [(NAMESPACE, principal, "forbidden:ttl_override")]
    assert world.of(Stored) == []


async def test_refusals_are_on_the_log_at_the_rate_of_http(world: World) -> None:
    reader = caller_of(Role.CACHE_READER)
    many = [world.ask(PUT, caller=reader) for _ in range(250)]
    replies = await world.all(*many)
    assert {problem(reply).code for reply in replies} == {ProblemCode.FORBIDDEN}
    assert RATE.burst <= len(refused(world)) < RATE.burst + 50
