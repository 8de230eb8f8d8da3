"""How large a compressed batch may become: a few kilobytes can hold gigabytes.

Brokers bound what a batch takes as it was sent. Whoever reads it would otherwise be
ended by a single one, again and again, for all whose records it reads.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from mmap import mmap
from typing import Any, Final

MOST_BYTES: Final = 64 * 2**20
"""Of one batch; producers of every kind make such of a few megabytes at most."""

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""Source: KIP-98, attributes of a record batch."""

_WITH_HEADER: Final = 31
"""Source: zlib.h, inflateInit2: a window of 32 KB, and gzip's header."""

_LEAST_RATIO: Final = {GZIP: 1_032, SNAPPY: 22, LZ4: 255}
"""Nothing is packed by more; zstd has no bound."""


def fits_unpacked(codec: int, packed: bytes | memoryview) -> bool:
    """Return whether a batch's records take at most `MOST_BYTES`; True if in doubt.

    What is damaged, or cannot be read here at all, is for who reads it next.
    """
    ratio = _LEAST_RATIO.get(codec)
    if ratio is not None and len(packed) * ratio <= MOST_BYTES:
        return True
    check = _CHECKS.get(codec)
    return check is None or check(packed)


def _gzip_fits(packed: bytes | memoryview) -> bool:
    stream = zlib.decompressobj(_WITH_HEADER)
    try:
        found = len(stream.decompress(packed, MOST_BYTES + 1))
    except zlib.error:
        return True
    return found <= MOST_BYTES


def _frame_fits(name: str) -> Callable[[bytes | memoryview], bool]:
    def fits(packed: bytes | memoryview) -> bool:
        try:
            cramjam: Any = import_module("cramjam")
        except ImportError:
            return True
        # Pages that nothing is written to are never made: a small batch costs little.
        with mmap(-1, MOST_BYTES) as room:
            try:
                getattr(cramjam, name).decompress_into(bytes(packed), room)
            except cramjam.DecompressionError as error:
                return "whole buffer" not in str(error)
            return True

    return fits


_CHECKS: Final[Mapping[int, Callable[[bytes | memoryview], bool]]] = {
    GZIP: _gzip_fits,
    LZ4: _frame_fits("lz4"),
    ZSTD: _frame_fits("zstd"),
}
