"""What a rollback rejects, and how it goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from cachemind.adapters.memory_checkpoints import MemoryCheckpoints
from cachemind.adapters.store_rows import entry_key, touched_key, version_key
from cachemind.agents.past import entries_at, ranges
from cachemind.agents.rehearsal import preview, version_delta
from cachemind.core import restoration
from cachemind.core.delta import ChangeKind, Delta, EntryChange, delta
from cachemind.core.digest import digest_of
from cachemind.core.entry_bytes import encode
from cachemind.core.fold import apply
from cachemind.core.restoration import Restoration
from cachemind.core.rollback import LOG_START, Base, NoEntries, Past, bases, plan
from cachemind.core.rollback_check import (
    field_hashes,
    require_entries,
    require_totals,
)
from cachemind.core.rollback_report import RollbackStatus, Strategy
from cachemind.core.state import Entry, NamespaceState
from cachemind.core.timeline import Branch, History, Span
from cachemind.errors import LogUnavailable, RollbackRejected, UnknownVersion
from cachemind.events import Body
from cachemind.ports import LogReader, LogRecord
from cachemind.types import ExactKey, Namespace, Offset, Partition, Timeline, Version
from tests.fold_cases import (
    NS,
    PARTITION,
    envelope,
    event_id,
    key,
    lsn,
    rolled_back,
    stored,
)
from tests.unit.rollback_bench import CODEC, RollbackBench


def v(number: int) -> Version:
    return Version(number)


POISONED = History((Branch(v(131), v(127)),), v(132))


# ---- the plan -----------------------------------------------------------------------


def test_the_way_leads_over_the_common_ancestor() -> None:
    undo = plan(POISONED, v(130))
    assert (undo.head, undo.target, undo.ancestor) == (132, 130, 127)
    assert undo.away == (Span(v(131), v(132)),)
    assert undo.back == (Span(v(128), v(130)),)


def test_a_target_that_never_was_has_no_plan() -> None:
    with pytest.raises(UnknownVersion):
        plan(POISONED, v(133))


@pytest.mark.parametrize(
    ("kept", "target", "expected"),
    [
        pytest.param([], 127, [], id="none"),
        pytest.param([100, 120], 127, [120, 100], id="the-nearest-first"),
        pytest.param([129], 127, [], id="after-the-target"),
        pytest.param([129, 120], 132, [120], id="on-the-abandoned-side"),
        pytest.param([129, 120], 130, [129, 120], id="back-to-the-abandoned-side"),
        pytest.param([131, 127], 132, [131, 127], id="the-rollback-itself"),
        pytest.param([500], 127, [], id="not-of-this-history"),
        pytest.param([0], 0, [0], id="the-empty-state"),
    ],
)
def test_bases_are_on_the_targets_lineage(
    kept: list[int], target: int, expected: list[int]
) -> None:
    offered = [Base(offset=Offset(n), version=v(n), digest=n) for n in kept]
    found = bases(POISONED, v(target), offered)
    assert [base.version for base in found[:-1]] == expected
    assert found[-1] == LOG_START


def test_of_one_version_the_newer_checkpoint_comes_first() -> None:
    offered = [Base(offset=Offset(n), version=v(3), digest=0) for n in (5, 9, 7)]
    found = bases(POISONED, v(3), offered)
    assert [base.offset for base in found] == [9, 7, 5, -1]


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([], []),
        ([5], [(5, 6)]),
        ([5, 9], [(5, 10)]),
        ([5, 5005], [(5, 5006)]),
        ([5, 5006, 5007], [(5, 6), (5006, 5008)]),
    ],
)
def test_ranges_cover_the_offsets_and_skip_wide_gaps(
    offsets: list[int], expected: list[tuple[int, int]]
) -> None:
    assert list(ranges([Offset(o) for o in offsets])) == expected


# ---- the validator ------------------------------------------------------------------


def made(word: str, **changes: object) -> Entry:
    """The entry that `stored(word)` makes as the first event."""
    step = apply(
        NamespaceState(namespace=NS), NoEntries(), envelope(stored(word)), lsn(0)
    )
    entry = step.entries[key(word)]
    assert entry is not None
    return replace(entry, **changes)  # type: ignore[arg-type]  # fields of an entry


def by_key(entries: Sequence[Entry]) -> dict[ExactKey, Entry]:
    return {entry.exact_key: entry for entry in entries}


LIVE = (made("a", response=b"bad"), made("x"))
TARGET = (made("a"), made("b"))


def whole(entries: Sequence[Entry]) -> NamespaceState:
    pairs = [(entry.exact_key, encode(entry)) for entry in entries]
    return NamespaceState(
        namespace=NS,
        digest=digest_of(pairs),
        entries=len(pairs),
        entry_bytes=sum(len(raw) for _, raw in pairs),
    )


def difference() -> Delta:
    before, after = by_key(LIVE), by_key(TARGET)
    return delta({*before, *after}, before, after)


def check(strategy: Strategy, changes: Delta) -> None:
    done = Restoration(whole(LIVE), strategy, keep_changes=0)
    for change in changes.changes:
        done.add(Delta((change,)))
    require_totals(done.after, whole(TARGET).digest, 2)


def test_a_delta_counts_what_becomes_of_entries() -> None:
    found = difference()
    counts = {kind: found.count(kind) for kind in ChangeKind}
    assert counts == dict.fromkeys(ChangeKind, 1)


@pytest.mark.parametrize("kept", range(5))
def test_a_delta_of_which_little_is_kept_still_counts_all(kept: int) -> None:
    placed: dict[ExactKey, Entry | None] = {}
    done = Restoration(
        whole(LIVE),
        Strategy.FIELD_HASH,
        keep_changes=kept,
        place=lambda entries, _left: placed.update(entries),
    )
    for change in difference().changes:
        done.add(Delta((change,)))
    found = done.delta()
    assert found.changes == difference().changes[:kept]
    assert len(found) == 3
    assert [found.count(kind) for kind in ChangeKind] == [1, 1, 1]
    assert placed == difference().entries()


@pytest.mark.parametrize("strategy", Strategy)
def test_the_whole_delta_is_valid(strategy: Strategy) -> None:
    check(strategy, difference())


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("missing", range(3))
def test_a_delta_that_is_only_partly_there_is_rejected(
    strategy: Strategy, missing: int
) -> None:
    changes = difference().changes
    with pytest.raises(RollbackRejected):
        check(strategy, Delta(changes[:missing] + changes[missing + 1 :]))


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(
    "wrong",
    [{"response": b"another"}, {"right": 1}, {"version": v(9)}, {"pinned": True}],
)
def test_a_field_of_another_version_is_rejected(
    strategy: Strategy, wrong: dict[str, object]
) -> None:
    changes = tuple(
        replace(change, after=replace(change.after, **wrong))  # type: ignore[arg-type]
        if change.key == key("a") and change.after
        else change
        for change in difference().changes
    )
    with pytest.raises(RollbackRejected, match="digest"):
        check(strategy, Delta(changes))


def test_an_entry_that_the_stores_bytes_would_change_is_rejected() -> None:
    odd = made("a", snapshot_id="AB" * 16)
    changes = Delta((EntryChange(odd.exact_key, None, odd),))
    with pytest.raises(RollbackRejected, match="when it is stored"):
        require_entries(Strategy.FIELD_HASH, changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pinned", True),
        ("right", 1),
        ("prompt", None),
        ("prompt", ""),
        ("tags", ("a", "b")),
        ("tags", ("ab",)),
        ("model", "x"),
        ("embedding", None),
        ("response", b"x"),
    ],
)
def test_each_field_has_a_hash_of_its_own(name: str, value: object) -> None:
    before, after = made("a"), made("a", **{name: value})
    pairs = zip(field_hashes(before), field_hashes(after), strict=True)
    assert sum(one != other for one, other in pairs) == 1


def test_tags_hash_apart_however_they_are_cut() -> None:
    one, other = made("a", tags=("a", "b")), made("a", tags=("ab",))
    assert field_hashes(one) != field_hashes(other)


def test_an_entry_at_anothers_key_is_rejected() -> None:
    odd = made("a")
    changes = Delta((EntryChange(key("b"), None, odd),))
    with pytest.raises(RollbackRejected, match="own key"):
        require_entries(Strategy.FIELD_HASH, changes)


def test_another_number_of_entries_is_rejected() -> None:
    state = whole([made("a")])
    with pytest.raises(RollbackRejected, match="1 entries where 2"):
        require_totals(state, state.digest, 2)


def test_of_large_changes_no_more_are_kept_than_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, *others = difference().changes
    monkeypatch.setattr(restoration, "SHOWN_BYTES", first.held_bytes)
    done = Restoration(whole(LIVE), Strategy.FIELD_HASH, keep_changes=9)
    done.add(Delta((first, *others)))
    found = done.delta()
    assert found.changes == (first,)
    assert len(found) == 3


# ---- the replay ---------------------------------------------------------------------


def test_an_event_that_is_not_the_one_of_its_version_is_rejected() -> None:
    bench = RollbackBench()
    bench.fold(envelope(stored("a"), "e1"))
    (row,) = bench.store.versions(NS, v(1), v(1))
    good = envelope(stored("a"), "e1")
    for event, at in (
        (replace(good, event_id=event_id("other")), lsn(0)),
        (envelope(rolled_back(0), "e1"), lsn(0)),
        (good, lsn(1)),
        (replace(good, timeline=Timeline(1)), lsn(0)),
        (envelope(stored("b"), "e1"), lsn(0)),
    ):
        with pytest.raises(RollbackRejected):
            Past(NS, NoEntries(), None).follow(row, [key("a")], event, at)
    past = Past(NS, NoEntries(), None)
    past.follow(row, [key("a")], good, lsn(0))
    assert past.entry(key("a")) == bench.store.reader(NS).entry(key("a"))


class Tampered:
    """A `LogReader` that gives `change` of each batch."""

    def __init__(
        self,
        inner: LogReader,
        change: Callable[[Sequence[LogRecord]], Sequence[LogRecord]],
    ) -> None:
        self._inner = inner
        self._change = change

    def bounds(self, partition: Partition) -> tuple[Offset, Offset]:
        return self._inner.bounds(partition)

    def read(
        self, partition: Partition, start: Offset, end: Offset
    ) -> Iterable[Sequence[LogRecord]]:
        return map(self._change, self._inner.read(partition, start, end))

    def close(self) -> None:
        self._inner.close()


def with_value(records: Sequence[LogRecord], value: bytes | None) -> list[LogRecord]:
    return [replace(record, value=value) for record in records]


def swapped(records: Sequence[LogRecord]) -> list[LogRecord]:
    return with_value(records, CODEC.encode(envelope(stored("a"), "forged")))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda found: found[1:], "not on the log", id="missing"),
        pytest.param(lambda found: found[:1], "not on the log", id="short"),
        pytest.param(lambda found: with_value(found, None), "read", id="no-value"),
        pytest.param(lambda found: with_value(found, b"x"), "read", id="undecodable"),
        pytest.param(swapped, "another event", id="forged"),
    ],
)
def test_a_log_that_does_not_give_what_history_names_is_rejected(
    change: Callable[[Sequence[LogRecord]], Sequence[LogRecord]], reason: str
) -> None:
    bench = RollbackBench()
    bench.fold(*(envelope(stored("a", response=str(n)), f"e{n}") for n in range(5)))
    sources = replace(bench.sources, log=Tampered(bench.log.reader(), change))
    with pytest.raises(RollbackRejected, match=reason):
        preview(sources, NS, v(3))


def test_a_log_that_is_away_is_not_a_reason_to_quarantine() -> None:
    bench = RollbackBench()
    bench.fold(*(envelope(stored("a", response=str(n)), f"e{n}") for n in range(5)))

    def away(found: Sequence[LogRecord]) -> Sequence[LogRecord]:
        raise LogUnavailable("no answer")

    sources = replace(bench.sources, log=Tampered(bench.log.reader(), away))
    with pytest.raises(LogUnavailable):
        preview(sources, NS, v(3))


def test_a_checkpoint_whose_entries_are_wrong_gives_way_to_an_older_one() -> None:
    bench = RollbackBench()
    bench.fold(envelope(stored("a"), "e1"))
    older = bench.checkpoints.create(bench.store)
    bench.fold(envelope(stored("b"), "e2"))
    newer = bench.checkpoints.create(bench.store)
    rows = bench.checkpoints.rows(newer)
    harmed = encode(made("a", response=b"flipped bits"))
    bench.checkpoints.put(newer, rows.changed([(entry_key(NS, key("a")), harmed)]))
    bench.fold(envelope(stored("a", response="bad"), "e3"))
    bench.fold(envelope(rolled_back(2), "e4"))
    report = bench.store.rollback_report(rolled_back(2).rollback_id)
    assert report is not None
    assert (report.status, report.base) == (RollbackStatus.COMMITTED, older)


@pytest.mark.parametrize("lost", [version_key(NS, 2), touched_key(NS, 2)])
def test_a_history_with_a_hole_is_rejected(lost: bytes) -> None:
    bench = RollbackBench()
    bench.fold(*(envelope(stored("a", response=str(n)), f"e{n}") for n in range(4)))
    bench.checkpoints.put(Offset(9), bench.store.rows().changed([(lost, None)]))
    with bench.checkpoints.open(Offset(9)) as holed:
        sources = replace(bench.sources, store=holed, checkpoints=MemoryCheckpoints())
    with pytest.raises(RollbackRejected, match="history lacks"):
        preview(sources, NS, v(2))


# ---- looking ------------------------------------------------------------------------


def history_of(*bodies: Body) -> RollbackBench:
    bench = RollbackBench()
    for number, body in enumerate(bodies):
        timeline = bench.store.namespace(NS).timeline
        bench.fold(envelope(body, f"e{number}", timeline=timeline))
    return bench


def test_two_versions_are_compared_whatever_side_they_are_on() -> None:
    bench = history_of(
        stored("a"),
        stored("b"),
        stored("a", response="bad"),
        rolled_back(1),
        stored("c"),
    )
    there = version_delta(bench.sources, NS, v(3), v(5))
    kinds = {change.key: change.kind for change in there.changes}
    assert kinds == {
        key("a"): ChangeKind.CHANGED,
        key("b"): ChangeKind.REMOVED,
        key("c"): ChangeKind.RESTORED,
    }
    back = version_delta(bench.sources, NS, v(5), v(3))
    assert [(c.before, c.after) for c in back.changes] == [
        (c.after, c.before) for c in there.changes
    ]
    assert version_delta(bench.sources, NS, v(1), v(4)).changes == ()


def test_one_rollback_id_in_two_namespaces_is_two_rollbacks() -> None:
    other = Namespace("shop2")
    bench = RollbackBench()
    back = rolled_back(0, "one id")
    for name in (NS, other):
        bench.fold(envelope(stored("a"), f"s {name}", namespace=name))
        bench.fold(envelope(back, f"r {name}", namespace=name))
        assert bench.store.namespace(name).entries == 0
    for name in (NS, other):
        report = bench.store.rollback_report(back.rollback_id, name)
        assert report is not None
        assert (report.namespace, report.status.value) == (name, "committed")


def test_a_version_that_never_was_cannot_be_looked_at() -> None:
    bench = history_of(stored("a"))
    for ask in (
        lambda: entries_at(bench.sources, NS, v(2), None),
        lambda: preview(bench.sources, NS, v(2)),
        lambda: version_delta(bench.sources, NS, v(0), v(2)),
    ):
        with pytest.raises(UnknownVersion):
            ask()


def test_events_on_other_keys_are_not_even_read() -> None:
    bench = history_of(*(stored(word) for word in "abcdefgh"))
    assert entries_at(bench.sources, NS, v(8), {key("c")}).replayed == 1
    assert entries_at(bench.sources, NS, v(8), set()).replayed == 0


def test_a_rollback_to_the_head_is_a_version_without_a_change() -> None:
    bench = history_of(stored("a"), rolled_back(1))
    state = bench.store.namespace(NS)
    report = bench.store.rollback_report(rolled_back(1).rollback_id)
    assert report is not None
    assert report.status is RollbackStatus.COMMITTED
    assert (state.version, state.timeline, state.entries) == (2, 2, 1)
    assert bench.group.committed([PARTITION]) == {PARTITION: 0}
    assert bench.store.fenced_at(NS) == 1
