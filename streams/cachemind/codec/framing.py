"""How a record's bytes name the schema that they were written with.

Single-object encoding: C3 01, CRC-64-AVRO of the schema (8 bytes, little-endian).
Confluent: 00, schema id in the registry (4 bytes, big-endian). The Avro binary
encoding follows. Source: Avro 1.12 specification, "Single-object encoding";
Confluent Schema Registry documentation, "Wire format".
"""

from __future__ import annotations

from typing import Final

from cachemind.errors import UndecodableRecord

SINGLE_OBJECT: Final = b"\xc3\x01"
CONFLUENT: Final = b"\x00"
FINGERPRINT_BYTES: Final = 8
SCHEMA_ID_BYTES: Final = 4
SINGLE_OBJECT_BYTES: Final = len(SINGLE_OBJECT) + FINGERPRINT_BYTES
CONFLUENT_BYTES: Final = len(CONFLUENT) + SCHEMA_ID_BYTES
MAX_SCHEMA_ID: Final = 2**31 - 1


def single_object_header(crc64: bytes) -> bytes:
    """Return the header for a schema; `crc64` as 8 little-endian bytes."""
    return SINGLE_OBJECT + crc64


def confluent_header(schema_id: int) -> bytes:
    """Return the header for a registered schema.

    Raises: `ValueError` for an id that a registry cannot have given.
    """
    if not 0 <= schema_id <= MAX_SCHEMA_ID:
        raise ValueError(f"schema id must be 0 to 2**31 - 1, found {schema_id}")
    return CONFLUENT + schema_id.to_bytes(SCHEMA_ID_BYTES, "big")


def schema_identity(record: bytes) -> bytes | int:
    """Return the fingerprint (8 bytes) or the registry's id (int) in the header.

    Raises: `UndecodableRecord` where the header is neither, or cut.
    """
    if record[:2] == SINGLE_OBJECT:
        if len(record) < SINGLE_OBJECT_BYTES:
            raise UndecodableRecord("cut inside the single-object header")
        return record[len(SINGLE_OBJECT) : SINGLE_OBJECT_BYTES]
    if record[:1] == CONFLUENT:
        if len(record) < CONFLUENT_BYTES:
            raise UndecodableRecord("cut inside the Confluent header")
        return int.from_bytes(record[len(CONFLUENT) : CONFLUENT_BYTES], "big")
    if not record:
        raise UndecodableRecord("empty")
    raise UndecodableRecord("starts with neither C3 01 nor 00")
