"""Commands on real Kafka: answered once each, whatever dies in between."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemind.codec.codec import Codec
from cachemind.core.partitioner import partition_of
from cachemind.events import RolledBack
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.integration.requests_host import (
    Answer,
    Answering,
    Client,
    answering,
    client,
    framed,
    records,
)
from tests.integration.serving import eventually
from tests.wal_events import ALPHA, stored

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

HOME = partition_of(ALPHA.encode(), PARTITIONS)
GOOD, HEAD = 7, 10
STEPS = ("request.taken", "request.decided", "request.appended", "request.done")
OFTEN = ("request.decided", "request.appended")


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    servers = broker.bootstrap_servers
    with cli_host(servers, topic_prefix, tmp_path / "host") as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        running.append(*(stored(number) for number in range(HEAD)))
        running.wait(lambda: running.state().version == HEAD)
        yield running


@pytest.fixture
def desk(host: CliHost) -> Iterator[Answering]:
    with answering(host) as found:
        yield found


@pytest.fixture
def asker(host: CliHost) -> Iterator[Client]:
    with client(host, ALPHA) as found:
        yield found


def rollbacks(host: CliHost) -> list[RolledBack]:
    """Return every rollback on the WAL, in order."""
    codec = Codec()
    found = [codec.decode(record.value).body for record in records(host, "wal")]
    return [body for body in found if isinstance(body, RolledBack)]


def test_a_rollback_by_command_is_the_one_over_http(
    host: CliHost, desk: Answering, asker: Client
) -> None:
    process = desk.start()
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    dry = asker.ask(to_version=GOOD, dry_run=True)
    assert dry.kind == "RollbackDone", dry.body
    assert (dry.body["status"], dry.body["removed"]) == ("dry_run", HEAD - GOOD)
    assert dry.value["lsn"] is None
    assert not rollbacks(host)
    sent = asker.send(
        to_version=GOOD,
        expected_head=HEAD,
        reason="poisoned",
        headers={"traceparent": trace.encode()},
    )
    answer = asker.to(sent)
    body = answer.body
    assert answer.kind == "RollbackDone", body
    assert body["status"] == "committed"
    assert str(uuid.UUID(bytes=body["rollback_id"])) == sent
    assert (body["from_version"], body["new_version"]) == (HEAD, HEAD + 1)
    assert (body["restored"], body["removed"], body["changed"]) == (0, HEAD - GOOD, 0)
    assert body["digest"] == dry.body["digest"]
    assert body["digest"] == host.state().digest.to_bytes(32, "big")
    assert body["verdict"] == "valid"
    assert answer.value["lsn"]["partition"] == HOME
    assert answer.value["trace_id"] == bytes.fromhex("ab" * 16)
    assert answer.headers["traceparent"].split(b"-")[1] == b"ab" * 16
    undone = asker.ask(undo=body["rollback_id"])
    assert (undone.body["to_version"], undone.body["new_version"]) == (HEAD, HEAD + 2)
    (one, other) = rollbacks(host)
    assert (one.reason, one.to_version, other.to_version) == ("poisoned", GOOD, HEAD)
    desk.stop(process)


def test_what_is_refused_has_a_code_and_appends_nothing(
    host: CliHost, desk: Answering, asker: Client
) -> None:
    desk.start()
    refused: dict[str, dict[str, Any]] = {
        "wrong_head": {"to_version": GOOD, "expected_head": HEAD - 1},
        "unknown_version": {"to_version": HEAD + 1},
        "not_found": {"to_snapshot": "v9"},
        "invalid_request": {"to_version": GOOD, "to_time_ns": 1},
    }
    for code, body in refused.items():
        answer = asker.ask(**body)
        assert answer.kind == "Problem", answer.body
        assert answer.body["code"] == code
        assert answer.body["message"]
        assert answer.value["lsn"] is None
    assert not rollbacks(host)
    host.run("snapshot", "create", "--name", "kept")
    host.append(stored(50))
    host.wait(lambda: host.state().version == HEAD + 1)
    host.run("wal", "truncate", "--yes")
    gone = asker.ask(to_version=GOOD)
    assert gone.body["code"] == "past_the_horizon"
    assert f"begins at version {HEAD}" in gone.body["message"]
    assert asker.ask(to_snapshot="kept").body["to_version"] == HEAD


def test_a_command_that_comes_again_is_answered_as_before(
    host: CliHost, desk: Answering, asker: Client
) -> None:
    desk.start()
    again = uuid.uuid4()
    for _ in range(3):
        asker.send(again, to_version=GOOD)
    eventually(lambda: len(asker.quiet(0.1)) == 3, 60)
    assert len({repr(one.value["body"]) for one in asker.answers}) == 1
    assert len(rollbacks(host)) == 1
    assert host.state().version == HEAD + 1


def test_what_cannot_be_answered_is_buried_whole_and_the_partition_goes_on(
    host: CliHost, desk: Answering, asker: Client
) -> None:
    value = {"request_id": bytes(16), "namespace": ALPHA, "body": {"to_version": 1}}
    good = framed(value | {"request_id": uuid.uuid4().bytes})
    wrong: dict[str, tuple[str, bytes, dict[str, bytes], str]] = {
        "noise": ("undecodable", b"\xc3\x01 noise", {}, ALPHA),
        "schema": ("unknown_schema", b"\xc3\x01" + bytes(12), {}, ALPHA),
        "cut": ("undecodable", good[:-2], {}, ALPHA),
        "zero-id": ("undecodable", framed(value), {}, ALPHA),
        "no-reply-to": ("invalid_request", good, {"reply-to": b""}, ALPHA),
        "no-id": ("invalid_request", good, {"correlation-id": b""}, ALPHA),
        "other-key": ("invalid_request", good, {}, "beta"),
        "absent": ("no_reply", good, {"reply-to": b"nowhere"}, ALPHA),
        "our-wal": ("no_reply", good, {"reply-to": host.wal.encode()}, ALPHA),
    }
    for name, (_, raw, headers, key) in wrong.items():
        asker.send(raw=raw, key=key, headers=headers | {"x-name": name.encode()})
    before = host.ends()
    desk.start()
    assert asker.ask(to_version=GOOD).body["status"] == "committed"
    eventually(lambda: len(records(host, "dlq")) == len(wrong), 30)
    for letter in records(host, "dlq"):
        headers = dict(letter.headers)
        reason, raw, _, key = wrong[headers["x-name"].decode()]
        assert headers["cachemind-dlq-reason"].decode() == reason, headers
        assert letter.value == raw
        assert headers["cachemind-dlq-topic"].decode() == f"{host.prefix}.requests"
        assert headers["cachemind-dlq-key"].decode() == key
    assert len(rollbacks(host)) == 1
    assert host.ends()[HOME] > before[HOME]
    assert len(asker.quiet()) == 1


@pytest.mark.parametrize(
    "step",
    [
        step if step in OFTEN else pytest.param(step, marks=pytest.mark.slow)
        for step in STEPS
    ],
)
def test_killed_at_a_step_each_command_has_one_event_and_one_answer(
    step: str, host: CliHost, desk: Answering, asker: Client
) -> None:
    sent = [asker.send(to_version=HEAD - 1 - n) for n in range(2)]
    dies = desk.start(step)
    assert dies.wait(90) == -9, desk.output()
    desk.start()
    for one in sent:
        assert asker.to(one, 90).body["status"] == "committed", one
    assert [one.to_version for one in rollbacks(host)] == [HEAD - 1, HEAD - 2]
    assert sorted(a.correlation_id for a in asker.quiet()) == sorted(sent)
    assert host.state().version == HEAD + 2


def test_two_processes_share_the_work_while_one_is_killed(
    host: CliHost, desk: Answering, asker: Client
) -> None:
    first = desk.start()
    assert asker.ask(to_version=GOOD).body["status"] == "committed"
    desk.start()
    sent: list[str] = []
    for number in range(12):
        sent.append(asker.send(to_version=GOOD - number % 3))
        if number == 6:
            first.kill()
    for one in sent:
        answer = asker.to(one, 120)
        assert answer.kind == "RollbackDone", answer.body
    everything = [a.correlation_id for a in asker.quiet()]
    assert len(everything) == len(set(everything)) == len(sent) + 1
    ids = [one.rollback_id for one in rollbacks(host)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(3, id="three"),
        pytest.param(
            40, id="forty", marks=[pytest.mark.slow, pytest.mark.timeout(3000)]
        ),
    ],
)
def test_whatever_dies_each_command_is_done_once_and_each_sending_answered_once(
    rounds: int, host: CliHost, desk: Answering, asker: Client
) -> None:
    chance = random.Random(rounds)
    process, sent = desk.start(), list[str]()
    asked: list[uuid.UUID] = []
    for _ in range(rounds):
        request, target = uuid.uuid4(), chance.randrange(HEAD)
        asked.append(request)
        sent.append(numbered(asker, request, target, len(sent)))
        time.sleep(chance.uniform(0, 0.3))
        if chance.random() < 0.5:
            process.kill()
            process = desk.start()
        else:
            host.kill()
            host.start()
        # A fold that was killed is away for a while: the client asks again.
        while not committed(asker.to(sent[-1], 120)):
            sent.append(numbered(asker, request, target, len(sent)))
    got = [answer.correlation_id for answer in asker.quiet(3)]
    assert sorted(got) == sorted(sent)
    ids = [uuid.UUID(bytes=one.rollback_id) for one in rollbacks(host)]
    assert len(ids) == len(set(ids))
    assert set(ids) <= set(asked)
    host.wait(lambda: host.state().version == HEAD + len(ids))
    assert host.run("doctor", "--rebuild").returncode == 0


def numbered(asker: Client, request: uuid.UUID, target: int, number: int) -> str:
    """Send a rollback under a number of its own; return that."""
    shown = f"sending-{number}"
    headers = {"correlation-id": shown.encode()}
    asker.send(request, to_version=target, headers=headers)
    return shown


def committed(answer: Answer) -> bool:
    """Return whether it is done, and check that it is under way otherwise."""
    if answer.kind == "Problem":
        assert answer.body["code"] == "unavailable", answer.body
        return False
    assert answer.body["status"] in ("committed", "running")
    return bool(answer.body["status"] == "committed")
