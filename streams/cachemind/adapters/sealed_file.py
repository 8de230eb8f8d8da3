"""A folder of sealed files: appended to, gone on with after a crash, verified.

A file is named after the seq of its first record, `00000000000000000000.seal`; what a
crash left of a record is kept beside it as `<name>.torn-<seq>-<random>`.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cachemind.adapters.file_lock import exclusive
from cachemind.adapters.file_sync import sync_folder, write_whole
from cachemind.adapters.private_file import create_private, read_private
from cachemind.core.sealing import (
    MAX_BODY_BYTES,
    NO_CHAIN,
    SECRET_BYTES,
    SealCheck,
    SealKey,
    SealKeys,
    SealOutcome,
    SealReport,
    chain_after,
    head_of,
    seal_key,
    sealed,
)
from cachemind.errors import AuditBroken, InvalidEvent, KeyRefused, StoreUnavailable

log = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 64 * 2**20
_SUFFIX: Final = ".seal"
_DIGITS: Final = 20
_KEYS: Final = "seal-*.key"
_MOST_TORN: Final = 2 * MAX_BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What one file is worth."""

    name: str
    report: SealReport


def create_seal_key(folder: Path) -> SealKey:
    """Return a new key, whose file in `folder` only its owner can read."""
    key = seal_key(secrets.token_bytes(SECRET_BYTES))
    path = folder / f"seal-{key.key_id.hex()}.key"
    create_private(path, key.secret.hex().encode("ascii") + b"\n")
    return key


def read_seal_keys(folder: Path) -> Sequence[SealKey]:
    """Return the keys in a folder, the newest last. Raises: `KeyRefused`."""
    paths = sorted(folder.glob(_KEYS), key=lambda it: (it.stat().st_mtime_ns, it.name))
    return [_read_key(path) for path in paths]


class SealedFolder:
    """Appends to the files of a folder; from one thread. Locks it against others."""

    def __init__(
        self,
        folder: Path,
        keys: Sequence[SealKey],
        *,
        max_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        """Go on behind the last whole record. The last of `keys` seals.

        Raises: `AuditBroken` where the last file does not hold; `StoreLocked`,
        `StoreUnavailable`; `KeyRefused` without a key.
        """
        if not keys:
            raise KeyRefused("for sealing", "none is held by this process")
        self._folder = folder
        self._keys = {key.key_id: key for key in keys}
        self._key = keys[-1]
        self._max_bytes = max_bytes
        self._lock = exclusive(folder / "lock")
        self._lock.__enter__()
        self._out = -1
        self._failed = False
        self._seq, self._chain = 0, NO_CHAIN
        try:
            self._resume()
        except BaseException:
            self.close()
            raise

    @property
    def next_seq(self) -> int:
        """Return the seq of the record that is appended next."""
        return self._seq

    def append_all(self, bodies: Sequence[bytes]) -> int:
        """Return the seq of the first of `bodies`, once all are on disk.

        One flush for all. Raises: `StoreUnavailable` where the disk is full or fails:
        none of them counts then, and the folder has to be opened anew.
        """
        first, chain, pieces = self._seq, self._chain, []
        for number, body in enumerate(bodies):
            record = sealed(self._key, chain, first + number, body)
            chain = chain_after(record)
            pieces.append(record)
        self._write(b"".join(pieces))
        self._seq, self._chain = first + len(bodies), chain
        if self._size >= self._max_bytes:
            self._begin()
        return first

    def bodies(self) -> Iterator[bytes]:
        """Yield what is in the files, in order. Raises: `AuditBroken`."""
        for path in _files(self._folder):
            with path.open("rb") as file:
                check = SealCheck(file.read, self._keys)
                yield from (record.body for record in check.records())
            report = check.report()
            if report.outcome is not SealOutcome.OK:
                raise AuditBroken(path.name, report.outcome, report.problem)

    def close(self) -> None:
        """Leave the folder."""
        if self._out >= 0:
            os.close(self._out)
            self._out = -1
        self._lock.__exit__(None, None, None)

    def _resume(self) -> None:
        files = _files(self._folder)
        if not files:
            self._begin()
            return
        path = files[-1]
        _, report = _check(path, self._keys)
        torn = _torn(path, report)
        if report.outcome is SealOutcome.TAMPERED and not torn:
            raise AuditBroken(path.name, "tampered", report.problem)
        if torn:
            self._set_aside(path, report, torn)
        if not report.good_bytes:
            # A crash while the file was begun: the one before says where to go on.
            path.unlink()
            self._resume()
            return
        self._seq, self._chain = report.first_seq + report.records, report.chain
        self._open(path, report.good_bytes)

    def _set_aside(self, path: Path, report: SealReport, torn: bytes) -> None:
        """Keep the bytes of a record that a crash ended, then take them off."""
        seq, once = report.first_seq + report.records, secrets.token_hex(4)
        aside = path.with_name(f"{path.name}.torn-{seq}-{once}")
        try:
            write_whole(aside, torn)
            with path.open("rb+") as file:
                file.truncate(report.good_bytes)
                os.fsync(file.fileno())
        except OSError as error:
            raise _unavailable(path, error) from error
        log.warning(
            "%s ended with %d bytes of a record that is not whole, kept as %s",
            path.name,
            len(torn),
            aside.name,
        )

    def _begin(self) -> None:
        if self._out >= 0:
            os.close(self._out)
            self._out = -1
        head = head_of(self._seq, self._chain)
        path = self._folder / f"{self._seq:0{_DIGITS}d}{_SUFFIX}"
        try:
            path.touch(mode=0o600)
            self._open(path, 0)
            sync_folder(self._folder)
        except OSError as error:
            raise _unavailable(path, error) from error
        self._write(head)
        self._chain = chain_after(head)

    def _open(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        try:
            self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise _unavailable(path, error) from error

    def _write(self, content: bytes) -> None:
        if self._failed:
            raise StoreUnavailable(f"{self._path}: failed before; open it anew")
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._out, view) :]
            os.fsync(self._out)
        except OSError as error:
            # What is on disk now is not known, and a second flush would not tell:
            # only who opens the file anew can say.
            self._failed = True
            raise _unavailable(self._path, error) from error
        self._size += len(content)


def verify_folder(folder: Path, keys: Sequence[SealKey]) -> Iterator[FileReport]:
    """Yield what each file is worth, also whether it goes on where the last ended."""
    ring = {key.key_id: key for key in keys}
    chain, seq = NO_CHAIN, 0
    for path in _files(folder):
        check, report = _check(path, ring)
        problem = ""
        if report.first_seq != seq:
            problem = f"begins with record {report.first_seq}, expected {seq}"
        elif check.before != chain:
            problem = "does not go on where the file before ended"
        if problem and report.outcome is not SealOutcome.TAMPERED:
            report = replace(report, outcome=SealOutcome.TAMPERED, problem=problem)
        yield FileReport(name=path.name, report=report)
        chain, seq = report.chain, report.first_seq + report.records


def _check(path: Path, keys: SealKeys) -> tuple[SealCheck, SealReport]:
    try:
        with path.open("rb") as file:
            check = SealCheck(file.read, keys)
            for _ in check.records():
                pass
            return check, check.report()
    except OSError as error:
        raise _unavailable(path, error) from error


def _torn(path: Path, report: SealReport) -> bytes:
    """Return what a crash left behind the last whole record, empty for nothing.

    A write that the power ended may have made the file longer and filled nothing in.
    """
    with path.open("rb") as file:
        file.seek(report.good_bytes)
        rest = file.read(_MOST_TORN)
    whole = len(rest) < _MOST_TORN
    if report.outcome is SealOutcome.TAMPERED:
        return rest if whole and not any(rest) else b""
    return rest if whole else b""


def _files(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))


def _read_key(path: Path) -> SealKey:
    try:
        key = seal_key(bytes.fromhex(read_private(path).decode("ascii").strip()))
    except (ValueError, InvalidEvent) as error:
        raise KeyRefused(str(path), "must hold 64 hex characters") from error
    if path.name != f"seal-{key.key_id.hex()}.key":
        raise KeyRefused(str(path), f"holds the key {key.key_id.hex()}")
    return key


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{path}: {error.strerror}")
