"""`cachemind audit show --evidence`: what it takes for proof of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachemind.receipts import ReceiptItem
from cachemind.types import Principal, TraceId
from cachemind_services.cli.audit_show import item_line
from cachemind_services.cli.main import main
from tests.fold_cases import hash_of
from tests.unit.test_audit_evidence import of_shop
from tests.vectors.make_audit_dump import KEYS

ANOTHER = "ab" * 16


def trace_of(evidence: dict[str, Any]) -> str:
    """Return the trace that the receipt is about."""
    found: str = evidence["receipt"]["items"][0]["trace_id"]
    return found


def saved(tmp_path: Path, evidence: dict[str, Any], trace: str) -> Path:
    """Return the file of what a gateway answered for a trace."""
    path = tmp_path / "evidence.json"
    path.write_text(
        json.dumps({"trace_id": trace, "receipts": [evidence], "next_after": None})
    )
    return path


def show(path: Path, *more: str) -> int:
    return main(["audit", "show", "--evidence", str(path), "--keys", str(KEYS), *more])


def test_the_receipts_of_a_trace_are_shown_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = of_shop()
    trace = trace_of(evidence)
    assert show(saved(tmp_path, evidence, trace), trace) == 0
    printed = capsys.readouterr().out
    assert f"OK: 1 receipt of trace {trace}, by " in printed


def test_the_hash_of_a_response_is_shown_whole() -> None:
    item = ReceiptItem(
        trace_id=TraceId(bytes(16)),
        occurred_at_us=1,
        outcome="stored",
        principal=Principal("tester"),
        context_hash=hash_of("context"),
        prompt_hash=None,
        response_hash=hash_of("response"),
    )
    shown = item_line(item)
    assert shown.endswith(f"  response {hash_of('response').hex()}")
    assert hash_of("context").hex() not in shown


def test_a_sound_receipt_of_another_trace_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = of_shop()
    assert show(saved(tmp_path, evidence, ANOTHER)) == 1
    assert (
        f"other-trace: it is not about the trace {ANOTHER}" in capsys.readouterr().out
    )
    assert show(saved(tmp_path, evidence, trace_of(evidence)), ANOTHER) == 1
    assert "TAMPERED" in capsys.readouterr().out


def test_what_is_shown_as_verified_is_read_from_the_signed_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = of_shop()
    sound = dict(evidence["receipt"])
    index = evidence["cut"]["index"]
    evidence["receipt"]["namespace"] = "not what was signed"
    evidence["seq"] = evidence["cut"]["index"] = index + 1
    path = saved(tmp_path, evidence, trace_of(evidence))
    assert show(path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["receipts"][0]["receipt"] == sound
    assert told["receipts"][0]["cut"]["index"] == index


@pytest.mark.parametrize("text", ["{}", "x", "[]", '{"receipts": []}'])
def test_what_cannot_be_read_is_no_verdict(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "evidence.json"
    path.write_text(text)
    assert show(path) == 2
    assert capsys.readouterr().err.startswith("cachemind: ")


def test_a_file_that_is_not_there_is_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path / "none.json") == 2
    assert "none.json" in capsys.readouterr().err


def test_without_keys_the_flag_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "show", "--evidence", str(tmp_path / "e.json")]) == 2
    assert "--keys: name keys.json" in capsys.readouterr().err
