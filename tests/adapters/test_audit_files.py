"""Sealed files in memory, in a folder and in S3 (moto's server): the same promises."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # ships no types
import pytest
from botocore.exceptions import (  # type: ignore[import-untyped]  # ships no types
    ClientError,
)
from moto.server import ThreadedMotoServer

from cachemind.adapters.audit_bucket import AuditBucket, ObjectLock
from cachemind.adapters.audit_folder import AuditFolder
from cachemind.adapters.clock import ManualClock
from cachemind.adapters.memory_audit_files import MemoryAuditFiles
from cachemind.core.audit_files import FileName
from cachemind.errors import (
    AuditFilesUnavailable,
    AuditScratchLost,
    InvalidSetting,
)
from cachemind.ports.audit_files import AuditTarget
from tests.contracts.audit_target_contract import BIG, NAME, AuditTargetContract
from tests.sealed_cases import CUTS, RECEIPTS

NOW = datetime(2026, 12, 1, tzinfo=UTC)
CLOCK = ManualClock(int(NOW.timestamp()) * 10**9)


def sealed(target: AuditTarget, content: bytes, name: str = NAME) -> None:
    scratch = target.begin(RECEIPTS)
    try:
        scratch.append(content)
        scratch.seal(name)
    finally:
        scratch.discard()


class TestInMemory(AuditTargetContract):
    @pytest.fixture
    def target(self) -> MemoryAuditFiles:
        return MemoryAuditFiles()


class TestInAFolder(AuditTargetContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> AuditFolder:
        return AuditFolder(tmp_path / "log")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "log" / "receipts" / "0"

    def test_a_sealed_file_is_for_reading_only(
        self, target: AuditFolder, folder: Path
    ) -> None:
        sealed(target, b"one")
        assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o440
        assert [path.name for path in folder.iterdir()] == [NAME]

    def test_what_a_killed_writer_left_is_removed_and_nothing_else(
        self, target: AuditFolder, folder: Path
    ) -> None:
        folder.mkdir(parents=True)
        (folder / "0123456789abcdef.partial").write_bytes(b"left")
        (folder / "my.partial").write_bytes(b"somebody's")
        (folder / "notes.txt").write_bytes(b"somebody's")
        alive = target.begin(RECEIPTS)
        alive.append(b"one")
        sealed(target, b"other", str(FileName(10, 11)))
        alive.seal(NAME)
        assert sorted(path.name for path in folder.iterdir()) == [
            NAME,
            str(FileName(10, 11)),
            "my.partial",
            "notes.txt",
        ]

    def test_a_partial_file_that_was_taken_away_is_begun_anew(
        self, target: AuditFolder, folder: Path
    ) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(b"one")
        for path in folder.glob("*.partial"):
            path.unlink()
        with pytest.raises(AuditScratchLost):
            scratch.seal(NAME)
        scratch.discard()
        assert list(folder.iterdir()) == []

    def test_what_is_no_stream_is_named(
        self, target: AuditFolder, tmp_path: Path
    ) -> None:
        sealed(target, b"one")
        (tmp_path / "log" / "receipts" / "notes.txt").write_bytes(b"")
        (tmp_path / "log" / "cuts").write_bytes(b"a file where a folder should be")
        found, foreign = target.streams()
        assert [one.folder for one in found] == ["receipts/0"]
        assert foreign == ["cuts", "receipts/notes.txt"]

    def test_where_a_folder_cannot_be_made_it_is_unavailable(
        self, target: AuditFolder, tmp_path: Path
    ) -> None:
        (tmp_path / "log").write_bytes(b"a file")
        with pytest.raises(AuditFilesUnavailable) as away:
            target.begin(RECEIPTS)
        assert str(tmp_path / "log") in away.value.where

    def test_a_file_over_the_limit_takes_all_of_a_block_or_nothing(
        self, target: AuditFolder
    ) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(b"head")
        with limited(len(BIG) // 2), pytest.raises(AuditFilesUnavailable):
            scratch.append(BIG)
        scratch.append(b"tail")
        scratch.seal(NAME)
        assert target.read(RECEIPTS, NAME) == b"headtail"


@contextmanager
def limited(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow past `size_bytes`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, which is not full yet."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)],
        capture_output=True,
    )
    if done.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


class TestOnAFullDisk:
    def test_nothing_is_sealed_and_it_goes_on_once_there_is_room(
        self, full_disk: Path
    ) -> None:
        target = AuditFolder(full_disk / "log")
        scratch = target.begin(RECEIPTS)
        scratch.append(b"head")
        block = bytes(700_000)
        scratch.append(block)
        for _ in range(3):
            with pytest.raises(AuditFilesUnavailable) as full:
                scratch.append(block)
            assert full.value.problem == os.strerror(errno.ENOSPC)
            assert not isinstance(full.value, AuditScratchLost)
        assert target.names(RECEIPTS) == {}
        subprocess.run(["mount", "-o", "remount,size=4m", str(full_disk)], check=True)
        scratch.append(block)
        scratch.seal(NAME)
        assert target.read(RECEIPTS, NAME) == b"head" + 2 * block

    def test_a_spool_without_room_keeps_what_it_has(
        self, full_disk: Path, bucket: Bucket
    ) -> None:
        target = AuditBucket(bucket.url, CLOCK, spool=full_disk / "spool")
        scratch = target.begin(RECEIPTS)
        block = bytes(700_000)
        scratch.append(block)
        with pytest.raises(AuditFilesUnavailable, match="No space left"):
            scratch.append(block)
        scratch.append(b"tail")
        scratch.seal(NAME)
        assert target.read(RECEIPTS, NAME) == block + b"tail"


class Bucket:
    """A bucket of a test's own on moto's server."""

    def __init__(self, client: Any, *, lock: bool = False) -> None:
        self.name = f"b{uuid.uuid4().hex[:12]}"
        self.url = f"s3://{self.name}/audit/one"
        self.client = client
        client.create_bucket(Bucket=self.name, ObjectLockEnabledForBucket=lock)

    def key(self, name: str) -> str:
        return f"audit/one/receipts/0/{name}"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "never-shown",
    }.items():
        monkeypatch.setenv(name, value)
    return boto3.client("s3")


@pytest.fixture
def bucket(s3: Any) -> Bucket:
    return Bucket(s3)


@pytest.fixture
def locking(s3: Any) -> Bucket:
    return Bucket(s3, lock=True)


OpenBucket = Callable[..., AuditBucket]


class TestInS3(AuditTargetContract):
    @pytest.fixture
    def target(self, bucket: Bucket, tmp_path: Path) -> AuditBucket:
        return AuditBucket(bucket.url, CLOCK, spool=tmp_path / "spool")

    def test_the_spool_is_empty_even_while_something_is_written(
        self, target: AuditBucket, tmp_path: Path
    ) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(BIG)
        assert list((tmp_path / "spool").iterdir()) == []
        scratch.discard()

    @pytest.mark.parametrize("mode", ["compliance", "governance"])
    def test_a_sealed_object_is_locked_for_so_many_days(
        self, locking: Bucket, mode: str
    ) -> None:
        lock = ObjectLock(mode=mode, days=30)
        target = AuditBucket(locking.url, CLOCK, lock)
        target.require_lock()
        sealed(target, b"one")
        head = locking.client.head_object(Bucket=locking.name, Key=locking.key(NAME))
        assert head["ObjectLockMode"] == mode.upper()
        assert head["ObjectLockRetainUntilDate"] == NOW + timedelta(days=30)
        with pytest.raises(ClientError, match="AccessDenied"):
            locking.client.delete_object(
                Bucket=locking.name, Key=locking.key(NAME), VersionId=head["VersionId"]
            )

    def test_without_a_lock_the_bucket_s_own_default_holds(
        self, locking: Bucket
    ) -> None:
        sealed(AuditBucket(locking.url, CLOCK), b"one")
        head = locking.client.head_object(Bucket=locking.name, Key=locking.key(NAME))
        assert "ObjectLockMode" not in head

    def test_a_bucket_that_cannot_lock_is_a_wrong_setting(self, bucket: Bucket) -> None:
        target = AuditBucket(bucket.url, CLOCK, ObjectLock(mode="compliance", days=1))
        with pytest.raises(InvalidSetting, match="sink_retention_days"):
            target.require_lock()

    def test_objects_below_are_no_files_of_the_stream(
        self, target: AuditBucket, bucket: Bucket
    ) -> None:
        sealed(target, b"one")
        for key in ("audit/one/receipts/0/deep/er", "audit/one/receipts/notes.txt"):
            bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"")
        assert target.names(RECEIPTS) == {NAME: 3}
        found, foreign = target.streams()
        assert ([one.folder for one in found], foreign) == (
            ["receipts/0"],
            ["receipts/notes.txt"],
        )

    def test_a_bucket_that_is_away_or_absent_is_unavailable_and_shows_no_secret(
        self, s3: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        absent = AuditBucket("s3://nobody-has-this/x", CLOCK)
        with pytest.raises(AuditFilesUnavailable, match="NoSuchBucket"):
            absent.names(CUTS)
        scratch = absent.begin(RECEIPTS)
        scratch.append(b"one")
        with pytest.raises(AuditFilesUnavailable, match="NoSuchBucket"):
            scratch.seal(NAME)
        scratch.discard()
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        away = AuditBucket("s3://bucket/x", CLOCK)
        with pytest.raises(AuditFilesUnavailable, match="EndpointConnectionError") as e:
            away.names(CUTS)
        assert "never-shown" not in str(e.value)

    def test_what_could_not_be_put_is_put_later(self, bucket: Bucket, s3: Any) -> None:
        target = AuditBucket(bucket.url, CLOCK)
        s3.delete_bucket(Bucket=bucket.name)
        scratch = target.begin(RECEIPTS)
        scratch.append(BIG)
        with pytest.raises(AuditFilesUnavailable):
            scratch.seal(NAME)
        s3.create_bucket(Bucket=bucket.name)
        scratch.seal(NAME)
        assert target.read(RECEIPTS, NAME) == BIG

    @pytest.mark.parametrize(
        "url", ["gs://bucket/x", "s3://", "s3://user:secret@bucket/x", "s3://b/x?y=1"]
    )
    def test_a_url_that_is_no_bucket_s_is_a_wrong_setting(self, url: str) -> None:
        with pytest.raises(InvalidSetting, match="sink_url") as wrong:
            AuditBucket(url, CLOCK)
        assert "secret" not in str(wrong.value)
