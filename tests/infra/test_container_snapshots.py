"""The newest shipped snapshot is kept young, by one of the hosts that look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.terraform.container.keep_snapshots import NS_PER_H, is_due, main
from tests.infra.containerfile import CONTAINER
from tests.integration.rollback_host import Shop
from tests.integration.serving import run_cli, serving
from tests.upstreams import ScriptedUpstream, served

NOW_NS = 1_000 * NS_PER_H


def row(age_h: float, *, shipped: bool = True) -> dict[str, Any]:
    return {"created_at_ns": int(NOW_NS - age_h * NS_PER_H), "shipped": shipped}


@pytest.mark.parametrize(
    ("rows", "due"),
    [
        pytest.param([], True, id="none-yet"),
        pytest.param([row(5.9)], False, id="young"),
        pytest.param([row(6.0)], True, id="old"),
        pytest.param([row(9.0), row(1.0)], False, id="the-newest-counts"),
        pytest.param([row(1.0, shipped=False)], True, id="only-what-is-shipped-counts"),
        pytest.param([row(-1.0)], False, id="of-a-clock-that-is-ahead"),
    ],
)
def test_when_another_one_is_due(rows: list[dict[str, Any]], due: bool) -> None:
    assert is_due(rows, NOW_NS, 6.0) is due


def test_without_a_materializer_it_says_so_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"CACHEMIND_DATA_DIR": str(tmp_path)}
    assert main(["--once"], environ) == 1
    assert "snapshots: " in capsys.readouterr().err


@pytest.mark.broker
@pytest.mark.slow
def test_one_is_shipped_and_a_second_look_finds_it(tmp_path: Path) -> None:
    home, bucket = tmp_path / "home", tmp_path / "bucket"
    environ = {
        **os.environ,
        "CACHEMIND_DATA_DIR": str(home),
        "CACHEMIND_SNAPSHOT_URL": str(bucket),
    }

    def look(*more: str) -> str:
        done = subprocess.run(
            [sys.executable, CONTAINER / "keep_snapshots.py", "--once", *more],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    flags = ("--encoder", "off", "--snapshot-url", str(bucket))
    with served(ScriptedUpstream()) as url, serving(url, home, *flags) as host:
        with Shop(host.url) as shop:
            shop.put("question", "answer")
            shop.settle(1)
        assert look().startswith("shipped ")
        assert look() == ""
        assert look("--every-h", "0").startswith("shipped ")
        listed = run_cli("snapshot", "list", f"--data-dir={home}", f"--from={bucket}")
        assert listed.stdout.count("shipped=True") == 2
