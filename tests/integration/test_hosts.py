"""What each host keeps, told to the others on real Kafka, and what it binds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cachemind.adapters.host_catalog import HostCatalog
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.core.hosts import HostRecord
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import CliHost, cli_host
from tests.integration.serving import eventually
from tests.integration.test_snapshots import HOME, OTHER, fill, listed, take
from tests.wal_events import ALPHA

pytestmark = pytest.mark.broker

EVERY = {"checkpoint_events": "20"}
"""As many as one `fill` appends, so that it ends with a checkpoint however it is cut
into commits."""


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    servers = broker.bootstrap_servers
    with cli_host(servers, topic_prefix, tmp_path / "host", **EVERY) as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


@pytest.fixture
def elsewhere(host: CliHost, tmp_path: Path) -> Iterator[CliHost]:
    servers = host.bootstrap_servers
    with cli_host(servers, host.prefix, tmp_path / "other", **EVERY) as other:
        yield other


def said(host: CliHost) -> list[HostRecord]:
    with closing(KafkaReader(host.kafka, f"{host.prefix}.snapshots")) as reader:
        return list(HostCatalog(reader).records())


def id_of(host: CliHost) -> str:
    return (host.data_dir / "store" / "id").read_text().strip()


def told(host: CliHost) -> set[str]:
    """Return the checkpoints that a host has told of."""
    return {
        str(one.checkpoint.lsn)
        for one in said(host)
        if one.host_id == id_of(host) and one.checkpoint is not None
    }


def kept(host: CliHost) -> set[str]:
    """Return the checkpoints that a host has on its disk."""
    folders = (host.data_dir / "checkpoints").glob("*/*")
    return {f"{one.parent.name}@{one.name}" for one in folders if one.name.isdigit()}


def hosts(host: CliHost, *flags: str) -> dict[str, dict[str, Any]]:
    lines = host.run("snapshot", "list", "--hosts", "--json", *flags).stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    return {row["host_id"]: row for row in rows}


def test_each_checkpoint_is_told_with_its_versions_and_taken_back(
    host: CliHost,
) -> None:
    for first in (0, 20, 40):
        fill(host, first, first + 20)
    eventually(lambda: told(host) == kept(host) and len(kept(host)) >= 2, 30)
    newest = max(
        (one for one in said(host) if one.checkpoint is not None),
        key=lambda one: one.checkpoint is not None and one.checkpoint.offset,
    )
    assert newest.checkpoint is not None
    (space,) = newest.checkpoint.namespaces
    assert space.namespace in (ALPHA, OTHER)
    assert space.version == 60
    assert space.digest == host.state(space.namespace).digest.to_bytes(32, "big")
    assert listed(host) == []  # they are no snapshots
    take(host, "v1")
    assert [row["name"] for row in listed(host)] == ["v1"]
    eventually(lambda: told(host) == kept(host), 30)
    row = hosts(host)[id_of(host)]
    assert row["lives"]
    assert {one["lsn"] for one in row["checkpoints"]} == kept(host)


def test_what_was_removed_while_nobody_told_is_taken_back_at_the_next_start(
    host: CliHost,
) -> None:
    fill(host, 0, 20)
    eventually(lambda: bool(kept(host)) and told(host) == kept(host), 30)
    host.kill()
    (folder,) = (host.data_dir / "checkpoints" / str(HOME)).glob("[0-9]*")
    folder.rename(folder.with_name(f"{folder.name}.gone"))
    assert told(host) != kept(host)
    host.start()
    eventually(lambda: told(host) == kept(host), 60)


def test_the_log_is_not_cut_above_what_another_live_host_needs(
    host: CliHost, elsewhere: CliHost
) -> None:
    fill(host, 0, 20)
    eventually(lambda: f"{HOME}@19" in told(host), 30)
    # Another host lives and has not made a checkpoint yet: it needs all of it.
    elsewhere.settings = {"CACHEMIND_CHECKPOINT_EVENTS": "1000000"}
    elsewhere.start()
    elsewhere.wait_folded()
    eventually(lambda: id_of(elsewhere) in hosts(host), 30)
    advised = host.run("wal", "advise").stdout
    assert f"({id_of(elsewhere)}) keeps no checkpoint yet" in advised
    take(elsewhere, "theirs")
    fill(host, 20, 40)
    eventually(lambda: told(elsewhere) == kept(elsewhere) != set(), 30)
    # This host gives its older checkpoint up; the other's still binds the log.
    for one in sorted((host.data_dir / "checkpoints").glob("*/19")):
        one.rename(one.with_name("19.gone"))
    refused = host.run("wal", "truncate", "--before", f"{HOME}@21", "--yes", code=1)
    assert f"is at {HOME}@19, held by host" in refused.stderr
    assert f"({id_of(elsewhere)})" in refused.stderr
    host.run("wal", "truncate", "--before", f"{HOME}@20", "--yes")


def test_a_host_that_died_binds_nothing_once_it_has_been_silent_for_long(
    host: CliHost,
) -> None:
    fill(host, 0, 20)
    eventually(lambda: f"{HOME}@19" in told(host), 30)
    ours = said(host)
    long_ago = min(one.noted_at_ns for one in ours) - 30 * 3_600 * 10**9
    topic = f"{host.prefix}.snapshots"
    with closing(KafkaReader(host.kafka, topic)) as reader:
        writer = KafkaWriter(host.kafka, topic)
        HostCatalog(reader, writer).change(
            [
                HostRecord(
                    host_id="dead" * 2,
                    hostname="box-9",
                    noted_at_ns=long_ago,
                    cluster_id=ours[0].cluster_id,
                    topic_id=ours[0].topic_id,
                    checkpoint=None,
                )
            ]
        )
        writer.close(10)
    assert not hosts(host)["dead" * 2]["lives"]
    advised = host.run("wal", "advise")
    assert f"below {20}" in advised.stdout
    assert "host box-9 (deaddead) has been silent for 30 h" in advised.stderr
    patient = host.run("wal", "advise", "--host-silence-h", "48")
    assert "host box-9 (deaddead) keeps no checkpoint yet" in patient.stdout
