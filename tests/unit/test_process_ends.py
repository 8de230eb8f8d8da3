from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cachemind.errors import (
    CacheError,
    InvalidSetting,
    LogUnavailable,
    TopicMisconfigured,
)
from cachemind_services.cli.main import EXIT_FAILED, EXIT_USAGE, exit_code

CLI = [sys.executable, "-m", "cachemind_services.cli.main"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(InvalidSetting("port", "taken"), EXIT_USAGE, id="setting"),
        pytest.param(
            TopicMisconfigured("cachemind.wal", "cleanup.policy", "delete", "compact"),
            EXIT_USAGE,
            id="topic",
        ),
        pytest.param(LogUnavailable("away"), EXIT_FAILED, id="log-away"),
    ],
)
def test_a_supervisor_learns_whether_to_try_again(error: CacheError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize("role", ["materializer", "serve"])
def test_a_service_that_is_stopped_while_it_starts_ends_with_0(
    tmp_path: Path, role: str
) -> None:
    where = ["--data-dir", str(tmp_path), "--bootstrap-servers", "127.0.0.1:1"]
    if role == "serve":
        where += ["--upstream", "http://127.0.0.1:1", "--port", "0"]
    process = subprocess.Popen(
        [*CLI, role, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(15) == 0


def test_a_command_does_not_pay_for_the_import_of_faust() -> None:
    asks = "import sys, cachemind_services.cli.main; print('faust' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
