"""kill -9 of materializer and gateway at random points under load.

Every acknowledged write must be on the log and in the state, the digest must equal
that of a rebuild from the log alone, and versions must have no gap.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import httpx
import pytest

from cachemind.events import Stored
from cachemind.types import Lsn, Offset, Version
from cachemind_services.bootstrap.tools import (
    OpenLog,
    open_inspectors,
    open_log,
    rebuilt,
)
from cachemind_services.cli.doctor import compare
from cachemind_services.settings import load as read_settings
from tests.integration.serving import Serving, eventually, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = pytest.mark.broker

ROLES = ("materializer", "gateway-worker")
WRITERS = 4


class Load:
    """Asks new questions from several threads and keeps what was acknowledged."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._seed = seed
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,))
            for number in range(WRITERS)
        ]
        self.acknowledged: dict[Lsn, str] = {}
        self.failed = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        count = 0
        with httpx.Client(timeout=20) as client:
            while not self._stop.is_set():
                count += 1
                prompt = f"Question {self._seed}-{number}-{count}, please?"
                body = {
                    "model": "m",
                    "messages": [{"role": "user", "content": prompt}],
                }
                try:
                    answer = client.post(self._url + "/v1/chat/completions", json=body)
                except httpx.TransportError:
                    self.failed += 1
                    time.sleep(0.05)
                    continue
                if "stored" in answer.headers.get("cache-status", ""):
                    self.acknowledged[Lsn.parse(answer.headers["x-cachemind-lsn"])] = (
                        prompt
                    )


def crash(host: Serving, rounds: int, seed: int) -> Load:
    """Kill one role a round, at a random moment, while the load goes on."""
    chance = random.Random(seed)
    load = Load(host.url, seed)
    load.start()
    try:
        for _ in range(rounds):
            time.sleep(chance.uniform(0.2, 1.5))
            role = chance.choice(ROLES)
            eventually(lambda role=role: host.runs(role), 60)  # type: ignore[misc]  # bound now
            host.kill(role)
        eventually(lambda: all(map(host.runs, ROLES)), 60)
        seen = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > seen, 60)
    finally:
        load.stop()
    host.wait_ready()
    return load


def check(host: Serving, load: Load, scratch: Path) -> None:
    """Hold log, state and a rebuild against what was acknowledged."""
    settings = read_settings({}, flags={"data_dir": str(host.data_dir)})
    with open_log(settings) as log:
        on_log = stored_on(log)
        missing = set(load.acknowledged) - set(on_log)
        assert not missing, f"acknowledged and not on the log: {sorted(missing)}"
        with open_inspectors(settings, log.identity) as stores:
            for partition, store in zip(log.partitions, stores, strict=True):
                _, end = log.reader.bounds(partition)
                eventually(lambda s=store, e=end: s.catch_up() == e - 1)  # type: ignore[misc]  # bound now
                for state in store.namespaces():
                    rows = store.versions(state.namespace, Version(1), state.version)
                    assert [row.version for row in rows] == list(
                        range(1, state.version + 1)
                    )
                    keys = {entry.exact_key for entry in store.entries(state.namespace)}
                    assert {body.exact_key for body in on_log.values()} <= keys
                with rebuilt(
                    log, partition, Offset(end), scratch, lambda _p, _e: None
                ) as again:
                    findings = list(compare(store.namespaces(), again.namespaces()))
                    assert all(finding.ok for finding in findings), findings


def stored_on(log: OpenLog) -> dict[Lsn, Stored]:
    """Return every Stored that is on the log, by where it is."""
    found = {}
    for partition in log.partitions:
        first, end = log.reader.bounds(partition)
        for batch in log.reader.read(partition, first, end):
            for record in batch:
                body = log.codec.decode(record.value or b"").body
                if isinstance(body, Stored):
                    found[record.lsn] = body
    return found


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(5, id="five"),
        pytest.param(
            50, id="fifty", marks=[pytest.mark.slow, pytest.mark.timeout(900)]
        ),
    ],
)
def test_no_acknowledged_write_is_lost_however_processes_die(
    rounds: int, tmp_path: Path
) -> None:
    with (
        served(ScriptedUpstream()) as url,
        serving(url, tmp_path / "data", "--encoder", "off") as host,
    ):
        load = crash(host, rounds, seed=rounds)
        assert len(load.acknowledged) > 10 * rounds
        check(host, load, tmp_path)
