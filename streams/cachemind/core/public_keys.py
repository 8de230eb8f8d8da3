"""Names and text form of public keys."""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import sha256
from typing import Final

from cachemind.errors import InvalidEvent
from cachemind.receipts import KEY_ID_CHARS, KeyId

_LABEL: Final = "PUBLIC KEY"
_LINE_CHARS: Final = 64
_PEM: Final = re.compile(
    rf"\s*-----BEGIN {_LABEL}-----\s+([A-Za-z0-9+/=\s]+?)\s*-----END {_LABEL}-----\s*"
)


def key_id_of(public_key: bytes) -> KeyId:
    """Return the id of a public key, which is given as DER (SPKI)."""
    return KeyId(sha256(public_key).hexdigest()[:KEY_ID_CHARS])


def pem_of(public_key: bytes) -> str:
    """Return a public key's DER as PEM text.

    Source: RFC 7468 section 13.
    """
    text = base64.b64encode(public_key).decode("ascii")
    lines = [text[at : at + _LINE_CHARS] for at in range(0, len(text), _LINE_CHARS)]
    return "\n".join(
        (f"-----BEGIN {_LABEL}-----", *lines, f"-----END {_LABEL}-----", "")
    )


def der_of_pem(text: str) -> bytes:
    """Return the DER of a public key in PEM text, which must hold nothing else.

    Raises: `InvalidEvent` naming the field `public_key`.
    """
    found = _PEM.fullmatch(text)
    if found is None:
        raise InvalidEvent("public_key", f"must be one PEM block of a {_LABEL}")
    try:
        return base64.b64decode("".join(found[1].split()), validate=True)
    except binascii.Error as error:
        raise InvalidEvent("public_key", "PEM block is not base64") from error
