"""One partition's sweeps, over a log and a fold in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_sole_writer import MemorySoleWriter, MemoryTurns
from cachemind.agents.collecting import PAUSE_S, Collecting, CollectingDeps, LogTime
from cachemind.core.collecting import CollectRules
from cachemind.core.op_hash import op_hash
from cachemind.core.rollback_report import RollbackStatus
from cachemind.errors import LogTakenOver, LogUnavailable
from cachemind.events import EXPIRED, Envelope, Evicted, Pinned, Stored
from cachemind.types import Namespace, Offset, Partition, WriterId
from cachemind_services.bootstrap.log_end import records_end
from tests.contracts.store_contract import commit_end, refusal
from tests.fold_cases import (
    NS,
    PARTITION,
    T0_NS,
    envelope,
    key,
    rolled_back,
    stored,
)
from tests.unit.rollback_bench import CODEC, RollbackBench

S = 1_000_000_000
GRACE_S = 60
STEPS = ("collect.taken", "collect.decided", "collect.appended", "collect.folded")


class Died(BaseException):
    """The process was killed."""


class Told:
    """`CollectMetrics` that remembers."""

    def __init__(self) -> None:
        self.gone: list[int] = []
        self.sweeps = 0

    def evicted(self, partition: Partition, reason: str, entries: int) -> None:
        assert (partition, reason) == (PARTITION, EXPIRED)
        self.gone.append(entries)

    def swept(self, partition: Partition, took_s: float, at_ns: int) -> None:
        assert took_s >= 0
        self.sweeps += 1

    def failed(self, partition: Partition, reason: str) -> None: ...


class Place:
    """A partition whose fold goes on whenever a collector waits for it.

    Time, of the host and since its start, is moved by hand.
    """

    def __init__(self) -> None:
        self.bench = RollbackBench()
        self.turns = MemoryTurns()
        self.clock = ManualClock(T0_NS)
        self.up_ns = 0
        self.told = Told()
        self.folds = True

    def collector(
        self,
        failpoint: Callable[[str], None] = lambda _: None,
        *,
        most_keys: int = 2,
    ) -> Collecting:
        """Return a collector as after a start."""
        log = self.bench.log
        return Collecting(
            CollectingDeps(
                partition=PARTITION,
                view=self.bench.store.view(),
                log_end=lambda above: records_end(log.reader(), PARTITION, above),
                writer=MemorySoleWriter(log, PARTITION, self.turns),
                writer_id=WriterId("collector"),
                codec=CODEC,
                clock=self.clock,
                log_time=LogTime(GRACE_S * S),
                random=lambda count: bytes(range(1, count + 1)),
                rules=CollectRules(grace_ns=GRACE_S * S, most_keys=most_keys),
                metrics=self.told,
                failpoint=failpoint,
                monotonic_ns=lambda: self.up_ns,
                sleep=self._sleep,
                folded_s=1.0,
            )
        )

    def put(self, *words: str, ttl_s: float = 10, at_s: float = 0) -> None:
        """Store an entry at each word."""
        for word in words:
            self.tell(stored(word, ttl_ms=round(ttl_s * 1000)), at_s=at_s)

    def tell(self, body: Stored | Pinned, at_s: float = 0, ns: Namespace = NS) -> None:
        """Append and fold an event."""
        count = len(self.log())
        at_ns = T0_NS + round(at_s * S)
        self.bench.fold(envelope(body, f"e{count}", namespace=ns, at_ns=at_ns))

    def go_on(self, seconds: float) -> None:
        """Let time pass, here and by the clock of this host."""
        self.clock.advance(round(seconds * S))
        self.up_ns += round(seconds * S)

    def log(self) -> list[Envelope]:
        """Return every event on the log."""
        reader = self.bench.log.reader()
        batches = reader.read(PARTITION, *reader.bounds(PARTITION))
        return [CODEC.decode(r.value or b"") for batch in batches for r in batch]

    def evictions(self) -> list[Evicted]:
        return [e.body for e in self.log() if isinstance(e.body, Evicted)]

    def left(self, ns: Namespace = NS) -> list[bytes]:
        """Return the keys that there are, once all is folded."""
        self.bench.fold()
        return [one.exact_key for one in self.bench.store.reader(ns).entries()]

    def _sleep(self, seconds: float) -> None:
        self.up_ns += round(seconds * S)
        if self.folds and seconds < PAUSE_S:
            self.bench.fold()


def forever() -> bool:
    return False


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_has_expired_goes_in_bounded_events_and_the_rest_stays(
    place: Place,
) -> None:
    place.put(*"abcde")
    place.put("long", ttl_s=10_000)
    place.put("kept")
    place.tell(Pinned(exact_key=key("kept"), pinned=True))
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(69)
    collector.sweep(forever)
    assert place.evictions() == []
    place.go_on(1)
    collector.sweep(forever)
    assert sorted(place.left()) == sorted([key("long"), key("kept")])
    events = place.evictions()
    assert [len(event.keys) for event in events] == [2, 2, 1]
    assert sorted(k for event in events for k in event.keys) == sorted(
        map(key, "abcde")
    )
    assert place.told.gone == [2, 2, 1]
    assert place.told.sweeps == 3


def test_a_sweep_without_anything_to_do_writes_nothing(place: Place) -> None:
    place.put("a", ttl_s=10_000)
    before = len(place.log())
    for _ in range(3):
        place.go_on(100)
        place.collector().sweep(forever)
    assert len(place.log()) == before


def test_an_eviction_is_an_event_like_any_other(place: Place) -> None:
    place.put("a")
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(100)
    collector.sweep(forever)
    event = place.log()[-1]
    assert event.body == Evicted(keys=(key("a"),), reason=EXPIRED)
    assert event.namespace == NS
    assert event.principal == "collector"
    assert event.occurred_at_ns == T0_NS + 100 * S
    assert event.op_hash == op_hash(
        "evicted", key("a"), b"expired", event.occurred_at_ns
    )
    state = place.bench.store.namespace(NS)
    assert (state.version, state.entries, state.digest) == (2, 0, 0)
    assert state.digest == place.bench.rebuilt().namespace(NS).digest


def test_each_namespace_of_the_partition_is_swept(place: Place) -> None:
    other = Namespace("other")
    place.put("a")
    place.tell(stored("b", ttl_ms=10), ns=other)
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(100)
    collector.sweep(forever)
    assert place.left() == place.left(other) == []


# ---- time ---------------------------------------------------------------------------


def test_a_clock_that_jumps_ahead_evicts_nothing(place: Place) -> None:
    place.put("a", "b")
    collector = place.collector()
    collector.sweep(forever)
    place.clock.advance(365 * 86_400 * S)
    collector.sweep(forever)
    place.collector().sweep(forever)
    assert place.evictions() == []


def test_a_jump_of_the_hosts_and_the_logs_time_counts_once_it_stands(
    place: Place,
) -> None:
    place.put("a")
    collector = place.collector()
    collector.sweep(forever)
    place.clock.advance(86_400 * S)
    place.put("new", ttl_s=10_000, at_s=86_400)
    collector.sweep(forever)
    place.go_on(GRACE_S - 1)
    collector.sweep(forever)
    assert place.evictions() == []
    place.go_on(1)
    collector.sweep(forever)
    assert place.left() == [key("new")]


def test_a_quiet_partition_goes_by_the_time_of_the_others() -> None:
    time = LogTime(GRACE_S * S)
    assert time.told_ns(Partition(0), 100 * S, 0) == 100 * S
    assert time.told_ns(Partition(1), 150 * S, 0) == 150 * S
    assert time.told_ns(Partition(0), 100 * S, 5 * S) == 155 * S
    # A jump that one of them has seen is doubted as long as any other.
    for at_s in (10, 69):
        assert time.told_ns(Partition(1), 10**6 * S, at_s * S) == (150 + at_s) * S
        assert time.told_ns(Partition(0), 100 * S, at_s * S) == (150 + at_s) * S
    assert time.told_ns(Partition(0), 100 * S, 70 * S) == 10**6 * S


def test_a_clock_that_stands_behind_evicts_later(place: Place) -> None:
    place.put("a")
    place.clock.advance(-500 * S)
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(500)
    collector.sweep(forever)
    assert place.evictions() == []
    place.go_on(100)
    collector.sweep(forever)
    assert place.left() == []


# ---- beside others ------------------------------------------------------------------


def test_what_is_stored_anew_before_the_event_stays(place: Place) -> None:
    place.put("a", "b")

    def meanwhile(step: str) -> None:
        if step == "collect.decided":
            place.bench.append(envelope(stored("a"), "anew", at_ns=T0_NS + 100 * S))

    collector = place.collector(meanwhile)
    collector.sweep(forever)
    place.go_on(100)
    collector.sweep(forever)
    assert place.left() == [key("a")]


def test_an_eviction_that_a_rollback_overtakes_is_fenced(place: Place) -> None:
    place.put("a")
    place.put("b", ttl_s=10_000)

    def meanwhile(step: str) -> None:
        if step == "collect.decided" and not place.evictions():
            place.bench.append(envelope(rolled_back(1), "back"))

    collector = place.collector(meanwhile)
    collector.sweep(forever)
    place.go_on(100)
    collector.sweep(forever)
    assert place.left() == [key("a")]
    assert place.bench.store.namespace(NS).counts["fenced"] == 1
    # The next sweep decides on the new timeline.
    collector.sweep(forever)
    assert place.left() == []


def test_what_a_rollback_brings_back_expired_goes_again(place: Place) -> None:
    place.put("a")
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(100)
    collector.sweep(forever)
    assert place.left() == []
    place.bench.fold(envelope(rolled_back(1), "back", at_ns=T0_NS + 100 * S))
    (back,) = place.bench.store.reader(NS).entries()
    assert back.expires_at_ns < place.clock.now_ns()
    collector.sweep(forever)
    assert place.left() == []
    assert place.bench.store.namespace(NS).version == 4


@pytest.mark.parametrize("step", STEPS)
def test_whoever_is_killed_where_each_entry_goes_once(place: Place, step: str) -> None:
    place.put(*"abcde")
    place.put("long", ttl_s=10_000)
    first = True

    def dies(reached: str) -> None:
        nonlocal first
        if reached == step and first:
            first = False
            raise Died

    collector = place.collector(dies)
    for _ in range(5):
        try:
            collector.sweep(forever)
        except Died:
            collector = place.collector()
        place.go_on(100)
    assert not first
    assert place.left() == [key("long")]
    keys = [k for event in place.evictions() for k in event.keys]
    assert sorted(keys) == sorted(map(key, "abcde"))


def test_of_two_collectors_the_later_one_is_the_only_one(place: Place) -> None:
    place.put(*"abc")
    one, other = place.collector(), place.collector()
    one.sweep(forever)
    other.sweep(forever)
    place.go_on(100)
    with pytest.raises(LogTakenOver):
        one.sweep(forever)
    assert place.evictions() == []
    other.sweep(forever)
    assert place.left() == []
    # It may come back, and then sees what the other one did.
    place.put("d")
    one.sweep(forever)
    assert place.left() == []
    assert sum(place.told.gone) == 4


def test_nothing_more_is_decided_until_the_fold_is_as_far(place: Place) -> None:
    place.put(*"abcde")
    ahead: list[int] = []

    def look(step: str) -> None:
        if step == "collect.decided":
            ahead.append(len(place.bench.pending()))

    collector = place.collector(look)
    collector.sweep(forever)
    place.go_on(100)
    collector.sweep(forever)
    assert ahead == [0, 0, 0]


def test_a_namespace_in_quarantine_is_left_alone(place: Place) -> None:
    place.put("a")
    place.bench.log.leave_gap(PARTITION)
    bad = replace(refusal(1), status=RollbackStatus.QUARANTINED)
    commit_end(place.bench.store, bad)
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(100)
    collector.sweep(forever)
    assert place.evictions() == []


# ---- what is away -------------------------------------------------------------------


def test_a_store_that_is_behind_is_not_swept(place: Place) -> None:
    place.put("a")
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(100)
    place.folds = False
    place.bench.append(envelope(stored("b"), "late"))
    with pytest.raises(LogUnavailable, match="not yet at"):
        collector.sweep(forever)
    place.folds = True
    collector.sweep(forever)
    assert place.evictions() != []


def test_a_sweep_that_is_to_stop_waits_for_nobody(place: Place) -> None:
    place.put(*"abcde")
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(100)
    place.folds = False
    collector.sweep(lambda: bool(place.evictions()))
    assert len(place.evictions()) == 1
    place.folds = True
    collector.sweep(forever)
    assert place.left() == []
    assert sum(place.told.gone) == 5


def test_an_append_of_which_nothing_is_known_is_looked_for(place: Place) -> None:
    place.put("a")
    collector = place.collector()
    collector.sweep(forever)
    place.go_on(100)
    writer = collector._deps.writer
    assert isinstance(writer, MemorySoleWriter)
    writer.fails_after_commit = True
    with pytest.raises(LogUnavailable):
        collector.sweep(forever)
    collector.sweep(forever)
    assert place.left() == []
    assert len(place.evictions()) == 1


def test_the_ends_of_transactions_are_not_waited_for(place: Place) -> None:
    place.put("a")
    place.bench.log.leave_gap(PARTITION, 3)
    place.folds = False
    place.collector().sweep(forever)
    assert place.told.sweeps == 1
    assert place.bench.store.view().catch_up() == Offset(0)
