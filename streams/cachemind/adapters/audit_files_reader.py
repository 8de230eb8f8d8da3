"""Reads the sealed files of an audit log: for who verifies them.

Only what a manifest names is read. A file that is not what its manifest says is named,
and what can still be read of it is: that tells which records are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from cachemind.codec.audit_file import read_file
from cachemind.core.audit_files import AuditStream, Listing, listed, manifest_name
from cachemind.core.audit_manifest import START, FileManifest, Resumption, resumed
from cachemind.errors import AuditFileDamaged, UndecodableRecord
from cachemind.ports.audit_files import AuditTarget
from cachemind.types import Partition


class AuditFilesReader:
    """The audit log in a folder or bucket. Methods raise `AuditFilesUnavailable`."""

    def __init__(self, target: AuditTarget) -> None:
        self._target = target
        self._problems: dict[tuple[str, str], AuditFileDamaged] = {}

    @property
    def problems(self) -> Sequence[AuditFileDamaged]:
        """Return what is wrong with the files that were read so far, each once."""
        return tuple(self._problems.values())

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions of which there is a folder, in order."""
        found, _ = self._target.streams()
        return sorted(s.partition for s in found if s.partition is not None)

    def receipts(self, partition: Partition) -> Iterator[bytes]:
        """Yield the values of the topic `audit` in order, b"" for one without."""
        return self._values(AuditStream(partition))

    def cuts(self) -> Iterator[bytes]:
        """Yield the values of the topic `audit.cuts` in order, b"" for one without."""
        return self._values(AuditStream(None))

    def manifests(self, stream: AuditStream) -> Iterator[FileManifest]:
        """Yield the manifests of a stream in order, noting what is wrong with them."""
        listing = listed(self._target.names(stream))
        done = START
        for first in listing.manifests:
            found = self._manifest(stream, first, done)
            if found is not None:
                yield found[0]
                done = found[1]

    def foreign(self) -> Sequence[str]:
        """Return the names of all files that belong to no stream.

        They may be somebody's notes, or what a killed sink has not made part of a
        stream yet.
        """
        streams, names = self._target.streams()
        found = list(names)
        for stream in streams:
            listing = listed(self._target.names(stream))
            found += [f"{stream.folder}/{name}" for name in listing.foreign]
            found += [f"{stream.folder}/{n}" for n in self._unnamed(stream, listing)]
        return found

    def _unnamed(self, stream: AuditStream, listing: Listing) -> Sequence[str]:
        named = {str(manifest.file.name) for manifest in self.manifests(stream)}
        return [str(name) for name in listing.files if str(name) not in named]

    def _values(self, stream: AuditStream) -> Iterator[bytes]:
        for manifest in self.manifests(stream):
            name = str(manifest.file.name)
            try:
                content = self._target.read(stream, name)
            except AuditFileDamaged as error:
                self._note(error.name, error.problem)
                continue
            yield from self._records(manifest, f"{stream.folder}/{name}", content)

    def _records(
        self, manifest: FileManifest, shown: str, content: bytes
    ) -> Iterator[bytes]:
        if len(content) != manifest.file.size_bytes:
            self._note(
                shown,
                f"has {len(content)} bytes, its manifest says "
                f"{manifest.file.size_bytes}",
            )
        elif sha256(content).digest() != manifest.file.sha256:
            self._note(shown, "has another SHA-256 than its manifest says")
        count = 0
        try:
            for _, value in read_file(content):
                count += 1
                yield value or b""
        except UndecodableRecord as error:
            self._note(shown, error.reason)
        if count != manifest.tally.records:
            self._note(
                shown,
                f"has {count} records, its manifest says {manifest.tally.records}",
            )

    def _manifest(
        self, stream: AuditStream, first: int, done: Resumption
    ) -> tuple[FileManifest, Resumption] | None:
        shown = f"{stream.folder}/{manifest_name(first)}"
        try:
            line = self._target.read(stream, manifest_name(first))
            manifest = FileManifest.decode(line)
        except AuditFileDamaged as error:
            self._note(error.name, error.problem)
            return None
        except UndecodableRecord as error:
            self._note(shown, error.reason)
            return None
        if manifest.stream != stream or manifest.file.name.first != first:
            self._note(shown, "is another file's manifest")
            return None
        self._follow(shown, first, manifest, done)
        return manifest, resumed(done, manifest, line)

    def _follow(
        self, shown: str, first: int, manifest: FileManifest, done: Resumption
    ) -> None:
        """Note where a manifest does not follow on what is before it."""
        if first != done.number:
            self._note(
                shown, f"begins at record {first}, but {done.number} should come next"
            )
        elif manifest.previous != done.previous:
            self._note(shown, "names another manifest before it than there is")

    def _note(self, name: str, problem: str) -> None:
        self._problems.setdefault((name, problem), AuditFileDamaged(name, problem))
