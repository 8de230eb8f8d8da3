"""Where snapshots are shipped to: a folder or an object store, named by a URL.

    objects/<first two hex digits>/<sha256 in hex>      one file's bytes
    snapshots/<topic id>/<created_at_ns>-<snapshot id>  one manifest (`codec.manifest`)

A file is where its hash says, so two snapshots that share it hold it once, and a file
that is there already is not sent again. The manifest goes last: until it is there, the
snapshot is not, whatever was cut off before.

`obstore` (Apache Arrow's object_store, in Rust) speaks to folders, S3, Google and
Azure by the same few calls, streams both ways and leaves the interpreter's lock while
it does. fsspec would need one driver a vendor, each with a client library below it.
Credentials and end points come from the vendors' own variables (`AWS_*`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from cachemind.adapters.file_sync import flushed, sync_folder
from cachemind.codec.manifest import decode_manifest, encode_manifest
from cachemind.core.snapshots import (
    SnapshotFile,
    SnapshotManifest,
    files_of,
    newest_first,
)
from cachemind.errors import (
    InvalidSetting,
    SnapshotRefused,
    SnapshotUnavailable,
    StoreUnavailable,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.types import Partition

if TYPE_CHECKING:  # they exist in its stubs alone
    from obstore.store import RetryConfig

GRACE: Final = timedelta(hours=1)
"""How old an object that no manifest names must be to be removed: one that is being
shipped has no manifest yet."""

_OBJECTS: Final = "objects"
_SNAPSHOTS: Final = "snapshots"
_CHUNK_BYTES: Final = 4 * 2**20
_AT_ONCE: Final = 4
_RETRY: Final[RetryConfig] = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=30),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What one shipment sent. `shared_files` were there already."""

    sent_files: int
    sent_bytes: int
    shared_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What is shipped: the snapshots, newest first, and what cannot be read."""

    snapshots: Sequence[SnapshotManifest]
    refused: Sequence[SnapshotRefused]


class SnapshotStore:
    """The shipped snapshots below one URL. Safe to call from any thread."""

    def __init__(self, url: str) -> None:
        """Open a folder (a path, or `file://`), or `s3://`, `gs://`, `az://` ...

        Contacts nothing yet, and makes no folder: only `ship` does.
        Raises: `InvalidSetting`.
        """
        self._url = url
        self._folder = _folder_of(url)
        self._opened = None if self.absent else _opened(url)

    @property
    def absent(self) -> bool:
        """Return whether it is a folder that is not there: it holds no snapshot."""
        try:
            return self._folder is not None and not self._folder.exists()
        except OSError:
            return False  # it cannot even be looked at: whoever opens it says why

    def ship(
        self, manifest: SnapshotManifest, folder_of: Callable[[Partition], Path]
    ) -> Shipped:
        """Send the files that are not there yet, then the manifest.

        `folder_of` says where a partition's checkpoint is. Each file is hashed before
        it is sent. Raises: `SnapshotUnavailable`; `SnapshotRefused` where a file here
        is not what the manifest says, and then the snapshot is not shipped;
        `InvalidSetting` where the folder cannot be made.
        """
        if self.absent:
            self._opened = _opened(self._url, mkdir=True)
        known = self._referenced()
        wanted = {
            file.sha256: (folder_of(one.partition) / file.name, file)
            for one in manifest.partitions
            for file in one.files
        }
        send = [pair for digest, pair in wanted.items() if digest not in known]
        self._send(manifest, send)
        with self._translated():
            obstore.put(
                self._store, _manifest_path(manifest), encode_manifest(manifest)
            )
        # A removal by another host may have run between our look and our manifest.
        lost = [pair for pair in wanted.values() if not self._holds(pair[1])]
        self._send(manifest, lost)
        return Shipped(
            sent_files=len(send) + len(lost),
            sent_bytes=sum(file.size_bytes for _, file in [*send, *lost]),
            shared_files=len(wanted) - len(send),
        )

    def list(self, topic_id: str | None = None) -> Listing:
        """Return what is shipped of one topic's log, or of all.

        Raises: `SnapshotUnavailable`.
        """
        prefix = _SNAPSHOTS if topic_id is None else f"{_SNAPSHOTS}/{topic_id}"
        found: list[SnapshotManifest] = []
        refused: list[SnapshotRefused] = []
        for path, _ in self._paths(prefix):
            try:
                found.append(self._manifest(path))
            except SnapshotRefused as error:
                refused.append(error)
        return Listing(snapshots=newest_first(found), refused=refused)

    def fetch(
        self, manifest: SnapshotManifest, partition: Partition, folder: Path
    ) -> None:
        """Bring one partition's checkpoint into `folder`, which must not exist.

        Every file is hashed as it comes in; the folder has its name only once all of
        them are right and on disk.
        Raises: `SnapshotRefused` naming what is missing or damaged;
        `SnapshotUnavailable`; `StoreUnavailable` where the disk here fails.
        """
        scratch = folder.with_name(folder.name + ".part")
        try:
            _empty(scratch)
            self.fetch_into(manifest, partition, scratch)
            scratch.rename(folder)
            sync_folder(folder.parent)
        except OSError as error:
            raise StoreUnavailable(f"{folder}: {error}") from error

    def fetch_into(
        self, manifest: SnapshotManifest, partition: Partition, folder: Path
    ) -> None:
        """Bring one partition's files into an empty folder; if it fails, use none.

        Raises: as `fetch`.
        """
        files = manifest.partitions[partition].files
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda file: self._fetch(manifest, file, folder), files))
            sync_folder(folder)
        except OSError as error:
            raise StoreUnavailable(f"{folder}: {error}") from error

    def remove(self, manifest: SnapshotManifest) -> None:
        """Remove a snapshot; what other snapshots share stays, see `sweep`.

        Raises: `SnapshotUnavailable`.
        """
        if self.absent:
            return
        with self._translated():
            try:
                obstore.delete(self._store, _manifest_path(manifest))
            except FileNotFoundError:
                return  # removed by somebody else: that is what was wanted

    def sweep(self, now_ns: int, grace: timedelta = GRACE) -> int:
        """Remove the objects that no manifest names; return how many.

        One younger than `grace` stays. Raises: `SnapshotUnavailable`;
        `SnapshotRefused` where a manifest cannot be read: what it names is unknown.
        """
        if refused := self.list().refused:
            raise refused[0]
        known = {_object_path(digest) for digest in self._referenced()}
        oldest = datetime.fromtimestamp(now_ns / 1e9, UTC) - grace
        gone = [
            path
            for path, modified in self._paths(_OBJECTS)
            if path not in known and modified <= oldest
        ]
        for path in gone:
            with self._translated():
                obstore.delete(self._store, path)
        return len(gone)

    @property
    def _store(self) -> ObjectStore:
        """Return the open store. Raises: `SnapshotUnavailable`."""
        if self.absent:
            raise SnapshotUnavailable(self._shown(), "there is no such folder")
        if self._opened is None:
            self._opened = _opened(self._url)  # made meanwhile, by another process
        return self._opened

    def _referenced(self) -> set[bytes]:
        """Return the hashes of all files that some manifest names."""
        return {file.sha256 for one in self.list().snapshots for file in files_of(one)}

    def _send(
        self, manifest: SnapshotManifest, pairs: Iterable[tuple[Path, SnapshotFile]]
    ) -> None:
        for path, file in pairs:
            require_file(manifest.shown, path, file)
            with self._translated():
                obstore.put(self._store, _object_path(file.sha256), path)

    def _holds(self, file: SnapshotFile) -> bool:
        with self._translated():
            try:
                found = obstore.head(self._store, _object_path(file.sha256))
            except FileNotFoundError:
                return False
        return int(found["size"]) == file.size_bytes

    def _paths(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        if self.absent:
            return
        with self._translated():
            for batch in obstore.list(self._store, prefix, chunk_size=1000):
                for found in batch:
                    yield found["path"], found["last_modified"]

    def _manifest(self, path: str) -> SnapshotManifest:
        with self._translated():
            try:
                raw = bytes(obstore.get(self._store, path).bytes())
            except FileNotFoundError as error:
                raise SnapshotRefused(path, "its manifest is gone") from error
        try:
            return decode_manifest(raw)
        except (UndecodableRecord, UnknownSchema) as error:
            raise SnapshotRefused(path, str(error)) from error

    def _fetch(
        self, manifest: SnapshotManifest, file: SnapshotFile, scratch: Path
    ) -> None:
        where = f"{file.name} (object {file.sha256.hex()[:16]})"
        digest = sha256()
        try:
            if not self._holds(file):
                raise SnapshotRefused(manifest.shown, f"{where} is missing or cut")
            with flushed(scratch / file.name) as out:
                for chunk in self._chunks(file):
                    digest.update(chunk)
                    out.write(chunk)
        except FileNotFoundError as error:
            raise SnapshotRefused(manifest.shown, f"{where} is missing") from error
        if digest.digest() != file.sha256:
            raise SnapshotRefused(manifest.shown, f"{where} is damaged")

    def _chunks(self, file: SnapshotFile) -> Iterator[bytes]:
        """Yield an object in pieces, each by a request of its own: none takes long."""
        path = _object_path(file.sha256)
        for start in range(0, file.size_bytes, _CHUNK_BYTES):
            end = min(start + _CHUNK_BYTES, file.size_bytes)
            with self._translated():
                yield bytes(obstore.get_range(self._store, path, start=start, end=end))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            kind = type(error).__name__
            raise SnapshotUnavailable(
                self._shown(), f"{kind}: {_first(error)}"
            ) from error

    def _shown(self) -> str:
        parts = urlsplit(self._url)
        if not parts.scheme:
            return self._url
        # Never a user's name and password.
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def require_file(shown: str, path: Path, file: SnapshotFile) -> None:
    """Check a file against its manifest. Raises: `SnapshotRefused` by name."""
    digest, size = sha256(), 0
    try:
        with path.open("rb") as source:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise SnapshotRefused(shown, f"{file.name} cannot be read") from error
    if (size, digest.digest()) != (file.size_bytes, file.sha256):
        raise SnapshotRefused(shown, f"{file.name} is damaged")


def _folder_of(url: str) -> Path | None:
    """Return the folder that a path or a `file://` names, None for object stores."""
    parts = urlsplit(url)
    if parts.scheme not in ("", "file"):
        return None
    return Path(url2pathname(parts.path) if parts.scheme else url).resolve()


def _opened(url: str, *, mkdir: bool = False) -> ObjectStore:
    folder = _folder_of(url)
    try:
        if folder is not None:
            return from_url(folder.as_uri(), mkdir=mkdir)
        return from_url(url, retry_config=_RETRY)
    except (BaseError, OSError, ValueError) as error:
        raise InvalidSetting("snapshot_url", _first(error)) from error


def _object_path(digest: bytes) -> str:
    text = digest.hex()
    return f"{_OBJECTS}/{text[:2]}/{text}"


def _manifest_path(manifest: SnapshotManifest) -> str:
    name = f"{manifest.created_at_ns:020d}-{manifest.snapshot_id}"
    return f"{_SNAPSHOTS}/{manifest.topic_id}/{name}"


def _empty(folder: Path) -> None:
    """Make `folder`, or empty it: what is in it was cut off before."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        left.unlink()


def _first(error: BaseException) -> str:
    """Return the first line of a library's message, which goes on for pages."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]
