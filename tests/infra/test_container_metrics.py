"""What signer and sink count comes to CloudWatch as lines of their task's log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachemind_services.metric_files import VARIABLE
from infra.terraform.container import start, tell_metrics
from infra.terraform.container.tell_metrics import Telling, line
from tests.infra.containerfile import CONTAINER

NOW_NS = 1_700_000_000_123_456_789
BEGIN = """
from cachemind_services.audit_metrics import PrometheusAuditMetrics
from cachemind_services.metric_files import share_as
share_as("signer")
told = PrometheusAuditMetrics()
"""


def count(folder: Path, *statements: str) -> None:
    """Be a signer that counts; which class counts is settled by an import."""
    text = BEGIN + "\n".join(statements)
    environ = {**os.environ, VARIABLE: str(folder)}
    subprocess.run([sys.executable, "-c", text], env=environ, check=True)


def values(said: str) -> dict[str, Any]:
    return {k: v for k, v in json.loads(said).items() if k.startswith("cachemind_")}


def test_a_gauge_is_told_by_its_largest_and_a_counter_by_its_growth(
    tmp_path: Path,
) -> None:
    telling = Telling("llm", tmp_path)
    count(
        tmp_path, "told.cut(3, 0.1)", "told.signer_lag(0, 7)", "told.signer_lag(1, 9)"
    )
    said = telling.look(NOW_NS)
    first = values(said)
    assert first["cachemind_cuts_total"] == 1
    assert first["cachemind_receipts_cut_total"] == 3
    assert first["cachemind_signer_lag_records"] == 9
    told = json.loads(said)["_aws"]
    assert told["Timestamp"] == 1_700_000_000_123
    [metrics] = told["CloudWatchMetrics"]
    assert metrics["Namespace"] == "llm"
    assert metrics["Dimensions"] == [[]]
    assert {one["Name"] for one in metrics["Metrics"]} == first.keys()
    # Begun anew, it goes on counting; what it said of itself is gone.
    count(tmp_path, "told.cut(0, 0.1)", "told.stopped(1, 'fork')")
    second = values(telling.look(NOW_NS))
    assert second["cachemind_cuts_total"] == 1
    assert second["cachemind_receipts_cut_total"] == 0
    assert second["cachemind_signer_stopped"] == 1
    assert "cachemind_signer_lag_records" not in second


def test_what_was_counted_before_the_first_look_is_not_told(tmp_path: Path) -> None:
    count(tmp_path, "told.key_event_refused()")
    telling = Telling("llm", tmp_path)
    assert values(telling.look(NOW_NS))["cachemind_key_events_refused_total"] == 0


def test_a_file_that_is_being_made_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "counter_signer.db").touch()
    assert Telling("llm", tmp_path).look(NOW_NS) == ""


def test_nothing_to_tell_is_no_line() -> None:
    assert line("llm", {}, NOW_NS) == ""


def test_as_the_task_runs_it(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "metrics"
    start.place({VARIABLE: str(folder)})  # whoever of the task comes first
    count(folder, "told.signer_lag(0, 7)")
    done = subprocess.run(
        [
            *(sys.executable, CONTAINER / "start.py"),
            *("python", CONTAINER / "tell_metrics.py"),
            *("llm", "--every-s", "0", "--once"),
        ],
        env={
            **os.environ,
            VARIABLE: str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert values(done.stdout)["cachemind_signer_lag_records"] == 7


def test_without_a_place_it_says_which_variable_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tell_metrics.main(["llm"], {}) == tell_metrics.EXIT_USAGE
    assert VARIABLE in capsys.readouterr().err
