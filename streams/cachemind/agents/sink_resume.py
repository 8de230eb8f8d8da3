"""Where a stream of the sink goes on: what the target itself says is sealed."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from cachemind.agents.sink_file import values_of
from cachemind.codec.audit_file import FileRecord, link_of, read_file
from cachemind.core.audit_files import (
    AuditStream,
    FileName,
    Listing,
    Tally,
    counted,
    listed,
    manifest_name,
)
from cachemind.core.audit_manifest import (
    START,
    FileManifest,
    LogOrigin,
    Resumption,
    SealedFile,
    resumed,
)
from cachemind.errors import (
    AuditFileDamaged,
    OffsetOutOfRange,
    UndecodableRecord,
)
from cachemind.ports import LogReader
from cachemind.ports.audit_files import AuditTarget
from cachemind.types import Offset, Partition, Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlace:
    """Where a stream comes from and goes to. `partition` is of its topic."""

    stream: AuditStream
    origin: LogOrigin
    partition: Partition
    reader: LogReader
    target: AuditTarget


def last_sealed(place: SinkPlace) -> tuple[Resumption, Listing]:
    """Return what the last manifest says, and what is there besides.

    Raises: `AuditFileDamaged` where the manifest, or the file it names, is not what
    it was; `AuditFilesUnavailable`.
    """
    sizes = place.target.names(place.stream)
    listing = listed(sizes)
    if not listing.manifests:
        return START, listing
    name = manifest_name(listing.manifests[-1])
    shown = f"{place.stream.folder}/{name}"
    line = place.target.read(place.stream, name)
    try:
        manifest = FileManifest.decode(line)
    except UndecodableRecord as error:
        raise AuditFileDamaged(shown, error.reason) from error
    if (manifest.origin, manifest.stream) != (place.origin, place.stream):
        raise AuditFileDamaged(shown, "is of another log or stream")
    if manifest.file.name.first != listing.manifests[-1]:
        raise AuditFileDamaged(shown, "is named after another file")
    if sizes.get(str(manifest.file.name)) != manifest.file.size_bytes:
        raise AuditFileDamaged(
            f"{place.stream.folder}/{manifest.file.name}", "is missing or cut"
        )
    return resumed(START, manifest, line), listing


def unclaimed_file(
    place: SinkPlace, done: Resumption, listing: Listing
) -> tuple[SealedFile, Tally] | None:
    """Return a file that goes on where the stream ends and has no manifest yet.

    It counts only where the topic has the same records, or has them no more and they
    continue their chain. Raises: `AuditFilesUnavailable`, `LogUnavailable`.
    """
    for name in listing.unclaimed(done.number):
        content = place.target.read(place.stream, str(name))
        try:
            records = list(read_file(content))
        except UndecodableRecord:
            continue
        tally = counted(
            Tally(chain=done.chain),
            ((offset, link_of(place.stream, value)) for offset, value in records),
        )
        if _fits(name, records, done) and _is_on_topic(place, done, records, tally):
            return (
                SealedFile(
                    name=name,
                    size_bytes=len(content),
                    sha256=Sha256(sha256(content).digest()),
                ),
                tally,
            )
    return None


def _fits(name: FileName, records: list[FileRecord], done: Resumption) -> bool:
    count = name.last - name.first + 1
    return len(records) == count and records[0][0] >= done.offset


def _is_on_topic(
    place: SinkPlace, done: Resumption, records: list[FileRecord], tally: Tally
) -> bool:
    end = Offset(records[-1][0] + 1)
    if end > place.reader.bounds(place.partition)[1]:
        return False
    try:
        on_topic = [
            one
            for batch in place.reader.read(place.partition, done.offset, end)
            for one in values_of(batch)
        ]
    except OffsetOutOfRange:
        return tally.irregular == 0
    return on_topic == records
