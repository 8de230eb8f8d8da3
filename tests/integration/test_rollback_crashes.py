"""kill -9 of the materializer at each step of a rollback, on real Kafka.

The rollback ends committed with the digest that history recorded for its target, or it
has not begun; never between. A rebuild of the log alone gives the same state.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.codec.codec import Codec
from cachemind.core.rollback_report import RollbackStatus
from cachemind.errors import StoreUnavailable
from cachemind.events import Body, Evicted, RolledBack
from cachemind.ports import StoreInspector
from cachemind.types import Lsn, Offset, Partition, Version
from cachemind_services.bootstrap.tools import open_inspectors, open_log, rebuilt
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.doctor import compare
from cachemind_services.settings import Settings
from cachemind_services.settings import load as read_settings
from tests.fold_cases import NS, envelope, key, rolled_back, stored
from tests.integration.serving import eventually

pytestmark = pytest.mark.broker

CODEC = Codec()
ZERO = Partition(0)
FAILPOINTS = (
    "rollback.met",
    "rollback.fenced",
    "rollback.base-opened",
    "rollback.replayed",
    "rollback.validated",
    "rollback.before-commit",
    "rollback.after-commit",
)
BEFORE_THE_FLIP = (
    "rollback.replayed",
    "shadow.begun",
    "shadow.put",
    "shadow.validated",
    "rollback.before-commit",
    "shadow.sealed",
)
AFTER_THE_FLIP = ("shadow.decided", "shadow.closed", "shadow.moved", "shadow.opened")
SHADOW = (*BEFORE_THE_FLIP, *AFTER_THE_FLIP)
CHECKPOINT_EVENTS = 12
"""See `poisoned`: two times that many of the good, and fewer bad ones."""
APPEND_S = 30
"""A broker that has just begun, on a busy machine, answers late."""


class Fold:
    """A materializer by its command, its log and its store."""

    def __init__(
        self, broker: EmbeddedBroker, prefix: str, folder: Path, **flags: str
    ) -> None:
        self.flags = flags | {
            "bootstrap.servers": broker.bootstrap_servers,
            "topic_prefix": prefix,
            "data_dir": str(folder),
            "partitions": "1",
            "group_id": f"{prefix}.fold",
            "checkpoint_events": str(CHECKPOINT_EVENTS),
        }
        self.settings: Settings = read_settings({}, flags=self.flags)
        self.output = folder / "materializer.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.words = 0
        self.timeline = 0

    def start(self, failpoint: str = "") -> None:
        argv = [sys.executable, "-m", "cachemind_services.cli.main", "materializer"]
        for name, value in self.flags.items():
            argv += ["--" + name.replace("_", "-").replace(".", "-"), value]
        argv += ["--failpoint", failpoint]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(argv, stdout=output, stderr=output)

    def died(self) -> None:
        """Return once the process has killed itself."""
        assert self.process is not None
        assert self.process.wait(60) == -signal.SIGKILL, self.output.read_text()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    @contextmanager
    def appending(self) -> Iterator[KafkaWriter]:
        patient = {**self.settings.kafka, "delivery.timeout.ms": f"{APPEND_S}000"}
        writer = KafkaWriter(patient, f"{self.wal_prefix}.wal")
        try:
            yield writer
        finally:
            writer.close(10)

    @property
    def store_path(self) -> Path:
        return self.settings.data_dir / "store" / "0"

    @property
    def wal_prefix(self) -> str:
        return self.flags["topic_prefix"]

    def append(self, *bodies: Body) -> Lsn:
        """Append each body on the current timeline; return the last LSN."""
        with self.appending() as writer:
            last = None
            for body in bodies:
                self.words += 1
                event = envelope(body, f"e{self.words}", timeline=self.timeline)
                record = CODEC.encode(event)
                last = writer.append(NS.encode(), record, ()).result(APPEND_S)
        assert last is not None
        return last

    @contextmanager
    def store(self) -> Iterator[StoreInspector]:
        with open_inspectors(self.settings, None) as (view,):
            view.catch_up()
            yield view

    def applied(self) -> Offset:
        try:
            with self.store() as view:
                return view.applied()
        except StoreUnavailable:
            return Offset(-1)

    def wait(self, lsn: Lsn) -> None:
        eventually(lambda: self.applied() >= lsn.offset, 60)


@pytest.fixture
def fold(broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path) -> Iterator[Fold]:
    fold = Fold(broker, topic_prefix, tmp_path)
    yield fold
    fold.stop()


@pytest.fixture
def shadowing(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[Fold]:
    """Yield a fold whose every rollback goes through a copy of the store."""
    fold = Fold(broker, topic_prefix, tmp_path, rollback_write_bytes="1")
    yield fold
    fold.stop()


def poisoned(fold: Fold) -> Lsn:
    """Fold 25 good versions and a checkpoint, append 5 bad ones; return their LSN."""
    good: list[Body] = [stored(f"w{number}") for number in range(20)]
    good += [stored(f"w{number}", response="better") for number in range(5)]
    bad: list[Body] = [stored(f"w{number}", response="bad") for number in range(3)]
    bad += [stored("new"), Evicted(keys=(key("w9"),), reason="r")]
    # Folded a checkpoint's worth at a time, a commit may be cut anywhere: the second
    # checkpoint is among the good ones, and the bad ones bring about no third.
    for first in range(0, len(good), CHECKPOINT_EVENTS):
        fold.wait(fold.append(*good[first : first + CHECKPOINT_EVENTS]))
    return fold.append(*bad)


def require_rebuild_to_agree(fold: Fold, scratch: Path) -> None:
    """Hold the store against one that was folded from the log alone."""
    with open_log(fold.settings) as log, fold.store() as view:
        _, end = log.reader.bounds(ZERO)
        with rebuilt(log, ZERO, Offset(end), scratch, lambda _p, _e: None) as again:
            findings = list(compare(view.namespaces(), again.namespaces()))
            assert findings
            assert all(finding.ok for finding in findings), findings


def digest_at(view: StoreInspector, version: int) -> int:
    (row,) = view.versions(NS, Version(version), Version(version))
    return row.digest


def test_one_rollback_is_killed_at_each_of_its_steps_and_is_done_once(
    fold: Fold, tmp_path: Path
) -> None:
    fold.start(FAILPOINTS[0])
    fold.wait(poisoned(fold))
    body = rolled_back(25)
    at = fold.append(body)
    fold.died()
    for failpoint in FAILPOINTS[1:]:
        require_not_begun(fold, body, at)
        fold.start(failpoint)
        fold.died()
    fold.timeline = 31
    fold.start()
    fold.wait(fold.append(stored("after")))
    base = require_done_once(fold, body, at)
    group = f"{fold.settings.group_id}.rollback"
    kafka = dict(fold.settings.kafka)
    with closing(KafkaGroupOffsets(kafka, group, f"{fold.wal_prefix}.wal")) as offsets:
        assert offsets.committed([ZERO]) == {ZERO: base + 1}
    fold.stop()
    require_rebuild_to_agree(fold, tmp_path / "scratch")


def test_a_rollback_too_large_for_one_write_has_not_begun_before_its_flip(
    shadowing: Fold, tmp_path: Path
) -> None:
    fold = shadowing
    fold.start(BEFORE_THE_FLIP[0])
    fold.wait(poisoned(fold))
    body = rolled_back(25)
    at = fold.append(body)
    fold.died()
    for failpoint in (*BEFORE_THE_FLIP[1:], AFTER_THE_FLIP[0]):
        require_not_begun(fold, body, at)
        fold.start(failpoint)
        fold.died()
    fold.timeline = 31
    fold.start()
    fold.wait(fold.append(stored("after")))
    require_done_once(fold, body, at)
    eventually(lambda: not list(fold.store_path.parent.glob("0.*")), 30)
    fold.stop()
    require_rebuild_to_agree(fold, tmp_path / "scratch")


@pytest.mark.parametrize(
    "failpoint",
    [
        AFTER_THE_FLIP[-1],
        *(pytest.param(name, marks=pytest.mark.slow) for name in AFTER_THE_FLIP[:-1]),
    ],
)
def test_a_rollback_too_large_for_one_write_is_done_after_its_flip(
    shadowing: Fold, failpoint: str, tmp_path: Path
) -> None:
    fold = shadowing
    fold.start(failpoint)
    fold.wait(poisoned(fold))
    body = rolled_back(25)
    at = fold.append(body)
    fold.died()
    # No step of it may be done again: the process would die of it.
    fold.timeline = 31
    fold.start("rollback.met")
    fold.wait(fold.append(stored("after")))
    require_done_once(fold, body, at)
    fold.stop()
    require_rebuild_to_agree(fold, tmp_path / "scratch")


def require_not_begun(fold: Fold, body: RolledBack, at: Lsn) -> None:
    with fold.store() as view:
        assert view.applied() < at.offset
        assert view.namespace(NS).version == 30
        assert view.rollback_report(body.rollback_id) is None


def require_done_once(fold: Fold, body: RolledBack, at: Lsn) -> Offset:
    """Check the rollback from 30 to 25, and that one event came after it.

    Returns the offset of the checkpoint that it was made from.
    """
    with fold.store() as view:
        report = view.rollback_report(body.rollback_id)
        assert report is not None
        assert report.status is RollbackStatus.COMMITTED
        assert (report.restored, report.removed, report.changed) == (1, 1, 3)
        assert report.digest == digest_at(view, 25) == digest_at(view, 31)
        assert report.base >= CHECKPOINT_EVENTS
        assert view.fenced_at(NS) == at.offset
        assert view.namespace(NS).version == 32
        return report.base


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [100])
def test_rollbacks_and_undos_through_copies_survive_kills_at_random_steps(
    shadowing: Fold, tmp_path: Path, rounds: int
) -> None:
    survive_kills(shadowing, tmp_path, rounds, (*FAILPOINTS, *SHADOW))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [100])
def test_rollbacks_and_undos_survive_kills_at_random_steps(
    fold: Fold, tmp_path: Path, rounds: int
) -> None:
    survive_kills(fold, tmp_path, rounds, FAILPOINTS)


def survive_kills(
    fold: Fold, tmp_path: Path, rounds: int, failpoints: Sequence[str]
) -> None:
    chance = random.Random(rounds)
    fold.start(chance.choice(failpoints))
    fold.wait(poisoned(fold))
    head = 30
    for number in range(rounds):
        target = chance.randint(0, head)
        body = rolled_back(target, f"round {number}")
        at = fold.append(body)
        fold.died()
        head += 1
        fold.timeline = head
        fold.start(chance.choice(failpoints))
        # After a commit the rollback is not met again, so nothing kills the process.
        eventually(lambda at=at: done(fold, at), 60)  # type: ignore[misc]  # bound now
        fold.stop()
        fold.start()
        fold.wait(at)
        fold.stop()
        fold.start(chance.choice(failpoints))
        fold.wait(fold.append(*some(chance, number)))
        head = require_committed(fold, body, target)
    fold.stop()
    require_rebuild_to_agree(fold, tmp_path / "scratch")


def done(fold: Fold, at: Lsn) -> bool:
    """Return whether the rollback is committed or the process is dead again."""
    assert fold.process is not None
    return fold.process.poll() is not None or fold.applied() >= at.offset


def some(chance: random.Random, number: int) -> Sequence[Body]:
    """Three stores that change something."""
    words = chance.sample(range(20), 3)
    return [stored(f"w{word}", response=f"{number}") for word in words]


def require_committed(fold: Fold, body: RolledBack, target: int) -> int:
    """Check the rollback's end; return the head."""
    with fold.store() as view:
        report = view.rollback_report(body.rollback_id)
        assert report is not None
        assert report.status is RollbackStatus.COMMITTED
        expected = digest_at(view, target) if target else 0
        assert report.digest == expected
        return view.namespace(NS).version
