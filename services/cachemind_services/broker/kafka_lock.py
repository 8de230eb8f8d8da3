"""The committed lock: which jars make up Kafka, and their checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from cachemind_services.broker.errors import JarCorrupt

LOCK_FILE: Final = "kafka.lock.json"
REPAIR: Final = "Run `cachemind broker fetch --repair` to replace it"
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedJar:
    """One artifact of a Maven repository, pinned.

    Units: `size_bytes`; `sha256` is lower-case hex.
    """

    group: str
    artifact: str
    version: str
    file_name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLock:
    """A Kafka version and all of its jars, in class path order."""

    kafka_version: str
    roots: tuple[str, ...]
    jars: tuple[LockedJar, ...]

    def to_json(self) -> str:
        """Return the lock file's text."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> KafkaLock:
        """Return the lock written in `text`."""
        fields = json.loads(text)
        return cls(
            kafka_version=fields["kafka_version"],
            roots=tuple(fields["roots"]),
            jars=tuple(LockedJar(**jar) for jar in fields["jars"]),
        )


def committed_lock() -> KafkaLock:
    """Return the lock that this package was released with."""
    path = resources.files("cachemind_services.broker").joinpath(LOCK_FILE)
    return KafkaLock.from_json(path.read_text(encoding="utf-8"))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file at `path`, in lower-case hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def check_jar(path: Path, jar: LockedJar, advice: str = REPAIR) -> None:
    """Check that the file at `path` is the locked one, to the byte.

    Raises: `JarCorrupt`, which names the jar and says `advice`.
    """
    found_bytes = path.stat().st_size
    if found_bytes != jar.size_bytes:
        expected = f"{jar.size_bytes} bytes"
        raise JarCorrupt(path, expected, f"{found_bytes} bytes", advice)
    found = sha256_of(path)
    if found != jar.sha256:
        expected = f"SHA-256 {jar.sha256}"
        raise JarCorrupt(path, expected, f"SHA-256 {found}", advice)


def missing_jars(folder: Path, jars: Sequence[LockedJar]) -> list[LockedJar]:
    """Return the locked jars that have no file in `folder`."""
    return [jar for jar in jars if not (folder / jar.file_name).is_file()]


def corrupt_jars(folder: Path, jars: Sequence[LockedJar]) -> list[LockedJar]:
    """Return the locked jars whose file in `folder` is another one."""
    return [jar for jar in jars if not _is_sound(folder / jar.file_name, jar)]


def _is_sound(path: Path, jar: LockedJar) -> bool:
    try:
        check_jar(path, jar)
    except JarCorrupt:
        return False
    return True
