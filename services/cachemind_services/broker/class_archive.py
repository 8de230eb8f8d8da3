"""An archive of the broker's parsed classes, so that it starts in half the time.

The JVM calls it class data sharing (JEP 310). It is made once for each set
of jars and Java: a broker in a scratch folder shows which classes it loads, then the
JVM writes them down. It is a help and never a need: the JVM checks the archive against
the jars and ignores one that does not fit, and without one the broker starts slower.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cachemind.errors import BrokerError
from cachemind_services.broker.distribution import KafkaDistribution, Progress
from cachemind_services.broker.java import JavaRuntime
from cachemind_services.broker.server_config import module_options

Train = Callable[[Sequence[str]], None]
"""Runs a broker once with these JVM options added."""

_DUMP_TIMEOUT_S: Final = 120


def archive_options(
    kafka: KafkaDistribution, java: JavaRuntime, train: Train, progress: Progress
) -> list[str]:
    """Return the JVM options that use the archive, making it where it is missing.

    Empty where there is none: another process makes it now, the cache folder is
    read-only, or this Java cannot make one (tried once and written down).
    """
    path = archive_path(kafka, java)
    if not path.exists() and not _failure(path).exists():
        try:
            _make(path, kafka, java, train, progress)
        except OSError as error:
            progress(f"no class archive, Kafka starts slower: {error}")
    return present_archive(kafka, java)


def present_archive(kafka: KafkaDistribution, java: JavaRuntime) -> list[str]:
    """Return the JVM options that use the archive, empty where there is none yet."""
    path = archive_path(kafka, java)
    if not path.exists():
        return []
    # Without the checksums a flipped bit crashes the JVM; with them it ignores the
    # archive.
    return [f"-XX:SharedArchiveFile={path}", "-XX:+VerifySharedSpaces"]


def archive_path(kafka: KafkaDistribution, java: JavaRuntime) -> Path:
    """Return where the archive of these jars and this Java is."""
    made_of = "\0".join((kafka.class_path, kafka.lock.to_json(), java.version))
    name = hashlib.sha256(f"{made_of}\0{java.path}".encode()).hexdigest()[:16]
    return kafka.folder.parent / f"classes-{kafka.version}-{name}.jsa"


def _make(
    path: Path,
    kafka: KafkaDistribution,
    java: JavaRuntime,
    train: Train,
    progress: Progress,
) -> None:
    with _only_maker(path) as alone:
        if not alone or path.exists():
            return
        progress("preparing Kafka for fast starts (once)")
        try:
            _train_and_dump(path, kafka, java, train)
        except (BrokerError, subprocess.SubprocessError) as error:
            progress(f"no class archive, Kafka starts slower: {error}")
            _failure(path).write_text(f"{error}\n", "utf-8")


def _train_and_dump(
    path: Path, kafka: KafkaDistribution, java: JavaRuntime, train: Train
) -> None:
    with tempfile.TemporaryDirectory(prefix="partial-", dir=path.parent) as scratch:
        classes, archive = Path(scratch, "classes"), Path(scratch, "archive")
        train([f"-XX:DumpLoadedClassList={classes}"])
        subprocess.run(  # noqa: S603 - our own command line
            [
                str(java.path),
                "-Xshare:dump",
                "-XX:+UseSerialGC",
                *module_options(java.feature),
                f"-XX:SharedClassListFile={classes}",
                f"-XX:SharedArchiveFile={archive}",
                "-cp",
                kafka.class_path,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DUMP_TIMEOUT_S,
            check=True,
        )
        archive.replace(path)


def _failure(path: Path) -> Path:
    return path.with_suffix(".failed")


@contextmanager
def _only_maker(path: Path) -> Iterator[bool]:
    with path.with_suffix(".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
