"""What `versions`, `diff` and `rollback` print."""

from __future__ import annotations

from typing import Any

import pytest

from cachemind_services.cli import diff, rollback, versions
from cachemind_services.cli.describe import moment
from cachemind_services.cli.main import main, parser


def row(version: int, **more: Any) -> dict[str, Any]:
    return {
        "version": version,
        "kind": "stored",
        "occurred_at_ns": 1_700_000_000_000_000_000 + version,
        "principal": "local",
        "parent": version - 1,
        "voided": False,
        "entries": version,
        "target": None,
        "rollback_id": None,
        "reason": "",
        **more,
    }


FOUND: dict[str, Any] = {
    "namespace": "shop",
    "head": 5,
    "timeline": 5,
    "voided": [[3, 4]],
    "quarantine": None,
    "versions": [
        row(1),
        row(2),
        row(3, voided=True),
        row(4, voided=True),
        row(
            5, kind="rolled_back", target=2, rollback_id="0190", reason="bad", entries=2
        ),
    ],
}


def test_the_timeline_is_drawn_with_what_a_rollback_left_beside_it() -> None:
    at = moment(1_700_000_000_000_000_000)
    assert versions.render(FOUND) == [
        "shop: version 5, timeline 5, voided 3-4",
        f'●    5  {at}  local  2 entries  rolled back to 2  "bad"  0190',
        "├─╮  from 2 again, without 3 to 4",
        f"│ ○  4  {at}  local  4 entries  stored  [voided]",
        f"│ ○  3  {at}  local  3 entries  stored  [voided]",
        f"●    2  {at}  local  2 entries  stored",
        f"●    1  {at}  local  1 entries  stored",
    ]


def test_a_quarantine_is_said_first() -> None:
    lines = versions.render({**FOUND, "quarantine": "no base holds"})
    assert lines[1] == "QUARANTINED, nothing is served: no base holds"
    assert versions.render({**FOUND, "versions": []})[-1] == "no version in this range"


CHANGES: dict[str, Any] = {
    "restored": 1,
    "removed": 1,
    "changed": 1,
    "more": 2,
    "changes": [
        {
            "key": "aa" * 32,
            "change": "restored",
            "fields": [],
            "before": None,
            "after": {"model": "m", "version": 3, "response_hash": "cc" * 32},
        },
        {
            "key": "bb" * 32,
            "change": "removed",
            "fields": [],
            "before": {"model": "m", "version": 4, "response": {"id": "x"}},
            "after": None,
        },
        {
            "key": "dd" * 32,
            "change": "changed",
            "fields": ["stored_at_ns", "response", "response_hash"],
            "before": {"response_hash": "ee" * 32, "stored_at_ns": 1_000_000_000},
            "after": {"response_hash": "ff" * 32, "stored_at_ns": 2_000_000_000},
        },
    ],
}


def test_a_difference_has_a_mark_an_entry_and_names_the_fields() -> None:
    assert list(diff.render(CHANGES)) == [
        f"+ {'aa' * 32}  model=m  version=3  response_hash=cccccccccccccccc",
        f"- {'bb' * 32}  model=m  version=4",
        '    response: {"id": "x"}',
        f"~ {'dd' * 32}  stored_at_ns, response, response_hash",
        f"    stored_at: {moment(1_000_000_000)} -> {moment(2_000_000_000)}",
        "    response_hash: eeeeeeeeeeeeeeee -> ffffffffffffffff",
        "... and 2 more, see --limit",
        "1 restored, 1 removed, 1 changed",
    ]


DONE: dict[str, Any] = {
    "namespace": "shop",
    "status": "committed",
    "version": 131,
    "to_version": 127,
    "from_version": 130,
    "restored": 0,
    "removed": 2,
    "changed": 1,
    "replayed": 3,
    "base": -1,
    "duration_ms": 41,
    "strategy": "field-hash",
    "verdict": "valid",
    "digest": "ab" * 32,
    "rollback_id": "0190",
}


def test_a_rollback_says_what_it_did_and_how_to_take_it_back() -> None:
    assert list(rollback.render(DONE)) == [
        "shop: version 131 is version 127 again; 0 restored, 2 removed, 1 changed",
        "replayed 3 events from the log's start in 41 ms; field-hash: valid; "
        "digest abababababababab",
        "undo: cachemind rollback --undo 0190",
    ]
    again = list(rollback.render({**DONE, "repeated": True, "base": 77}))
    assert again[0].startswith("nothing to do")
    assert "the checkpoint at 77" in again[2]
    failed = {**DONE, "status": "quarantined", "verdict": "no base holds"}
    assert list(rollback.render(failed)) == ["quarantined: no base holds"]


def test_a_dry_run_shows_the_entries_first() -> None:
    lines = list(rollback.render({**DONE, **CHANGES, "dry_run": True}))
    assert lines[0].startswith("+ aaaa")
    assert lines[-2] == (
        "dry run of shop: version 130 to 127; 1 restored, 1 removed, 1 changed"
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["rollback"], id="no-target"),
        pytest.param(["rollback", "--to-version=1", "--undo=x"], id="two-targets"),
        pytest.param(["rollback", "--to-version=x"], id="no-number"),
        pytest.param(["rollback", "--to-version=1", "--strategy=hope"], id="strategy"),
        pytest.param(["diff", "1"], id="one-version"),
    ],
)
def test_wrong_usage_is_exit_code_two(words: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parser().parse_args(words)
    assert raised.value.code == 2


def test_a_negative_version_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--", "-1", "2"]) == 2
    assert "FROM" in capsys.readouterr().err


def test_without_a_gateway_it_fails_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["versions", "--url=http://127.0.0.1:1"]) == 1
    assert "no gateway answers" in capsys.readouterr().err
