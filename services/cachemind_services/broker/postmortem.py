"""Turns a dead broker's logs into the error that says what to do."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from cachemind.errors import BrokerError
from cachemind_services.broker.data_folder import BrokerRecord, DataFolder
from cachemind_services.broker.diagnosis import (
    Cause,
    cause_of_death,
    last_words,
    taken_port,
)
from cachemind_services.broker.errors import (
    BrokerDied,
    DataFolderUnusable,
    DiskFull,
    PortTaken,
)

_TAIL_BYTES: Final = 32_768


def log_tail(folder: DataFolder) -> list[str]:
    """Return the last lines of what the JVM and the broker logged."""
    return [*_tail(folder.console_log), *_tail(folder.server_log)]


def death_of(
    folder: DataFolder, record: BrokerRecord, exit_code: int | None, lines: list[str]
) -> BrokerError:
    """Return the error for a broker that ended with these last lines."""
    cause = cause_of_death(lines)
    if cause is Cause.PORT_TAKEN:
        return PortTaken(taken_port(lines) or record.port)
    if cause is Cause.NO_SPACE:
        return DiskFull(folder.root)
    reason = last_words(lines) or "it logged nothing"
    if cause is not Cause.UNKNOWN:
        reason = f"{cause.value}: {reason}"
    return BrokerDied(exit_code, reason, folder.server_log)


def folder_error(folder: DataFolder, error: OSError) -> BrokerError:
    """Return the error for a data folder that the system does not let us use."""
    if error.errno == errno.ENOSPC:
        return DiskFull(folder.root)
    return DataFolderUnusable(folder.root, str(error))


def _tail(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()
