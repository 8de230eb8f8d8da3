"""An encoder without weights, for tests: near texts get near vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from cachemind.types import EncoderId

DIMENSIONS: Final = 256
WINDOW_WORDS: Final = 256
_GRAM: Final = 3


class MemoryEmbedder:
    """`Embedder` on hashed character trigrams of the lower-cased words.

    Deterministic on every machine: the hash is SHA-256. Texts that share most
    trigrams are close; order of words does not count.
    """

    @property
    def encoder_id(self) -> EncoderId:
        """Return the name of this scheme; change it with the vectors."""
        return EncoderId(f"trigrams-{DIMENSIONS}:1")

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        return DIMENSIONS

    def embed(self, text: str) -> bytes | None:
        """Return the normalised float16 little-endian vector; see `Embedder`."""
        words = text.lower().split()
        if len(words) > WINDOW_WORDS:
            return None
        vector = np.zeros(DIMENSIONS, dtype=np.float64)
        for gram in _grams(words):
            place = hashlib.sha256(gram.encode("utf-8", "surrogatepass")).digest()
            vector[place[0]] += 1.0 if place[1] & 1 else -1.0
        length = float(np.linalg.norm(vector))
        if length == 0.0:  # no word at all, or every trigram met its opposite
            return None
        return bytes((vector / length).astype("<f2").tobytes())


def _grams(words: list[str]) -> Iterator[str]:
    for word in words:
        framed = f"^{word}$"
        for start in range(len(framed) - _GRAM + 1):
            yield framed[start : start + _GRAM]
