"""The sole writer in memory behaves as the real one."""

from __future__ import annotations

import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_sole_writer import MemorySoleWriter, MemoryTurns
from tests.contracts.sole_writer_contract import ONE, SoleWriterContract


class MemoryPlace:
    """A topic in memory."""

    def __init__(self) -> None:
        self._log = MemoryLog(3, SystemClock())
        self._turns = MemoryTurns()

    def writer(self) -> MemorySoleWriter:
        return MemorySoleWriter(self._log, ONE, self._turns)

    def committed(self) -> list[bytes | None]:
        reader = self._log.reader()
        batches = reader.read(ONE, *reader.bounds(ONE))
        return [record.value for batch in batches for record in batch]


class TestMemorySoleWriter(SoleWriterContract):
    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()
