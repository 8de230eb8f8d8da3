from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from cachemind.adapters import checkpoint_files
from cachemind.adapters.checkpoints import (
    MANIFEST,
    RocksCheckpointMaker,
    RocksCheckpoints,
)
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.core.checkpoint import (
    CheckpointManifest,
    decode_checkpoint,
    encode_checkpoint,
)
from cachemind.core.retention import DAY_NS, HOUR_NS
from cachemind.core.rollback import Base
from cachemind.errors import CheckpointRefused, CorruptState, StoreError
from cachemind.types import Namespace, Offset, Sha256
from tests.adapters.rocks_writing import IDENTITY, fold_batch
from tests.contracts.store_contract import put, require_fold
from tests.endless_log import NAMESPACES, folded_up_to
from tests.fold_cases import NS, envelope, key, stored

MEMORY = RocksMemory(cache_bytes=32 << 20, write_buffer_bytes=16 << 20)
NOW_NS = 1_700_000_000 * 10**9


class Place:
    """A store and its checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints" / "0"
        self.store = RocksStore(folder / "store", IDENTITY, MEMORY)
        self.checkpoints = self.opened()

    def opened(self) -> RocksCheckpoints:
        """The same checkpoints, as another process sees them."""
        return RocksCheckpoints(self.folder, IDENTITY, MEMORY)

    def make(self, now_ns: int = NOW_NS, name: str = "") -> CheckpointManifest:
        return self.checkpoints.create(self.store, now_ns, name)

    def file(self, offset: Offset, suffix: str = ".sst") -> Path:
        """Some file of a checkpoint."""
        return next((self.folder / str(offset)).glob(f"*{suffix}"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.store.close()


def test_a_checkpoint_shows_what_was_committed_when_it_was_made(place: Place) -> None:
    last = fold_batch(place.store, 60)
    manifest = place.make()
    fold_batch(place.store, 60)
    assert manifest.offset == last
    for checkpoints in (place.checkpoints, place.opened()):
        with checkpoints.open(last) as view:
            assert view.applied() == last
            require_fold(view, folded_up_to(last), NAMESPACES)


def test_a_checkpoint_tells_how_far_each_namespace_is(place: Place) -> None:
    put(place.store, 0, envelope(stored("p"), "e1"), envelope(stored("q"), "e2"))
    state = place.store.namespace(NS)
    place.make()
    assert place.opened().bases(NS) == [
        Base(offset=Offset(1), version=state.version, digest=state.digest)
    ]
    assert place.opened().bases(Namespace("other")) == []


def test_the_newest_checkpoint_comes_first(place: Place) -> None:
    made = []
    for _ in range(12):
        fold_batch(place.store, 1)
        made.append(place.make().offset)
    assert [one.offset for one in place.checkpoints.manifests()] == made[::-1]


def test_a_checkpoint_of_the_same_offset_is_the_one_there_is(place: Place) -> None:
    fold_batch(place.store, 3)
    first = place.make()
    assert place.make(NOW_NS + 5) == first
    named = place.make(NOW_NS + 5, "v1.2.0")
    assert named == replace(first, name="v1.2.0")
    assert place.opened().manifests() == [named]


def test_a_store_without_a_record_has_no_checkpoint(place: Place) -> None:
    with pytest.raises(ValueError, match="without a record"):
        place.make()


@pytest.mark.parametrize("suffix", [".sst", "CURRENT"])
@pytest.mark.parametrize("harm", ["changed", "cut", "longer", "gone"])
def test_a_damaged_file_is_refused_by_name(
    place: Place, suffix: str, harm: str
) -> None:
    fold_batch(place.store, 30)
    offset = place.make().offset
    with place.checkpoints.open(offset):
        pass
    file = place.file(offset, suffix)
    raw = bytearray(file.read_bytes())
    file.unlink()
    if harm == "changed":
        raw[len(raw) // 2] ^= 1
    if harm != "gone":
        end = len(raw) - 1 if harm == "cut" else len(raw)
        file.write_bytes(bytes(raw[:end]) + (b"x" if harm == "longer" else b""))
    for checkpoints in (place.checkpoints, place.opened()):
        with pytest.raises(CheckpointRefused, match=file.name):
            checkpoints.open(offset).__enter__()


def test_a_file_written_over_in_place_is_found_out(place: Place) -> None:
    fold_batch(place.store, 30)
    offset = place.make().offset
    with place.checkpoints.hold(offset):
        pass
    with place.file(offset).open("r+b") as file:
        file.seek(10)
        file.write(b"\xff\x00\xff")
    with pytest.raises(CheckpointRefused, match="damaged"):
        place.checkpoints.hold(offset).__enter__()


def test_a_file_whose_other_link_went_away_is_not_read_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_batch(place.store, 30)
    offset = place.make().offset
    file = place.file(offset)
    live = place.folder.parent.parent / "store" / file.name
    assert live.stat().st_ino == file.stat().st_ino
    read: list[str] = []

    def digest(path: Path) -> Sha256:
        read.append(path.name)
        return Sha256(sha256(path.read_bytes()).digest())

    monkeypatch.setattr(checkpoint_files, "_digest", digest)
    (place.folder / "another-link").hardlink_to(file)
    with place.checkpoints.hold(offset):
        assert read == []
    # The same number of links, and a change all the same.
    file.chmod(0o600)
    with place.checkpoints.hold(offset):
        assert read == [file.name]


@pytest.mark.parametrize("harm", [b"", b"{}", b"[]", b'{"format":2}', b"\xff", None])
def test_a_bad_manifest_is_named_and_left_out(
    place: Place, harm: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    fold_batch(place.store, 3)
    offset = place.make().offset
    manifest = place.folder / str(offset) / MANIFEST
    if harm is None:
        manifest.unlink()
    else:
        manifest.write_bytes(harm)
    with caplog.at_level(logging.WARNING):
        assert place.opened().manifests() == []
    assert str(manifest.parent) in caplog.text
    with pytest.raises(CheckpointRefused):
        place.opened().open(offset).__enter__()
    assert place.make().offset == offset
    with place.opened().open(offset) as view:
        assert view.applied() == offset


def test_a_checkpoint_of_another_log_is_refused(place: Place) -> None:
    fold_batch(place.store, 3)
    offset = place.make().offset
    other = replace(IDENTITY, topic_id="another")
    checkpoints = RocksCheckpoints(place.folder, other, MEMORY)
    assert checkpoints.manifests() == []
    with pytest.raises(CheckpointRefused, match="another log"):
        checkpoints.hold(offset).__enter__()


def test_what_is_in_use_is_not_removed(place: Place) -> None:
    fold_batch(place.store, 3)
    old = place.make(NOW_NS - 8 * DAY_NS).offset
    fold_batch(place.store, 3)
    place.make(NOW_NS)
    with place.opened().open(old) as view:
        assert place.checkpoints.prune(NOW_NS) == []
        assert list(view.namespaces())
    assert place.checkpoints.prune(NOW_NS) == [old]
    assert [one.offset for one in place.checkpoints.manifests()] == [5]
    with pytest.raises(CheckpointRefused, match="not there"):
        place.opened().hold(old).__enter__()


def test_a_name_keeps_a_checkpoint_until_its_time(place: Place) -> None:
    fold_batch(place.store, 3)
    made_ns = NOW_NS - 8 * DAY_NS
    place.checkpoints.create(place.store, made_ns, "v1", NOW_NS + HOUR_NS)
    fold_batch(place.store, 3)
    place.make(NOW_NS)
    assert place.checkpoints.prune(NOW_NS) == []
    assert place.checkpoints.prune(NOW_NS + HOUR_NS) == [2]


class Died(Exception):
    """Where the process would be killed."""


@pytest.mark.parametrize("name", ["begun", "linked", "hashed"])
def test_a_checkpoint_that_was_cut_off_is_not_one(place: Place, name: str) -> None:
    fold_batch(place.store, 30)

    def dies(reached: str) -> None:
        if reached == f"checkpoint.{name}":
            raise Died

    maker = RocksCheckpointMaker(place.checkpoints, place.store, dies)
    with pytest.raises(Died):
        maker.make(NOW_NS)
    assert place.opened().manifests() == []
    again = RocksCheckpointMaker(place.opened(), place.store)
    assert list(place.folder.glob("*")) == []
    offset = again.make(NOW_NS)
    with place.opened().open(offset) as view:
        require_fold(view, folded_up_to(offset), NAMESPACES)


def test_unchanged_files_are_hashed_once_and_shared_on_disk(place: Place) -> None:
    fold_batch(place.store, 500)
    first = place.make()
    put(place.store, 500, envelope(stored("p"), "e1"))
    second = place.make()
    shared = {one.name for one in first.held.files if one.name.endswith(".sst")}
    assert shared <= {one.name for one in second.held.files}
    for name in shared:
        one, other = (place.folder / str(m.offset) / name for m in (first, second))
        assert one.stat().st_ino == other.stat().st_ino


def test_a_manifest_survives_its_bytes(place: Place) -> None:
    fold_batch(place.store, 30)
    manifest = place.make(name="v1.2.0")
    raw = encode_checkpoint(manifest)
    assert decode_checkpoint(raw) == manifest
    for cut in range(0, len(raw), 7):
        with pytest.raises(CorruptState):
            decode_checkpoint(raw[:cut])


def test_reading_a_checkpoint_leaves_no_file_in_it(place: Place) -> None:
    fold_batch(place.store, 30)
    offset = place.make().offset
    before = sorted(path.name for path in (place.folder / str(offset)).iterdir())
    with place.checkpoints.open(offset) as view:
        assert view.reader(NS).entry(key("nobody")) is None
    after = sorted(path.name for path in (place.folder / str(offset)).iterdir())
    assert after == before


def test_a_missing_folder_holds_no_checkpoints(tmp_path: Path) -> None:
    checkpoints = RocksCheckpoints(tmp_path / "none", IDENTITY, MEMORY)
    assert checkpoints.manifests() == []
    assert checkpoints.prune(NOW_NS) == []
    with pytest.raises(StoreError):
        checkpoints.hold(Offset(3)).__enter__()
