"""Exact cosine of one vector against many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MARGIN: Final = 1e-3
"""Wider than float32 can be off on unit vectors of a few thousand dimensions."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A row and its cosine to the query, -1 to 1: greater is closer."""

    row: int
    similarity: float


def unit_rows(vectors: Sequence[bytes], dimensions: int) -> NDArray[np.float32]:
    """Return float16 little-endian vectors as rows of length one.

    A vector that is zero or not finite becomes a row of zeros, which is close to
    nothing.
    Raises: `ValueError` where a vector does not have `dimensions` values.
    """
    for vector in vectors:
        if len(vector) != 2 * dimensions:
            raise ValueError(
                f"a vector must be {2 * dimensions} bytes, got {len(vector)}"
            )
    flat = np.frombuffer(b"".join(vectors), dtype="<f2").astype(np.float32)
    return _unit(flat.reshape(len(vectors), dimensions))


def nearest(
    query: bytes,
    rows: NDArray[np.float16] | NDArray[np.float32],
    *,
    threshold: float,
    k: int,
) -> list[Neighbour]:
    """Return at most `k` rows with cosine >= `threshold`, closest first.

    `rows` are of length one (`unit_rows`); `query` is float16 little-endian of any
    length. A tie falls to the smaller row. The result does not depend on how many
    other rows there are.
    """
    unit = unit_rows([query], rows.shape[1])[0]
    if not len(rows) or not unit.any():
        return []
    rough = rows.astype(np.float32, copy=False) @ unit
    near = np.flatnonzero(rough >= threshold - _MARGIN)
    # Matrix products sum in an order that depends on the row's place; the few rows
    # that matter are measured again, each alone and in double precision.
    exact = rows[near].astype(np.float64) * unit.astype(np.float64)
    cosines = np.clip([float(row.sum()) for row in exact], -1.0, 1.0)
    found = [
        Neighbour(int(row), float(cosine))
        for row, cosine in zip(near, cosines, strict=True)
        if cosine >= threshold
    ]
    found.sort(key=lambda neighbour: (-neighbour.similarity, neighbour.row))
    return found[:k]


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    rows = np.where(finite, rows, np.float32(0))
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    out = np.zeros_like(rows)
    np.divide(rows, norms, out=out, where=norms > 0)
    return out
