from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.adapters.memory_audit_files import MemoryAuditFiles
from cachemind.agents.sink_cuts import CutSearch
from cachemind.agents.sink_file import put_small
from cachemind.agents.sink_stream import SinkStream
from cachemind.codec.audit_file import FileEncoder, cut_of
from cachemind.core.audit_files import AuditStream, FileName, Span, manifest_name
from cachemind.core.audit_manifest import FileManifest
from cachemind.errors import (
    AuditFileDamaged,
    AuditFilesError,
    AuditFilesUnavailable,
    AuditFileTaken,
)
from cachemind.ports.audit_files import AuditScratch
from cachemind.types import Offset
from tests.sealed_cases import CUTS, ORIGIN, RECEIPTS, Receipts, records
from tests.sink_bench import HERE, SMALL, SinkBench, pump


def names(bench: SinkBench) -> list[str]:
    return sorted(bench.files.files.get(RECEIPTS, {}))


class TestCopying:
    def test_what_is_on_the_topic_is_in_the_files_once_they_are_sealed(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        bench.sign(5)
        pump(stream)
        assert bench.sealed() == []
        stream.seal()
        assert bench.sealed() == bench.written
        assert names(bench) == [str(FileName(0, 4)), manifest_name(0)]

    def test_a_full_file_is_sealed_and_the_next_one_begins_after_it(self) -> None:
        bench = SinkBench()
        bench.sign(50)
        bench.cut()
        pump(bench.resumed())
        found = bench.manifests()
        assert len(found) > 5
        assert all(one.file.size_bytes < 3 * SMALL.max_bytes for one in found)
        count = sum(one.tally.records for one in found)
        assert bench.sealed() == bench.written[:count]
        assert bench.told.sealed_records == count

    def test_an_old_file_is_sealed_without_a_new_record(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        bench.sign(1)
        bench.cut()
        pump(stream)
        bench.advance(SMALL.max_age_ms - 1)
        pump(stream)
        assert bench.sealed() == []
        bench.advance(1)
        pump(stream)
        assert bench.sealed() == bench.written

    def test_records_that_waited_for_a_sink_that_died_are_old_at_once(self) -> None:
        bench = SinkBench()
        bench.sign(1)
        bench.cut()
        bench.advance(SMALL.max_age_ms)
        pump(bench.resumed())
        assert bench.sealed() == bench.written

    def test_without_records_no_file_is_made(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        pump(stream)
        bench.advance(10 * SMALL.max_age_ms)
        pump(stream)
        stream.seal()
        assert bench.files.begun == 0

    def test_delivered_again_is_passed_over(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        values = bench.receipts.some(4)
        stream.take(records(values[:3]))
        stream.take(records(values))
        stream.seal()
        assert bench.sealed() == values

    def test_the_cuts_have_files_of_their_own(self) -> None:
        bench = SinkBench()
        for _ in range(3):
            bench.sign(1)
            bench.cut()
        stream = bench.stream(CUTS)
        stream.resume()
        pump(stream)
        stream.seal()
        reader = AuditFilesReader(bench.target)
        assert len(list(reader.cuts())) == 3
        [manifest] = reader.manifests(CUTS)
        assert manifest.tally.seqs == Span(first=0, last=2)
        assert (manifest.cuts, manifest.tally.irregular) == (None, 0)


class TestDelivery:
    """Records from the group consumer, which jumps over what it pleases."""

    def test_a_gap_where_a_transaction_ended_is_no_gap_in_the_chain(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        values = bench.receipts.some(4)
        assert stream.take_next(records(values[:2]))
        assert stream.take_next(records(values[2:], start=3))
        assert stream.position == 5

    def test_what_skips_a_receipt_is_not_taken(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        values = bench.receipts.some(4)
        assert stream.take_next(records(values[:2]))
        assert not stream.take_next(records(values[3:], start=3))
        assert stream.position == 2

    def test_after_a_gap_a_stray_is_not_taken(self) -> None:
        stream = SinkBench().resumed()
        assert not stream.take_next(records([b"stray"], start=1))
        assert stream.take_next(records([b"stray"], start=0))


class TestCoveringCuts:
    def test_the_manifest_names_the_first_cuts_over_both_ends(self) -> None:
        bench = SinkBench()
        for _ in range(10):
            bench.sign(2)
            bench.cut()
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        for manifest in bench.manifests():
            seqs, cuts = manifest.tally.seqs, manifest.cuts
            assert seqs is not None
            assert cuts is not None
            assert (cuts.first, cuts.last) == (seqs.first // 2, seqs.last // 2)
            assert cuts.offset == cuts.last

    def test_a_full_file_waits_for_its_cut(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        bench.sign(7)
        pump(stream)
        assert bench.sealed() == []
        bench.cut()
        pump(stream)
        assert bench.sealed() == bench.written
        [manifest] = bench.manifests()
        assert manifest.cuts is not None

    def test_but_not_for_ever(self) -> None:
        bench = SinkBench()
        stream = bench.resumed()
        bench.sign(7)
        pump(stream)
        bench.advance(SMALL.cut_wait_ms)
        pump(stream)
        assert bench.sealed() == bench.written
        [manifest] = bench.manifests()
        assert manifest.cuts is None

    def test_and_not_past_twice_its_size(self) -> None:
        bench = SinkBench()
        bench.sign(100)
        pump(bench.resumed())
        assert bench.manifests()
        for manifest in bench.manifests():
            assert manifest.file.size_bytes < 3 * SMALL.max_bytes

    def test_among_many_cuts_the_search_halves(self) -> None:
        bench = SinkBench()
        writer = bench.cuts_log.writer()
        for number in range(6_000):
            if number % 1_000 == 0:
                bench.sign(1)
            writer.append(b"", bench.cuts.over([bench.receipts]), ()).result()
            if number % 3 == 0:
                writer.append(b"", b"no cut", ()).result()
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        [manifest] = bench.manifests()
        assert manifest.cuts is not None
        assert (manifest.cuts.first, manifest.cuts.last) == (0, 5_000)


@given(
    steps=st.lists(st.sampled_from(["sign", "cut", "stray", "gap"]), max_size=40),
    seq=st.integers(0, 12),
    start=st.integers(0, 5),
)
def test_the_search_by_halves_finds_what_a_look_at_each_cut_finds(
    steps: Sequence[str], seq: int, start: int
) -> None:
    bench = SinkBench()
    expected: int | None = None
    for step in steps:
        match step:
            case "sign":
                bench.sign(1)
            case "stray":
                bench.cuts_log.writer().append(b"", b"stray", ()).result()
            case "gap":
                bench.cuts_log.leave_gap(HERE)
            case _:
                end = bench.cuts_log.reader().bounds(HERE)[1]
                bench.cut()
                if expected is None and len(bench.written) > seq and end >= start:
                    expected = end
    search = CutSearch(bench.cuts_log.reader(), cut_of, scanned=1)
    found = search.covering(HERE, Span(first=seq, last=seq), Offset(start))
    assert (None if found is None else found.offset) == expected


class TestWhatIsNoReceipt:
    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"somebody's", id="no-receipt"),
            pytest.param(next(Receipts(5)), id="another-partition-s"),
        ],
    )
    def test_it_is_copied_and_counted(
        self, value: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = SinkBench()
        bench.sign(2)
        bench.write([value])
        bench.sign(2)
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        assert bench.sealed() == bench.written
        assert bench.told.irregular_records == 1
        assert "1 of its records do not continue their chain" in caplog.text


class TestGoingOn:
    def test_a_file_without_its_manifest_gets_one(self) -> None:
        bench = SinkBench()
        bench.sign(3)
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        del bench.files.files[RECEIPTS][manifest_name(0)]
        bench.sign(2)
        again = bench.resumed()
        pump(again)
        again.seal()
        assert bench.sealed() == bench.written
        assert len(bench.manifests()) == 2

    def test_unless_the_topic_says_something_else(self) -> None:
        bench = SinkBench()
        bench.sign(3)
        forged = FileEncoder(ORIGIN, RECEIPTS, 0)
        values = Receipts().some(2)
        content = forged.header + forged.block(
            [(Offset(0), values[0]), (Offset(1), b"x")]
        )
        put_small(bench.files, RECEIPTS, str(FileName(0, 1)), content)
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        assert bench.sealed() == bench.written
        assert AuditFilesReader(bench.target).foreign() == [
            f"receipts/0/{FileName(0, 1)}"
        ]

    def test_of_records_that_the_topic_has_no_more_the_chain_decides(self) -> None:
        bench = SinkBench()
        bench.sign(3)
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        del bench.files.files[RECEIPTS][manifest_name(0)]
        bench.log.delete_before(HERE, Offset(2))
        bench.resumed()
        assert bench.sealed() == bench.written

    @pytest.mark.parametrize(
        ("damage", "named"),
        [
            pytest.param(
                lambda files: files.update({manifest_name(0): b"{}"}),
                manifest_name(0),
                id="no-manifest",
            ),
            pytest.param(
                lambda files: files.pop(str(FileName(0, 2))),
                str(FileName(0, 2)),
                id="its-file-is-missing",
            ),
            pytest.param(
                lambda files: files.update({str(FileName(0, 2)): b"cut"}),
                str(FileName(0, 2)),
                id="its-file-is-cut",
            ),
        ],
    )
    def test_from_a_damaged_end_it_does_not_go_on(
        self, damage: Callable[[dict[str, bytes]], object], named: str
    ) -> None:
        bench = SinkBench()
        bench.sign(3)
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        damage(bench.files.files[RECEIPTS])
        with pytest.raises(AuditFileDamaged) as damaged:
            bench.resumed()
        assert damaged.value.name == f"receipts/0/{named}"

    def test_files_of_another_topic_are_not_gone_on_from(self) -> None:
        bench = SinkBench()
        bench.sign(3)
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        files = bench.files.files[RECEIPTS]
        found = FileManifest.decode(files[manifest_name(0)])
        other = replace(found, origin=replace(ORIGIN, topic_id="another"))
        files[manifest_name(0)] = other.encode()
        with pytest.raises(AuditFileDamaged, match="another log"):
            bench.resumed()

    def test_a_topic_that_ends_before_what_is_sealed_is_another_one(self) -> None:
        bench = SinkBench()
        bench.sign(3)
        stream = bench.resumed()
        pump(stream)
        with pytest.raises(AuditFileDamaged, match=r"ends at 2: it is another log"):
            stream.check(Offset(0), Offset(2))

    def test_what_was_deleted_before_it_was_sealed_is_said_and_stepped_over(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = SinkBench()
        bench.sign(5)
        bench.log.delete_before(HERE, Offset(3))
        stream = bench.resumed()
        pump(stream)
        stream.seal()
        assert bench.sealed() == bench.written[3:]
        assert "from 0 to 3 was deleted before it was sealed" in caplog.text
        assert bench.told.irregular_records == 1

    def test_foreign_files_are_left_alone_and_named_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = SinkBench()
        put_small(bench.files, RECEIPTS, "notes.txt", b"somebody's")
        stream = bench.resumed()
        stream.resume()
        assert bench.files.read(RECEIPTS, "notes.txt") == b"somebody's"
        assert bench.told.foreign_files == {"receipts/0": 1}
        assert caplog.text.count("notes.txt") == 1
        assert AuditFilesReader(bench.target).foreign() == ["receipts/0/notes.txt"]


class TestAFullTarget:
    def test_it_stops_and_goes_on_where_it_was(self) -> None:
        bench = SinkBench(rotation=replace(SMALL, max_bytes=300_000))
        bench.files.room_bytes = 100_000
        bench.sign(1_000)
        stream = bench.resumed()
        for _ in range(5):
            with pytest.raises(AuditFilesUnavailable):
                pump(stream)
        assert stream.position < 1_000
        bench.files.room_bytes = None
        bench.cut()
        pump(stream)
        stream.seal()
        assert bench.sealed() == bench.written

    def test_what_cannot_be_sealed_is_sealed_later(self) -> None:
        bench = SinkBench()
        bench.sign(3)
        stream = bench.resumed()
        pump(stream)
        bench.files.away = "no answer"
        for _ in range(3):
            with pytest.raises(AuditFilesUnavailable):
                stream.seal()
        bench.files.away = None
        bench.sign(1)
        pump(stream)
        stream.seal()
        assert bench.sealed() == bench.written
        assert [one.tally.records for one in bench.manifests()] == [3, 1]


class Died(BaseException):
    """The process was killed."""


class Deadly(MemoryAuditFiles):
    """A target in the middle of whose `left`-th step the sink is killed."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Died

    def names(self, stream: AuditStream) -> Mapping[str, int]:
        self.step()
        return super().names(stream)

    def begin(self, stream: AuditStream) -> AuditScratch:  # type: ignore[override]  # one that dies too
        self.step()
        return DeadlyScratch(self, super().begin(stream))


class DeadlyScratch:
    """Its scratch: killed before or after what it was asked."""

    def __init__(self, target: Deadly, scratch: AuditScratch) -> None:
        self._target = target
        self._scratch = scratch

    def append(self, block: bytes) -> None:
        self._target.step()
        self._scratch.append(block)
        self._target.step()

    def seal(self, name: str) -> None:
        self._target.step()
        self._scratch.seal(name)
        self._target.step()

    def discard(self) -> None:
        self._scratch.discard()


@pytest.mark.parametrize("step", range(1, 60))
def test_killed_at_any_step_the_next_one_goes_on_without_loss_or_repeat(
    step: int,
) -> None:
    target = Deadly(step)
    bench = SinkBench(target)
    bench.sign(30)
    bench.cut()
    for _ in range(2):
        try:
            stream = bench.resumed()
            pump(stream)
            stream.seal()
        except Died:
            continue
    target.left = 0
    assert bench.sealed() == bench.written


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("sign"), st.integers(1, 12)),
        st.tuples(st.just("stray"), st.just(1)),
        st.tuples(st.just("gap"), st.integers(1, 2)),
        st.tuples(st.just("cut"), st.just(1)),
        st.tuples(st.just("wait"), st.integers(1, 100_000)),
        st.tuples(st.sampled_from(["pump", "seal", "kill"]), st.integers(0, 1)),
    ),
    max_size=40,
)


@given(actions=ACTIONS)
def test_two_sinks_at_once_lose_nothing_and_repeat_nothing(
    actions: Sequence[tuple[str, int]],
) -> None:
    bench = SinkBench()
    sinks = [bench.stream(), bench.stream()]
    for what, number in actions:
        match what:
            case "sign":
                bench.sign(number)
            case "stray":
                bench.write([b"stray"])
            case "gap":
                bench.log.leave_gap(HERE, number)
            case "cut":
                bench.cut()
            case "wait":
                bench.advance(number)
            case "kill":
                sinks[number] = bench.stream()
            case _:
                attempt(sinks[number], what)
    bench.sign(1)
    for _ in range(3):
        attempt(sinks[0], "pump")
        attempt(sinks[0], "seal")
    assert bench.sealed() == bench.written


def attempt(sink: SinkStream, what: str) -> None:
    """Do what a worker does: after a lost race it looks again at what is sealed."""
    try:
        if not sink.ready:
            sink.resume()
        if what == "pump":
            pump(sink)
        else:
            sink.seal()
    except AuditFileTaken:
        sink.drop()


def test_the_loser_of_a_race_is_told() -> None:
    bench = SinkBench()
    bench.sign(4)
    first, second = bench.resumed(), bench.resumed()
    first.take(records(bench.written[:2]))
    second.take(records(bench.written[:3]))
    first.seal()
    with pytest.raises(AuditFilesError):
        second.seal()
    assert bench.sealed() == bench.written[:2]


def test_no_value_of_a_receipt_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bench = SinkBench()
    bench.sign(30)
    bench.write([b"a secret that is no receipt"])
    stream = bench.resumed()
    pump(stream)
    stream.seal()
    assert "secret" not in caplog.text
