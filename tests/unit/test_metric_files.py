from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from cachemind_services.metric_files import FILE_BYTES, VARIABLE, forget_gauges

PROCESS = """
from cachemind_services.metric_files import share_as
share_as("gateway-0")
from cachemind_services.gateway.metrics import GatewayMetrics
metrics = GatewayMetrics()
metrics.invalid.inc()
metrics.overlay.set(7)
"""


def run_process(folder: Path) -> None:
    environ = {**os.environ, VARIABLE: str(folder)}
    subprocess.run([sys.executable, "-c", PROCESS], env=environ, check=True)


def shown(folder: Path) -> list[str]:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    return generate_latest(registry).decode().splitlines()


def test_a_process_that_starts_again_counts_on_in_the_same_files(
    tmp_path: Path,
) -> None:
    run_process(tmp_path)
    files = sorted(tmp_path.iterdir())
    run_process(tmp_path)
    assert sorted(tmp_path.iterdir()) == files
    assert "cachemind_requests_invalid_total 2.0" in shown(tmp_path)


def test_what_a_dead_process_said_of_itself_is_forgotten(tmp_path: Path) -> None:
    run_process(tmp_path)
    assert "cachemind_overlay_bytes 7.0" in shown(tmp_path)
    forget_gauges(tmp_path, "gateway-0")
    assert not any("overlay_bytes 7" in line for line in shown(tmp_path))
    assert "cachemind_requests_invalid_total 1.0" in shown(tmp_path)


def test_the_disk_space_of_all_files_is_taken_at_the_start(tmp_path: Path) -> None:
    run_process(tmp_path)
    forget_gauges(tmp_path, "gateway-0")
    assert len(list(tmp_path.iterdir())) == 4
    for file in tmp_path.iterdir():
        assert file.stat().st_size == FILE_BYTES, file.name
        assert file.stat().st_blocks * 512 >= FILE_BYTES, file.name
