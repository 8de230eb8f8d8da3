"""`cachemind audit verify` on the topics of a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_transaction import KafkaSoleWriter
from cachemind.adapters.memory_keys import MemoryKey
from cachemind.core.pinned_keys import pinned_text
from cachemind.core.topics import Mode, topics
from cachemind.receipts import KeyChange, KeyRole
from cachemind.types import Namespace, Partition
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from tests.audit_dump import PINNED, Dump, DumpMaker
from tests.wal_events import stored

pytestmark = pytest.mark.broker
PARTITIONS = 3
RECEIPT, LOG = MemoryKey("receipt"), MemoryKey("log")
Verify = Callable[..., tuple[int, Any]]


def made() -> Dump:
    """Return a log whose WAL offsets are those of one record a transaction."""
    maker = DumpMaker(PARTITIONS, RECEIPT, LOG, first_offset=0)
    maker.key_event(KeyChange.ADD, KeyRole.RECEIPT, RECEIPT)
    maker.key_event(KeyChange.ADD, KeyRole.LOG, LOG)
    for number in range(4):
        maker.append(stored(number), Namespace("shop"))
    maker.cut()
    maker.append(stored(5), Namespace("beta"))
    maker.cut()
    return maker.dump()


@pytest.fixture
def verify(
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Verify:
    keys = tmp_path / "keys.json"
    keys.write_bytes(pinned_text(PINNED))
    address = str(broker.bootstrap_servers)

    def run(*more: str) -> tuple[int, Any]:
        where = ["--bootstrap-servers", address, "--topic-prefix", topic_prefix]
        code = main(["audit", "verify", *where, "--keys", str(keys), "--json", *more])
        return code, json.loads(capsys.readouterr().out or "null")

    return run


@pytest.fixture
def write(broker: EmbeddedBroker, topic_prefix: str) -> Callable[[Dump], None]:
    kafka = {"bootstrap.servers": str(broker.bootstrap_servers)}
    named = topics(PARTITIONS, Mode.DEVELOPMENT, topic_prefix)

    def append(topic: str, partition: int, values: list[bytes]) -> None:
        where = Partition(partition)
        name = f"{topic}-{partition}"
        writer = KafkaSoleWriter(kafka, topic, name, partition=where, timeout_s=20)
        with closing(writer):
            writer.take_over()
            for value in values:
                writer.append_all([(b"", value, ())], lambda: None)

    def run(dump: Dump) -> None:
        ensure_topics(kafka, named.all())
        for number, records in enumerate(dump.wal):
            append(named.wal.name, number, [value for _, value in records])
        for number, values in enumerate(dump.receipts):
            append(named.audit.name, number, list(values))
        append(named.audit_cuts.name, 0, list(dump.cuts))

    return run


def test_topics_are_verified_with_their_wal(
    write: Callable[[Dump], None], verify: Verify
) -> None:
    write(made())
    code, told = verify("--against-wal")
    assert told["findings"] == []
    assert (code, told["outcome"]) == (0, "ok")
    counts = [one["receipts"] for one in told["summary"]["partitions"]]
    assert counts == [len(values) for values in made().receipts]


def test_a_record_that_is_missing_on_the_topic_is_told(
    write: Callable[[Dump], None], verify: Verify
) -> None:
    dump = made()
    write(dump.with_receipts(0, (*dump.receipts[0][:2], *dump.receipts[0][3:])))
    code, told = verify("--against-wal")
    assert code == 1
    assert [one["reason"] for one in told["findings"]] == ["missing", "wal-unsigned"]
    assert told["first"]["seq"] == 2


def test_a_log_that_is_not_there_is_no_verdict_and_nothing_is_made(
    verify: Verify,
) -> None:
    for _ in range(2):
        assert verify()[0] == 2
