"""Writes the known answers of operation hashes and request keys beside this file.

    python tests/vectors/make_core_vectors.py [--check]

With --check nothing is written, and a difference ends with exit code 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cachemind.core.keys import derive_keys, prompt_hash, prompt_text
from cachemind.core.op_hash import op_hash
from cachemind.core.request import parse_chat
from cachemind.types import EncoderId, Namespace

FOLDER: Final = Path(__file__).parent
HASH_KEY: Final = bytes(range(32))

OPERATIONS: Final[Sequence[tuple[str, bytes, bytes, int]]] = (
    ("stored", b"", b"", 0),
    ("stored", b"key", b"payload", 1_700_000_000_000_000_000),
    ("store", b"dkey", b"payload", 1_700_000_000_000_000_000),
    ("stored", b"keyp", b"ayload", 1_700_000_000_000_000_000),
    ("invalidated", bytes(32), b"\x00\xff", 2**64 - 1),
    ("Größe", "schlüssel".encode(), "日本".encode(), 42),
)

USER: Final = {"role": "user", "content": "What is the capital of France?"}
CALLERS: Final[Sequence[tuple[str, str, bytes, str]]] = (
    ("namespace a, tenant t", "a", b"t", "minilm"),
    ("another namespace", "b", b"t", "minilm"),
    ("no tenant", "a", b"", "minilm"),
    ("another encoder", "a", b"t", "other"),
)
BODIES: Final[Mapping[str, Mapping[str, object]]] = {
    "smallest": {"model": "m", "messages": [USER]},
    "streamed": {
        "model": "m",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "same words, other spelling": {
        "model": "m",
        "messages": [{"role": "user", "content": " what is the  capital of France? "}],
    },
    "as parts": {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": USER["content"]}]}
        ],
    },
    "with earlier turns": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hello!"},
            USER,
        ],
    },
    "with parameters": {
        "model": "m",
        "messages": [USER],
        "temperature": 0.2,
        "top_p": 1.0,
        "seed": 7,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    },
    "with an image": {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "https://a.example/i"}},
                ],
            }
        ],
    },
    "a tool's answer": {
        "model": "m",
        "messages": [USER, {"role": "tool", "tool_call_id": "c1", "content": "Paris"}],
    },
}


def op_hash_vectors() -> list[dict[str, object]]:
    """Return each operation with its hash; byte strings in hex."""
    return [
        {
            "verb": verb,
            "key": key.hex(),
            "payload": payload.hex(),
            "timestamp_ns": timestamp_ns,
            "op_hash": op_hash(verb, key, payload, timestamp_ns).hex(),
        }
        for verb, key, payload, timestamp_ns in OPERATIONS
    ]


def key_vectors() -> list[dict[str, object]]:
    """Return each body under each caller with its keys; byte strings in hex."""
    return [
        _keys(f"{title}, {caller}", body, namespace, tenant, encoder)
        for title, body in BODIES.items()
        for caller, namespace, tenant, encoder in CALLERS
    ]


def _keys(
    title: str,
    body: Mapping[str, object],
    namespace: str,
    tenant: bytes,
    encoder: str,
) -> dict[str, object]:
    request = parse_chat(json.dumps(body).encode())
    keys = derive_keys(request, Namespace(namespace), tenant, EncoderId(encoder))
    return {
        "title": title,
        "body": body,
        "namespace": namespace,
        "tenant": tenant.hex(),
        "encoder_id": encoder,
        "context_key": keys.context_key.hex(),
        "exact_key": keys.exact_key.hex(),
        "request_hash": keys.request_hash.hex(),
        "parameters": keys.parameters,
        "prompt": keys.prompt,
        "prompt_hash": prompt_hash(HASH_KEY, prompt_text(request)).hex(),
    }


def written(vectors: Sequence[Mapping[str, object]]) -> str:
    """Return the file's text."""
    return json.dumps(vectors, indent=1, ensure_ascii=False) + "\n"


def files() -> dict[Path, str]:
    """Return what each vector file must hold."""
    return {
        FOLDER / "op_hash.json": written(op_hash_vectors()),
        FOLDER / "keys.json": written(key_vectors()),
    }


def main(arguments: Sequence[str]) -> int:
    """Write the files, or compare them."""
    if arguments == ["--check"]:
        stale = [path for path, text in files().items() if path.read_text() != text]
        for path in stale:
            sys.stderr.write(f"{path} differs from what the code makes\n")
        return 1 if stale else 0
    for path, text in files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
