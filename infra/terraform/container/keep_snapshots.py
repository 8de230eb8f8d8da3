"""Keeps a shipped snapshot that is not too old: beside a materializer, on its volume.

usage: python keep_snapshots.py [--every-h 6] [--retention-days 7] [--once]

A host that starts empty begins from the newest one. Several hosts of one log look at
the same place, so that whichever comes first ships, and the others find it done. What
goes wrong is said and tried again; with --once it is the exit code: 0 or 1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cachemind.errors import CacheError
from cachemind_services.bootstrap.snapshots import known_snapshots, ship
from cachemind_services.cli.snapshot import CREATE_S, PRUNE_S
from cachemind_services.control import ask
from cachemind_services.settings import Settings, load

PAUSE_S: Final = 600.0
"""Between two looks, and as much again by chance: hosts that began together part."""

NS_PER_H: Final = 3_600 * 10**9


def is_due(snapshots: Sequence[Mapping[str, Any]], now_ns: int, every_h: float) -> bool:
    """Return whether the newest shipped one of `snapshots` is too old, or missing."""
    shipped = [int(one["created_at_ns"]) for one in snapshots if one["shipped"]]
    return now_ns - max(shipped, default=0) >= every_h * NS_PER_H


def keep(settings: Settings, every_h: float, retention_days: int) -> str:
    """Ship a snapshot if one is due, and remove what is past its retention.

    Returns what was shipped, empty where nothing was due.
    Raises: `ControlUnavailable` where no materializer runs here; `CacheError`.
    """
    rows, _ = known_snapshots(settings, None)
    if not is_due(rows, time.time_ns(), every_h):
        return ""
    made = ask(
        settings.data_dir,
        "snapshot-create",
        CREATE_S,
        name="",
        retention_days=retention_days,
        namespaces=None,
    )
    ship(settings, None, str(made["snapshot_id"]))
    ask(settings.data_dir, "snapshot-prune", PRUNE_S, name=None)
    return str(made["snapshot"])


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Look again and again until SIGTERM, or once."""
    wanted = _parsed(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while True:
        failed = _try(load(environ), wanted)
        if wanted.once or stop.wait(PAUSE_S * (1 + random.random())):  # noqa: S311
            return failed if wanted.once else 0


def _try(settings: Settings, wanted: argparse.Namespace) -> int:
    try:
        shipped = keep(settings, wanted.every_h, wanted.retention_days)
    except (CacheError, OSError) as error:
        sys.stderr.write(f"snapshots: {error}\n")
        return 1
    if shipped:
        sys.stdout.write(f"shipped {shipped}\n")
        sys.stdout.flush()
    return 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="keep_snapshots.py")
    parser.add_argument("--every-h", type=float, default=6.0)
    parser.add_argument("--retention-days", type=int, default=7)
    parser.add_argument("--once", action="store_true", help="look once, and end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
