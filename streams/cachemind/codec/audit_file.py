"""A sealed audit file's bytes: an Avro object container file, uncompressed.

Its sync marker follows from what the file is of, so the same blocks make the same
bytes. Source: Avro 1.12 specification, "Object Container Files".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException
from fastavro.write import Writer

from cachemind.codec.cuts import decode_cuts_record, decode_leaf
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.core.audit_files import AuditStream, Link
from cachemind.core.audit_manifest import LogOrigin
from cachemind.core.merkle import leaf_hash
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind.receipts import Cut
from cachemind.types import Offset, Partition
from cachemind_schemas.loader import audit_record

FileRecord = tuple[Offset, bytes | None]
"""A record's offset on its topic, and its exact value."""

_SYNC_BYTES: Final = 16
_NEVER: Final = 2**31 - 1
"""Bytes after which fastavro would end a block by itself."""

_PLAIN: Final = "null"
"""The codec of a file that is not compressed."""

_UNFIT: Final = (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    SchemaParseException,
    SchemaResolutionError,
    TypeError,
    ValueError,
)


class FileEncoder:
    """Makes the bytes of one file, a block at a time."""

    def __init__(self, origin: LogOrigin, stream: AuditStream, first: int) -> None:
        named = "\0".join((origin.topic_id, stream.folder, str(first)))
        self._buffer = BytesIO()
        self._writer = Writer(
            self._buffer,
            _schema(),
            sync_interval=_NEVER,
            metadata={
                "cachemind.cluster_id": origin.cluster_id,
                "cachemind.topic": origin.topic,
                "cachemind.topic_id": origin.topic_id,
                "cachemind.stream": stream.folder,
            },
            sync_marker=sha256(named.encode()).digest()[:_SYNC_BYTES],
        )
        self.header: Final = self._taken()

    def block(self, records: Iterable[FileRecord]) -> bytes:
        """Return one block of at least one record."""
        for offset, value in records:
            self._writer.write({"offset": offset, "value": value})
        self._writer.dump()
        return self._taken()

    def _taken(self) -> bytes:
        made = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return made


def read_file(content: bytes) -> Iterator[FileRecord]:
    """Yield the records of a file.

    Raises: `UndecodableRecord` where it is cut or no such file.
    """
    try:
        reader = fastavro.reader(BytesIO(content), _schema())
        if reader.codec != _PLAIN:
            # No sink writes it, and a small file could say to be terabytes.
            raise UndecodableRecord("no sealed audit file: it is compressed")
        for found in reader:
            value: Any = found
            yield Offset(value["offset"]), value["value"]
    except _UNFIT as error:
        raise UndecodableRecord(
            f"no sealed audit file, or cut ({type(error).__name__})"
        ) from error


def link_of(stream: AuditStream, value: bytes | None) -> Link | None:
    """Return how a record of an audit topic continues its chain.

    None where it is no receipt of this partition, or none of the cuts' records.
    """
    try:
        if value is None:
            return None
        if stream.partition is None:
            return _of_cuts(value)
        return _of_receipt(stream.partition, value)
    except (UndecodableRecord, UnknownSchema):
        return None


def cut_of(value: bytes | None) -> Cut | None:
    """Return the cut in a record of the topic of cuts, None where it holds none."""
    try:
        leaf = None if value is None else decode_leaf(decode_cuts_record(value).leaf)
    except (UndecodableRecord, UnknownSchema):
        return None
    return leaf if isinstance(leaf, Cut) else None


def _of_receipt(partition: Partition, value: bytes) -> Link | None:
    signed = decode_signed_receipt(value)
    receipt = decode_receipt(signed.receipt)
    if receipt.partition != partition or receipt.source.partition != partition:
        return None
    return Link(
        seq=receipt.seq,
        previous=receipt.previous,
        leaf=leaf_hash(signed.receipt),
        source=receipt.source.offset,
    )


def _of_cuts(value: bytes) -> Link:
    leaf = decode_cuts_record(value).leaf
    found = decode_leaf(leaf)
    cut = found if isinstance(found, Cut) else None
    return Link(
        seq=None if cut is None else cut.index,
        previous=None if cut is None else cut.previous,
        leaf=leaf_hash(leaf),
        source=None,
    )


@cache
def _schema() -> Any:
    return fastavro.parse_schema(json.loads(audit_record().text), named_schemas={})
