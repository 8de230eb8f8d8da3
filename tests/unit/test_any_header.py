"""Records whose headers have names that are no text, as a consumer gets them."""

from __future__ import annotations

from importlib import import_module

import pytest
from aiokafka.consumer import fetcher  # type: ignore[import-untyped] # no types
from aiokafka.consumer.fetcher import (  # type: ignore[import-untyped]
    READ_COMMITTED,
    PartitionRecords,
)
from aiokafka.errors import CorruptRecordException  # type: ignore[import-untyped]
from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    _DefaultRecordBatchBuilderPy,
    _DefaultRecordBatchPy,
)
from faust.types import TP

from cachemind.agents import unpacking
from cachemind.agents.any_header import (
    TOO_LARGE,
    _Batch,
    _Records,
    read_any_header,
)
from cachemind.agents.unpacking import GZIP, LZ4, ZSTD, fits_unpacked

NO_TEXT = b"\xff\xfename"
PLACE = TP("t", 0)


class Raw(str):
    """A name that is written as `NO_TEXT`."""

    def encode(self, *_: object) -> bytes:
        return NO_TEXT


def batch(*names: str, first: int = 0, compression: int = 0) -> bytes:
    """Return a batch of records with a header each, and a last one without any."""
    made = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 1 << 20)
    for number, name in enumerate(names):
        headers = [("first", None), (name, b"x"), ("last", b"y")]
        made.append(number, 1_000 + number, b"key", b"v" * number, headers)
    made.append(len(names), 2_000, None, None, [])
    raw = made.build()
    raw[:8] = first.to_bytes(8)
    return bytes(raw)


def read(fetched: bytes) -> list[tuple[int, int, object, object, object]]:
    """Return what a consumer is handed."""
    records = PartitionRecords(
        PLACE, _Records(fetched), [], 0, None, None, True, READ_COMMITTED
    )
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
def test_a_name_that_is_no_text_is_shown_and_nothing_is_lost(compression: int) -> None:
    fetched = batch("ok", Raw(), "fine", compression=compression) + batch("on", first=4)
    found = read(fetched)
    assert [one[0] for one in found] == [0, 1, 2, 3, 4, 5]
    names = [[name for name, _ in one[4]] for one in found]  # type: ignore[attr-defined]
    assert [each[1] for each in names if each] == ["ok", r"\xff\xfename", "fine", "on"]
    # All else is as aiokafka reads it.
    other = batch("ok", "othername", "fine") + batch("on", first=4)
    for one, same in zip(found, read(other), strict=True):
        assert one[:4] == same[:4]
    assert found[1][4] == (("first", None), (r"\xff\xfename", b"x"), ("last", b"y"))


def test_a_batch_that_is_too_large_unpacked_is_one_record_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "MOST_BYTES", 1_000)
    made = _DefaultRecordBatchBuilderPy(2, GZIP, 0, -1, -1, -1, 1 << 20)
    for number in range(3):
        made.append(number, 1_000 + number, b"key", bytes(500), [])
    found = read(bytes(made.build()) + batch("fine", first=3, compression=GZIP))
    said = (TOO_LARGE, b"records 0 to 2, unpacked")
    assert found[0] == (2, 1_002, None, None, (said,))
    assert [one[0] for one in found] == [2, 3, 4]


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])
def test_what_is_too_much_is_known_before_it_is_unpacked(codec: int) -> None:
    name = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}[codec]
    pack = getattr(import_module("cramjam"), name).compress
    much, many = bytes(unpacking.MOST_BYTES + 1), bytes(unpacking.MOST_BYTES)
    assert not fits_unpacked(codec, bytes(pack(much)))
    assert fits_unpacked(codec, bytes(pack(many)))
    # Damaged: whoever reads it says so.
    assert fits_unpacked(codec, b"x" * 70_000)


def test_pythons_own_reader_calls_it_corrupt_and_is_read_again() -> None:
    raw = batch("ok", Raw())
    found = _Batch(_DefaultRecordBatchPy(raw), memoryview(raw))
    assert [record.offset for record in found] == [0, 1, 2]


def test_what_is_corrupt_stays_so() -> None:
    raw = bytearray(batch(Raw()))
    at = raw.index(NO_TEXT)
    raw[at - 1] += 2  # the length of the name
    with pytest.raises(CorruptRecordException):
        list(_Batch(_DefaultRecordBatchPy(bytes(raw)), memoryview(bytes(raw))))


def test_an_app_reads_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MemoryRecords", None)
    read_any_header()
    assert fetcher.MemoryRecords is _Records
