"""Shipping to a folder and to S3 (moto's server, real HTTP): the same behaviour."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from cachemind.adapters.snapshot_store import Listing, Shipped, SnapshotStore
from cachemind.core.snapshots import SnapshotManifest
from cachemind.errors import InvalidSetting, SnapshotRefused, SnapshotUnavailable
from cachemind.types import Partition
from tests.snapshot_cases import (
    BEGAN_NS,
    TOPIC,
    Contents,
    manifest_of,
    of_log,
    written,
)

BIG = bytes(range(256)) * 40_000  # 10 MB: more than one part
FIRST: Contents = {"CURRENT": b"MANIFEST-1\n", "000001.sst": BIG}
SECOND: Contents = {"CURRENT": b"MANIFEST-2\n", "000001.sst": BIG, "000002.sst": b"new"}
HERE, THERE = Partition(0), Partition(1)
NOW_NS = BEGAN_NS + 10**18

OpenStore = Callable[[], SnapshotStore]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["folder", "s3"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    if request.param == "folder":
        return str(tmp_path / "shipped")
    endpoint = request.getfixturevalue("s3_server")
    bucket = f"b{uuid.uuid4().hex[:12]}"
    urlopen(Request(f"{endpoint}/{bucket}", method="PUT"), timeout=10).close()
    for name, value in {
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    return f"s3://{bucket}/cache/one"


@pytest.fixture
def store(url: str) -> SnapshotStore:
    return SnapshotStore(url)


def ship(
    store: SnapshotStore, manifest: SnapshotManifest, folder: Path, *parts: Contents
) -> Shipped:
    written(folder, *parts)
    return store.ship(manifest, lambda partition: folder / str(partition))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_was_shipped_comes_back_byte_for_byte(
    store: SnapshotStore, url: str, tmp_path: Path
) -> None:
    manifest = manifest_of(1, FIRST, SECOND, name="v1.2.0")
    ship(store, manifest, tmp_path / "one", FIRST, SECOND)
    again = SnapshotStore(url)
    assert again.list(TOPIC).snapshots == [manifest]
    again.fetch(manifest, HERE, tmp_path / "back" / "0")
    again.fetch(manifest, THERE, tmp_path / "back" / "1")
    assert contents(tmp_path / "back" / "0") == FIRST
    assert contents(tmp_path / "back" / "1") == SECOND
    assert sorted(p.name for p in (tmp_path / "back").iterdir()) == ["0", "1"]


def test_a_file_that_two_snapshots_share_is_sent_once(
    store: SnapshotStore, tmp_path: Path
) -> None:
    one, two = manifest_of(1, FIRST), manifest_of(2, SECOND)
    assert ship(store, one, tmp_path / "one", FIRST).sent_files == 2
    assert ship(store, two, tmp_path / "two", SECOND) == Shipped(
        sent_files=2, sent_bytes=len(b"MANIFEST-2\n" + b"new"), shared_files=1
    )
    assert store.list().snapshots == [two, one]


def test_shipping_again_sends_nothing(store: SnapshotStore, tmp_path: Path) -> None:
    manifest = manifest_of(1, FIRST)
    ship(store, manifest, tmp_path / "one", FIRST)
    again = store.ship(manifest, lambda partition: tmp_path / "one" / str(partition))
    assert again == Shipped(sent_files=0, sent_bytes=0, shared_files=2)


def test_a_damaged_file_here_is_never_shipped(
    store: SnapshotStore, tmp_path: Path
) -> None:
    manifest = manifest_of(1, FIRST)
    with pytest.raises(SnapshotRefused, match=r"000001\.sst is damaged"):
        ship(store, manifest, tmp_path / "one", {**FIRST, "000001.sst": BIG[:-1]})
    assert store.list().snapshots == []


def test_without_its_manifest_a_snapshot_is_not_there(
    store: SnapshotStore, tmp_path: Path
) -> None:
    ship(store, manifest_of(1, FIRST), tmp_path / "one", FIRST)
    store.remove(manifest_of(1, FIRST))
    assert store.list().snapshots == []
    store.remove(manifest_of(1, FIRST))


def test_snapshots_of_another_log_are_not_listed_for_this_one(
    store: SnapshotStore, tmp_path: Path
) -> None:
    other = of_log(manifest_of(1, FIRST), "another")
    ship(store, other, tmp_path / "one", FIRST)
    assert store.list(TOPIC).snapshots == []
    assert store.list("another").snapshots == [other]


def test_a_missing_file_is_refused_by_name_and_leaves_no_folder(
    store: SnapshotStore, tmp_path: Path
) -> None:
    manifest = manifest_of(1, FIRST)
    ship(store, manifest, tmp_path / "one", FIRST)
    lacking = manifest_of(2, {**FIRST, "000009.sst": b"never shipped"})
    with pytest.raises(SnapshotRefused, match=r"000009\.sst .* is missing"):
        store.fetch(lacking, HERE, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    store.fetch(manifest, HERE, tmp_path / "back")
    assert contents(tmp_path / "back") == FIRST


def test_removing_a_snapshot_keeps_what_others_share(
    store: SnapshotStore, tmp_path: Path
) -> None:
    one, two = manifest_of(1, FIRST), manifest_of(2, SECOND)
    ship(store, one, tmp_path / "one", FIRST)
    ship(store, two, tmp_path / "two", SECOND)
    store.remove(two)
    assert store.sweep(NOW_NS, timedelta(days=36_500)) == 0  # all younger than that
    assert store.sweep(NOW_NS) == 2
    store.fetch(one, HERE, tmp_path / "back")
    assert contents(tmp_path / "back") == FIRST


def test_an_object_lost_while_shipped_is_sent_again(
    store: SnapshotStore, tmp_path: Path
) -> None:
    one, two = manifest_of(1, FIRST), manifest_of(2, SECOND)
    ship(store, one, tmp_path / "one", FIRST)
    written(tmp_path / "two", SECOND)

    def removed_meanwhile(partition: Partition) -> Path:
        # Called after the look at what is there, before anything is sent.
        store.remove(one)
        store.sweep(NOW_NS)
        return tmp_path / "two" / str(partition)

    assert store.ship(two, removed_meanwhile).sent_files == 3
    store.fetch(two, HERE, tmp_path / "back")
    assert contents(tmp_path / "back") == SECOND


class TestAFolder:
    """What needs a hand in the files: the same code runs for an object store."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "shipped"

    def test_a_damaged_file_is_refused_by_name(
        self, folder: Path, tmp_path: Path
    ) -> None:
        store, manifest = SnapshotStore(folder.as_uri()), manifest_of(1, FIRST)
        ship(store, manifest, tmp_path / "one", FIRST)
        digest = manifest.partitions[0].files[0].sha256.hex()
        place = folder / "objects" / digest[:2] / digest
        place.write_bytes(place.read_bytes()[:-1] + b"?")
        with pytest.raises(SnapshotRefused) as refused:
            store.fetch(manifest, HERE, tmp_path / "back")
        assert refused.value.name == manifest.snapshot_id
        assert "000001.sst" in refused.value.problem
        assert "is damaged" in refused.value.problem
        assert not (tmp_path / "back").exists()

    def test_an_unreadable_manifest_is_named_and_the_others_are_listed(
        self, folder: Path, tmp_path: Path
    ) -> None:
        store, manifest = SnapshotStore(str(folder)), manifest_of(1, FIRST)
        ship(store, manifest, tmp_path / "one", FIRST)
        broken = folder / "snapshots" / TOPIC / "00000000000000000009-broken"
        broken.write_bytes(b"\xc3\x01 no manifest")
        listing = store.list(TOPIC)
        assert listing.snapshots == [manifest]
        assert [one.name for one in listing.refused] == [
            f"snapshots/{TOPIC}/{broken.name}"
        ]
        with pytest.raises(SnapshotRefused):
            store.sweep(NOW_NS)

    @pytest.mark.parametrize("named", [str, Path.as_uri], ids=["path", "uri"])
    def test_a_folder_that_is_not_there_is_read_as_empty_and_not_made(
        self, folder: Path, tmp_path: Path, named: Callable[[Path], str]
    ) -> None:
        store, manifest = SnapshotStore(named(folder)), manifest_of(1, FIRST)
        assert store.absent
        assert store.list() == Listing(snapshots=[], refused=[])
        assert store.sweep(NOW_NS) == 0
        store.remove(manifest)
        with pytest.raises(SnapshotUnavailable, match="there is no such folder"):
            store.fetch(manifest, HERE, tmp_path / "back")
        assert not folder.exists()
        other = SnapshotStore(named(folder))
        ship(other, manifest, tmp_path / "one", FIRST)
        assert not other.absent
        assert store.list().snapshots == [manifest]

    def test_a_store_that_is_away_is_unavailable(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-shown")
        with pytest.raises(SnapshotUnavailable, match="s3://bucket/here") as away:
            SnapshotStore("s3://bucket/here").list()
        assert "never-shown" not in str(away.value)

    @pytest.mark.parametrize("url", ["gopher://there/x", "s3://"])
    def test_a_url_that_no_store_has_is_a_wrong_setting(self, url: str) -> None:
        with pytest.raises(InvalidSetting, match="snapshot_url"):
            SnapshotStore(url)
