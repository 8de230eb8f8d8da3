"""`make bench-audit`, the request path: exact hits with audit mode on beside off.

Two hosts run at once, each with a Kafka of its own, and are loaded in turn: one as
`serve` runs by default, one with signer, index and sealed copy. So the difference is
what the caller of an exact hit waits for because its host is audited.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.bench_gateway import WARM_UP_S, Load, cachemind, stub, wrk

CONNECTIONS = (1, 16)


def measure(seconds: int, rounds: int, warm_up_s: int = WARM_UP_S) -> dict[str, object]:
    """Return the figures of one run: medians over `rounds` of alternating loads."""
    folder = Path(tempfile.mkdtemp(prefix="cachemind-bench-"))
    audit = ("--audit-mode", "--log-dir", str(folder / "log"))
    try:
        with (
            stub() as bare,
            cachemind(bare, folder / "off") as off,
            cachemind(bare, folder / "on", *audit) as on,
        ):
            for url in (off, on):
                wrk(url, 16, 3)  # the misses
                wrk(url, 64, warm_up_s)
            return {
                f"connections_{count}": _row(
                    [
                        (wrk(off, count, seconds), wrk(on, count, seconds))
                        for _ in range(rounds)
                    ]
                )
                for count in CONNECTIONS
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _row(pairs: list[tuple[Load, Load]]) -> dict[str, float]:
    def middle(values: list[float]) -> float:
        return round(statistics.median(values), 3)

    return {
        "off_per_second": middle([off.per_second for off, _ in pairs]),
        "on_per_second": middle([on.per_second for _, on in pairs]),
        "off_p50_ms": middle([off.p50_ms for off, _ in pairs]),
        "on_p50_ms": middle([on.p50_ms for _, on in pairs]),
        "added_p50_ms": middle([on.p50_ms - off.p50_ms for off, on in pairs]),
        "off_p99_ms": middle([off.p99_ms for off, _ in pairs]),
        "on_p99_ms": middle([on.p99_ms for _, on in pairs]),
        "added_p99_ms": middle([on.p99_ms - off.p99_ms for off, on in pairs]),
        "failed": sum(off.failed + on.failed for off, on in pairs),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=WARM_UP_S)
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("this needs wrk (Debian package wrk)")
    figures = measure(arguments.seconds, arguments.rounds, arguments.warm_up)
    print(json.dumps(figures, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
