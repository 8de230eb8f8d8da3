"""Writes `sealed_payload.json`: a payload and a vector under a known key and nonce."""

from __future__ import annotations

import json
from pathlib import Path

from cachemind.adapters.aead import AesGcm
from cachemind.core.data_key import key_id_of
from cachemind.core.payload_cipher import PayloadCipher
from cachemind.core.sealed_payload import Payload
from cachemind.types import ExactKey, Namespace

PATH = Path(__file__).parent / "sealed_payload.json"
NAMESPACE = Namespace("tenant-a")
DATA_KEY = bytes(range(32))
EXACT_KEY = ExactKey(bytes(range(32, 64)))
PAYLOADS = (
    Payload(prompt="why?", parameters='{"temperature":0}', response=b'{"id":"x"}'),
    Payload(prompt=None, parameters="{}", response=b"{}"),
)
VECTOR = bytes.fromhex("003c00380034")


def counted(count: int) -> bytes:
    """Return what this vector has for salt and nonces, which are random elsewhere."""
    return bytes(range(128, 128 + count))


def main() -> None:
    """Write the file."""
    key_id = key_id_of(1, DATA_KEY)
    cipher = PayloadCipher(NAMESPACE, AesGcm, counted)
    cipher.put(key_id, DATA_KEY)
    cipher.seal_with(key_id)
    found = {
        "namespace": NAMESPACE,
        "data_key": DATA_KEY.hex(),
        "key_id": key_id,
        "exact_key": EXACT_KEY.hex(),
        "payloads": [
            {
                "prompt": each.prompt,
                "parameters": each.parameters,
                "response": each.response.decode(),
                "sealed": cipher.seal(EXACT_KEY, each).hex(),
            }
            for each in PAYLOADS
        ],
        "vector": VECTOR.hex(),
        "sealed_vector": cipher.seal_vector(EXACT_KEY, VECTOR).hex(),
    }
    PATH.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
