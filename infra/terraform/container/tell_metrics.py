"""Tells CloudWatch what the processes of a task count, by lines in their log.

usage: python tell_metrics.py NAMESPACE [--every-s 60] [--once]

For a task that serves nothing, so that nobody can ask it for `/metrics`. Reads the
files below PROMETHEUS_MULTIPROC_DIR. One line a look, in CloudWatch's embedded metric
format: of a gauge the largest of its values, of a counter by how much it has grown.
What was counted before the first look is not told, as a predecessor may have told it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client.multiprocess import MultiProcessCollector

from cachemind_services.metric_files import VARIABLE

OURS: Final = "cachemind_"
NS_PER_MS: Final = 1_000_000
EXIT_USAGE: Final = 2


def read(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return what gauges say, and what counters have counted, over all labels."""
    # One that is being made has no room yet, and cannot be read.
    files = [str(path) for path in folder.glob("*.db") if path.stat().st_size]
    families = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]  # prometheus_client has no types for it
    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}
    for family in families:
        for sample in family.samples if family.name.startswith(OURS) else ():
            name, value = sample.name, sample.value
            if family.type == "gauge":
                gauges[name] = max(value, gauges.get(name, value))
            elif family.type == "counter":
                counters[name] = counters.get(name, 0.0) + value
    return gauges, counters


def line(namespace: str, values: Mapping[str, float], now_ns: int) -> str:
    """Return what CloudWatch takes for metrics without dimensions, if any.

    Source: AWS, CloudWatch User Guide, Specification: Embedded metric format.
    """
    if not values:
        return ""
    metrics = [{"Name": name} for name in sorted(values)]
    told: dict[str, Any] = {
        "_aws": {
            "Timestamp": now_ns // NS_PER_MS,
            "CloudWatchMetrics": [
                {"Namespace": namespace, "Dimensions": [[]], "Metrics": metrics}
            ],
        },
        **values,
    }
    return json.dumps(told, sort_keys=True) + "\n"


class Telling:
    """What to tell at each look, by what was counted at the one before."""

    def __init__(self, namespace: str, folder: Path) -> None:
        """Look for the first time: nobody need have counted yet."""
        self._namespace = namespace
        self._folder = folder
        self._counted = read(folder)[1]

    def look(self, now_ns: int) -> str:
        """Return the line of this look."""
        gauges, counters = read(self._folder)
        # A process that begins anew goes on counting in the same files.
        grown = {
            name: value - self._counted.get(name, 0.0)
            for name, value in counters.items()
        }
        self._counted = counters
        return line(self._namespace, gauges | grown, now_ns)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Tell again and again until SIGTERM, or once."""
    wanted = _parsed(arguments)
    if not environ.get(VARIABLE):
        sys.stderr.write(f"{VARIABLE} does not say where metrics are\n")
        return EXIT_USAGE
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    telling = Telling(wanted.namespace, Path(environ[VARIABLE]))
    while not stop.wait(wanted.every_s):
        sys.stdout.write(telling.look(time.time_ns()))
        sys.stdout.flush()
        if wanted.once:
            break
    return 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tell_metrics.py")
    parser.add_argument("namespace", help="CloudWatch's, of the metrics")
    parser.add_argument("--every-s", type=float, default=60.0)
    parser.add_argument("--once", action="store_true", help="tell once, and end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
