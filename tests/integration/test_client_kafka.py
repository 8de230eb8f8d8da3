"""The client library over Kafka: the same calls, answered by `cachemind requests`."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from cachemind.adapters.receipt_rows import IndexIdentity
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_receipts import RocksReceiptIndex
from cachemind.client import (
    AsyncCacheMind,
    CacheMind,
    CallFailed,
    Conflict,
    Control,
    Kafka,
    NotFound,
    NotValid,
    Patience,
    RollbackGoal,
    RollbackState,
    Selector,
    Unavailable,
)
from cachemind.codec.codec import Codec
from cachemind.codec.evidence import read_evidence
from cachemind.core.partitioner import partition_of
from cachemind.events import Feedback, Invalidated, Outcome, RolledBack
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.gateway.receipts_api import PAGE
from tests.client_bench import Asked, asked, run
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.integration.requests_host import Answering, answering, records
from tests.receipt_log import ReceiptLog, trace
from tests.upstreams import ScriptedUpstream, completion, served
from tests.wal_events import ALPHA

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]
MODEL = "m"
Make = Callable[..., CacheMind | AsyncCacheMind]


def says(question: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}]


def upstream_text(question: str) -> str:
    request = {"model": MODEL, "messages": says(question)}
    found: str = completion(request)["choices"][0]["message"]["content"]
    return found


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[ScriptedUpstream, str]]:
    upstream = ScriptedUpstream()
    with served(upstream) as url:
        yield upstream, url


@pytest.fixture
def upstream(model: tuple[ScriptedUpstream, str]) -> ScriptedUpstream:
    model[0].received.clear()
    return model[0]


@pytest.fixture(scope="module")
def host(
    broker: EmbeddedBroker,
    tmp_path_factory: pytest.TempPathFactory,
    model: tuple[ScriptedUpstream, str],
) -> Iterator[CliHost]:
    servers, prefix = broker.bootstrap_servers, f"t{uuid.uuid4().hex[:12]}"
    folder = tmp_path_factory.mktemp("host")
    settings = {"upstream": model[1], "audit_mode": "true"}
    with cli_host(servers, prefix, folder, **settings) as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


@pytest.fixture(scope="module")
def desk(host: CliHost) -> Iterator[Answering]:
    with answering(host) as found:
        yield found


@pytest.fixture(scope="module")
def answered(desk: Answering) -> Answering:
    desk.start()
    return desk


@pytest.fixture(params=[CacheMind, AsyncCacheMind], ids=["blocking", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


def url_of(host: CliHost) -> str:
    return f"kafka://{host.bootstrap_servers}"


def named(host: CliHost, **more: Any) -> dict[str, Any]:
    return {"namespace": ALPHA, "kafka": Kafka(topic_prefix=host.prefix), **more}


@pytest.fixture
def cache(host: CliHost, make: Make) -> Iterator[Asked]:
    with asked(make, url_of(host), **named(host, timeout_s=60)) as found:
        yield found


def of(host: CliHost, kind: type) -> list[Any]:
    codec = Codec()
    bodies = [codec.decode(record.value).body for record in records(host, "wal")]
    return [body for body in bodies if isinstance(body, kind)]


# Before anybody answers commands: the first tests have no `answered`.


def test_what_nobody_answers_is_given_up_in_time(cache: Asked) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no reply in time"):
        cache.lookup(MODEL, says("nobody?"), timeout_s=1.5)
    assert time.monotonic() - began < 20


def test_a_topic_that_is_not_there_is_named(host: CliHost, make: Make) -> None:
    nowhere = Kafka(topic_prefix=host.prefix, replies="nowhere")
    with (
        asked(make, url_of(host), namespace=ALPHA, kafka=nowhere) as cache,
        pytest.raises(Unavailable, match="nowhere"),
    ):
        cache.lookup(MODEL, says("?"), timeout_s=1.0)


@pytest.mark.parametrize(
    "make",
    [CacheMind, pytest.param(AsyncCacheMind, marks=pytest.mark.slow)],
    ids=["blocking", "async"],
)
def test_what_is_sent_again_is_done_once(
    host: CliHost, make: Make, desk: Answering
) -> None:
    for one in [each for each in desk.running if each.poll() is None]:
        desk.stop(one)
    before, judged = len(records(host, "requests")), len(of(host, Feedback))
    patient = Patience(retries=40, first_s=0.01, most_s=0.02)
    with (
        asked(make, url_of(host), **named(host, patience=patient)) as cache,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(
            cache.feedback, "ab" * 32, "cd" * 16, right=True, timeout_s=90
        )
        while len(records(host, "requests")) < before + 3:
            assert not waiting.done()
        desk.start()
        lsn = waiting.result(120)
    # All that was sent is answered by now: what comes after it is.
    with asked(make, url_of(host), **named(host)) as other:
        last = other.feedback("ab" * 32, "ef" * 16, right=True)
    assert last.offset > lsn.offset
    assert len(of(host, Feedback)) == judged + 2


def test_all_that_can_be_asked(
    host: CliHost, answered: Answering, cache: Asked, upstream: ScriptedUpstream
) -> None:
    me = type(cache.client).__name__
    one, two = says(f"one {me}?"), says(f"two {me}?")
    first = cache.complete(MODEL, one, temperature=0)
    again = cache.complete(MODEL, one, temperature=0)
    assert (first.outcome, again.outcome) == (Outcome.MISS, Outcome.HIT_EXACT)
    assert again.text == first.text == upstream_text(one[0]["content"])
    assert again.version is not None
    assert again.lsn is not None
    head, parts, whole = cache.stream(MODEL, one, temperature=0)
    assert head.outcome is Outcome.HIT_EXACT
    assert len(parts) > 3
    assert "".join(part.text for part in parts) == whole.text == first.text
    assert len(upstream.chats) == 1

    assert cache.lookup(MODEL, two) is None
    put = cache.put(MODEL, two, "by hand", ttl_s=60, tags=[me])
    assert put.ttl_ms == 60_000
    found = cache.lookup(MODEL, two, control=Control(exact=True))
    assert found is not None
    assert (found.text, found.key) == ("by hand", put.key)

    assert found.key is not None
    judged = len(of(host, Feedback))
    cache.feedback(found.key, found.trace_id, right=False)
    assert len(of(host, Feedback)) == judged + 1
    lsn = cache.invalidate(Selector(tag=me), reason="because")
    assert lsn.offset >= 0
    assert of(host, Invalidated)[-1].reason == "because"
    assert cache.lookup(MODEL, two) is None
    assert len(upstream.chats) == 1


def test_a_rollback_is_rehearsed_refused_and_done(
    host: CliHost, answered: Answering, cache: Asked
) -> None:
    me = type(cache.client).__name__
    cache.put(MODEL, says(f"three {me}?"), "3")
    dry = cache.rollback(RollbackGoal(to_version=0), dry_run=True)
    assert dry.status is RollbackState.DRY_RUN
    with pytest.raises(Conflict):
        cache.rollback(RollbackGoal(to_version=0), expected_head=0)
    with pytest.raises(NotFound, match="to_version") as never:
        cache.rollback(RollbackGoal(to_version=9_999))
    assert (never.value.status, never.value.code) == (422, "unknown_version")
    done = cache.rollback(
        RollbackGoal(to_version=0), expected_head=dry.from_version, reason=me
    )
    assert done.status is RollbackState.COMMITTED
    assert done.new_version == dry.from_version + 1
    assert of(host, RolledBack)[-1].reason == me
    assert cache.lookup(MODEL, says(f"three {me}?")) is None


def test_what_is_refused_is_said_as_over_http(
    answered: Answering, cache: Asked
) -> None:
    with pytest.raises(NotValid) as wrong:
        cache.complete(MODEL, says("?"), control=Control(threshold=3.0))
    assert (wrong.value.status, wrong.value.field) == (400, "threshold")
    assert str(wrong.value).startswith("threshold: ")


def test_receipts_are_waited_for_and_all_pages_come_as_one(
    host: CliHost, answered: Answering, make: Make
) -> None:
    log = ReceiptLog(PARTITIONS)
    home = partition_of(ALPHA.encode(), PARTITIONS)
    mine = trace(1 if make is CacheMind else 2)
    identity = IndexIdentity(
        cluster_id="cluster", audit_topic_id="audit", cuts_topic_id="cuts"
    )
    path = host.data_dir / "receipts-index"
    with (
        asked(make, url_of(host), **named(host)) as cache,
        asked(make, url_of(host), **{**named(host), "namespace": "bank"}) as other,
        ThreadPoolExecutor(1) as pool,
        closing(RocksReceiptIndex(path, identity, RocksMemory(), PARTITIONS)) as index,
    ):
        before = len(records(host, "wal"))
        assert cache.receipt(mine.hex()) is None
        waiting = pool.submit(cache.receipt, mine.hex(), wait_s=60, timeout_s=90)
        for _ in range(PAGE + 1):
            log.sign(home, [mine], ALPHA)
        assert index.add_receipts(log.records[home])
        log.cut()
        index.add_cuts(log.cuts)
        found = waiting.result(90)
        assert found is not None
        receipts: Any = found.document["receipts"]
        assert [one["seq"] for one in receipts] == list(range(PAGE + 1))
        assert read_evidence(receipts[-1]).receipt == log.receipts[home][-1]
        assert other.receipt(mine.hex()) is None
        assert len(records(host, "wal")) == before
    shutil.rmtree(path)


def test_each_of_many_at_once_gets_its_own_answer(
    host: CliHost, answered: Answering
) -> None:
    async def ask() -> list[str]:
        async with AsyncCacheMind(url_of(host), **named(host)) as cache:
            answers = await asyncio.gather(
                *(cache.complete(MODEL, says(f"many {n}?")) for n in range(40))
            )
            return [answer.text for answer in answers]

    assert run(ask()) == [upstream_text(f"many {n}?") for n in range(40)]


def test_who_closes_is_not_left_waiting(host: CliHost) -> None:
    silent = Kafka(topic_prefix=host.prefix, requests=f"{host.prefix}.replies")
    cache = CacheMind(url_of(host), namespace=ALPHA, kafka=silent)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.lookup, MODEL, says("?"), timeout_s=100)
        while len(records(host, "replies")) == 0:
            assert not waiting.done()
        cache.close()
        with pytest.raises(CallFailed, match="closed"):
            waiting.result(30)
