"""What a host tells of itself, on a log in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.host_catalog import HostCatalog
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from cachemind.agents.telling import (
    FORGET_S,
    HostBoard,
    Telling,
    TellingDeps,
    tell,
    told_by,
)
from cachemind.core.hosts import HostCheckpoint, HostRecord
from cachemind.errors import CheckpointRefused, LogUnavailable
from cachemind.types import Lsn, Offset, Partition
from tests.snapshot_cases import manifest_of
from tests.unit.test_hosts import checkpoint, host
from tests.upstreams import wait_until

ONE = manifest_of(1, {"a.sst": b"1"}, name="v1")


@dataclass
class Kept:
    """The checkpoints of a partition; those in `gone` vanish while they are told."""

    found: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    def offsets(self) -> Sequence[Offset]:
        return list(map(Offset, self.found))

    def told(self, offset: Offset) -> HostCheckpoint:
        if offset in self.gone:
            raise CheckpointRefused("there", "it is not there")
        return checkpoint(offset)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(1, SystemClock())


@pytest.fixture
def catalog(log: MemoryLog) -> HostCatalog:
    return HostCatalog(log.reader(), log.writer())


@contextmanager
def as_board(board: HostBoard) -> Iterator[HostBoard]:
    yield board


def deps(board: HostBoard, kept: Kept, me: HostRecord | None = None) -> TellingDeps:
    return TellingDeps(
        me=me or host(),
        kept={Partition(0): kept},
        board=as_board(board),
        clock=SystemClock(),
        beat_s=0.05,
    )


def said(catalog: HostCatalog, name: str = "aa") -> list[int]:
    return sorted(lsn.offset for lsn in told_by(host(name), catalog.records()))


def test_each_checkpoint_is_told_and_taken_back_when_it_is_removed(
    catalog: HostCatalog,
) -> None:
    kept, told = Kept([3, 9]), set[Lsn]()
    tell(deps(catalog, kept), catalog, told)
    assert said(catalog) == [3, 9]
    kept.found = [9, 12]
    tell(deps(catalog, kept), catalog, told)
    assert said(catalog) == [9, 12]
    assert [one.host_id for one in catalog.records() if one.checkpoint is None]


def test_a_checkpoint_that_vanishes_meanwhile_is_not_told(catalog: HostCatalog) -> None:
    kept, told = Kept([3, 9], gone={9}), set[Lsn]()
    tell(deps(catalog, kept), catalog, told)
    assert said(catalog) == [3]


def test_snapshots_and_hosts_do_not_see_each_other(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = HostCatalog(log.reader(), log.writer())
    snapshots = SnapshotCatalog(log.reader(), log.writer())
    snapshots.publish(ONE)
    tell(deps(hosts, Kept([3])), hosts, set())
    assert snapshots.manifests() == [ONE]
    assert len(hosts.records()) == 2
    assert not caplog.records


def test_one_that_died_between_removing_and_saying_so_is_put_right_by_the_next(
    catalog: HostCatalog,
) -> None:
    tell(deps(catalog, Kept([3, 9])), catalog, set())
    tell(deps(catalog, Kept([3]), host("bb")), catalog, set())
    telling = Telling(deps(catalog, Kept([9, 12])))
    telling.start()
    wait_until(lambda: said(catalog) == [9, 12])
    telling.stop(5)
    assert said(catalog, "bb") == [3]


def test_a_host_that_lives_says_so_again_and_again(catalog: HostCatalog) -> None:
    telling = Telling(deps(catalog, Kept([])))

    def heard() -> int:
        return max((one.noted_at_ns for one in catalog.records()), default=0)

    telling.start()
    wait_until(lambda: heard() > 0)
    first = heard()
    wait_until(lambda: heard() > first, timeout_s=10)
    telling.stop(5)


def test_a_host_that_was_silent_for_a_month_is_forgotten(catalog: HostCatalog) -> None:
    long_ago = replace(
        host("bb"), noted_at_ns=SystemClock().now_ns() - (FORGET_S + 60) * 10**9
    )
    catalog.change([long_ago, long_ago.about(checkpoint(3))])
    telling = Telling(deps(catalog, Kept([5])))
    telling.start()
    wait_until(lambda: said(catalog) == [5])
    telling.stop(5)
    assert {one.host_id for one in catalog.records()} == {host().host_id}


class _Flaky:
    """A board whose first telling fails after it has arrived.

    What was told is removed before it is tried again.
    """

    def __init__(self, catalog: HostCatalog, kept: Kept) -> None:
        self.catalog = catalog
        self.kept = kept
        self.failures = 0

    def records(self) -> Sequence[HostRecord]:
        return self.catalog.records()

    def change(
        self, publish: Iterable[HostRecord], retract: Iterable[HostRecord] = ()
    ) -> None:
        told = list(publish)
        self.catalog.change(told, list(retract))
        if self.failures < 1 and told:
            self.failures += 1
            self.kept.found = [5]
            raise LogUnavailable("no acknowledgement")


def test_what_is_not_known_to_have_arrived_is_looked_at_again(
    catalog: HostCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachemind.agents.telling.RETRY_S", 0.05)
    kept = Kept([3])
    board = _Flaky(catalog, kept)
    telling = Telling(deps(board, kept))
    telling.start()
    wait_until(lambda: board.failures == 1 and said(catalog) == [5])
    telling.stop(5)
