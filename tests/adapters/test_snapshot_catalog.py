from __future__ import annotations

import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.snapshot_catalog import SnapshotCatalog
from tests.snapshot_cases import manifest_of

ONE = manifest_of(1, {"a.sst": b"1"}, name="v1.2.0")
TWO = manifest_of(2, {"a.sst": b"2"})


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(1, SystemClock())


@pytest.fixture
def catalog(log: MemoryLog) -> SnapshotCatalog:
    return SnapshotCatalog(log.reader(), log.writer())


def test_what_was_published_is_there_newest_first(catalog: SnapshotCatalog) -> None:
    assert catalog.manifests() == []
    catalog.publish(ONE)
    catalog.publish(TWO)
    catalog.publish(TWO)
    assert catalog.manifests() == [TWO, ONE]


def test_what_was_retracted_is_gone(catalog: SnapshotCatalog) -> None:
    catalog.publish(ONE)
    catalog.publish(TWO)
    catalog.retract(TWO)
    assert catalog.manifests() == [ONE]


def test_a_manifest_of_a_newer_build_hides_no_other(
    catalog: SnapshotCatalog, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.writer().append(b"newer", b"\xc3\x01 a schema not known", ()).result(1)
    catalog.publish(ONE)
    assert catalog.manifests() == [ONE]
    assert "newer" in caplog.text
