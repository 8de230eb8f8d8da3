"""History that nothing kept leads back to, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_store import MemoryStore
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.store_reading import Rows, scan_prefix
from cachemind.adapters.store_rows import REQUEST, TOUCHED, VERSION, in_namespace
from cachemind.agents.forgetting import Forgetting, ForgettingDeps
from cachemind.agents.past import Sources
from cachemind.agents.rehearsal import preview, version_delta
from cachemind.agents.rollback import Rollbacks
from cachemind.codec.codec import Codec
from cachemind.core.requested import requested_id
from cachemind.core.state import EntryReader, NamespaceState
from cachemind.core.timeline import Span
from cachemind.core.working_set import WorkingSet
from cachemind.errors import RollbackRejected
from cachemind.events import Body, RolledBack
from cachemind.ports import HistoryStore, StoreWriter
from cachemind.types import (
    EventId,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Principal,
    Version,
)
from tests.adapters.rocks_writing import IDENTITY
from tests.wal_events import ALPHA, envelope, stored

MEMORY = RocksMemory(cache_bytes=32 << 20, write_buffer_bytes=16 << 20)
NOW_NS = 1_700_000_000 * 10**9
CODEC = Codec()
HOME = Partition(0)


class Store(StoreWriter, HistoryStore, Protocol):
    """What both are."""

    def rows(self) -> Rows:
        """Return the rows."""
        ...


@dataclass
class Place:
    """A namespace folded from a log in memory, with checkpoints on disk."""

    store: RocksStore
    checkpoints: RocksCheckpoints
    log: MemoryLog = field(default_factory=lambda: MemoryLog(1, SystemClock()))
    sent: int = 0

    @property
    def sources(self) -> Sources:
        return Sources(
            partition=HOME,
            store=self.store,
            checkpoints=self.checkpoints,
            log=self.log.reader(),
            decoder=CODEC,
        )

    def fold(self, *bodies: Body, event_id: EventId | None = None) -> None:
        """Append events and fold them, each with a commit of its own."""
        for body in bodies:
            timeline = self.state.timeline
            event = replace(envelope(self.sent, body), timeline=timeline)
            if event_id is not None:
                event = replace(event, event_id=event_id)
            self.sent += 1
            record = CODEC.encode(event)
            lsn = self.log.writer().append(ALPHA.encode(), record, ()).result(5)
            if isinstance(body, RolledBack):
                rollbacks = Rollbacks(self.sources, self.store)
                step = rollbacks.step(event, body, lsn)
                rollbacks.commit(lsn.offset, {ALPHA: [step]})
                continue
            working = WorkingSet(self._load, self.store.requests)
            working.apply(event, lsn)
            self.store.commit(lsn.offset, working.steps())

    def _load(self, namespace: Namespace) -> tuple[NamespaceState, EntryReader]:
        return self.store.namespace(namespace), self.store.reader(namespace)

    @property
    def state(self) -> NamespaceState:
        return self.store.namespace(ALPHA)

    def checkpoint(self, name: str = "") -> Offset:
        return self.checkpoints.create(self.store, NOW_NS, name).offset

    def cut(self, before: int) -> None:
        self.log.delete_before(HOME, Offset(before))

    def forgetting(self, rows: int = 1_000) -> Forgetting:
        return Forgetting(
            ForgettingDeps(
                store=self.store,
                oldest=self.checkpoints.oldest,
                log_begins=lambda: self.log.reader().bounds(HOME)[0],
                rows=rows,
            )
        )

    def forget(self) -> None:
        """Do all that is to be done."""
        forgetting = self.forgetting()
        forgetting.begin()
        for _ in range(10):
            forgetting.go_on()

    def kept(self) -> list[int]:
        """Return the versions that have a row, and check that they have both."""
        rows = self.store.rows()
        found = [
            [int.from_bytes(key[-8:], "big") for key, _ in scan_prefix(rows, prefix)]
            for prefix in (in_namespace(VERSION, ALPHA), in_namespace(TOUCHED, ALPHA))
        ]
        assert found[0] == found[1]
        return found[0]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    store = RocksStore(tmp_path / "store", IDENTITY, MEMORY)
    checkpoints = RocksCheckpoints(tmp_path / "checkpoints", IDENTITY, MEMORY)
    with closing(store):
        yield Place(store, checkpoints)


def rolled_back(to_version: int, number: int) -> RolledBack:
    return RolledBack(
        rollback_id=EventId(number.to_bytes(16, "big")),
        to_version=Version(to_version),
        expected_head=-1,
        reason="",
    )


def filled(place: Place, count: int = 10, first: int = 0) -> None:
    place.fold(*(stored(number) for number in range(first, first + count)))


def test_nothing_goes_while_the_log_leads_back_to_the_first_version(
    place: Place,
) -> None:
    filled(place)
    place.checkpoint()
    place.forget()
    assert place.kept() == list(range(1, 11))
    assert place.store.horizon(ALPHA) == 0


def test_a_log_cut_below_a_namespaces_first_event_still_leads_back_to_it(
    place: Place,
) -> None:
    writer = place.log.writer()
    for number in range(5):  # of another namespace, and not folded here
        writer.append(b"other", b"%d" % number, ()).result(5)
    filled(place)
    place.checkpoint()
    place.cut(5)
    place.forget()
    assert place.kept() == list(range(1, 11))
    place.cut(6)
    place.forget()
    assert place.kept() == [10]


def test_what_no_checkpoint_leads_back_to_goes_and_the_state_stays(
    place: Place,
) -> None:
    filled(place)
    place.checkpoint()
    filled(place, 5, 10)
    before = place.state
    place.cut(10)
    place.forget()
    assert place.kept() == list(range(10, 16))
    assert place.store.horizon(ALPHA) == 10
    assert place.state == before
    for target in range(10, 15):
        found = preview(place.sources, ALPHA, Version(target))
        assert found.removed == 15 - target
    with pytest.raises(RollbackRejected):
        preview(place.sources, ALPHA, Version(9))


def test_the_empty_version_can_be_gone_back_to_without_any_history(
    place: Place,
) -> None:
    filled(place)
    place.checkpoint()
    place.cut(10)
    place.forget()
    assert preview(place.sources, ALPHA, Version(0)).removed == 10
    assert len(version_delta(place.sources, ALPHA, Version(0), Version(10))) == 10
    place.fold(rolled_back(0, 1))
    assert (place.state.entries, place.state.digest) == (0, 0)
    assert place.store.quarantine(ALPHA) is None


def test_what_an_undo_needs_stays_though_it_is_older_than_the_checkpoint(
    place: Place,
) -> None:
    filled(place)
    place.checkpoint()  # of version 10
    place.fold(rolled_back(4, 1))  # version 11
    filled(place, 2, 20)
    place.cut(10)
    place.forget()
    assert place.kept() == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    place.fold(rolled_back(10, 2))
    assert place.store.quarantine(ALPHA) is None
    (row,) = place.store.versions(ALPHA, Version(10), Version(10))
    assert place.state.digest == row.digest


def test_a_checkpoint_that_somebody_holds_still_counts(place: Place) -> None:
    filled(place, 3)
    old = place.checkpoint()
    filled(place, 7, 3)
    place.checkpoint()
    place.cut(3)
    with place.checkpoints.hold(old):
        assert place.checkpoints.remove(old) is False
        place.forget()
        assert place.kept()[0] == 3
    assert place.checkpoints.remove(old)
    place.cut(10)
    place.forget()
    assert place.kept() == [10]


def test_a_commit_is_followed_by_a_bounded_part_of_the_work(place: Place) -> None:
    filled(place, 200)
    place.checkpoint()
    place.cut(200)
    forgetting = place.forgetting(rows=60)
    forgetting.begin()
    before = len(place.kept())
    rounds = 0
    while len(place.kept()) > 1:
        forgetting.go_on()
        assert before - len(place.kept()) <= 2 * 60
        before = len(place.kept())
        rounds += 1
        forgetting.begin()
    assert rounds >= 2
    assert place.kept() == [200]


def test_a_round_that_is_cut_off_goes_on_where_it_was(place: Place) -> None:
    filled(place, 100)
    place.checkpoint()
    place.cut(100)
    forgetting = place.forgetting(rows=30)
    forgetting.begin()
    forgetting.go_on()
    assert 1 < len(place.kept()) < 100
    again = place.forgetting()
    again.begin()
    again.go_on()
    assert place.kept() == [100]


def test_a_forgotten_report_still_keeps_its_rollback_from_being_done_again(
    place: Place,
) -> None:
    filled(place, 4)
    first = rolled_back(2, 1)
    place.fold(first)  # version 5
    refused = rolled_back(99, 2)
    place.fold(refused)
    filled(place, 5, 10)
    place.checkpoint()
    kept = rolled_back(9, 3)
    place.fold(kept)
    place.cut(place.store.applied())
    place.forget()
    store = place.store
    assert store.rollback_report(first.rollback_id, ALPHA) is None
    assert store.rollback_report(refused.rollback_id, ALPHA) is None
    assert store.rollback_report(kept.rollback_id, ALPHA) is not None
    for one in (first, refused, kept):
        assert store.rollback_met(one.rollback_id, ALPHA)
    before = place.state
    for one in (first, refused):
        place.fold(one)
    assert (place.state.version, place.state.digest) == (before.version, before.digest)
    assert not store.rollback_met(EventId(bytes(15) + b"\x09"), ALPHA)


def test_requests_of_older_generations_go_and_the_others_stay(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachemind.core.requested.GENERATION", 3)
    ids = [requested_id(Principal("a"), b"%d" % n, b"") for n in range(10)]
    log = [
        replace(envelope(n, stored(n), ALPHA), event_id=one)
        for n, one in enumerate(ids)
    ]
    memory = MemoryStore()
    for store in (memory, place.store):
        working = WorkingSet(partial(_loaded, store), store.requests)
        for offset, event in enumerate(log):
            working.apply(event, Lsn(HOME, Offset(offset)))
        store.commit(Offset(len(log) - 1), working.steps())
        assert store.forget_requests(ALPHA, 4) == 4
        assert store.forget_requests(ALPHA, 4) == 2
        assert store.forget_requests(ALPHA, 4) == 0
        assert store.forget_requests(Namespace("other"), 4) == 0
        requests = store.requests(ALPHA)
        found = [requests.request(one, requests.head()) for one in ids]
        assert [one is None for one in found] == [True] * 6 + [False] * 4
    assert memory.namespace(ALPHA) == place.store.namespace(ALPHA)


def test_requests_go_with_the_history(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachemind.core.requested.GENERATION", 3)
    for number in range(10):
        one = requested_id(Principal("a"), b"%d" % number, b"")
        place.fold(stored(number), event_id=one)
    place.checkpoint()
    prefix = in_namespace(REQUEST, ALPHA)
    assert len(list(scan_prefix(place.store.rows(), prefix))) == 1 + 10
    place.cut(place.store.applied())
    place.forget()
    assert len(list(scan_prefix(place.store.rows(), prefix))) == 1 + 4


def _loaded(
    store: StoreWriter, namespace: Namespace
) -> tuple[NamespaceState, EntryReader]:
    return store.namespace(namespace), store.reader(namespace)


def test_both_stores_forget_the_same(place: Place) -> None:
    filled(place, 12)
    memory = MemoryStore()
    working = WorkingSet(lambda name: (memory.namespace(name), memory.reader(name)))
    for batch in place.log.reader().read(HOME, Offset(0), Offset(12)):
        for record in batch:
            working.apply(CODEC.decode(record.value or b""), record.lsn)
    memory.commit(Offset(11), working.steps())
    for store in (memory, place.store):
        assert store.forget_versions(ALPHA, Version(6), 3) == 3
        assert store.forget_versions(ALPHA, Version(6), 3) == 2
        assert store.forget_versions(ALPHA, Version(6), 3) == 0
        assert store.horizon(ALPHA) == 6
        found = store.versions(ALPHA, Version(1), Version(12))
        assert [row.version for row in found] == list(range(6, 13))
        assert not store.touched(ALPHA, Span(Version(1), Version(5)))
        assert store.horizon(Namespace("other")) == 0
