from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cachemind.adapters.sealed_file import (
    SealedFolder,
    create_seal_key,
    read_seal_keys,
    verify_folder,
)
from cachemind.adapters.sealed_receipts import SealedReceipts
from cachemind.core.sealing import SealOutcome
from cachemind.errors import StoreLocked
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Offset, Partition

NONE: Mapping[Partition, Offset] = {}


def records(partition: int, *offsets: int) -> Sequence[LogRecord]:
    return [
        LogRecord(
            lsn=Lsn(Partition(partition), Offset(offset)),
            key=None,
            value=b"%d@%d" % (partition, offset),
            headers=(),
            timestamp_ms=1,
        )
        for offset in offsets
    ]


def opened(folder: Path, taken: Mapping[Partition, Offset] = NONE) -> SealedReceipts:
    return SealedReceipts(folder / "sealed", folder / "keys", taken)


def bodies(folder: Path) -> list[bytes]:
    sealed = SealedFolder(folder / "sealed", read_seal_keys(folder / "keys"))
    found = [body[12:] for body in sealed.bodies()]
    sealed.close()
    return found


def outcomes(folder: Path) -> set[SealOutcome]:
    keys = read_seal_keys(folder / "keys")
    return {one.report.outcome for one in verify_folder(folder / "sealed", keys)}


def test_receipts_are_sealed_under_a_key_that_is_made_at_first(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    copy.seal([*records(1, 3, 5), *records(0, 7)])
    with pytest.raises(StoreLocked):
        opened(tmp_path)
    copy.close()
    assert bodies(tmp_path) == [b"1@3", b"1@5", b"0@7"]
    assert outcomes(tmp_path) == {SealOutcome.OK}


def test_what_comes_again_after_a_crash_is_sealed_once(tmp_path: Path) -> None:
    for again in (range(4), range(2, 6), range(6)):
        copy = opened(tmp_path, {Partition(0): Offset(2), Partition(1): Offset(0)})
        copy.seal(records(0, *again))
        copy.close()
    assert bodies(tmp_path) == [b"0@%d" % offset for offset in range(6)]


def test_an_index_that_was_lost_brings_nothing_twice(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    copy.seal([*records(0, 1, 2), *records(1, 1)])
    copy.close()
    copy = opened(tmp_path, {Partition(0): Offset(0), Partition(1): Offset(0)})
    copy.seal([*records(0, 1, 2, 3), *records(1, 1, 2)])
    copy.close()
    assert bodies(tmp_path) == [b"0@1", b"0@2", b"1@1", b"0@3", b"1@2"]


def test_a_new_key_seals_what_comes_after_it(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    copy.seal(records(0, 1))
    [first] = read_seal_keys(tmp_path / "keys")
    second = create_seal_key(tmp_path / "keys")
    copy.seal(records(0, 2))
    copy.close()
    assert bodies(tmp_path) == [b"0@1", b"0@2"]
    assert outcomes(tmp_path) == {SealOutcome.OK}
    (tmp_path / "keys" / f"seal-{second.key_id.hex()}.key").unlink()
    assert outcomes(tmp_path) == {SealOutcome.UNVERIFIABLE}
    assert first.key_id != second.key_id


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    copy.seal(records(0, 1, 2))
    copy.close()
    [path] = (tmp_path / "sealed").glob("*.seal")
    raw = bytearray(path.read_bytes())
    raw[-40] ^= 1
    path.write_bytes(bytes(raw))
    assert outcomes(tmp_path) == {SealOutcome.TAMPERED}
