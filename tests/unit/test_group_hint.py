from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cachemind.agents.group_hint import GroupHint
from cachemind.agents.replay import catch_up
from cachemind.errors import LogError, LogRejected, LogUnavailable
from cachemind.types import Offset, Partition
from tests.unit.folding_bench import ZERO, Bench
from tests.wal_events import stored


class Group:
    """`GroupOffsets` in memory, which can refuse."""

    def __init__(self, at: Offset | None, refuses: LogError | None = None) -> None:
        self.at = {ZERO: at}
        self._refuses = refuses

    def committed(
        self, partitions: Sequence[Partition]
    ) -> Mapping[Partition, Offset | None]:
        if isinstance(self._refuses, LogUnavailable):
            raise self._refuses
        return {p: self.at[p] for p in partitions}

    def commit(self, offsets: Mapping[Partition, Offset]) -> None:
        if self._refuses is not None:
            raise self._refuses
        self.at.update(offsets)

    def close(self) -> None: ...


def begun(group: Group) -> None:
    """Begin with a store at 1 that was caught up to 3."""
    bench = Bench()
    bench.append(*(stored(n) for n in range(4)))
    folder = bench.folder()
    folder.fold(bench.records()[:2])
    hint = GroupHint(group, {ZERO: folder})
    catch_up(folder, bench.reader)
    hint.begin()


@pytest.mark.parametrize(
    ("at", "said"),
    [
        pytest.param(None, False, id="a-new-group"),
        pytest.param(Offset(0), True, id="moved-back"),
        pytest.param(Offset(1), True, id="one-behind"),
        pytest.param(Offset(2), False, id="where-the-store-was"),
        pytest.param(Offset(9), False, id="ahead"),
    ],
)
def test_a_group_behind_its_store_is_told_of_and_set_right(
    at: Offset | None, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(at)
    begun(group)
    assert ("the store at 0@1: the store counts" in caplog.text) is said
    assert group.at == {ZERO: 4}


@pytest.mark.parametrize(
    "refusal", [LogUnavailable("away"), LogRejected("a live member")]
)
def test_a_group_that_cannot_be_set_is_left_as_it_is(refusal: LogError) -> None:
    group = Group(Offset(2), refusal)
    begun(group)
    assert group.at == {ZERO: 2}


class Memory:
    """`OffsetMemory` without a disk."""

    def __init__(self) -> None:
        self.saved: Mapping[Partition, Offset] = {}

    def load(self) -> Mapping[Partition, Offset]:
        return self.saved

    def save(self, offsets: Mapping[Partition, Offset]) -> None:
        self.saved = dict(offsets)


@pytest.mark.parametrize(
    ("refuses", "kept"),
    [
        pytest.param(None, {ZERO: Offset(4)}, id="committed"),
        pytest.param(LogRejected("a live member"), {}, id="refused"),
    ],
)
def test_only_what_the_group_took_is_remembered(
    refuses: LogError | None, kept: Mapping[Partition, Offset]
) -> None:
    bench, memory = Bench(), Memory()
    bench.append(*(stored(n) for n in range(4)))
    folder = bench.folder()
    catch_up(folder, bench.reader)
    GroupHint(Group(None, refuses), {ZERO: folder}, memory).set()
    assert memory.saved == kept
