from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_store import MemoryStore
from cachemind.core.state import Effect, Step
from cachemind.errors import FoldStopped, LogUnavailable, StoreUnavailable
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Namespace, Offset, Partition
from tests.unit.folding_bench import CODEC, ZERO, Bench
from tests.wal_events import ALPHA, envelope, pinned, rolled_back, stored

CUT = CODEC.encode(envelope(9, stored(9)))[:-3]
NEWER = b"\xc3\x01" + b"\x11" * 8 + b"newer"


def test_events_are_folded_and_the_applied_offset_moves_with_them() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2), pinned(1))
    folder = bench.folder()
    assert folder.fold(bench.records()) == 3
    assert bench.store.namespace(ALPHA).version == 3
    assert bench.store.applied() == folder.applied == 2
    assert folder.position == 3


def test_records_that_were_folded_before_are_dropped() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2), stored(3))
    bench.folder().fold(bench.records()[:2])
    again = bench.folder()
    assert again.fold(bench.records()) == 1
    assert again.fold(bench.records()) == 0
    assert bench.store.namespace(ALPHA).version == 3


def test_a_record_given_twice_in_one_batch_is_folded_once() -> None:
    bench = Bench()
    bench.append(stored(1), stored(2))
    first, second = bench.records()
    assert bench.folder().fold([first, second, first, second]) == 2
    assert bench.metrics.events == {("stored", Effect.APPLIED): 2}


@given(st.lists(st.integers(0, 20), max_size=12), st.booleans(), st.integers(0, 5))
def test_batches_and_restarts_never_show_in_the_state(
    cuts: list[int], restarted: bool, twice: int
) -> None:
    whole, parts = Bench(), Bench()
    for bench in (whole, parts):
        bench.append(*(stored(n % 7) for n in range(20)))
    whole.folder().fold(whole.records())
    folder = parts.folder()
    for end in [*sorted(cuts), 20]:
        if restarted:
            folder = parts.folder()
        folder.fold(parts.records()[max(0, folder.position - twice) : end])
    assert parts.store.namespace(ALPHA) == whole.store.namespace(ALPHA)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param(b"alpha", CUT, b"undecodable", id="cut"),
        pytest.param(b"alpha", b"", b"undecodable", id="empty"),
        pytest.param(b"alpha", b"\x7bjson", b"undecodable", id="no-framing"),
        pytest.param(
            b"beta", CODEC.encode(envelope(9, stored(9))), b"misplaced", id="other-key"
        ),
    ],
)
def test_what_no_build_can_fold_is_a_dead_letter_and_the_rest_goes_on(
    key: bytes, value: bytes, reason: bytes
) -> None:
    bench = Bench()
    bench.append(stored(1))
    at = bench.append_raw(key, value)
    bench.append(stored(2))
    bench.folder().fold(bench.records())
    assert bench.store.namespace(ALPHA).entries == 2
    assert bench.store.applied() == 2
    (letter,) = bench.letters()
    facts = dict(letter.headers)
    assert (letter.key, letter.value) == (b"wal", value)
    assert letter.headers[0] == ("h", b"1")
    assert facts["cachemind-dlq-lsn"] == str(at).encode()
    assert facts["cachemind-dlq-key"] == key
    assert facts["cachemind-dlq-reason"] == reason
    assert bench.metrics.letters == {reason.decode(): 1}


def test_a_namespace_in_the_wrong_partition_is_a_dead_letter() -> None:
    bench = Bench(partitions=2)
    lsn = bench.append(stored(1))
    other = Partition(1 - lsn.partition)
    record = replace(bench.records(lsn.partition)[0], lsn=Lsn(other, Offset(0)))
    bench.folder(other).fold([record])
    assert dict(bench.letters()[0].headers)["cachemind-dlq-reason"] == b"misplaced"
    assert bench.store.applied() == 0
    assert bench.store.namespace(ALPHA).version == 0


@pytest.mark.parametrize("key", [None, b"alpha"])
def test_a_record_without_a_value_is_a_dead_letter_that_says_so(
    key: bytes | None,
) -> None:
    bench = Bench()
    record = LogRecord(
        lsn=Lsn(ZERO, Offset(0)), key=key, value=None, headers=(), timestamp_ms=-1
    )
    bench.folder().fold([record])
    facts = dict(bench.letters()[0].headers)
    assert facts["cachemind-dlq-null-value"] == b"true"
    assert facts.get("cachemind-dlq-key") == key


def test_no_dead_letter_says_what_was_in_the_record() -> None:
    bench = Bench()
    secret = b"\x7bmy prompt"
    bench.append_raw(b"alpha", secret)
    bench.folder().fold(bench.records())
    assert not any(b"prompt" in value for _, value in bench.letters()[0].headers)


def test_applied_waits_for_the_dead_letter() -> None:
    bench = Bench()
    bench.append(stored(1))
    bench.append_raw(b"alpha", CUT)
    bench.dlq.hold()
    folder = bench.folder()
    with pytest.raises(LogUnavailable):
        folder.fold(bench.records())
    assert bench.store.applied() == folder.applied == -1
    bench.dlq.release()
    folder.fold(bench.records())
    assert bench.store.applied() == 1


@pytest.mark.parametrize(
    ("unfoldable", "words"),
    [
        pytest.param(NEWER, "does not know", id="unknown-schema"),
        pytest.param(
            CODEC.encode(envelope(9, rolled_back(1))), "cannot restore", id="rollback"
        ),
    ],
)
def test_what_another_build_may_fold_stops_after_what_came_before(
    unfoldable: bytes, words: str
) -> None:
    bench = Bench()
    bench.append(stored(1), stored(2))
    at = bench.append_raw(b"alpha", unfoldable)
    bench.append(stored(3))
    with pytest.raises(FoldStopped, match=words) as stop:
        bench.folder().fold(bench.records())
    assert stop.value.lsn == str(at)
    assert bench.store.applied() == 1
    assert bench.letters() == []
    with pytest.raises(FoldStopped):
        bench.folder().fold(bench.records())
    assert bench.store.namespace(ALPHA).version == 2


def test_a_dead_letter_that_is_refused_stops_the_fold() -> None:
    bench = Bench()
    bench.dlq = MemoryLog(1, SystemClock(), max_record_bytes=100)
    bench.append(stored(1))
    bench.append_raw(b"alpha", CUT)
    with pytest.raises(FoldStopped, match="refuses"):
        bench.folder().fold(bench.records())
    assert bench.store.applied() == -1


def test_what_no_dead_letter_holds_is_told_by_its_hash_and_the_fold_goes_on() -> None:
    bench = Bench()
    bench.append(stored(1))
    bench.append_raw(b"alpha", CUT)
    bench.append(stored(2))
    first, record, last = bench.records()
    huge = replace(record, value=b"." * (5 * 1024 * 1024))
    bench.folder().fold([first, huge, last])
    (letter,) = bench.letters()
    assert letter.value == b""
    told = b" ".join(value or b"" for _, value in letter.headers).decode()
    assert sha256(huge.value or b"").hexdigest() in told
    assert bench.store.namespace(ALPHA).version == 2


def test_a_store_that_fails_stops_the_fold_where_it_was() -> None:
    bench = Bench()
    bench.store = FailingStore()
    bench.append(stored(1))
    folder = bench.folder()
    with pytest.raises(StoreUnavailable):
        folder.fold(bench.records())
    assert (folder.applied, folder.position) == (-1, 0)
    assert bench.metrics.applied == []


def test_settling_skips_only_from_where_the_fold_is() -> None:
    bench = Bench()
    bench.append(stored(1))
    folder = bench.folder()
    folder.fold(bench.records())
    folder.settle(Offset(0), Offset(9))
    assert folder.position == 1
    folder.settle(Offset(1), Offset(4))
    assert (folder.position, folder.applied) == (4, 0)


class FailingStore(MemoryStore):
    """A store whose disk is full."""

    def commit(
        self, applied: Offset, steps: Mapping[Namespace, Sequence[Step]]
    ) -> None:
        raise StoreUnavailable("no space left")
