"""Snapshots as an operator uses them, on real Kafka, a folder and S3."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from cachemind.codec.codec import Codec
from cachemind.core.partitioner import partition_of
from cachemind.events import SnapshotTaken
from cachemind.types import Namespace, Partition
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.wal_events import ALPHA, stored

pytestmark = pytest.mark.broker

HOME = partition_of(ALPHA.encode(), PARTITIONS)
OTHER = next(
    name
    for name in map(Namespace, ("beta", "gamma", "delta", "epsilon"))
    if partition_of(name.encode(), PARTITIONS) != HOME
)


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    servers = broker.bootstrap_servers
    with cli_host(servers, topic_prefix, tmp_path / "host") as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


@pytest.fixture
def elsewhere(host: CliHost, tmp_path: Path) -> Iterator[CliHost]:
    """Another host of the same log, with nothing on its disk yet."""
    with cli_host(host.bootstrap_servers, host.prefix, tmp_path / "other") as other:
        yield other


def fill(host: CliHost, first: int, end: int) -> None:
    host.append(*(stored(number) for number in range(first, end)))
    host.append(*(stored(number) for number in range(first, end)), namespace=OTHER)
    host.wait_folded()


def take(host: CliHost, name: str, *flags: str) -> dict[str, Any]:
    done = host.run("snapshot", "create", "--name", name, "--json", *flags)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def listed(host: CliHost, *flags: str) -> list[dict[str, Any]]:
    lines = host.run("snapshot", "list", "--json", *flags).stdout.splitlines()
    return [json.loads(line) for line in lines]


def taken(host: CliHost) -> list[tuple[Namespace, SnapshotTaken]]:
    """Return every `SnapshotTaken` on the WAL."""
    codec, found = Codec(), []
    with closing(KafkaReader(host.kafka, host.wal)) as reader:
        for partition in host.partitions:
            for batch in reader.read(partition, *reader.bounds(partition)):
                for record in batch:
                    event = codec.decode(record.value or b"")
                    if isinstance(event.body, SnapshotTaken):
                        found.append((event.namespace, event.body))
    return found


def test_a_named_snapshot_is_one_cut_told_to_all(host: CliHost) -> None:
    fill(host, 0, 20)
    made = take(host, "v1.2.0", "--retention-days", "30")
    ends = host.ends()
    assert sorted(made["namespaces"]) == sorted([ALPHA, OTHER])
    assert made["lsns"] == ["0@19", "1@19"]
    told = dict(taken(host))
    assert set(told) == {ALPHA, OTHER}
    assert told[ALPHA].name == "v1.2.0"
    assert told[ALPHA].version == 20
    assert told[ALPHA].digest == host.state().digest.to_bytes(32, "big")
    assert [str(lsn) for lsn in told[ALPHA].lsns] == made["lsns"]
    host.wait_folded()
    assert host.state().version == 20  # it is told, and changes nothing
    (row,) = listed(host)
    assert row["name"] == "v1.2.0"
    assert row["here"]
    assert not row["shipped"]
    assert row["namespaces"] == {ALPHA: 20, OTHER: 20}
    assert row["expires_at_ns"] - row["created_at_ns"] == 30 * 86_400 * 10**9
    again = host.run("snapshot", "create", "--name", "v1.2.0", code=1)
    assert "there is a snapshot v1.2.0 already" in again.stderr
    assert host.ends() == ends


def test_a_pruned_snapshot_leaves_a_tombstone_and_no_files(host: CliHost) -> None:
    fill(host, 0, 5)
    take(host, "one")
    fill(host, 5, 10)
    take(host, "two", "--only", ALPHA)
    kept = host.data_dir / "checkpoints" / str(HOME)
    assert (kept / "4").exists()
    pruned = json.loads(host.run("snapshot", "prune", "one", "--json").stdout)
    assert pruned["snapshots"] == ["one"]
    assert pruned["checkpoints"] == 2
    assert not (kept / "4").exists()
    assert [row["name"] for row in listed(host)] == ["two"]
    topic = f"{host.prefix}.snapshots"
    with closing(KafkaReader(host.kafka, topic)) as reader:
        only = Partition(0)
        records = [r for b in reader.read(only, *reader.bounds(only)) for r in b]
        assert [one.name for one in SnapshotCatalog(reader).manifests()] == ["two"]
    # What hosts tell of their checkpoints is on the same topic.
    told = [one for one in records if not (one.key or b"").startswith(b"host/")]
    assert told[-1].value is None
    assert told[-1].key == told[0].key
    assert [namespace for namespace, _ in taken(host)].count(OTHER) == 1
    missing = host.run("snapshot", "prune", "one", code=1)
    assert "there is no snapshot one" in missing.stderr


def test_without_a_materializer_nothing_is_taken(elsewhere: CliHost) -> None:
    said = elsewhere.run("snapshot", "create", "--name", "x", code=1).stderr
    assert "no materializer runs on this data folder" in said
    assert "A-Z" in elsewhere.run("snapshot", "create", "--name", "a/b", code=2).stderr


def test_a_place_without_snapshots_of_this_log_is_named(
    elsewhere: CliHost, tmp_path: Path
) -> None:
    empty, typo = tmp_path / "empty", tmp_path / "typo"
    empty.mkdir()
    told = elsewhere.run("snapshot", "restore", "--from", str(empty), code=1)
    assert f"snapshots at {empty}: there is none of this log" in told.stderr
    for words in (("restore",), ("list",)):
        told = elsewhere.run("snapshot", *words, "--from", str(typo), code=1)
        assert f"snapshots at {typo}: there is no such folder" in told.stderr
        assert not typo.exists()


def test_an_empty_host_begins_from_the_newest_sound_shipped_snapshot(
    host: CliHost, elsewhere: CliHost, tmp_path: Path
) -> None:
    shipped = tmp_path / "shipped"
    fill(host, 0, 20)
    take(host, "one")
    first = json.loads(
        host.run("snapshot", "ship", "--to", str(shipped), "--json").stdout
    )
    fill(host, 20, 30)
    take(host, "two")
    second = json.loads(
        host.run("snapshot", "ship", "two", "--to", str(shipped), "--json").stdout
    )
    assert first["snapshot"] == "one"
    assert second["shared_files"] > 0
    _damage(shipped, host, "two")
    elsewhere.settings = {"CACHEMIND_SNAPSHOT_URL": str(shipped)}
    elsewhere.start()
    elsewhere.wait_folded()
    said = elsewhere.output()
    assert "snapshot two" in said
    assert "is damaged" in said
    assert "was made from snapshot one" in said
    for namespace in (ALPHA, OTHER):
        mine, theirs = elsewhere.state(namespace), host.state(namespace)
        assert (mine.version, mine.digest) == (theirs.version, theirs.digest)


def _damage(shipped: Path, host: CliHost, name: str) -> None:
    """Change one byte of a file that only snapshot `name` has, in both partitions."""
    from cachemind.adapters.snapshot_store import SnapshotStore

    snapshots = SnapshotStore(str(shipped)).list().snapshots
    own = {
        file.sha256
        for one in snapshots
        if one.name == name
        for part in one.partitions
        for file in part.files
    }
    for one in snapshots:
        if one.name != name:
            own -= {file.sha256 for part in one.partitions for file in part.files}
    assert own
    for digest in own:
        path = shipped / "objects" / digest.hex()[:2] / digest.hex()
        if raw := path.read_bytes():
            path.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    address, port = server.get_host_and_port()
    name, endpoint = f"b{uuid.uuid4().hex[:12]}", f"http://{address}:{port}"
    urlopen(Request(f"{endpoint}/{name}", method="PUT"), timeout=10).close()
    for variable, value in {
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(variable, value)
    yield f"s3://{name}/snapshots"
    server.stop()


def test_a_snapshot_goes_to_s3_and_comes_back_by_name(
    host: CliHost, elsewhere: CliHost, bucket: str
) -> None:
    fill(host, 0, 20)
    take(host, "v1")
    fill(host, 20, 25)
    take(host, "v2")
    for name in ("v1", "v2"):
        host.run("snapshot", "ship", name, "--to", bucket)
    rows = listed(elsewhere, "--from", bucket)
    assert not any(row["here"] for row in rows)
    assert [(row["name"], row["shipped"]) for row in rows] == [
        ("v2", True),
        ("v1", True),
    ]
    elsewhere.run("snapshot", "restore", "--from", bucket, "--name", "v1")
    assert elsewhere.state().version == 20
    there = elsewhere.run("snapshot", "restore", "--from", bucket, code=2)
    assert "--replace" in there.stderr
    elsewhere.run("snapshot", "restore", "--from", bucket, "--replace")
    assert elsewhere.state().version == 25
    elsewhere.start()
    elsewhere.wait_folded()
    busy = elsewhere.run("snapshot", "restore", "--from", bucket, "--replace", code=1)
    assert "another process holds it" in busy.stderr
    assert elsewhere.state().digest == host.state().digest


def test_the_log_is_deleted_up_to_the_oldest_snapshot_and_no_further(
    host: CliHost, elsewhere: CliHost, tmp_path: Path
) -> None:
    shipped = {"CACHEMIND_SNAPSHOT_URL": str(tmp_path / "shipped")}
    fill(host, 0, 20)
    nothing = host.run("wal", "advise").stdout
    assert "no snapshot is retained" in nothing
    take(host, "v1")
    fill(host, 20, 30)
    host.settings = shipped
    assert "no retained snapshot is shipped yet" in host.run("wal", "advise").stdout
    host.run("snapshot", "ship", "v1")
    lines = host.run("wal", "advise", "--json").stdout.splitlines()
    advised = [json.loads(line) for line in lines]
    assert [one["floor"] for one in advised] == [20, 20]
    refused = host.run("wal", "truncate", "--before", f"{HOME}@21", "--yes", code=1)
    assert f"the oldest retained snapshot is at {HOME}@19" in refused.stderr
    asked = host.run("wal", "truncate", code=1)
    assert "nothing was deleted: nobody said yes, as --yes does" in asked.stderr
    assert _firsts(host) == [0, 0]
    host.run("wal", "truncate", "--yes")
    assert _firsts(host) == [20, 20]
    elsewhere.settings = shipped
    elsewhere.start()
    elsewhere.wait_folded()
    assert elsewhere.state().digest == host.state().digest
    assert elsewhere.state().version == 30


def _firsts(host: CliHost) -> list[int]:
    with closing(KafkaReader(host.kafka, host.wal)) as reader:
        return [reader.bounds(partition)[0] for partition in host.partitions]
