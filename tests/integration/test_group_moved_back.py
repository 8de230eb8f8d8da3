"""Kafka's own tools move the materializer's group; the store follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemind.core.partitioner import partition_of
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.wal_events import ALPHA, stored

pytestmark = pytest.mark.broker

HOME = partition_of(ALPHA.encode(), PARTITIONS)


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    servers = broker.bootstrap_servers
    with cli_host(servers, topic_prefix, tmp_path / "host") as running:
        yield running


def move_group(host: CliHost, offset: int) -> str:
    """Run the real kafka-consumer-groups on the host's group."""
    store_id = (host.data_dir / "store" / "id").read_text()
    group = f"{host.prefix}.materializer.{store_id}"
    done = host.run(
        *("broker", "cli", "kafka-consumer-groups"),
        *("--bootstrap-server", host.bootstrap_servers, "--group", group),
        *("--topic", f"{host.wal}:{HOME}", "--reset-offsets"),
        *("--to-offset", str(offset), "--execute"),
    )
    return done.stdout


def test_without_a_checkpoint_it_folds_anew_from_the_logs_start(host: CliHost) -> None:
    host.start()
    host.wait(lambda: "live" in host.output())
    host.append(*(stored(number) for number in range(50)))
    host.wait_folded()
    host.stop()
    before = host.state()
    assert str(20) in move_group(host, 20)
    host.start()
    host.wait(lambda: "folded anew" in host.output())
    host.wait_folded()
    said = host.output()
    assert f"the group was moved back to {HOME}@20" in said
    assert f"partition {HOME} is folded anew from the log's start" in said
    after = host.state()
    assert (after.version, after.digest, after.entries) == (50, before.digest, 50)
    host.wait(lambda: not host.store_path(HOME).with_name(f"{HOME}.before").exists())
    live = host.output().count("partitions are live")
    host.stop()
    host.start()
    host.wait(lambda: host.output().count("partitions are live") > live)
    assert host.output().count("moved back") == 1


def checkpoint(host: CliHost, first: int, end: int) -> int:
    """Append events, then take a snapshot; return its offset in `HOME`."""
    host.append(*(stored(number) for number in range(first, end)))
    host.wait_folded()
    taken = host.run("snapshot", "create", "--json").stdout
    places = dict(lsn.split("@") for lsn in json.loads(taken)["lsns"])
    host.wait_folded()
    return int(places[str(HOME)])


def test_it_restores_the_newest_sound_checkpoint_at_or_below_and_replays(
    host: CliHost,
) -> None:
    host.start()
    host.wait(lambda: "live" in host.output())
    low = checkpoint(host, 0, 10)
    damaged = checkpoint(host, 10, 20)
    above = checkpoint(host, 20, 30)
    host.stop()
    before = host.state()
    (table,) = (host.data_dir / "checkpoints" / str(HOME) / str(damaged)).glob("*.log")
    table.write_bytes(table.read_bytes()[:-1] + b"?")
    move_group(host, above)  # the record after the last one below is the target
    host.start()
    host.wait(lambda: "was made from" in host.output())
    host.wait_folded()
    said = host.output()
    assert f"the group was moved back to {HOME}@{above}" in said
    assert f"checkpoint {HOME}@{damaged} is not used" in said
    assert f"{table.name} is damaged" in said
    assert f"was made from checkpoint {HOME}@{low}" in said
    after = host.state()
    assert (after.version, after.digest) == (before.version, before.digest)


def test_kill_9_is_not_taken_for_a_group_that_was_moved(host: CliHost) -> None:
    host.start()
    host.wait(lambda: "live" in host.output())
    host.append(*(stored(number) for number in range(200)))
    host.wait_folded()
    host.kill()
    host.start()
    host.append(stored(1000))
    host.wait_folded()
    assert "moved back" not in host.output()
    assert host.state().version == 201
