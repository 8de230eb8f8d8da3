"""The bytes of sealed payloads, by a second reader that shares no code with ours."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PATH = Path(__file__).parents[1] / "vectors" / "sealed_payload.json"
VECTORS: dict[str, Any] = json.loads(PATH.read_text())


def framed(*pieces: bytes) -> bytes:
    out = struct.pack("<Q", len(pieces))
    for piece in pieces:
        out += struct.pack("<Q", len(piece)) + piece
    return out


def opened(raw: bytes, kind: bytes) -> bytes:
    """Open what is sealed, by the words of schemas/README.md."""
    assert raw[:5] == bytes.fromhex("c1434d5001")
    key_id, salt, nonce, sealed = raw[5:32], raw[32:48], raw[48:60], raw[60:]
    assert key_id.decode() == VECTORS["key_id"]
    data_key = bytes.fromhex(VECTORS["data_key"])
    info = b"cachemind/payload-subkey/v1\0" + salt + b"\1"
    subkey = hmac.new(data_key, info, hashlib.sha256).digest()
    bound = framed(
        b"cachemind/sealed-payload/v1",
        kind,
        VECTORS["namespace"].encode(),
        key_id,
        bytes.fromhex(VECTORS["exact_key"]),
    )
    return AESGCM(subkey).decrypt(nonce, sealed, bound)


@pytest.mark.parametrize("payload", VECTORS["payloads"])
def test_a_payload_opens_by_the_documented_bytes(payload: dict[str, Any]) -> None:
    content = opened(bytes.fromhex(payload["sealed"]), b"payload")
    prompt, parameters = struct.unpack_from(">II", content)
    at = 8
    if payload["prompt"] is None:
        assert prompt == 0xFFFFFFFF
    else:
        assert content[at : at + prompt].decode() == payload["prompt"]
        at += prompt
    assert content[at : at + parameters].decode() == payload["parameters"]
    assert content[at + parameters :].decode() == payload["response"]


def test_a_vector_opens_by_the_documented_bytes() -> None:
    content = opened(bytes.fromhex(VECTORS["sealed_vector"]), b"vector")
    assert content.hex() == VECTORS["vector"]


def test_a_key_id_follows_from_the_key_by_the_documented_bytes() -> None:
    data_key = bytes.fromhex(VECTORS["data_key"])
    told = hashlib.sha256(framed(b"cachemind/data-key-id/v1", data_key)).hexdigest()
    assert VECTORS["key_id"] == f"dk00000001-{told[:16]}"
