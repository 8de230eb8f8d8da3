from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.audit_files import (
    AuditStream,
    Chain,
    FileName,
    Link,
    Rotation,
    Span,
    Tally,
    counted,
    listed,
    manifest_name,
)
from cachemind.core.audit_manifest import (
    START,
    CoveringCuts,
    FileManifest,
    LogOrigin,
    SealedFile,
    hash_of,
    resumed,
)
from cachemind.errors import UndecodableRecord
from cachemind.receipts import NO_LEAF
from cachemind.types import Offset, Partition, Sha256

ZEROS = "0" * 20
PLACES = st.integers(min_value=0, max_value=10**18)


def leaf(text: object) -> Sha256:
    return Sha256(sha256(str(text).encode()).digest())


def link(seq: int, previous: Sha256 | None = None, **changes: object) -> Link:
    before = leaf(seq - 1) if seq else NO_LEAF
    made = Link(
        seq=seq, previous=previous or before, leaf=leaf(seq), source=Offset(seq * 2)
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # named by each test


def batch(*links: Link | None, start: int = 0) -> list[tuple[Offset, Link | None]]:
    return [(Offset(start + at), one) for at, one in enumerate(links)]


NOTHING = Tally(chain=Chain())

MANIFEST = FileManifest(
    origin=LogOrigin(cluster_id="c", topic="cachemind.audit", topic_id="t"),
    stream=AuditStream(Partition(3)),
    file=SealedFile(name=FileName(10, 12), size_bytes=999, sha256=leaf("file")),
    tally=Tally(
        chain=Chain(next_seq=13, leaf=leaf(12)),
        records=3,
        irregular=0,
        offsets=Span(first=20, last=25),
        seqs=Span(first=10, last=12),
        source=Span(first=40, last=44),
    ),
    cuts=CoveringCuts(first=4, last=5, offset=Offset(77)),
    previous=leaf("manifest"),
    sealed_at_ns=1_700_000_000_000_000_000,
)


class TestNames:
    @pytest.mark.parametrize(
        ("partition", "folder"),
        [
            pytest.param(None, "cuts", id="cuts"),
            pytest.param(Partition(0), "receipts/0", id="first-partition"),
            pytest.param(Partition(12), "receipts/12", id="another-partition"),
        ],
    )
    def test_a_stream_has_one_folder(
        self, partition: Partition | None, folder: str
    ) -> None:
        assert AuditStream(partition).folder == folder
        assert AuditStream.parse(folder) == AuditStream(partition)

    @pytest.mark.parametrize(
        "folder", ["", "receipts", "receipts/", "receipts/01", "receipts/x", "cuts/0"]
    )
    def test_another_folder_is_nobodys(self, folder: str) -> None:
        assert AuditStream.parse(folder) is None

    @given(first=PLACES, more=PLACES)
    def test_a_name_says_what_it_was_made_of_and_sorts_by_number(
        self, first: int, more: int
    ) -> None:
        name = FileName(first, first + more)
        assert FileName.parse(str(name)) == name
        assert str(name) < str(FileName(first + more + 1, first + more + 1))

    def test_names_are_told_apart(self) -> None:
        found = listed(
            [
                "notes.txt",
                f"{ZEROS}-{ZEROS[:-1]}9.avro",
                f"{ZEROS}.json",
                f"{ZEROS[:-1]}9-{ZEROS}.avro",
                "7.json",
            ]
        )
        assert found.files == (FileName(0, 9),)
        assert found.manifests == (0,)
        assert found.foreign == (f"{ZEROS[:-1]}9-{ZEROS}.avro", "7.json", "notes.txt")

    def test_a_file_without_manifest_is_unclaimed_where_none_begins_there(
        self,
    ) -> None:
        names = [str(FileName(0, 4)), str(FileName(5, 9)), str(FileName(5, 7))]
        both = listed([*names, manifest_name(0)])
        assert both.unclaimed(0) == ()
        assert both.unclaimed(5) == [FileName(5, 7), FileName(5, 9)]
        assert both.unclaimed(10) == []
        assert listed([*names, manifest_name(5)]).unclaimed(5) == ()


class TestTally:
    @pytest.mark.parametrize(
        ("records", "irregular", "next_seq", "seqs"),
        [
            pytest.param(
                batch(link(0), link(1)), 0, 2, Span(first=0, last=1), id="in-order"
            ),
            pytest.param(
                batch(link(0), link(0)), 1, 1, Span(first=0, last=0), id="repeated"
            ),
            pytest.param(
                batch(link(0), link(0, leaf=leaf("fork")), link(1)),
                1,
                2,
                Span(first=0, last=1),
                id="a-fork-does-not-move-the-chain",
            ),
            pytest.param(
                batch(link(0), None, link(1)),
                1,
                2,
                Span(first=0, last=1),
                id="unreadable",
            ),
            pytest.param(
                batch(link(0), link(2), link(3)),
                1,
                4,
                Span(first=0, last=3),
                id="one-is-missing",
            ),
            pytest.param(
                batch(link(0), link(1, leaf("other"), leaf=leaf(1)), link(2)),
                1,
                3,
                Span(first=0, last=2),
                id="one-names-another-before-it",
            ),
            pytest.param(batch(None), 1, 0, None, id="nothing-can-be-read"),
        ],
    )
    def test_what_does_not_continue_the_chain_is_counted(
        self,
        records: list[tuple[Offset, Link | None]],
        irregular: int,
        next_seq: int,
        seqs: Span | None,
    ) -> None:
        tally = counted(NOTHING, records)
        assert tally.records == len(records)
        assert tally.irregular == irregular
        assert tally.chain.next_seq == next_seq
        assert tally.seqs == seqs
        assert tally.offsets == Span(first=0, last=len(records) - 1)

    def test_a_key_event_takes_the_place_that_comes_next(self) -> None:
        event = Link(seq=None, previous=None, leaf=leaf("event"), source=None)
        cut = link(1, leaf("event"), source=None)
        tally = counted(NOTHING, batch(event, cut))
        assert (tally.irregular, tally.seqs) == (0, Span(first=0, last=1))
        assert tally.source is None

    def test_the_range_on_the_wal_is_of_the_receipts(self) -> None:
        tally = counted(NOTHING, batch(link(0), None, link(1), link(2), start=7))
        assert tally.source == Span(first=0, last=4)
        assert tally.offsets == Span(first=7, last=10)

    @given(
        count=st.integers(min_value=0, max_value=20),
        cut=st.integers(min_value=0, max_value=20),
    )
    def test_counting_in_two_goes_equals_counting_at_once(
        self, count: int, cut: int
    ) -> None:
        records = batch(*(link(seq) for seq in range(count)))
        twice = counted(counted(NOTHING, records[:cut]), records[cut:])
        assert twice == counted(NOTHING, records)


class TestRotation:
    rotation = Rotation(max_bytes=100, max_age_ms=1000, cut_wait_ms=50)

    @pytest.mark.parametrize(
        ("size", "age", "at_end", "due"),
        [
            pytest.param(99, 999, True, False, id="neither"),
            pytest.param(100, 0, False, True, id="full"),
            pytest.param(1, 1000, True, True, id="old"),
            pytest.param(1, 10**9, False, False, id="old-records-being-caught-up"),
        ],
    )
    def test_a_file_is_due(
        self, size: int, age: int, *, at_end: bool, due: bool
    ) -> None:
        assert self.rotation.due(size, age, at_end=at_end) is due

    @pytest.mark.parametrize(
        ("size", "waited", "covered", "waits"),
        [
            pytest.param(100, 49, False, True, id="not-covered-yet"),
            pytest.param(100, 0, True, False, id="covered"),
            pytest.param(100, 50, False, False, id="waited-long-enough"),
            pytest.param(200, 0, False, False, id="twice-its-size"),
        ],
    )
    def test_a_full_file_waits_for_its_cut_but_not_for_ever(
        self, size: int, waited: int, *, covered: bool, waits: bool
    ) -> None:
        assert self.rotation.waits(size, waited, covered=covered) is waits


class TestManifest:
    def test_its_bytes_are_these(self) -> None:
        text = MANIFEST.encode().decode("ascii")
        assert text == (
            '{"cluster_id":"c","cuts":{"first":4,"last":5,"offset":77},'
            f'"file":{{"bytes":999,"name":"{FileName(10, 12)}",'
            f'"sha256":"{leaf("file").hex()}"}},'
            '"format":"cachemind-audit-manifest/1","irregular":0,'
            f'"last_leaf":"{leaf(12).hex()}","next_seq":13,'
            '"offsets":{"first":20,"last":25},'
            f'"previous":"{leaf("manifest").hex()}","records":3,'
            '"sealed_at_ns":1700000000000000000,"seqs":{"first":10,"last":12},'
            '"source_offsets":{"first":40,"last":44},"stream":"receipts/3",'
            '"topic":"cachemind.audit","topic_id":"t"}'
        )

    @pytest.mark.parametrize(
        "manifest",
        [
            pytest.param(MANIFEST, id="receipts"),
            pytest.param(
                replace(
                    MANIFEST,
                    stream=AuditStream(None),
                    cuts=None,
                    tally=replace(MANIFEST.tally, source=None, seqs=None),
                ),
                id="cuts-of-unreadable-records",
            ),
        ],
    )
    def test_it_comes_back_as_it_was(self, manifest: FileManifest) -> None:
        assert FileManifest.decode(manifest.encode()) == manifest

    @given(at=st.integers(min_value=0), byte=st.integers(min_value=0, max_value=255))
    def test_every_changed_byte_is_another_manifest_or_none(
        self, at: int, byte: int
    ) -> None:
        line = bytearray(MANIFEST.encode())
        at %= len(line)
        if line[at] == byte:
            return
        line[at] = byte
        try:
            found = FileManifest.decode(bytes(line))
        except UndecodableRecord:
            return
        assert found != MANIFEST

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"records": 4}, id="other-records-than-its-name"),
            pytest.param({"offsets": None}, id="no-offsets"),
            pytest.param({"format": "cachemind-audit-manifest/2"}, id="newer"),
            pytest.param({"stream": "else"}, id="no-stream"),
            pytest.param({"stream": 5}, id="a-number-for-a-stream"),
            pytest.param({"previous": "00"}, id="short-hash"),
            pytest.param({"irregular": -1}, id="negative"),
            pytest.param({"irregular": True}, id="a-word-for-a-number"),
            pytest.param({"more": 1}, id="one-name-more"),
        ],
    )
    def test_what_no_sink_writes_is_refused(self, change: dict[str, object]) -> None:
        found = json.loads(MANIFEST.encode()) | change
        line = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
        with pytest.raises(UndecodableRecord):
            FileManifest.decode(line)

    @pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000])
    def test_what_is_no_json_of_ours_is_refused(self, line: bytes) -> None:
        with pytest.raises(UndecodableRecord):
            FileManifest.decode(line)

    def test_the_stream_goes_on_after_what_is_sealed(self) -> None:
        line = MANIFEST.encode()
        after = resumed(START, MANIFEST, line)
        assert (after.number, after.offset, after.cuts_from) == (13, 26, 77)
        assert after.chain == MANIFEST.tally.chain
        assert after.previous == hash_of(line) == sha256(line).digest()

    def test_without_a_cut_the_search_begins_where_it_did(self) -> None:
        before = replace(START, cuts_from=Offset(5))
        uncut = replace(MANIFEST, cuts=None)
        assert resumed(before, uncut, uncut.encode()).cuts_from == 5
