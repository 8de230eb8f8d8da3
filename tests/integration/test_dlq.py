"""Dead letters on real Kafka: looked at, and put back once whatever dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.agents.dead_letters import DeadLetters, Reason, Rejected
from cachemind.codec.commands import encode_command
from cachemind.core.cache_commands import Invalidate
from cachemind.core.commands import Command
from cachemind.core.dead_letter import REPLAY_OF
from cachemind.core.partitioner import partition_of
from cachemind.events import SelectorKind
from cachemind.ports import LogRecord
from cachemind.types import EventId, Lsn, Offset, Partition
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from tests.integration.cli_host import CODEC, PARTITIONS, CliHost, cli_host
from tests.integration.requests_host import answering, client, records
from tests.integration.serving import eventually
from tests.wal_events import ALPHA, envelope, stored

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

HOME = partition_of(ALPHA.encode(), PARTITIONS)
WORDS = "prompt 7"
INVALIDATE = encode_command(
    Command(
        request_id=EventId(b"\x07" * 16),
        namespace=ALPHA,
        body=Invalidate(kind=SelectorKind.ALL),
    )
)


@pytest.fixture
def host(
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CliHost]:
    servers = broker.bootstrap_servers
    with cli_host(servers, topic_prefix, tmp_path / "host") as running:
        for name, value in running.environ().items():
            monkeypatch.setenv(name, value)
        yield running


@dataclass
class Done:
    """A `cachemind dlq` command that ended, run in this process."""

    code: int
    stdout: str
    stderr: str


def dlq(*arguments: str, code: int = 0) -> Done:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        done = Done(main(["dlq", *arguments]), out.getvalue(), err.getvalue())
    assert done.code == code, done
    return done


def listed(*flags: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in dlq("list", "--json", *flags).stdout.split("\n")[:-1]
    ]


def put_back(host: CliHost, topic: str) -> list[LogRecord]:
    """Return the records of `topic` that came back from the dead letters."""
    found = records(host, topic)
    return [one for one in found if REPLAY_OF in dict(one.headers)]


def bury(host: CliHost, topic: str, count: int) -> None:
    """Put so many dead letters of records of `topic` on the log."""
    writer = KafkaWriter(host.kafka, f"{host.prefix}.dlq")
    DeadLetters(writer, topic).write(
        [
            Rejected(
                record=LogRecord(
                    lsn=Lsn(Partition(0), Offset(number)),
                    key=ALPHA.encode() if number % 2 else None,
                    value=b"noise %d" % number,
                    headers=(("x", b"1"),),
                    timestamp_ms=-1,
                ),
                reason=Reason.UNDECODABLE,
                detail="noise",
            )
            for number in range(count)
        ]
    )
    writer.close(10)


def test_a_command_that_could_not_be_answered_is_answered_after_its_replay(
    host: CliHost,
) -> None:
    host.start()
    host.wait(lambda: "live" in host.output())
    host.append(stored(1), stored(2))
    host.wait(lambda: host.state().version == 2)
    later = f"{host.prefix}.later"
    with answering(host) as desk, client(host, ALPHA) as asker:
        desk.start()
        sent = asker.send(to_version=1, headers={"reply-to": later.encode()})
        eventually(lambda: len(records(host, "dlq")) == 1, 60)
        (letter,) = listed("--reason", "no_reply", "--waiting")
        assert letter["topic"] == f"{host.prefix}.requests"
        assert letter["key"] == ALPHA
        shown = json.loads(dlq("show", letter["id"], "--json").stdout)
        assert shown["content"]["kind"] == "Rollback"
        assert {"name": "correlation-id", "value": sent} in shown["headers"]
        admin = AdminClient({**host.kafka})
        admin.create_topics([NewTopic(later, PARTITIONS)])[later].result(30)
        said = json.loads(dlq("replay", letter["id"], "--json").stdout)
        assert (said["id"], said["lsn"]) == (letter["id"], letter["lsn"])
        eventually(lambda: host.state().version == 3, 60)
        again = dlq("replay", "--all", "--yes")
        assert again.stdout == ""
        assert f"{letter['id']} was replayed before, by operator/" in again.stderr
        (record,) = put_back(host, "requests")
        assert str(record.lsn) == said["now_at"]
        assert dict(record.headers)["correlation-id"] == sent.encode()
        assert listed("--waiting") == []
        assert listed()[0]["replayed_by"].startswith("operator/")
        eventually(lambda: len(records(host, "later")) == 1, 60)


def test_a_command_that_came_too_late_is_done_without_its_deadline(
    host: CliHost,
) -> None:
    host.start()
    host.wait(lambda: "live" in host.output())
    host.append(stored(1), stored(2))
    host.wait(lambda: host.state().version == 2)
    with answering(host) as desk, client(host, ALPHA) as asker:
        desk.start()
        sent = asker.send(raw=INVALIDATE, headers={"deadline": b"1"})
        eventually(lambda: len(records(host, "dlq")) == 1, 60)
        (letter,) = listed("--reason", "expired")
        said = json.loads(dlq("show", letter["id"], "--json").stdout)
        assert {"name": "deadline", "value": "1"} in said["headers"]
        refused = dlq("replay", letter["id"], code=1).stderr
        assert "its deadline has passed; give --without-deadline" in refused
        dlq("replay", letter["id"], "--without-deadline")
        assert asker.to(sent).kind == "Logged"
        host.wait(lambda: host.state().entries == 0)


def test_an_event_is_shown_without_its_words_and_folded_after_its_replay(
    host: CliHost,
) -> None:
    dlq("list")
    writer = KafkaWriter(host.kafka, host.wal)
    noise = writer.append(ALPHA.encode(), b"\x07 noise", ()).result(30)
    event = CODEC.encode(envelope(7, stored(7)))
    elsewhere = next(p for p in host.partitions if p != HOME)
    key = next(k for k in map(str, range(99)) if _home(k) == elsewhere)
    misplaced = writer.append(key.encode(), event, ()).result(30)
    writer.close(10)
    host.start()
    host.wait(lambda: len(records(host, "dlq")) == 2)
    by_reason = {one["reason"]: one for one in listed()}
    assert by_reason["undecodable"]["lsn"] == str(noise)
    found = by_reason["misplaced"]
    assert found["lsn"] == str(misplaced)
    shown = dlq("show", found["id"]).stdout
    assert "Stored" in shown
    assert WORDS not in shown
    assert event.hex() not in shown
    whole = dlq("show", found["id"], "--bodies").stdout
    assert WORDS in whole
    assert event.hex() in whole
    nothing = dlq("show", by_reason["undecodable"]["id"]).stdout
    assert "starts with neither C3 01 nor 00" in nothing
    assert dlq("show", "0@99", code=2).stderr.endswith("there is no dead letter 0@99\n")
    dlq("replay", found["id"])
    # It has the key that it had, so it is as wrong as it was, and buried anew.
    host.wait(lambda: len(records(host, "dlq")) == 4)
    newest = listed("--waiting", "--last", "1")[0]
    assert newest["reason"] == "misplaced"
    assert newest["lsn"] != found["lsn"]
    assert [one["id"] for one in listed("--waiting")] == [
        by_reason["undecodable"]["id"],
        newest["id"],
    ]


def _home(key: str) -> Partition:
    return partition_of(key.encode(), PARTITIONS)


@pytest.mark.parametrize(
    "step",
    ["dlq.appended", pytest.param("dlq.committed", marks=pytest.mark.slow)],
)
def test_a_replay_that_is_killed_is_repeated_and_every_record_is_there_once(
    step: str, host: CliHost
) -> None:
    dlq("list")
    topic = f"{host.prefix}.requests"
    bury(host, topic, 3)
    dies = ("dlq", "replay", "--all", "--yes", "--failpoint", step)
    host.run(*dies, code=-9)
    dlq("replay", "--all", "--yes")
    assert_once(host, 3)


@pytest.mark.slow
def test_two_who_replay_at_once_put_each_record_back_once(host: CliHost) -> None:
    dlq("list")
    bury(host, f"{host.prefix}.requests", 40)
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "dlq", "replay"]
    racing = [
        subprocess.Popen(
            [*argv, "--all", "--yes"],
            env=host.environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for one in racing:
        _, said = one.communicate(timeout=120)
        assert one.returncode == 0 or b"another one has begun" in said, said
    dlq("replay", "--all", "--yes")
    assert_once(host, 40)


def assert_once(host: CliHost, count: int) -> None:
    back = put_back(host, "requests")
    assert sorted(one.value or b"" for one in back) == sorted(
        b"noise %d" % number for number in range(count)
    )
    assert all(one.headers[0] == ("x", b"1") for one in back)
    keyless = [one for one in back if one.key is None]
    assert len(keyless) == (count + 1) // 2
    assert {one.lsn.partition for one in keyless} == {0}
    assert listed("--waiting") == []


def test_what_is_of_no_topic_of_ours_stays_where_it_is(host: CliHost) -> None:
    dlq("list")
    bury(host, f"{host.prefix}.replies", 1)
    writer = KafkaWriter(host.kafka, f"{host.prefix}.dlq")
    writer.append(b"x", b"noise", ()).result(30)
    writer.close(10)
    assert [one.get("problem") for one in listed()] == [
        None,
        "no dead letter: it has no header cachemind-dlq-replayed",
    ]
    said = dlq("replay", "--all", "--yes", code=1).stderr
    assert said.count("refused") == 1
    assert "its topic is none that we read" in said
    assert dlq("replay", "1", code=1).stderr.count("refused") == 1
    assert not put_back(host, "replies")
    unasked = dlq("replay", "--all", code=1).stderr
    assert unasked.endswith("nothing was replayed: nobody said yes, as --yes does\n")
