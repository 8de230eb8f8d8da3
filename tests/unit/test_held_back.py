"""A partition that was held back goes on with no gap, on Faust's own consumer."""

from __future__ import annotations

from typing import Any, cast

import pytest
from faust.types import TP

from cachemind.agents.app import build_app, go_on_just_at, hold_back
from cachemind.types import Offset, Partition

BUSY, OTHER = TP("busy", 0), TP("other", 0)


class Cluster:
    """Finds six records in each fetch of a partition, from where that is."""

    def __init__(self, consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.position = {BUSY: 0, OTHER: 0}
        consumer._active_partitions = {BUSY, OTHER}
        monkeypatch.setattr(consumer, "_getmany", self.fetch)
        monkeypatch.setattr(consumer, "skip_to", self.skip_to)
        monkeypatch.setattr(consumer, "highwater", lambda _: 0)
        monkeypatch.setattr(consumer, "_to_message", lambda _, offset: offset)

    async def fetch(
        self,
        active_partitions: set[TP],
        timeout: float,  # noqa: ASYNC109  # Faust's
    ) -> dict[TP, list[int]]:
        del timeout
        found = {}
        for place in sorted(active_partitions):
            start = self.position[place]
            found[place] = list(range(start, start + 6))
            self.position[place] = start + 6
        return found

    async def skip_to(self, place: TP, offset: int) -> None:
        self.position[place] = offset


async def test_what_was_fetched_and_dropped_leaves_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = build_app({"bootstrap.servers": "127.0.0.1:1"}, "a-group", commits=False)
    consumer = cast(Any, app.consumer)
    Cluster(consumer, monkeypatch)
    consumer.flow_active = True
    got: list[int] = []
    gone_on = False
    for _ in range(4):
        others = 0
        async for place, offset in consumer.getmany(timeout=0):
            if place == OTHER:
                others += 1
                # In the middle of what was fetched: there was room so soon again.
                if others == 4 and got and not gone_on:
                    after = Offset(got[-1] + 1)
                    gone_on = await go_on_just_at(app, "busy", Partition(0), after)
                continue
            got.append(offset)
            if len(got) == 2:
                hold_back(app, "busy", Partition(0))
    # Its thread would close it at the end of a run.
    consumer._thread.thread_loop.close()
    assert gone_on
    assert len(got) > 6
    assert got == list(range(len(got)))
