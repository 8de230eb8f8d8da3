"""Checkpoints to go back to, and how far a rollback is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from cachemind.core.rollback import Base
from cachemind.core.rollback_report import RollbackProgress
from cachemind.ports.store import StoreInspector
from cachemind.types import Namespace, Offset


class Checkpoints(Protocol):
    """The checkpoints of one partition's store, to rebuild the past from."""

    def bases(self, namespace: Namespace) -> Sequence[Base]:
        """Return what each checkpoint holds of `namespace`; those without it not.

        Whether their files are sound is found out by `open`.
        """
        ...

    def open(self, offset: Offset) -> AbstractContextManager[StoreInspector]:
        """Open the checkpoint at `offset` to read, and keep it while it is open.

        The inspector shows the checkpoint at once. Every file is verified first.
        Raises: `CheckpointRefused`, which names what is wrong.
        """
        ...


class CheckpointMaker(Protocol):
    """Makes and thins out the checkpoints of one partition; the fold's thread only."""

    def make(self, now_ns: int) -> Offset:
        """Make a checkpoint of what is committed; return its offset.

        Raises: `StoreUnavailable`.
        """
        ...

    def prune(self, now_ns: int) -> Sequence[Offset]:
        """Remove what retention gives up and nobody holds; return what went.

        Raises: `StoreUnavailable`.
        """
        ...


class RollbackProgressBoard(Protocol):
    """Where the fold says how far the rollback is that it works on."""

    def show(self, progress: RollbackProgress) -> None:
        """Replace what was shown."""
        ...

    def clear(self) -> None:
        """Show nothing: no rollback is running."""
        ...
