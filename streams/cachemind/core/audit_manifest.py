"""The manifest beside a sealed audit file, and where the sink goes on after it.

One line of JSON: names sorted, no white space, ASCII, hashes in hex. Each names the
SHA-256 of the manifest before it in its stream, so that a file can neither be changed
nor taken away between two others. It is not signed: what its records say is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from cachemind.core.audit_files import AuditStream, Chain, FileName, Span, Tally
from cachemind.errors import UndecodableRecord
from cachemind.receipts import NO_LEAF
from cachemind.types import HASH_BYTES, Offset, Sha256

FORMAT: Final = "cachemind-audit-manifest/1"
MAX_MANIFEST_BYTES: Final = 16 * 1024
_UNFIT: Final = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOrigin:
    """Which topic of which cluster the records were copied from."""

    cluster_id: str
    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """A file, whole. `sha256` is over all of its bytes."""

    name: FileName
    size_bytes: int
    sha256: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveringCuts:
    """The first cut that covers a file's first record, and the first for its last.

    By their index among the cuts. `offset` is where the latter is on the topic.
    """

    first: int
    last: int
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FileManifest:
    """What one sealed file holds. `tally.records` are the name's.

    `previous` is the hash of the manifest before, `NO_LEAF` for the first. `cuts` is
    None for the cuts' own files, and where none covered the file in time.
    """

    origin: LogOrigin
    stream: AuditStream
    file: SealedFile
    tally: Tally
    cuts: CoveringCuts | None
    previous: Sha256
    sealed_at_ns: int

    def encode(self) -> bytes:
        """Return its one line, without an end of line."""
        return json.dumps(
            _plain(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True
        ).encode("ascii")

    @classmethod
    def decode(cls, line: bytes) -> FileManifest:
        """Return the manifest in `line`.

        Raises: `UndecodableRecord`, also where it is written in another way.
        """
        try:
            found = _manifest(json.loads(line))
        except _UNFIT as error:
            raise UndecodableRecord(
                f"no manifest of an audit file ({type(error).__name__})"
            ) from error
        if found.encode() != line:
            raise UndecodableRecord("a manifest that is not in its one form")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Where a stream goes on: all that the sink keeps in mind of what is sealed.

    `number` is the next record's, `offset` where to read on. `cuts_from` is an offset
    below which no cut covers what comes. `previous` is the last manifest's hash.
    """

    number: int
    offset: Offset
    chain: Chain
    cuts_from: Offset
    previous: Sha256


START: Final = Resumption(
    number=0,
    offset=Offset(0),
    chain=Chain(),
    cuts_from=Offset(0),
    previous=NO_LEAF,
)
"""Of a stream without a sealed file."""


def hash_of(manifest_line: bytes) -> Sha256:
    """Return what the next manifest calls this one."""
    return Sha256(sha256(manifest_line).digest())


def resumed(before: Resumption, manifest: FileManifest, line: bytes) -> Resumption:
    """Return where to go on after the file of `manifest`, whose bytes are `line`."""
    offsets = manifest.tally.offsets
    return Resumption(
        number=manifest.file.name.last + 1,
        offset=before.offset if offsets is None else Offset(offsets.last + 1),
        chain=manifest.tally.chain,
        cuts_from=before.cuts_from if manifest.cuts is None else manifest.cuts.offset,
        previous=hash_of(line),
    )


def _plain(manifest: FileManifest) -> dict[str, Any]:
    tally = manifest.tally
    return {
        "format": FORMAT,
        "cluster_id": manifest.origin.cluster_id,
        "topic": manifest.origin.topic,
        "topic_id": manifest.origin.topic_id,
        "stream": manifest.stream.folder,
        "file": {
            "name": str(manifest.file.name),
            "bytes": manifest.file.size_bytes,
            "sha256": manifest.file.sha256.hex(),
        },
        "records": tally.records,
        "irregular": tally.irregular,
        "offsets": _ends(tally.offsets),
        "seqs": _ends(tally.seqs),
        "source_offsets": _ends(tally.source),
        "next_seq": tally.chain.next_seq,
        "last_leaf": tally.chain.leaf.hex(),
        "cuts": _indices(manifest.cuts),
        "previous": manifest.previous.hex(),
        "sealed_at_ns": manifest.sealed_at_ns,
    }


def _ends(span: Span | None) -> dict[str, int] | None:
    return None if span is None else {"first": span.first, "last": span.last}


def _indices(cuts: CoveringCuts | None) -> dict[str, int] | None:
    if cuts is None:
        return None
    return {"first": cuts.first, "last": cuts.last, "offset": cuts.offset}


def _manifest(found: Any) -> FileManifest:
    if found["format"] != FORMAT:
        raise ValueError("another format")
    stream = AuditStream.parse(found["stream"])
    name = FileName.parse(found["file"]["name"])
    if stream is None or name is None:
        raise ValueError("no stream or no file")
    tally = Tally(
        chain=Chain(
            next_seq=_number(found["next_seq"]), leaf=_hash(found["last_leaf"])
        ),
        records=_number(found["records"]),
        irregular=_number(found["irregular"]),
        offsets=_span(found["offsets"]),
        seqs=_span(found["seqs"]),
        source=_span(found["source_offsets"]),
    )
    if tally.records != name.last - name.first + 1 or tally.offsets is None:
        raise ValueError("other records than its name says")
    return FileManifest(
        origin=LogOrigin(
            cluster_id=str(found["cluster_id"]),
            topic=str(found["topic"]),
            topic_id=str(found["topic_id"]),
        ),
        stream=stream,
        file=SealedFile(
            name=name,
            size_bytes=_number(found["file"]["bytes"]),
            sha256=_hash(found["file"]["sha256"]),
        ),
        tally=tally,
        cuts=_cuts(found["cuts"]),
        previous=_hash(found["previous"]),
        sealed_at_ns=_number(found["sealed_at_ns"]),
    )


def _span(found: Any) -> Span | None:
    if found is None:
        return None
    return Span(first=_number(found["first"]), last=_number(found["last"]))


def _cuts(found: Any) -> CoveringCuts | None:
    if found is None:
        return None
    return CoveringCuts(
        first=_number(found["first"]),
        last=_number(found["last"]),
        offset=Offset(_number(found["offset"])),
    )


def _number(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError("not a whole number")
    return found


def _hash(found: Any) -> Sha256:
    raw = bytes.fromhex(found)
    if len(raw) != HASH_BYTES:
        raise ValueError("not a hash")
    return Sha256(raw)
