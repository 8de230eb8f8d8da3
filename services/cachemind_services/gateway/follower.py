"""One namespace of a partition that a worker follows, and how fresh it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cachemind.core.rollback_report import Quarantine
from cachemind.core.state import NamespaceState
from cachemind.ports import Change
from cachemind.types import Namespace, Offset, Partition
from cachemind_services.gateway.partition_follower import Caught, PartitionFollower


@dataclass(frozen=True, slots=True)
class Freshness:
    """What a catch-up brought. `changes` is None where the journal fell behind."""

    applied: Offset
    state: NamespaceState
    changes: Sequence[Change] | None
    quarantine: Quarantine | None = None


class Follower:
    """Shows a namespace as of its partition's last catch-up.

    `applied`, `state` and `quarantine` are of one catch-up. `on_fresh` runs on the
    event loop after each.
    """

    def __init__(
        self,
        line: PartitionFollower,
        namespace: Namespace,
        on_fresh: Callable[[Freshness], None],
    ) -> None:
        self._line = line
        self._on_fresh = on_fresh
        self.namespace = namespace
        self.partition: Partition = line.partition
        self.applied = Offset(-1)
        self.state = NamespaceState(namespace=namespace)
        self.quarantine: Quarantine | None = None

    @property
    def problem(self) -> str | None:
        """Return why the store cannot be read, None where it can."""
        return self._line.problem

    @property
    def goal(self) -> Offset | None:
        """Return the log's last record as it first answered, None before it did."""
        return self._line.goal

    @property
    def not_ready(self) -> str | None:
        """Return why this worker is not caught up with the log, None once it is."""
        return self._line.not_ready

    async def start(self) -> None:
        """Begin following, after a first look at what is there.

        Without it the first requests would miss what the store has.
        """
        await self._line.join(self)

    async def stop(self) -> None:
        """End following."""
        await self._line.leave(self)

    async def folded(self, offset: Offset, timeout_s: float) -> bool:
        """Return whether the view shows `offset` within `timeout_s`."""
        return await self._line.folded(offset, timeout_s)

    def take(self, caught: Caught) -> None:
        """Show what a catch-up brought."""
        self.applied = caught.applied
        self.state = caught.states[self.namespace]
        self.quarantine = caught.quarantines[self.namespace]
        fresh = Freshness(
            caught.applied,
            self.state,
            caught.changes_of(self.namespace),
            self.quarantine,
        )
        self._on_fresh(fresh)
