"""Sealed audit files in an S3 bucket, with object lock.

A file is collected on the local disk, under no name, and goes up in one request that
S3 refuses where the key exists (`If-None-Match: *`) or where what arrived has another
SHA-256. `obstore`, which ships the snapshots, cannot ask for a lock, hence boto3. The
credentials, the region and the end point come from AWS's own variables and files
(`AWS_ENDPOINT_URL`, ...).
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path, PurePath
from typing import IO, Any, Final
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]  # ships no types
from botocore.config import Config  # type: ignore[import-untyped]  # ships no types
from botocore.exceptions import (  # type: ignore[import-untyped]  # ships no types
    BotoCoreError,
    ClientError,
)

from cachemind.core.audit_files import CUTS, RECEIPTS, AuditStream
from cachemind.errors import (
    AuditFileDamaged,
    AuditFilesUnavailable,
    AuditFileTaken,
    AuditScratchLost,
    InvalidSetting,
)
from cachemind.ports import Clock

CONNECT_S: Final = 2.0
READ_S: Final = 20.0
_TAKEN: Final = "PreconditionFailed"
_NO_LOCK: Final = "ObjectLockConfigurationNotFoundError"
_ABSENT: Final = frozenset({"NoSuchKey", "404"})

Failpoint = Callable[[str], None]


def _pass(_: str) -> None:
    """Go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLock:
    """How long an object cannot be deleted after it was sealed.

    `mode` is `compliance` (by nobody) or `governance` (but by who may bypass it).
    """

    mode: str
    days: int


class AuditBucket:
    """An `AuditTarget` below `s3://bucket/prefix`.

    What is being written is in `spool`, a folder on this host; None: the system's.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        lock: ObjectLock | None = None,
        spool: Path | None = None,
        failpoint: Failpoint = _pass,
    ) -> None:
        """Contact nothing yet. Raises: `InvalidSetting`."""
        self._bucket, self._prefix = _parts(url)
        self._clock = clock
        self._lock = lock
        self._spool = spool
        self._failpoint = failpoint
        # Failed requests are repeated by who has the whole file at hand.
        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        try:
            self._client = boto3.client("s3", config=config)
        except (BotoCoreError, ValueError) as error:
            raise InvalidSetting("sink_url", type(error).__name__) from error

    @property
    def where(self) -> str:
        """Return the bucket and the prefix."""
        return f"s3://{self._bucket}/{self._prefix}"

    def require_lock(self) -> None:
        """Check that the bucket can lock, where a lock is asked for.

        Raises: `InvalidSetting` where it cannot; `AuditFilesUnavailable`.
        """
        if self._lock is None:
            return
        with self._translated():
            try:
                self._client.get_object_lock_configuration(Bucket=self._bucket)
            except ClientError as error:
                if _code(error) != _NO_LOCK:
                    raise
                raise InvalidSetting(
                    "sink_retention_days", f"{self._bucket} has no object lock"
                ) from error

    def streams(self) -> tuple[Sequence[AuditStream], Sequence[str]]:
        """Return the streams that have objects, and what else is below `receipts`."""
        found: list[AuditStream] = []
        foreign: list[str] = []
        for name in self._candidates():
            stream = AuditStream.parse(name)
            if stream is None:
                foreign.append(name)
            else:
                found.append(stream)
        return found, foreign

    def names(self, stream: AuditStream) -> Mapping[str, int]:
        """Return the name and the size of each object in the stream's folder."""
        below = self._key(stream, "")
        return {
            item["Key"].removeprefix(below): int(item["Size"])
            for page in self._pages(below)
            for item in page.get("Contents", ())
        }

    def read(self, stream: AuditStream, name: str) -> bytes:
        """Return an object whole."""
        with self._translated():
            try:
                found = self._client.get_object(
                    Bucket=self._bucket, Key=self._key(stream, name)
                )
                content: bytes = found["Body"].read()
            except ClientError as error:
                if _code(error) not in _ABSENT:
                    raise
                raise AuditFileDamaged(
                    f"{stream.folder}/{name}", "is missing"
                ) from error
        return content

    def begin(self, stream: AuditStream) -> BucketScratch:
        """Begin a file on this host's disk; those of dead writers went with them."""
        try:
            if self._spool is not None:
                self._spool.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what a full disk does not take must not be kept for later.
            spooled = tempfile.TemporaryFile(  # noqa: SIM115 # the scratch closes it
                buffering=0, dir=self._spool
            )
        except OSError as error:
            raise AuditFilesUnavailable(
                str(self._spool), error.strerror or type(error).__name__
            ) from error
        self._failpoint("partial-begun")
        return BucketScratch(self, stream, spooled, self._failpoint)

    def put(
        self, stream: AuditStream, name: str, body: IO[bytes], digest: bytes
    ) -> None:
        """Put an object where there is none; one with the same bytes is the same.

        Raises: as `AuditScratch.seal`.
        """
        body.seek(0)
        with self._translated():
            try:
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=self._key(stream, name),
                    Body=body,
                    IfNoneMatch="*",
                    ChecksumAlgorithm="SHA256",
                    ChecksumSHA256=base64.b64encode(digest).decode(),
                    **self._locked(),
                )
            except ClientError as error:
                if _code(error) != _TAKEN:
                    raise
                if sha256(self.read(stream, name)).digest() != digest:
                    raise AuditFileTaken(f"{stream.folder}/{name}") from error

    def _locked(self) -> dict[str, Any]:
        if self._lock is None:
            return {}
        now = datetime.fromtimestamp(self._clock.now_ns() / 1e9, UTC)
        return {
            "ObjectLockMode": self._lock.mode.upper(),
            "ObjectLockRetainUntilDate": now + timedelta(days=self._lock.days),
        }

    def _key(self, stream: AuditStream, name: str) -> str:
        return f"{self._prefix}{stream.folder}/{name}"

    def _candidates(self) -> Iterator[str]:
        for page in self._pages(f"{self._prefix}{CUTS}/"):
            if page.get("Contents"):
                yield CUTS
                break
        for page in self._pages(f"{self._prefix}{RECEIPTS}/"):
            for one in [*page.get("CommonPrefixes", ()), *page.get("Contents", ())]:
                key: str = one.get("Prefix") or one["Key"]
                yield key.removeprefix(self._prefix).rstrip("/")

    def _pages(self, below: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2")
        with self._translated():
            yield from pages.paginate(Bucket=self._bucket, Prefix=below, Delimiter="/")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            raise AuditFilesUnavailable(self.where, _code(error)) from error
        except (BotoCoreError, OSError) as error:
            raise AuditFilesUnavailable(self.where, type(error).__name__) from error


class BucketScratch:
    """An `AuditScratch` on this host's disk, to be put into the bucket."""

    def __init__(
        self,
        target: AuditBucket,
        stream: AuditStream,
        spooled: IO[bytes],
        failpoint: Failpoint,
    ) -> None:
        self._target = target
        self._stream = stream
        self._spooled: IO[bytes] | None = spooled
        self._failpoint = failpoint
        self._digest = sha256()
        self._size = 0
        self._sealed_as: str | None = None

    def append(self, block: bytes) -> None:
        """Add all of `block`, or nothing of it."""
        spooled = self._open()
        try:
            spooled.seek(self._size)
            _write_all(spooled, block)
        except OSError as error:
            self._cut_back(spooled)
            raise AuditFilesUnavailable(
                "the spool", error.strerror or type(error).__name__
            ) from error
        self._digest.update(block)
        self._size += len(block)
        self._failpoint("block-written")

    def seal(self, name: str) -> None:
        """Put the file into the bucket under its name."""
        if self._sealed_as == name:
            return
        self._failpoint(f"partial-synced{PurePath(name).suffix}")
        self._target.put(self._stream, name, self._open(), self._digest.digest())
        self._sealed_as = name
        self._failpoint(f"sealed{PurePath(name).suffix}")
        self.discard()

    def discard(self) -> None:
        """Give the disk its room back."""
        if self._spooled is not None:
            with suppress(OSError):
                self._spooled.close()
            self._spooled = None

    def _open(self) -> IO[bytes]:
        if self._spooled is None:
            raise AuditScratchLost("the spool", "it was given up")
        return self._spooled

    def _cut_back(self, spooled: IO[bytes]) -> None:
        try:
            spooled.truncate(self._size)
        except OSError as error:
            raise AuditScratchLost(
                "the spool", error.strerror or type(error).__name__
            ) from error


def _write_all(out: IO[bytes], block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[out.write(left) :]


def _parts(url: str) -> tuple[str, str]:
    """Return bucket and prefix of `s3://bucket/prefix`; the prefix ends in a slash."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise InvalidSetting("sink_url", "must be like s3://bucket/prefix")
    if "@" in parts.netloc:
        raise InvalidSetting("sink_url", "must not hold credentials")
    inner = parts.path.strip("/")
    return parts.netloc, f"{inner}/" if inner else ""


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))
