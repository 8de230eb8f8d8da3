"""What audit mode costs: receipts/s a core, and how late receipts and cuts are.

`python -m tests.bench.bench_audit [RECORDS]` starts its own broker and prints JSON.
Events are `Stored` with a response of 1 KB in four partitions; keys are local.

`receipts_per_core_s` is by the processor time that the signer used for a backlog, the
cutter of the same process with it, whoever else was on the machine;
`receipts_per_s` by the clock. `receipt_*_ms` is from an acknowledged append to its
receipt being read back, `cut_*_ms` to a cut over it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cachemind.codec import Codec
from cachemind.codec.cuts import decode_cuts_record, decode_leaf
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.receipts import Cut
from cachemind.types import Lsn, Namespace, Partition
from cachemind_services.broker import EmbeddedBroker
from tests.integration.forked import Forked
from tests.integration.signing_host import SignedLog, signed_log
from tests.wal_events import envelope, stored

RECORDS = 60_000
LONE_EVENTS = 100
RESPONSE_BYTES = 1024
PARTITIONS = 4
POLL_S = 0.02
LONE_PAUSE_S = 0.05
TIMEOUT_S = 600.0


def fill(log: SignedLog, count: int) -> None:
    """Append a backlog, spread over all partitions."""
    codec, waiting = Codec(), []
    for number in range(count):
        namespace = Namespace(f"n{number % 16}")
        body = stored(number, RESPONSE_BYTES)
        record = codec.encode(envelope(number, body, namespace))
        waiting.append(log.writer.append(namespace.encode(), record, ()))
        if len(waiting) == 20_000:
            for future in waiting:
                future.result(60)
            waiting.clear()
    for future in waiting:
        future.result(60)


def signed_offsets(log: SignedLog) -> int:
    """Return how far the audit topic has grown, marks of transactions with it."""
    return sum(log.audit.bounds(partition)[1] for partition in log.partitions)


def until(reached: Callable[[], bool]) -> None:
    """Return once `reached`. Raises: `TimeoutError`."""
    deadline = time.monotonic() + TIMEOUT_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError("the signer did not get there")
        time.sleep(POLL_S)


def backlog_rates(log: SignedLog, signer: Forked, records: int) -> tuple[float, float]:
    """Return receipts/s by the processor and by the clock, between a tenth and the end.

    The start of the process is left out, and so is the tail, where it waits.
    """
    until(lambda: signed_offsets(log) >= records // 10)
    began, used, before = time.perf_counter(), signer.cpu_s(), signed_offsets(log)
    until(lambda: signed_offsets(log) >= records * 95 // 100)
    took, cpu = time.perf_counter() - began, signer.cpu_s() - used
    receipts = signed_offsets(log) - before
    return receipts / cpu, receipts / took


class Arrivals:
    """When each record's receipt, and a cut over it, could be read."""

    def __init__(self, log: SignedLog) -> None:
        self._log = log
        self.receipts: dict[Lsn, tuple[float, int]] = {}
        self.cuts: list[tuple[float, Cut]] = []
        self._enough = threading.Event()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow both topics as long as the block runs."""
        threads = [
            threading.Thread(target=self._receipts),
            threading.Thread(target=self._cuts),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._enough.set()
            for thread in threads:
                thread.join()

    def _receipts(self) -> None:
        starts = {p: self._log.audit.bounds(p)[1] for p in self._log.partitions}
        for batch in self._log.audit.follow(starts, self._enough.is_set):
            now = time.perf_counter()
            for record in batch:
                signed = decode_signed_receipt(record.value or b"")
                receipt = decode_receipt(signed.receipt)
                self.receipts[receipt.source] = (now, receipt.seq)

    def _cuts(self) -> None:
        zero = Partition(0)
        starts = {zero: self._log.cuts.bounds(zero)[1]}
        for batch in self._log.cuts.follow(starts, self._enough.is_set):
            now = time.perf_counter()
            for record in batch:
                leaf = decode_leaf(decode_cuts_record(record.value or b"").leaf)
                if isinstance(leaf, Cut):
                    self.cuts.append((now, leaf))

    def covered(self, lsn: Lsn) -> float | None:
        """Return when a cut over a record's receipt came, None where none has."""
        if lsn not in self.receipts:
            return None
        _, seq = self.receipts[lsn]
        return next(
            (at for at, cut in self.cuts if cut.heads[lsn.partition].size > seq), None
        )


def lone_latencies_ms(log: SignedLog) -> tuple[list[float], list[float]]:
    """Return, sorted, the times from an acknowledged append to receipt and to cut."""
    arrivals, appended = Arrivals(log), {}
    with arrivals.followed():
        time.sleep(1)
        for number in range(LONE_EVENTS):
            namespace = Namespace(f"n{number % 16}")
            lsn = log.append(stored(number, RESPONSE_BYTES), namespace=namespace)
            appended[lsn] = time.perf_counter()
            time.sleep(LONE_PAUSE_S)
        until(lambda: all(arrivals.covered(lsn) is not None for lsn in appended))
    receipts = [arrivals.receipts[lsn][0] - at for lsn, at in appended.items()]
    cuts = [(arrivals.covered(lsn) or 0.0) - at for lsn, at in appended.items()]
    return sorted(1e3 * one for one in receipts), sorted(1e3 * one for one in cuts)


def signer_figures(records: int) -> dict[str, Any]:
    """Return what the signer does alone."""
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedBroker(Path(name) / "broker") as broker,
        signed_log(broker, "bench", Path(name), PARTITIONS) as log,
    ):
        log.add_first_keys()
        fill(log, records)
        signer = log.start()
        per_core, per_s = backlog_rates(log, signer, records)
        log.wait_signed(TIMEOUT_S)
        receipts, cuts = lone_latencies_ms(log)
        signer.stop()
    return {
        "receipts_per_core_s": round(per_core),
        "receipts_per_s": round(per_s),
        "receipt_p50_ms": round(receipts[len(receipts) // 2], 1),
        "receipt_p99_ms": round(receipts[len(receipts) * 99 // 100], 1),
        "cut_p50_ms": round(cuts[len(cuts) // 2]),
        "cut_p99_ms": round(cuts[len(cuts) * 99 // 100]),
    }


def main() -> int:
    """Measure and print."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    sys.stdout.write(json.dumps(signer_figures(records)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
