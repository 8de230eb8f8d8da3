"""`cachemind audit verify` on the sealed files of a sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachemind.adapters.audit_folder import AuditFolder
from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.agents.sink_cuts import CutSearch
from cachemind.agents.sink_resume import SinkPlace
from cachemind.agents.sink_stream import SinkRules, SinkStream
from cachemind.codec.audit_file import cut_of
from cachemind.core.audit_files import AuditStream
from cachemind.ports.audit_files import AuditTarget
from cachemind.types import Partition
from cachemind_services.cli.main import main
from tests.audit_dump import Dump
from tests.sealed_cases import EPOCH_MS, ORIGIN
from tests.sink_bench import HERE, NS_PER_MS, SMALL, Told, pump
from tests.vectors.make_audit_dump import KEYS, build

PAST_ANY_WAIT_MS = 1_000_000


def seal(target: AuditTarget, dump: Dump) -> None:
    """Copy a dump's topics into sealed files, as the sink does."""
    _seal(target, AuditStream(None), dump.cuts)
    for number, values in enumerate(dump.receipts):
        _seal(target, AuditStream(Partition(number)), values)


def _seal(target: AuditTarget, stream: AuditStream, values: tuple[bytes, ...]) -> None:
    clock = ManualClock(EPOCH_MS * NS_PER_MS)
    log = MemoryLog(1, clock)
    writer = log.writer()
    for value in values:
        writer.append(b"", value, ()).result()
    place = SinkPlace(
        stream=stream,
        origin=ORIGIN,
        partition=HERE,
        reader=log.reader(),
        target=target,
    )
    cuts = CutSearch(MemoryLog(1, clock).reader(), cut_of)
    sink = SinkStream(
        place, SinkRules(clock=clock, metrics=Told(), rotation=SMALL, cuts=cuts)
    )
    sink.resume()
    for _ in range(2):
        pump(sink)
        clock.advance(PAST_ANY_WAIT_MS * NS_PER_MS)
    pump(sink)


def verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = main(
        ["audit", "verify", "--files", str(folder), "--keys", str(KEYS), "--json"]
    )
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    seal(AuditFolder(tmp_path / "sealed"), build())
    return tmp_path / "sealed"


def test_sealed_files_are_verified(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = verified(folder, capsys)
    assert (code, told["outcome"], told["findings"]) == (0, "ok", [])
    counts = [one["receipts"] for one in told["summary"]["partitions"]]
    assert counts == [len(values) for values in build().receipts]


def test_a_file_that_was_changed_is_named_and_so_is_the_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next((folder / "receipts" / "1").glob("*.avro"))
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.chmod(0o640)
    path.write_bytes(content)
    code, told = verified(folder, capsys)
    assert code == 1
    assert {"signature", "file-damaged"} <= {one["reason"] for one in told["findings"]}


def test_files_that_were_removed_are_missed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (folder / "receipts" / "2").iterdir():
        path.unlink()
    code, told = verified(folder, capsys)
    assert (code, told["first"]["reason"]) == (1, "partition-missing")


def test_a_file_that_no_manifest_names_is_noted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "receipts" / "0" / "notes.txt").write_text("mine")
    code, told = verified(folder, capsys)
    assert code == 0
    assert "file-unnamed" in {one["reason"] for one in told["notes"]}
