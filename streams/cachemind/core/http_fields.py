"""HTTP header fields: which ones stop at a proxy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

Fields = Sequence[tuple[bytes, bytes]]

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


def end_to_end(fields: Fields) -> list[tuple[bytes, bytes]]:
    """Return `fields` in order, names in lower case, without those of one hop.

    Also gone are the fields that a `Connection` field names. `Trailer` goes because
    trailers are not passed on.
    Source: RFC 9110 section 7.6.1.
    """
    lowered = [(name.lower(), value) for name, value in fields]
    named = {
        token.strip().lower()
        for name, value in lowered
        if name == b"connection"
        for token in value.split(b",")
    }
    stop = _HOP_BY_HOP | named
    return [(name, value) for name, value in lowered if name not in stop]
