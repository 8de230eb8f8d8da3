from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.agents.folding import Folder
from cachemind.agents.live import fold_live
from cachemind.agents.replay import catch_up, fill, never
from cachemind.errors import FoldStopped, LogUnavailable, StoreMismatch
from cachemind.types import Offset
from tests.unit.folding_bench import ZERO, Bench
from tests.wal_events import ALPHA, stored


def test_catching_up_reaches_the_end_and_reports_on_the_way() -> None:
    bench = Bench()
    bench.append(*(stored(n) for n in range(2500)))
    seen: list[tuple[Offset, Offset]] = []

    def progress(folder: Folder, end: Offset) -> None:
        seen.append((folder.applied, end))

    assert catch_up(bench.folder(), bench.reader, progress=progress) == 2500
    assert bench.store.namespace(ALPHA).version == 2500
    assert len(seen) > 1
    assert seen[-1] == (2499, 2500)


def test_catching_up_twice_changes_nothing() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2))
    catch_up(bench.folder(), bench.reader)
    before = bench.store.namespace(ALPHA)
    catch_up(bench.folder(), bench.reader)
    assert bench.store.namespace(ALPHA) == before


def test_markers_at_the_end_do_not_hang_a_replay() -> None:
    bench = Bench()
    bench.append(stored(1))
    bench.wal.leave_gap(ZERO, 3)
    folder = bench.folder()
    catch_up(folder, bench.reader)
    assert (folder.applied, folder.position) == (0, 4)


def test_what_is_appended_meanwhile_is_caught_up_too() -> None:
    bench = Bench()
    bench.append(stored(0))

    def append_more(folder: Folder, end: Offset) -> None:
        if bench.appended < 5:
            bench.append(stored(bench.appended))

    catch_up(bench.folder(), bench.reader, progress=append_more, near_end_records=1)
    assert bench.store.namespace(ALPHA).entries == 5


def test_a_replay_that_is_told_to_stop_keeps_what_it_has() -> None:
    bench = Bench()
    bench.append(*(stored(n) for n in range(2500)))
    folder = bench.folder()
    assert not fill(folder, bench.reader, Offset(2500), should_stop=lambda: True)
    assert 0 < folder.position < 2500
    catch_up(bench.folder(), bench.reader)
    assert bench.store.namespace(ALPHA).version == 2500


def test_a_log_whose_beginning_is_gone_stops_a_new_store() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2), stored(3))
    bench.wal.delete_before(ZERO, Offset(2))
    with pytest.raises(FoldStopped, match="begins at 2"):
        catch_up(bench.folder(), bench.reader)


def test_a_log_whose_folded_beginning_is_gone_is_no_matter() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2), stored(3))
    bench.folder().fold(bench.records()[:2])
    bench.wal.delete_before(ZERO, Offset(2))
    catch_up(bench.folder(), bench.reader)
    assert bench.store.namespace(ALPHA).version == 3


def test_a_store_ahead_of_the_log_is_of_another_log() -> None:
    bench, other = Bench(), Bench()
    bench.append(stored(1), stored(2))
    catch_up(bench.folder(), bench.reader)
    other.append(stored(1))
    with pytest.raises(StoreMismatch, match="0@1"):
        catch_up(bench.folder(), other.reader)


def test_a_log_that_is_away_is_said_to_be() -> None:
    bench = Bench()
    bench.append(stored(1))
    bench.wal.go_away()
    with pytest.raises(LogUnavailable):
        catch_up(bench.folder(), bench.reader)


@given(
    gaps=st.sets(st.integers(0, 19)),
    deliveries=st.lists(st.sets(st.integers(0, 19), min_size=1), max_size=6),
)
def test_however_the_live_consumer_jumps_each_event_is_folded_once_in_order(
    gaps: set[int], deliveries: list[set[int]]
) -> None:
    jumping, straight = Bench(), Bench()
    for bench in (jumping, straight):
        for number in range(20):
            bench.append(stored(number % 6))
            if number in gaps:
                bench.wal.leave_gap(ZERO)
    records = jumping.records()
    folder = jumping.folder()
    for chosen in deliveries:
        delivered = [records[n] for n in chosen]  # in no order at all
        fold_live(folder, jumping.reader, delivered, never)
        assert folder.applied >= max(r.lsn.offset for r in delivered)
    fold_live(folder, jumping.reader, [records[-1]], never)
    catch_up(straight.folder(), straight.reader)
    assert jumping.store.namespace(ALPHA) == straight.store.namespace(ALPHA)


def test_deliveries_without_a_gap_do_not_ask_the_log() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2), stored(3))
    records = bench.records()
    bench.wal.go_away()
    folder = bench.folder()
    fold_live(folder, bench.reader, records[:2], never)
    fold_live(folder, bench.reader, records[1:], never)
    assert folder.applied == 2
