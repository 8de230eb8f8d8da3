"""The cache over Kafka alone: look up, complete, put, invalidate, judge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cachemind.codec.codec import Codec
from cachemind.core.partitioner import partition_of
from cachemind.events import (
    Envelope,
    Feedback,
    Invalidated,
    Read,
    Reads,
    RolledBack,
    Stored,
)
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.integration.requests_host import (
    Answering,
    Client,
    answering,
    client,
    records,
)
from tests.upstreams import ScriptedUpstream, completion, served
from tests.wal_events import ALPHA

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
HOME = partition_of(ALPHA.encode(), PARTITIONS)
STEPS = ("batch.decided", "batch.committed")


def chat(text: str) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages}).encode()


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[ScriptedUpstream, str]]:
    upstream = ScriptedUpstream()
    with served(upstream) as url:
        yield upstream, url


@pytest.fixture
def upstream(model: tuple[ScriptedUpstream, str]) -> ScriptedUpstream:
    model[0].received.clear()
    return model[0]


@pytest.fixture
def host(
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
    model: tuple[ScriptedUpstream, str],
) -> Iterator[CliHost]:
    servers = broker.bootstrap_servers
    folder = tmp_path / "host"
    with cli_host(servers, topic_prefix, folder, upstream=model[1]) as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


@pytest.fixture
def desk(host: CliHost) -> Iterator[Answering]:
    with answering(host) as found:
        yield found


@pytest.fixture
def asker(host: CliHost) -> Iterator[Client]:
    with client(host, ALPHA) as found:
        yield found


def envelopes(host: CliHost) -> list[Envelope]:
    codec = Codec()
    return [codec.decode(record.value) for record in records(host, "wal")]


def test_every_command_of_the_cache_is_answered_and_on_the_log(
    host: CliHost, desk: Answering, asker: Client, upstream: ScriptedUpstream
) -> None:
    process = desk.start()
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    sent = asker.command(
        "Complete", request=chat("hello"), headers={"traceparent": trace.encode()}
    )
    first = asker.to(sent)
    assert first.kind == "Answered", first.body
    assert (first.body["outcome"], first.body["stored"]) == ("miss", True)
    assert first.value["trace_id"] == bytes.fromhex("ab" * 16)
    assert first.headers["traceparent"].split(b"-")[1] == b"ab" * 16
    hit = asker.want("Lookup", request=chat("hello"))
    assert hit.body["outcome"] == "hit_exact"
    message = json.loads(hit.body["message"])
    assert message["choices"] == json.loads(first.body["message"])["choices"]
    body = json.dumps(completion(json.loads(chat("other")), "by hand")).encode()
    put = asker.want("Put", request=chat("other"), response=body, tags=["t"])
    assert put.kind == "PutDone", put.body
    assert asker.want("Lookup", request=chat("other")).body["key"] == put.body["key"]
    judged = asker.want(
        "Feedback",
        matched_key=hit.body["key"],
        served_trace_id=hit.value["trace_id"],
        verdict="right",
    )
    assert judged.kind == "Logged", judged.body
    gone = asker.want("Invalidate", kind="tag", value="t")
    assert gone.kind == "Logged", gone.body
    assert asker.want("Lookup", request=chat("other")).body["outcome"] == "miss"
    rolled = asker.ask(to_version=0)
    assert rolled.body["status"] == "committed", rolled.body
    again = asker.want("Lookup", request=chat("hello"))
    assert again.body["outcome"] == "miss"
    assert again.value["version"] == rolled.body["new_version"]
    back = asker.want("Complete", request=chat("hello"))
    assert (back.body["outcome"], back.body["stored"]) == ("miss", True)
    assert asker.want("Lookup", request=chat("hello")).body["outcome"] == "hit_exact"
    assert len(upstream.chats) == 2
    by_lsn = {record.lsn: record for record in records(host, "wal")}
    for answer in asker.answers:
        lsn = answer.value["lsn"]
        assert any(
            (each.partition, each.offset) == (lsn["partition"], lsn["offset"])
            for each in by_lsn
        )
    kinds = [type(one.body) for one in envelopes(host)]
    assert [kinds.count(kind) for kind in (Stored, Invalidated, Feedback)] == [3, 1, 1]
    desk.stop(process)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_each_command_has_one_event_and_one_answer(
    step: str,
    host: CliHost,
    desk: Answering,
    asker: Client,
    upstream: ScriptedUpstream,
) -> None:
    body = json.dumps(completion(json.loads(chat("q")), "by hand")).encode()
    sent = [
        asker.command("Complete", request=chat("hello")),
        asker.command("Put", request=chat("q"), response=body),
        asker.command("Lookup", request=chat("q")),
        asker.command("Invalidate", kind="all"),
        asker.command("Lookup", request=chat("q")),
        asker.command("Rollback", to_version=1),
        asker.command("Lookup", request=chat("hello")),
    ]
    dies = desk.start(step)
    assert dies.wait(90) == -9, desk.output()
    desk.start()
    answers = [asker.to(one, 120) for one in sent]
    outcomes = [answers[number].body["outcome"] for number in (0, 2, 4, 6)]
    assert outcomes == ["miss", "hit_exact", "miss", "hit_exact"]
    assert answers[5].body["status"] == "committed", answers[5].body
    assert sorted(a.correlation_id for a in asker.quiet()) == sorted(sent)
    kinds = [type(one.body) for one in envelopes(host)]
    events = (Stored, Invalidated, RolledBack)
    assert [kinds.count(kind) for kind in events] == [2, 1, 1]
    reads = [one for env in envelopes(host) for one in items(env)]
    assert len(reads) == len({read.trace_id for read in reads}) == 4


def items(envelope: Envelope) -> Sequence[Read]:
    return envelope.body.items if isinstance(envelope.body, Reads) else ()


def test_what_cannot_be_answered_is_buried_and_nothing_of_it_is_done(
    host: CliHost, desk: Answering, asker: Client, upstream: ScriptedUpstream
) -> None:
    gone = {"reply-to": f"{host.prefix}.nowhere".encode()}
    asker.command("Complete", request=chat("a"), headers=gone)
    asker.command("Complete", request=chat("b"), headers={"deadline": b"1"})
    asker.command("Invalidate", namespace="cachemind.access", kind="all")
    good = asker.command("Lookup", request=chat("a"))
    desk.start()
    assert asker.to(good, 120).body["outcome"] == "miss"
    letters = {
        dict(letter.headers)["cachemind-dlq-reason"] for letter in records(host, "dlq")
    }
    assert letters == {b"no_reply", b"expired", b"invalid_request"}
    assert not any(isinstance(one.body, Stored) for one in envelopes(host))
    assert len(asker.quiet()) == 1
