"""What can go wrong with the embedded Kafka, each error with its facts."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from cachemind.errors import BrokerError

_SIGNAL_BASE: Final = 128


class JarCorrupt(BrokerError):
    """A jar is not the one that the lock names; nothing of it was run."""

    def __init__(self, path: Path, expected: str, found: str, advice: str) -> None:
        super().__init__(
            f"{path.name}: expected {expected}, found {found} in {path.parent}; "
            f"nothing was started. {advice}"
        )
        self.path = path
        self.expected = expected
        self.found = found


class KafkaNotFetched(BrokerError):
    """Kafka's jars are not in the cache folder and could not be fetched."""

    def __init__(self, folder: Path, missing: int, total: int, reason: str) -> None:
        super().__init__(
            f"{missing} of {total} Kafka jars are missing in {folder} and cannot be "
            f"fetched: {reason}. The first start needs network access to a Maven "
            "repository; later starts need none"
        )
        self.folder = folder
        self.missing = missing
        self.total = total
        self.reason = reason


class JavaUnusable(BrokerError):
    """The Java that was named does not run, or is too old."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"Java at {path}: {problem}")
        self.path = path
        self.problem = problem


class PortTaken(BrokerError):
    """Another process listens on the port."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} on 127.0.0.1 is in use by another process; "
            "name another one with --port, or 0 for any free one"
        )
        self.port = port


class DataFolderInUse(BrokerError):
    """Another broker runs on the data folder."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        owner = "another process" if pid is None else f"process {pid}"
        super().__init__(f"data folder {folder} is in use by a broker in {owner}")
        self.folder = folder
        self.pid = pid


class DataFolderUnusable(BrokerError):
    """The system does not let us use the data folder."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"data folder {folder} cannot be used: {reason}")
        self.folder = folder
        self.reason = reason


class ForeignCluster(BrokerError):
    """The data folder belongs to another Kafka cluster or node."""

    def __init__(self, folder: Path, field: str, expected: str, found: str) -> None:
        super().__init__(
            f"data folder {folder} belongs to another cluster: {field} must be "
            f"{expected}, found {found}. Use an empty folder, or the one it came from"
        )
        self.folder = folder
        self.field = field
        self.expected = expected
        self.found = found


class NoDiskSpace(BrokerError):
    """Too little space is left where the data folder is."""

    def __init__(self, folder: Path, free_bytes: int, needed_bytes: int) -> None:
        super().__init__(
            f"{folder} has {free_bytes // 2**20} MiB free, "
            f"the broker needs {needed_bytes // 2**20} MiB"
        )
        self.folder = folder
        self.free_bytes = free_bytes
        self.needed_bytes = needed_bytes


class DiskFull(BrokerError):
    """The broker could not write, because its disk was full."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"no space is left on the device of data folder {folder}")
        self.folder = folder


class BrokerDied(BrokerError):
    """The broker's process ended on its own."""

    def __init__(self, exit_code: int | None, reason: str, log: Path) -> None:
        super().__init__(f"the broker {_end(exit_code)}: {reason} (log: {log})")
        self.exit_code = exit_code
        self.reason = reason
        self.log = log


def _end(exit_code: int | None) -> str:
    if exit_code is None:
        return "was given up"
    # A process reports signal N as -N, the guard's and Java's exit codes as 128 + N.
    number = -exit_code if exit_code < 0 else exit_code - _SIGNAL_BASE
    if number in set(signal.Signals):
        return f"was ended by {signal.Signals(number).name}"
    return f"ended with exit code {exit_code}"


class BrokerNotReady(BrokerError):
    """The broker did not answer a metadata request in time."""

    def __init__(self, bootstrap: str, timeout_s: float, reason: str) -> None:
        super().__init__(
            f"the broker at {bootstrap} did not become ready in {timeout_s:g} s: "
            f"{reason}"
        )
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s


class BrokerNotRunning(BrokerError):
    """No broker runs on the data folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"no broker runs on {folder}; name another --data-dir (before a tool's "
            "name), or start one with `cachemind broker start`"
        )
        self.folder = folder


class UnknownTool(BrokerError):
    """Kafka has no command-line tool of this name."""

    def __init__(self, tool: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown tool {tool}; known: {', '.join(known)}")
        self.tool = tool
        self.known = known
