"""`make bench`, first half: exact hits under `acked` beside the bare stub.

Everything is on this machine: load generator, Kafka, materializer, gateway. Both
servers run under the same uvicorn with uvloop and httptools, one worker each, and
are loaded in turn, so the ratio holds where the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.running import free_port, running, wait_for

HERE: Final = Path(__file__).parent
WARM_UP_S: Final = 10
"""Until the JVM has compiled what the broker does for each record."""

_UNIT_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk saw: requests a second, latency in milliseconds, answers not 2xx."""

    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int


def parse_wrk(report: str) -> Load:
    """Return the figures of one wrk report. Raises: `ValueError` where it has none."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", report)
    if rate is None:
        raise ValueError(f"not a wrk report: {report!r}")
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    return Load(
        float(rate[1]),
        _percentile(report, "50%"),
        _percentile(report, "99%"),
        int(failed[1]) if failed else 0,
    )


def _percentile(report: str, name: str) -> float:
    found = re.search(rf"^\s+{name}\s+([\d.]+)(us|ms|s|m) *$", report, re.MULTILINE)
    if found is None:
        raise ValueError(f"no {name} in the report")
    return float(found[1]) * _UNIT_MS[found[2]]


def wrk(url: str, connections: int, seconds: int) -> Load:
    """Load `url` with the prompts of chat.lua and return the figures."""
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency"]
    argv += ["-s", str(HERE / "chat.lua"), url]
    return parse_wrk(subprocess.check_output(argv, text=True))


@contextmanager
def stub() -> Iterator[str]:
    """Run the bare stub and yield its base URL."""
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "tests.bench.upstream_stub:app"]
    argv += ["--port", str(port), "--no-access-log", "--log-level", "warning"]
    argv += ["--loop", "uvloop", "--http", "httptools"]
    with running(argv, dict(os.environ)):
        url = f"http://127.0.0.1:{port}"
        wait_for(url + "/v1/models", 30)
        yield url


@contextmanager
def cachemind(upstream: str, folder: Path, *flags: str) -> Iterator[str]:
    """Run `cachemind serve` with an embedded Kafka and yield its base URL."""
    port = free_port()
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "serve"]
    argv += ["--upstream", upstream, "--port", str(port), "--data-dir", str(folder)]
    with running([*argv, *flags], dict(os.environ)):
        url = f"http://127.0.0.1:{port}"
        wait_for(url + "/readyz", 90)
        yield url


def measure(seconds: int, rounds: int) -> dict[str, object]:
    """Return the figures of one run: medians over `rounds` of alternating loads."""
    folder = Path(tempfile.mkdtemp(prefix="cachemind-bench-"))
    try:
        with stub() as bare, cachemind(bare, folder) as cached:
            wrk(cached, 16, 3)  # the misses
            wrk(cached, 64, WARM_UP_S)
            figures: dict[str, object] = {"hits_before": _hits(cached)}
            for connections in (1, 16, 64):
                pairs = [
                    (wrk(bare, connections, seconds), wrk(cached, connections, seconds))
                    for _ in range(rounds)
                ]
                figures[f"connections_{connections}"] = _row(pairs)
            figures["hits_after"] = _hits(cached)
            return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _row(pairs: list[tuple[Load, Load]]) -> dict[str, float]:
    def middle(values: list[float]) -> float:
        return round(statistics.median(values), 3)

    return {
        "stub_per_second": middle([bare.per_second for bare, _ in pairs]),
        "cachemind_per_second": middle([ours.per_second for _, ours in pairs]),
        "ratio": middle([ours.per_second / bare.per_second for bare, ours in pairs]),
        "stub_p50_ms": middle([bare.p50_ms for bare, _ in pairs]),
        "cachemind_p50_ms": middle([ours.p50_ms for _, ours in pairs]),
        "added_p50_ms": middle([ours.p50_ms - bare.p50_ms for bare, ours in pairs]),
        "stub_p99_ms": middle([bare.p99_ms for bare, _ in pairs]),
        "cachemind_p99_ms": middle([ours.p99_ms for _, ours in pairs]),
        "added_p99_ms": middle([ours.p99_ms - bare.p99_ms for bare, ours in pairs]),
        "failed": sum(bare.failed + ours.failed for bare, ours in pairs),
    }


def _hits(url: str) -> int:
    with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
        text = answer.read().decode()
    counted = re.findall(
        r'^cachemind_requests_total\{[^}]*outcome="hit_exact"[^}]*\} ([\d.e+]+)$',
        text,
        re.MULTILINE,
    )
    return int(sum(float(value) for value in counted))


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("this needs wrk (Debian package wrk)")
    figures = measure(arguments.seconds, arguments.rounds)
    print(json.dumps(figures, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
