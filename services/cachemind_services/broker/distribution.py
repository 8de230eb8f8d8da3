"""Kafka's jars in the user's cache folder, verified before each use."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cachemind_services.broker.errors import KafkaNotFetched
from cachemind_services.broker.kafka_lock import (
    KafkaLock,
    LockedJar,
    check_jar,
    committed_lock,
    corrupt_jars,
    missing_jars,
)

Progress = Callable[[str], None]
"""Takes one line for people to read."""

_SERVED_ANOTHER: Final = (
    "The repository served another file, or cut it off: try again, or name another "
    "one with `cachemind broker fetch --repository URL`"
)
_DOWNLOADS_AT_ONCE: Final = 8
_DOWNLOAD_ATTEMPTS: Final = 3


def silent(_line: str) -> None:
    """Take a line of progress and show nothing."""


def default_cache_dir() -> Path:
    """Return the user's cache folder (XDG base directory specification)."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return base / "cachemind"


@dataclass(frozen=True, slots=True)
class KafkaDistribution:
    """A verified set of Kafka's jars on disk."""

    folder: Path
    lock: KafkaLock

    @property
    def version(self) -> str:
        """Kafka's version."""
        return self.lock.kafka_version

    @property
    def class_path(self) -> str:
        """The class path: exactly the locked jars, in the lock's order."""
        paths = (str(self.folder / jar.file_name) for jar in self.lock.jars)
        return os.pathsep.join(paths)

    @classmethod
    def ensure(
        cls,
        cache_dir: Path | None = None,
        progress: Progress = silent,
        *,
        lock: KafkaLock | None = None,
        repository_url: str | None = None,
        repair: bool = False,
    ) -> KafkaDistribution:
        """Return Kafka's jars, fetching those that are not there yet.

        With `repair`, jars that fail verification are fetched again; otherwise
        they are an error, because something changed them behind our back.
        Needs no network when all jars are there.

        Raises: `JarCorrupt`, `KafkaNotFetched`.
        """
        lock = committed_lock() if lock is None else lock
        folder = (cache_dir or default_cache_dir()) / "kafka" / lock.kafka_version
        if repair:
            _remove_broken(folder, lock.jars, progress)
        if missing_jars(folder, lock.jars):
            _fetch(folder, lock.jars, progress, repository_url)
        for jar in lock.jars:
            check_jar(folder / jar.file_name, jar)
        return cls(folder, lock)


def _remove_broken(folder: Path, jars: Sequence[LockedJar], progress: Progress) -> None:
    for jar in corrupt_jars(folder, _present(folder, jars)):
        progress(f"removing {jar.file_name}: it is not the locked file")
        (folder / jar.file_name).unlink()
    # What was made from the jars, or was once found impossible, is made anew.
    for made in folder.parent.glob("classes-*"):
        made.unlink(missing_ok=True)


def _present(folder: Path, jars: Sequence[LockedJar]) -> list[LockedJar]:
    return [jar for jar in jars if (folder / jar.file_name).is_file()]


def _fetch(
    folder: Path, jars: Sequence[LockedJar], progress: Progress, url: str | None
) -> None:
    """Bring the missing jars into `folder`, each one atomically.

    A jar is moved into place only after it was verified, so that a fetch that was
    cut off goes on where it stopped.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _one_fetcher(folder.parent, progress), _scratch(folder.parent) as scratch:
            missing = missing_jars(folder, jars)
            _download_all(missing, scratch, folder, progress, url)
    except (OSError, RuntimeError) as error:
        left = len(missing_jars(folder, jars))
        raise KafkaNotFetched(folder, left, len(jars), str(error)) from error


def _download_all(
    jars: Sequence[LockedJar],
    scratch: Path,
    folder: Path,
    progress: Progress,
    url: str | None,
) -> None:
    # Imported late: jgo costs 0.3 s, and only the first start needs it.
    from cachemind_services.broker.maven import MavenRepository

    repository = MavenRepository(scratch, url)

    def download(jar: LockedJar) -> LockedJar:
        path = _with_retries(repository.download, jar)
        check_jar(path, jar, _SERVED_ANOTHER)
        path.replace(folder / jar.file_name)
        return jar

    total_bytes = sum(jar.size_bytes for jar in jars)
    done_bytes = 0
    progress(f"fetching Apache Kafka: {len(jars)} jars, {total_bytes / 1e6:.0f} MB")
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
        for number, jar in enumerate(pool.map(download, jars), start=1):
            done_bytes += jar.size_bytes
            percent = 100 * done_bytes // total_bytes
            progress(f"{percent:3d} % {number}/{len(jars)} {jar.file_name}")


def _with_retries(download: Callable[[LockedJar], Path], jar: LockedJar) -> Path:
    for _ in range(_DOWNLOAD_ATTEMPTS - 1):
        try:
            return download(jar)
        except OSError:
            continue  # a connection that broke; the last attempt raises
    return download(jar)


@contextmanager
def _one_fetcher(parent: Path, progress: Progress) -> Iterator[None]:
    with (parent / "fetch.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that fetches Kafka")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="partial-", dir=parent) as path:
        yield Path(path)
