"""A namespace's data key as it is kept: wrapped, beside the log and never on it.

The log is only ever appended to, so what is on it can never be destroyed. A data key
is one small JSON object a generation; destroying it leaves a stone in its place, so
that a generation is never used twice.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cachemind.core.tagged_hash import pae, tagged_hash
from cachemind.errors import InvalidEvent, UndecodableRecord
from cachemind.types import Namespace, check_namespace

DATA_KEY_BYTES: Final = 32
GENERATION_DIGITS: Final = 8
KEY_ID_CHARS: Final = 27
_HASH_CHARS: Final = 16
_VERSION: Final = 1
_ID_DOMAIN: Final = b"cachemind/data-key-id/v1"
_CONTEXT: Final = b"cachemind/data-key/v1"
_NUMBERS: Final = ("version", "generation", "created_at_ns", "destroyed_at_ns")
_TEXTS: Final = ("namespace", "key_id", "wrapper_id", "wrapped")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataKey:
    """One generation of a namespace's key. `wrapped` is empty once it is destroyed.

    Units: nanoseconds since the Unix epoch; `destroyed_at_ns` is 0 while it lives.
    """

    namespace: Namespace
    generation: int
    key_id: str
    wrapper_id: str
    wrapped: bytes
    created_at_ns: int
    destroyed_at_ns: int = 0

    @property
    def lives(self) -> bool:
        """Return whether the key is still there."""
        return bool(self.wrapped)

    def destroyed(self, now_ns: int) -> DataKey:
        """Return the stone that takes its place."""
        return replace(self, wrapped=b"", destroyed_at_ns=now_ns)


def key_id_of(generation: int, data_key: bytes) -> str:
    """Return the id that follows from a key: no other key has it.

    AES-GCM does not commit to its key; the hash in the id does.
    """
    if not 0 < generation < 10**GENERATION_DIGITS:
        raise ValueError(f"generation must have {GENERATION_DIGITS} digits at most")
    told = tagged_hash(_ID_DOMAIN, data_key).hex()[:_HASH_CHARS]
    return f"dk{generation:0{GENERATION_DIGITS}d}-{told}"


def wrapping_context(namespace: Namespace, key_id: str) -> bytes:
    """Return what is authenticated with a wrapped data key."""
    return pae(_CONTEXT, namespace.encode(), key_id.encode())


def next_generation(keys: Sequence[DataKey]) -> int:
    """Return the first generation that was never used."""
    return max((key.generation for key in keys), default=0) + 1


def encode_data_key(key: DataKey) -> bytes:
    """Return the object's bytes: JSON, so that an operator can read it."""
    told = {
        "version": _VERSION,
        "namespace": key.namespace,
        "generation": key.generation,
        "key_id": key.key_id,
        "wrapper_id": key.wrapper_id,
        "wrapped": base64.b64encode(key.wrapped).decode("ascii"),
        "created_at_ns": key.created_at_ns,
        "destroyed_at_ns": key.destroyed_at_ns,
    }
    return json.dumps(told, indent=1).encode() + b"\n"


def decode_data_key(raw: bytes) -> DataKey:
    """Return the data key of an object. Raises: `UndecodableRecord`."""
    try:
        told = json.loads(raw)
        if not isinstance(told, dict) or told.get("version") != _VERSION:
            raise UndecodableRecord("not a data key of version 1")
        if any(type(told.get(name)) is not int for name in _NUMBERS):
            raise UndecodableRecord("a number of a data key is none")
        if any(type(told.get(name)) is not str for name in _TEXTS):
            raise UndecodableRecord("a text of a data key is none")
        return DataKey(
            namespace=check_namespace(told["namespace"]),
            generation=told["generation"],
            key_id=told["key_id"],
            wrapper_id=told["wrapper_id"],
            wrapped=base64.b64decode(told["wrapped"], validate=True),
            created_at_ns=told["created_at_ns"],
            destroyed_at_ns=told["destroyed_at_ns"],
        )
    except (ValueError, binascii.Error, RecursionError, InvalidEvent) as error:
        raise UndecodableRecord("not a data key") from error
