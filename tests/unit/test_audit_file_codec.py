from __future__ import annotations

from contextlib import suppress
from io import BytesIO

import avro.datafile
import avro.io
import fastavro
import pytest

from cachemind.codec.audit_file import (
    FileEncoder,
    FileRecord,
    cut_of,
    link_of,
    read_file,
)
from cachemind.core.audit_files import AuditStream, Chain, Tally, counted
from cachemind.errors import UndecodableRecord
from cachemind.types import Offset, Partition
from cachemind_schemas.loader import audit_record
from tests.sealed_cases import CUTS, ORIGIN, RECEIPTS, Cuts, Receipts

HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
)


def records(count: int) -> list[FileRecord]:
    values = Receipts().some(count)
    return [(Offset(2 * at), value) for at, value in enumerate(values)]


def encoded(found: list[FileRecord], each: int, first: int = 0) -> bytes:
    encoder = FileEncoder(ORIGIN, RECEIPTS, first)
    blocks = (found[at : at + each] for at in range(0, len(found), each))
    return encoder.header + b"".join(map(encoder.block, blocks))


def written_by(schema: str, codec: str) -> bytes:
    """Return a file of one block by a writer with another schema or codec."""
    content = BytesIO()
    meta = {"avro.codec": codec.encode(), "avro.schema": schema.encode()}
    marker = bytes(16)
    plain = {"magic": b"Obj\x01", "meta": meta, "sync": marker}
    fastavro.schemaless_writer(content, HEADER, plain)
    return content.getvalue() + bytes.fromhex("02 08 02 00 00 00") + marker


@pytest.mark.parametrize("each", [1, 3, 10])
def test_records_come_back_in_order(each: int) -> None:
    found: list[FileRecord] = [*records(9), (Offset(99), None)]
    assert list(read_file(encoded(found, each))) == found


def test_apache_s_own_reader_reads_the_same() -> None:
    found = records(5)
    content = BytesIO(encoded(found, 2))
    with avro.datafile.DataFileReader(content, avro.io.DatumReader()) as reader:
        plain = list(reader)
        assert reader.get_meta("cachemind.stream") == b"receipts/0"
        assert reader.get_meta("cachemind.topic_id") == b"topic-1"
    assert plain == [{"offset": offset, "value": value} for offset, value in found]


def test_the_same_blocks_make_the_same_bytes_and_other_files_other_markers() -> None:
    found = records(4)
    assert encoded(found, 2) == encoded(found, 2)
    assert encoded(found, 2)[-16:] != encoded(found, 2, first=4)[-16:]


def test_a_file_that_is_cut_anywhere_has_not_all_its_records() -> None:
    found = records(4)
    content = encoded(found, 2)
    for size in range(len(content)):
        try:
            read = list(read_file(content[:size]))
        except UndecodableRecord:
            continue
        assert len(read) < len(found)


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"{}", bytes(100)])
def test_what_is_no_such_file_is_refused(content: bytes) -> None:
    with pytest.raises(UndecodableRecord):
        list(read_file(content))


def test_no_changed_byte_is_more_than_a_file_that_is_none() -> None:
    content = encoded(records(3), 2)
    for at in range(len(content)):
        for byte in (0, ord("x"), 255):
            changed = content[:at] + bytes([byte]) + content[at + 1 :]
            with suppress(UndecodableRecord):
                assert len(list(read_file(changed))) <= 3


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param('{"type":"record"}', id="no-name"),
        pytest.param('{"type":"record","name":"a","fields":[5]}', id="no-field"),
        pytest.param('{"type":"array","items":"null"}', id="other-type"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("no JSON", id="no-json"),
    ],
)
def test_a_schema_that_nobody_writes_is_refused(schema: str) -> None:
    with pytest.raises(UndecodableRecord):
        list(read_file(written_by(schema, "null")))


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "snappy"])
def test_what_is_compressed_is_refused_unread(codec: str) -> None:
    with pytest.raises(UndecodableRecord):
        list(read_file(written_by(audit_record().text, codec)))


def test_receipts_continue_their_chain() -> None:
    batch = [(o, link_of(RECEIPTS, v)) for o, v in records(20)]
    tally = counted(Tally(chain=Chain()), batch)
    assert (tally.irregular, tally.chain.next_seq) == (0, 20)
    assert tally.source is not None
    assert tally.source.last == 38


def test_cuts_continue_theirs() -> None:
    receipts, cuts = Receipts(), Cuts()
    values = [cuts.over([receipts]) for _ in receipts.some(3)]
    batch = [(Offset(at), link_of(CUTS, value)) for at, value in enumerate(values)]
    tally = counted(Tally(chain=Chain()), batch)
    assert (tally.irregular, tally.chain.next_seq, tally.source) == (0, 3, None)
    found = cut_of(values[-1])
    assert found is not None
    assert (found.index, found.heads[0].size) == (2, 3)


@pytest.mark.parametrize("value", [None, b"", b"\xc3\x01", bytes(40)])
def test_what_is_no_receipt_and_no_cut_has_no_link(value: bytes | None) -> None:
    assert link_of(RECEIPTS, value) is None
    assert link_of(CUTS, value) is None
    assert cut_of(value) is None


def test_a_receipt_of_another_partition_has_no_link_here() -> None:
    value = next(Receipts(1))
    assert link_of(RECEIPTS, value) is None
    assert link_of(AuditStream(Partition(1)), value) is not None
