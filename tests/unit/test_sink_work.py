from __future__ import annotations

import pytest

from cachemind.agents.sink_work import (
    AWAY,
    DAMAGED,
    LOG_AWAY,
    LONGEST_RETRY_S,
    SinkWork,
)
from cachemind.core.audit_files import AuditStream, manifest_name
from cachemind.ports.audit_files import AuditTarget
from tests.sealed_cases import CUTS, RECEIPTS, records
from tests.sink_bench import HERE, SinkBench

BOTH = frozenset({RECEIPTS, CUTS})


class WorkBench(SinkBench):
    """A sink's work on one partition's receipts and the cuts."""

    def __init__(self, target: AuditTarget | None = None) -> None:
        super().__init__(target)
        self.now_s = 0.0
        self.stopping = False
        self.work = SinkWork(
            self.stream, self.told, lambda: self.now_s, lambda: self.stopping
        )

    def turn(self, given: frozenset[AuditStream] = BOTH) -> None:
        """Take one turn that looks, a second after the last."""
        self.now_s += 1
        self.work.turn(given, {}, look=True)

    def finish(self) -> None:
        """Come to the end."""
        self.work.finish(self.now_s + 1)


@pytest.fixture
def bench() -> WorkBench:
    made = WorkBench()
    made.sign(3)
    made.cut()
    return made


def test_what_is_not_delivered_is_read_and_at_the_end_all_is_sealed(
    bench: WorkBench,
) -> None:
    for _ in range(3):
        bench.turn()
    assert bench.told.lags == {"receipts/0": 3, "cuts": 1}
    bench.finish()
    assert bench.sealed() == bench.written
    assert bench.told.sealed_files == 2


def test_what_is_delivered_is_taken_at_once(bench: WorkBench) -> None:
    delivered = {RECEIPTS: records(bench.written)}
    bench.work.turn(BOTH, delivered, look=False)
    bench.log.go_away()
    bench.work.turn(BOTH, delivered, look=False)
    bench.log.come_back()
    bench.finish()
    assert bench.sealed() == bench.written


def test_steps_are_counted_as_the_work_goes_on(bench: WorkBench) -> None:
    bench.turn()
    first = bench.work.steps
    bench.turn()
    assert 0 < first < bench.work.steps


def test_a_stream_that_another_sink_has_is_let_go(bench: WorkBench) -> None:
    bench.turn()
    bench.turn(frozenset({CUTS}))
    assert bench.told.gone == ["receipts/0"]
    bench.finish()
    assert bench.sealed() == []
    assert bench.told.sealed_files == 1


def test_a_target_that_is_away_is_said_once_and_tried_ever_more_slowly(
    bench: WorkBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.files.away = "no answer"
    tries = []
    for _ in range(100):
        bench.turn()
        tries.append(bench.told.stalls.copy())
    assert caplog.text.count("is not sealed") == 1
    assert sorted(bench.told.stalls) == [("cuts", AWAY), ("receipts/0", AWAY)]
    bench.files.away = None
    for _ in range(int(LONGEST_RETRY_S) + 2):
        bench.turn()
    assert ("receipts/0", None) in bench.told.stalls
    assert "target-away no more" in caplog.text
    bench.finish()
    assert bench.sealed() == bench.written


def test_a_log_that_is_away_is_waited_for(bench: WorkBench) -> None:
    bench.log.go_away()
    bench.turn()
    assert ("receipts/0", LOG_AWAY) in bench.told.stalls
    bench.log.come_back()
    for _ in range(5):
        bench.turn()
    bench.finish()
    assert bench.sealed() == bench.written


def test_one_damaged_stream_does_not_stop_the_others(
    bench: WorkBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.turn()
    bench.turn()
    bench.finish()
    bench.files.files[RECEIPTS][manifest_name(0)] = b"{}"
    again = SinkWork(
        bench.stream, bench.told, lambda: bench.now_s, lambda: bench.stopping
    )
    bench.cut()
    for _ in range(3):
        bench.now_s += 1
        again.turn(BOTH, {}, look=True)
    again.finish(bench.now_s + 1)
    assert bench.told.stalls == [("receipts/0", DAMAGED)]
    assert manifest_name(0) in caplog.text
    assert len(bench.files.files[CUTS]) == 4


def test_after_a_lost_race_it_goes_on_from_what_the_other_sealed(
    bench: WorkBench,
) -> None:
    bench.turn()
    bench.turn()
    other = bench.resumed()
    other.take(records(bench.written[:2]))
    other.seal()
    bench.finish()  # loses: its file begins at the same record
    assert bench.sealed() == bench.written[:2]
    bench.turn()
    bench.turn()
    bench.finish()
    assert bench.sealed() == bench.written
    assert all(reason is None for _, reason in bench.told.stalls)


def test_when_told_to_stop_no_stream_is_begun(bench: WorkBench) -> None:
    bench.stopping = True
    bench.turn()
    bench.finish()
    assert bench.files.begun == 0
    assert bench.log.reader().bounds(HERE)[1] == 3
