"""`cachemind audit verify` on a dump: what it prints, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachemind.adapters.memory_keys import MemoryKey
from cachemind.codec.audit_dump import DumpTopic, read_dump
from cachemind.core.audit_findings import (
    Outcome,
    Place,
    Reason,
    Step,
    note,
    tampered,
    unverifiable,
)
from cachemind.core.audit_report import MOST_LISTED, AuditReport
from cachemind.core.audit_verify import Summary
from cachemind.core.public_keys import pem_of
from cachemind.errors import UndecodableRecord
from cachemind_services.cli.audit_shown import STEPS, bar
from cachemind_services.cli.main import main
from tests.audit_dump import LOG_ID
from tests.vectors.make_audit_dump import DUMP, KEYS, PINNED_CUT

EMPTY = Summary(
    cuts=0,
    last_cut=None,
    last_cut_ns=None,
    receipts={},
    covered={},
    kinds={},
    keys=(),
    seen_elsewhere=None,
    witnesses={},
)


def verify(*more: str, files: Path = DUMP, keys: Path = KEYS) -> int:
    return main(["audit", "verify", "--files", str(files), "--keys", str(keys), *more])


def without_line(tmp_path: Path, number: int) -> Path:
    lines = DUMP.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "dump.jsonl"
    path.write_text("".join(lines[:number] + lines[number + 1 :]), encoding="utf-8")
    return path


def test_a_dump_that_holds_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--against-wal", "--pinned-cut", str(PINNED_CUT)) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("VERIFIED\n")
    assert "FAILED" not in printed
    assert "tail-unknowable" in printed


def test_a_dump_that_was_tampered_with_is_told_by_its_first_bad_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify("--json", files=without_line(tmp_path, 3)) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "tampered"
    first = told["first"]
    assert (first["partition"], first["seq"]) == (0, 3)
    assert first["reason"] == "missing"
    assert told["findings"] == [first]


def test_the_report_in_words_names_the_first_bad_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(files=without_line(tmp_path, 3)) == 1
    printed = capsys.readouterr().out
    assert "first: partition 0 seq 3 of " in printed
    assert ": missing: 1 missing before receipt 4" in printed
    assert "TAMPERED" in printed


def test_a_dump_without_cuts_cannot_be_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    assert verify("--json", files=path) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "unverifiable"
    assert told["first"]["reason"] == "cuts-absent"


def test_what_is_before_since_is_counted_and_still_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = without_line(tmp_path, 3)
    assert verify("--json", "--since", "2024-01-01", files=files) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["findings"] == []
    assert told["findings_in_all"] == told["findings_before_since"] == 1


def keys_of_another_log(tmp_path: Path, log_id: str) -> Path:
    other = json.loads(KEYS.read_text(encoding="utf-8"))
    other["log_id"] = log_id
    root = MemoryKey("another root")
    pem = pem_of(root.public_key)
    other["root"] = [{"key_id": root.key_id, "public_key_pem": pem}]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(other), encoding="utf-8")
    return path


@pytest.mark.parametrize("log_id", ["example.com/other", LOG_ID])
def test_keys_of_another_log_are_one_finding_and_no_milder_verdict(
    log_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = keys_of_another_log(tmp_path, log_id)
    assert verify(keys=keys) == 1
    printed = capsys.readouterr().out
    assert "first: log: no-key-vouched-for: nothing here is signed by a key" in printed
    assert "another log, or all of this one is forged" in printed
    assert printed.endswith("TAMPERED: the log is not what was signed\n")
    kinds = [text for text in printed.splitlines() if text.startswith("  tampered  ")]
    assert len(kinds) <= 6
    assert any(text.endswith(", and 32 more like it") for text in kinds)
    assert verify("--json", keys=keys) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "tampered"
    assert told["first"]["reason"] == "no-key-vouched-for"
    counted = sum(one.get("times", 1) for one in told["findings"])
    assert counted == told["findings_in_all"] > 20


def test_a_fault_of_a_log_whose_keys_are_known_is_never_folded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(files=without_line(tmp_path, 3)) == 1
    printed = capsys.readouterr().out
    assert "\n1 finding:\n" in printed
    assert "no-key-vouched-for" not in printed


def test_what_no_key_vouches_for_and_cannot_be_told_stays_untold() -> None:
    report = AuditReport()
    report.add(unverifiable(Step.BYTES, Reason.UNKNOWN_SCHEMA, "x"))
    report.fold(EMPTY)
    assert report.outcome is Outcome.UNVERIFIABLE
    assert report.count == 1


@pytest.mark.parametrize(
    "more",
    [
        ["--since", "yesterday"],
        ["--pinned-cut", str(KEYS)],
        ["--files", "/nowhere/at/all"],
        ["--files", str(KEYS)],
        ["--keys", str(DUMP)],
        ["--pinned-cut", "/nowhere/cut.txt"],
    ],
)
def test_wrong_usage_is_told_apart_from_a_verdict(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(*more) == 2
    assert capsys.readouterr().err.startswith("cachemind: ")


def test_a_log_that_cannot_be_read_is_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--keys", str(KEYS), "--data-dir", str(tmp_path)]
    assert main(["audit", "verify", *where]) == 2
    assert "none runs" in capsys.readouterr().err


def test_a_pinned_cut_of_another_log_is_wrong_usage(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    text = PINNED_CUT.read_text(encoding="utf-8")
    other.write_text(text.replace("example.com/cachemind\n", "else\n", 1))
    assert verify("--pinned-cut", str(other)) == 2


def test_lines_of_a_dump_that_are_no_records_are_named() -> None:
    good = b'{"topic": "x.audit", "partition": 1, "value": null}\n'
    (record,) = read_dump([good, b"\n"])
    assert (record.topic, record.partition, record.value) == (
        DumpTopic.RECEIPTS,
        1,
        None,
    )
    for bad in (
        b"{",
        b"[]",
        b"{}",
        b'{"topic": "x.else", "partition": 1, "value": ""}',
        b'{"topic": "x.wal", "partition": true, "value": ""}',
        b'{"topic": "x.wal", "partition": 0, "value": "?"}',
    ):
        with pytest.raises(UndecodableRecord, match="line 2"):
            list(read_dump([good, bad]))


def test_a_report_counts_all_and_lists_no_more_than_it_may() -> None:
    report = AuditReport()
    for seq in range(MOST_LISTED + 5):
        report.add(tampered(Step.CHAIN, Reason.CHAIN, "x", Place(seq=seq)))
    assert report.count == MOST_LISTED + 5
    assert len(report.problems) == MOST_LISTED
    assert report.first is not None
    assert report.first.place.seq == 0


def test_the_worst_finding_is_the_verdict() -> None:
    report, outcomes = AuditReport(), []
    for finding in (
        note(Step.LIMITS, Reason.TAIL_UNKNOWABLE, "x"),
        unverifiable(Step.BYTES, Reason.UNKNOWN_SCHEMA, "x"),
        tampered(Step.CHAIN, Reason.CHAIN, "x"),
        unverifiable(Step.BYTES, Reason.UNKNOWN_SCHEMA, "x"),
    ):
        report.add(finding)
        outcomes.append(report.outcome)
    assert outcomes == [
        Outcome.OK,
        Outcome.UNVERIFIABLE,
        Outcome.TAMPERED,
        Outcome.TAMPERED,
    ]


def test_every_step_but_the_limits_has_its_line() -> None:
    assert set(STEPS) == set(Step) - {Step.LIMITS}


@pytest.mark.parametrize(
    ("done", "total", "expected"), [(0, 0, "  0%"), (5, 10, " 50%"), (10, 10, "100%")]
)
def test_the_bar_says_how_much_was_read(done: int, total: int, expected: str) -> None:
    assert expected in bar(done, total)
