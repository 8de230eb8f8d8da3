"""`cachemind collector` beside a materializer, on the real broker and real stores."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.agents.collecting import Collecting
from cachemind.core.partitioner import partition_of
from cachemind.errors import LogTakenOver
from cachemind.events import EXPIRED, Body, Evicted
from cachemind.types import Namespace, Partition, Timeline
from cachemind_services.bootstrap.collector import Failpoint, Sweepers
from cachemind_services.bootstrap.log import identify
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.collect_metrics import PrometheusCollectMetrics
from cachemind_services.settings import load as read_settings
from tests.integration.cli_host import CODEC, PARTITIONS, CliHost, cli_host
from tests.integration.serving import eventually
from tests.wal_events import ALPHA, envelope, exact_key, pinned, rolled_back, stored

pytestmark = pytest.mark.broker

S = 1_000_000_000
OLD_S = 7_200
"""Ago; what `stored` makes lives an hour."""

HOME = partition_of(ALPHA.encode(), PARTITIONS)
BETA = next(
    name
    for name in (Namespace(f"beta{number}") for number in range(99))
    if partition_of(name.encode(), PARTITIONS) != HOME
)
"""In the other partition."""


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    with cli_host(
        str(broker.bootstrap_servers),
        topic_prefix,
        tmp_path / "host",
        collect_interval_s="1",
        collect_grace_s="1",
    ) as running:
        identify(read_settings(running.environ()))  # the topics
        yield running


def put(
    host: CliHost,
    ago_s: float,
    *bodies: Body,
    namespace: Namespace = ALPHA,
    timeline: int = 0,
) -> None:
    """Append events that were made so long ago."""
    writer = KafkaWriter(host.kafka, host.wal)
    waiting = []
    for body in bodies:
        made = envelope(host.appended, body, namespace)
        host.appended += 1
        event = replace(
            made,
            occurred_at_ns=time.time_ns() - round(ago_s * S),
            timeline=Timeline(timeline),
        )
        waiting.append(writer.append(namespace.encode(), CODEC.encode(event), ()))
    for future in waiting:
        future.result(30)
    writer.close(10)


def on_log(host: CliHost) -> list[Evicted]:
    """Return every eviction that is on the log."""
    found = []
    with closing(KafkaReader(host.kafka, host.wal)) as reader:
        for partition in host.partitions:
            for batch in reader.read(partition, *reader.bounds(partition)):
                for record in batch:
                    body = CODEC.decode(record.value or b"").body
                    if isinstance(body, Evicted):
                        found.append(body)
    return found


@contextmanager
def collector(host: CliHost, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `cachemind collector`, and end it in any case."""
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "collector", *flags]
    host.data_dir.mkdir(parents=True, exist_ok=True)
    with (host.data_dir / "collector.log").open("ab") as log:
        process = subprocess.Popen(argv, env=host.environ(), stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_what_has_expired_goes_once_however_the_collector_dies(host: CliHost) -> None:
    old = range(1_200)
    with collector(host, "--failpoint", "collect.appended") as first:
        # It waits for the store.
        host.start()
        put(host, OLD_S, *map(stored, old))
        put(host, OLD_S, *map(stored, range(2_000, 2_020)), namespace=BETA)
        put(host, OLD_S, pinned(7))
        put(host, 0, *map(stored, range(3_000, 3_020)))
        put(host, 0, stored(4_000), namespace=BETA)
        # An append after which nobody learns that it was done.
        assert first.wait(60) == -signal.SIGKILL
    assert len(on_log(host)) == 1
    with collector(host) as second:
        eventually(lambda: host.state().entries == 21, 60)
        eventually(lambda: host.state(BETA).entries == 1, 60)
        second.send_signal(signal.SIGTERM)
        assert second.wait(10) == 0
    gone = [key for event in on_log(host) for key in event.keys]
    expected = {*map(exact_key, old), *map(exact_key, range(2_000, 2_020))}
    assert sorted(gone) == sorted(expected - {exact_key(7)})
    assert all(len(event.keys) <= 512 for event in on_log(host))
    state = host.state()
    # Each event one version: 1,200 stored, one pinned, 20 that live, the evictions.
    of_alpha = [one for one in on_log(host) if one.keys[0] in set(map(exact_key, old))]
    assert state.version == 1_221 + len(of_alpha)
    assert state.counts["evicted"] == len(of_alpha)
    # Digests of stores and log.
    host.run("doctor", "--rebuild")


@contextmanager
def sweeper(
    host: CliHost, failpoint: Failpoint = lambda _: None
) -> Iterator[Collecting]:
    """Yield what sweeps ALPHA's partition, in this process."""
    settings = read_settings(host.environ())
    log = identify(settings)
    with ExitStack() as opened:
        reader = opened.enter_context(closing(KafkaReader(host.kafka, host.wal)))
        made = Sweepers(settings, log, reader, PrometheusCollectMetrics(), failpoint)
        yield opened.enter_context(closing(made.of(Partition(HOME))))


def test_a_rollback_overtakes_an_eviction_and_a_second_collector_the_first(
    host: CliHost,
) -> None:
    host.start()
    put(host, OLD_S, stored(0), stored(1))
    put(host, 0, stored(2))
    host.wait_folded()

    def overtaken(step: str) -> None:
        if step == "collect.decided" and not on_log(host):
            put(host, 0, rolled_back(3))

    with sweeper(host, overtaken) as one:
        one.sweep(lambda: False)
        state = host.state()
        assert (state.entries, state.version, state.timeline) == (3, 4, 4)
        assert state.counts["fenced"] == 1
        with sweeper(host) as other:
            other.sweep(lambda: False)
            assert host.state().entries == 1
            put(host, OLD_S, stored(5), timeline=4)
            host.wait_folded()
            with pytest.raises(LogTakenOver):
                one.sweep(lambda: False)
            assert host.state().entries == 2
            other.sweep(lambda: False)
    assert host.state().entries == 1
    assert [len(one.keys) for one in on_log(host)] == [2, 2, 1]
    assert {one.reason for one in on_log(host)} == {EXPIRED}
    host.run("doctor", "--rebuild")


def test_a_collector_waits_for_a_log_that_is_away(tmp_path: Path) -> None:
    soon = {"CACHEMIND_COLLECT_INTERVAL_S": "1", "CACHEMIND_COLLECT_GRACE_S": "1"}
    away = CliHost(tmp_path, "away", "127.0.0.1:1", soon)
    with collector(away) as waiting:
        said = tmp_path / "collector.log"
        eventually(lambda: "waits for the log" in said.read_text(), 30)
        assert waiting.poll() is None
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(10) == 0


@pytest.mark.slow
def test_two_hosts_share_the_partitions_and_one_takes_over_from_the_dead_other(
    host: CliHost, tmp_path: Path
) -> None:
    other = replace(host, data_dir=tmp_path / "other", process=None)
    try:
        host.start()
        other.start()
        put(host, 0, stored(1))
        put(host, 0, stored(2), namespace=BETA)
        with collector(host) as first, collector(other):
            eventually(lambda: "swept here" in said(host), 60)
            eventually(lambda: "swept here" in said(other), 60)
            put(host, OLD_S, *map(stored, range(100, 1_100)))
            put(host, OLD_S, *map(stored, range(2_000, 2_100)), namespace=BETA)
            # The newest one says what time it is, to who has seen no other yet.
            put(host, 0, stored(1))
            put(host, 0, stored(2), namespace=BETA)
            eventually(lambda: host.state().entries == 1, 60)
            eventually(lambda: host.state(BETA).entries == 1, 60)
            first.kill()
            put(host, OLD_S, *map(stored, range(100, 200)))
            put(host, OLD_S, *map(stored, range(2_000, 2_010)), namespace=BETA)
            put(host, 0, stored(1))
            put(host, 0, stored(2), namespace=BETA)
            eventually(lambda: host.state().entries == 1, 60)
            eventually(lambda: host.state(BETA).entries == 1, 60)
        assert sum(len(event.keys) for event in on_log(host)) == 1_210
        eventually(lambda: other.state() == host.state(), 60)
    finally:
        other.kill()


def said(host: CliHost) -> str:
    """Return what the host's collector has said."""
    return (host.data_dir / "collector.log").read_text()
