"""Where this host's checkpoints are, and what its rollbacks are connected to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from cachemind.adapters.checkpoints import RocksCheckpoints
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rollback_progress import ProgressFile
from cachemind.agents.rollback import RollbackHooks
from cachemind.core.rollback_report import Strategy
from cachemind.ports import GroupOffsets
from cachemind_services.bootstrap.log import store_identity
from cachemind_services.settings import Settings


def checkpoints_path(settings: Settings, partition: int) -> Path:
    """Return the folder of one partition's checkpoints."""
    return settings.data_dir / "checkpoints" / str(partition)


def progress_path(settings: Settings, partition: int) -> Path:
    """Return the file that tells how far one partition's rollback is."""
    return settings.data_dir / "rollbacks" / f"{partition}.json"


def scratch_path(settings: Settings) -> Path:
    """Return where the fold puts what of the past is too much for memory."""
    return settings.data_dir / "rollbacks" / "scratch"


def local_checkpoints(
    settings: Settings,
    log: LogIdentity,
    partition: int,
    memory: RocksMemory | None = None,
) -> RocksCheckpoints:
    """Return one partition's checkpoints on this host; touches nothing yet."""
    return RocksCheckpoints(
        checkpoints_path(settings, partition),
        store_identity(settings, log, partition),
        memory or RocksMemory(),
    )


def rollback_hooks(
    settings: Settings,
    partition: int,
    scratch_group: GroupOffsets,
    failpoint: Callable[[str], None],
) -> RollbackHooks:
    """Return what the rollbacks of one partition are connected to."""
    return RollbackHooks(
        scratch_group=scratch_group,
        board=ProgressFile(progress_path(settings, partition)),
        failpoint=failpoint,
        monotonic_ns=time.monotonic_ns,
        strategy=Strategy(settings.rollback_strategy),
        one_write_bytes=settings.rollback_write_bytes,
    )


def dying_at(name: str) -> Callable[[str], None]:
    """Return a failpoint at whose `name` this process dies as by SIGKILL.

    An empty name is never reached.
    """

    def failpoint(reached: str) -> None:
        if reached == name:
            os.kill(os.getpid(), signal.SIGKILL)

    return failpoint
