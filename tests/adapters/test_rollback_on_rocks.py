"""Rollbacks on real stores with real checkpoints; the log is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from cachemind.adapters.checkpoints import RocksCheckpointMaker, RocksCheckpoints
from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_checkpoints import MemoryCheckpoints
from cachemind.adapters.memory_groups import MemoryGroupOffsets
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.rocks_view import RocksView
from cachemind.adapters.rollback_progress import ProgressFile, read_progress
from cachemind.adapters.scratch_entries import scratch_entries
from cachemind.agents.checkpointing import Checkpointing
from cachemind.agents.dead_letters import DeadLetters
from cachemind.agents.folding import Folder
from cachemind.agents.past import Sources, entries_at
from cachemind.agents.placing import ONE_WRITE_BYTES
from cachemind.agents.rehearsal import preview
from cachemind.agents.rollback import RollbackHooks, Rollbacks
from cachemind.codec.codec import Codec
from cachemind.core import replayed
from cachemind.core.rollback_report import (
    RollbackPhase,
    RollbackProgress,
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.core.state import NamespaceState
from cachemind.core.verification import digest_mismatch
from cachemind.events import Body, Evicted, Invalidated, RolledBack, SelectorKind
from cachemind.ports import Checkpoints
from cachemind.types import Offset, Version
from tests.adapters.rocks_writing import IDENTITY
from tests.fold_cases import (
    NS,
    PARTITION,
    T0_NS,
    envelope,
    key,
    rolled_back,
    stored,
)
from tests.unit.folding_bench import Counted

MEMORY = RocksMemory(cache_bytes=32 << 20, write_buffer_bytes=16 << 20)
CODEC = Codec()


class Place:
    """One partition with everything real but the log."""

    def __init__(
        self,
        folder: Path,
        strategy: Strategy = Strategy.FIELD_HASH,
        one_write_bytes: int = ONE_WRITE_BYTES,
    ) -> None:
        self.folder = folder
        self.one_write_bytes = one_write_bytes
        self.log = MemoryLog(1, ManualClock(T0_NS))
        self.group = MemoryGroupOffsets()
        self.strategy = strategy
        self.shown: list[RollbackProgress] = []
        self.words = 0
        self.seen: list[Offset] = []
        self.store = RocksStore(folder / "store", IDENTITY, MEMORY)
        self.checkpoints = RocksCheckpoints(folder / "checkpoints", IDENTITY, MEMORY)
        self.metrics = Counted()
        self.folder_ = self.fold_of(self.store, self.checkpoints)

    @property
    def sources(self) -> Sources:
        return self.sources_of(self.store, self.checkpoints)

    def sources_of(self, store: RocksStore, checkpoints: Checkpoints) -> Sources:
        return Sources(
            partition=PARTITION,
            store=store,
            checkpoints=checkpoints,
            log=self.log.reader(),
            decoder=CODEC,
            aside=partial(scratch_entries, self.folder / "scratch"),
        )

    def fold_of(
        self, store: RocksStore, checkpoints: Checkpoints, every: int = 10**9
    ) -> Folder:
        hooks = RollbackHooks(
            scratch_group=self.group,
            board=self,
            strategy=self.strategy,
            one_write_bytes=self.one_write_bytes,
        )
        after = None
        if isinstance(checkpoints, RocksCheckpoints):
            after = Checkpointing(
                RocksCheckpointMaker(checkpoints, store),
                ManualClock(T0_NS),
                every_events=every,
                interval_s=10**6,
            ).committed
        return Folder(
            PARTITION,
            1,
            store,
            CODEC,
            DeadLetters(self.log.writer(), "wal"),
            self.metrics,
            Rollbacks(self.sources_of(store, checkpoints), store, hooks),
            after,
        )

    def show(self, progress: RollbackProgress) -> None:
        self.shown.append(progress)

    def clear(self) -> None:
        """What was shown is kept for the test."""

    def put(self, *bodies: Body) -> NamespaceState:
        """Append each body on the current timeline and fold it."""
        for body in bodies:
            self.words += 1
            state = self.store.namespace(NS)
            event = envelope(body, f"e{self.words}", timeline=state.timeline)
            record = self.log.writer().append(NS.encode(), CODEC.encode(event), ())
            self.seen.append(record.result(0).offset)
            reader = self.log.reader()
            _, end = reader.bounds(PARTITION)
            for batch in reader.read(PARTITION, self.folder_.position, end):
                self.folder_.fold(batch)
        return self.store.namespace(NS)

    def keep(self) -> Offset:
        return self.checkpoints.create(self.store, T0_NS).offset

    def back(self, to: int) -> RollbackReport:
        """Roll back; return the report."""
        self.words += 1
        body = rolled_back(to, f"r{self.words}")
        self.put(body)
        report = self.store.rollback_report(body.rollback_id)
        assert report is not None
        return report

    def recorded(self, version: int) -> int:
        (row,) = self.store.versions(NS, Version(version), Version(version))
        return row.digest

    def responses(self) -> dict[str, bytes]:
        return {
            entry.prompt or "": entry.response
            for entry in self.store.reader(NS).entries()
        }


@pytest.fixture(params=[*Strategy, "through a copy"])
def place(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param in list(Strategy):
        place = Place(tmp_path, request.param)
    else:
        monkeypatch.setattr(replayed, "HELD_BYTES", 0)
        place = Place(tmp_path, one_write_bytes=0)
    yield place
    place.store.close()
    assert list(tmp_path.glob("scratch/*")) == list(tmp_path.glob("store.*")) == []


def test_a_poisoned_namespace_goes_back_and_the_undo_brings_it_again(
    place: Place,
) -> None:
    place.put(*(stored(word) for word in "abcdefg"))
    kept = place.keep()
    place.put(stored("h"))
    target = place.store.namespace(NS)
    poisoned = place.put(
        stored("h", response="bad"), stored("a", response="bad"), stored("x")
    )
    report = place.back(8)
    assert report.status is RollbackStatus.COMMITTED
    assert (report.restored, report.removed, report.changed) == (0, 1, 2)
    assert (report.base, report.replayed) == (kept, 1)
    assert report.verdict == "valid"
    after = place.store.namespace(NS)
    assert (after.version, after.timeline) == (12, 12)
    assert after.digest == target.digest == report.digest == place.recorded(8)
    assert place.responses()["a"] == b"answer to a"
    assert place.group.committed([PARTITION]) == {PARTITION: kept + 1}
    undone = place.back(11)
    assert (undone.restored, undone.removed, undone.changed) == (1, 0, 2)
    assert place.store.namespace(NS).digest == poisoned.digest
    again = place.back(12)
    assert place.store.namespace(NS).digest == target.digest == again.digest
    assert (
        digest_mismatch(place.store.namespace(NS), place.store.reader(NS).entries())
        is None
    )


def test_a_late_write_on_the_old_timeline_has_no_effect(place: Place) -> None:
    place.put(stored("a"), stored("b"))
    place.back(1)
    before = place.store.namespace(NS)
    late = envelope(stored("late"), "late", timeline=0)
    place.log.writer().append(NS.encode(), CODEC.encode(late), ()).result(0)
    after = place.put(Evicted(keys=(key("nobody"),), reason="r"))
    assert (after.version, after.digest) == (before.version, before.digest)
    assert after.counts["fenced"] == 1


def test_a_key_that_only_the_target_knew_comes_back(place: Place) -> None:
    # p is neither in the ancestor nor in the head: only the way back has touched it.
    place.put(stored("a"), stored("p"), Evicted(keys=(key("p"),), reason="r"))
    place.back(1)
    place.put(stored("q"))
    report = place.back(2)
    assert (report.restored, report.removed) == (1, 1)
    assert sorted(place.responses()) == ["a", "p"]
    assert place.store.namespace(NS).digest == place.recorded(2)


def test_what_expired_since_comes_back_as_expired(place: Place) -> None:
    place.put(stored("a", ttl_ms=1), Evicted(keys=(key("a"),), reason="r"))
    place.back(1)
    entry = place.store.reader(NS).entry(key("a"))
    assert entry is not None
    assert entry.expires_at_ns == T0_NS + 1_000_000


def test_an_invalidation_is_replayed_for_the_keys_it_took(place: Place) -> None:
    place.put(stored("a", tags=("t",)), stored("b", tags=("t",)), stored("c"))
    place.keep()
    gone = Invalidated(kind=SelectorKind.TAG, value="t", reason="r")
    place.put(gone, stored("a"), stored("d"))
    report = place.back(4)
    assert report.replayed == 1
    assert sorted(place.responses()) == ["c"]


@pytest.mark.parametrize("harm", ["checkpoint", "all"])
def test_a_damaged_checkpoint_gives_way_to_the_next_older_one(
    place: Place, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    place.put(stored("a"))
    older = place.keep()
    place.put(stored("b"))
    newer = place.keep()
    place.put(stored("b", response="bad"))
    for offset in [newer] if harm == "checkpoint" else [newer, older]:
        name = place.folder / "checkpoints" / str(offset)
        sst = next(name.glob("*.sst"))
        raw = sst.read_bytes()
        sst.unlink()
        sst.write_bytes(raw[:-1] + b"\x00\x00")
    report = place.back(2)
    assert report.status is RollbackStatus.COMMITTED
    assert report.base == (older if harm == "checkpoint" else -1)
    assert "is damaged" in caplog.text
    assert place.store.namespace(NS).digest == place.recorded(2)


def test_where_nothing_leads_back_the_namespace_is_in_quarantine(
    place: Place,
) -> None:
    place.put(stored("a"), stored("b"), stored("a", response="bad"))
    place.log.delete_before(PARTITION, Offset(3))
    live = place.store.namespace(NS)
    report = place.back(2)
    assert report.status is RollbackStatus.QUARANTINED
    assert "outside of" in report.verdict
    state = place.store.namespace(NS)
    assert (state.version, state.timeline) == (4, 4)
    assert state.digest == live.digest
    found = place.store.quarantine(NS)
    assert found is not None
    assert found.offset == report.offset
    assert place.metrics.rollbacks == {RollbackStatus.QUARANTINED: 1}
    assert place.metrics.in_quarantine == 1
    # The partition goes on, and a rollback that can be done lifts it.
    place.put(stored("z"))
    assert place.store.quarantine(NS) == found
    lifted = place.back(0)
    assert lifted.status is RollbackStatus.COMMITTED
    assert place.metrics.in_quarantine == 0
    assert place.store.quarantine(NS) is None
    assert place.responses() == {}


def test_a_base_taken_in_quarantine_is_no_base(place: Place) -> None:
    place.put(stored("a"), stored("b"), stored("a", response="bad"))
    place.log.delete_before(PARTITION, Offset(3))
    place.back(2)
    place.put(stored("z"))
    place.keep()
    place.put(stored("y"))
    report = place.back(5)
    assert report.status is RollbackStatus.QUARANTINED
    assert "in quarantine" in report.verdict


def test_a_refused_rollback_says_why_and_changes_nothing(place: Place) -> None:
    before = place.put(stored("a"))
    body = rolled_back(0, "wrong", expected_head=7)
    after = place.put(body)
    report = place.store.rollback_report(body.rollback_id)
    assert report is not None
    assert report.status is RollbackStatus.REFUSED
    assert report.verdict == "expected head 7, the head is 1"
    assert report.new_version is None
    assert (after.version, after.digest) == (before.version, before.digest)
    above = place.back(9)
    assert above.verdict == "version 9 is above the head 1"


def test_the_same_rollback_twice_is_done_once_even_after_another_one(
    place: Place,
) -> None:
    place.put(stored("a"), stored("b"))
    first = rolled_back(1, "first")
    place.put(first, rolled_back(2, "second"))
    report = place.store.rollback_report(first.rollback_id)
    before = place.store.namespace(NS)
    after = place.put(first)
    assert (after.version, after.digest) == (before.version, before.digest)
    assert place.store.rollback_report(first.rollback_id) == report


def test_a_preview_shows_field_by_field_what_the_rollback_then_does(
    place: Place,
) -> None:
    place.put(stored("a"), stored("b"), stored("a", response="bad"))
    view = RocksView(place.folder / "store", MEMORY)
    view.catch_up()
    sources = Sources(
        partition=PARTITION,
        store=view,
        checkpoints=place.checkpoints,
        log=place.log.reader(),
        decoder=CODEC,
    )
    shown = preview(sources, NS, Version(2), place.strategy)
    (change,) = shown.delta.changes
    assert change.key == key("a")
    paths = {operation["path"] for operation in change.patch()}
    assert {"/response", "/response_hash", "/offset", "/version"} <= paths
    assert "/prompt" not in paths
    report = place.back(2)
    assert (report.digest, report.changed) == (shown.digest, shown.changed)
    view.close()


def test_the_past_is_there_to_be_looked_at(place: Place) -> None:
    place.put(stored("a"), stored("a", response="second"))
    place.keep()
    place.put(stored("b"))
    place.back(1)
    found = entries_at(place.sources, NS, Version(2), {key("a"), key("b")})
    entry = found.entries[key("a")]
    assert entry is not None
    assert entry.response == b"second"
    assert found.entries[key("b")] is None
    everything = entries_at(place.sources, NS, Version(3), None).entries
    assert sorted(everything) == sorted([key("a"), key("b")])


def test_progress_goes_from_plan_to_commit(place: Place) -> None:
    place.put(stored("a"), stored("a", response="bad"), stored("b"))
    place.shown.clear()
    report = place.back(1)
    phases = [progress.phase for progress in place.shown]
    assert phases == sorted(phases, key=list(RollbackPhase).index)
    assert set(phases) == set(RollbackPhase)
    assert place.shown[-1].replayed == report.replayed == 1
    assert {progress.rollback_id for progress in place.shown} == {report.rollback_id}


def test_progress_is_read_by_others_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rollbacks" / "0.json"
    assert read_progress(path) is None
    body = rolled_back(1)
    progress = RollbackProgress(
        rollback_id=body.rollback_id,
        namespace=NS,
        offset=Offset(3),
        phase=RollbackPhase.REPLAYING,
        base=Offset(-1),
        replayed=1,
        total=2,
    )
    board = ProgressFile(path)
    board.show(progress)
    assert read_progress(path) == progress
    path.write_text("{")
    assert read_progress(path) is None
    board.clear()
    board.clear()
    assert read_progress(path) is None


def bodies(random: Random, count: int) -> Iterator[Body]:
    """Events that meet: few keys, and a rollback now and then."""
    head = 0
    for number in range(count):
        word = random.choice("abcdefgh")
        match random.randrange(10):
            case 0:
                yield RolledBack(
                    rollback_id=rolled_back(0, f"random {number}").rollback_id,
                    to_version=Version(random.randint(0, max(0, head - 1))),
                    expected_head=-1,
                    reason="r",
                )
            case 1:
                yield Evicted(keys=(key(word),), reason="r")
            case _:
                yield stored(word, response=f"{number}")
        head = int(head * 0.9) + 1


def test_two_cold_rebuilds_are_equal_to_the_live_fold_byte_for_byte(
    place: Place, tmp_path: Path
) -> None:
    place.folder_ = place.fold_of(place.store, place.checkpoints, every=7)
    place.put(*bodies(Random(4), 120))
    assert len(place.checkpoints.manifests()) >= 1
    state = place.store.namespace(NS)
    assert state.timeline > 0
    others: list[Checkpoints] = [
        MemoryCheckpoints(),
        RocksCheckpoints(tmp_path / "other-checkpoints", IDENTITY, MEMORY),
    ]
    for number, checkpoints in enumerate(others):
        store = RocksStore(tmp_path / f"other-{number}", IDENTITY, MEMORY)
        fold = place.fold_of(store, checkpoints, every=11)
        reader = place.log.reader()
        for batch in reader.read(PARTITION, *reader.bounds(PARTITION)):
            fold.fold(batch)
        assert store.namespace(NS) == state
        assert list(store.reader(NS).entries()) == list(
            place.store.reader(NS).entries()
        )
        last = state.version
        assert store.versions(NS, Version(0), last) == place.store.versions(
            NS, Version(0), last
        )
        store.close()
