"""The semantic tier: vectors of one context at a time, in a worker thread."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cachemind.core import entry_bytes
from cachemind.core.payloads import PLAIN, Payloads
from cachemind.core.similarity import nearest, unit_rows
from cachemind.errors import CacheError, EmbeddingUnavailable, PayloadUnreadable
from cachemind.ports import Change, Embedder, StoreView
from cachemind.types import ContextKey, ExactKey, Namespace
from cachemind_services.gateway.breaker import Breaker
from cachemind_services.gateway.metrics import GatewayMetrics

_LOG: Final = logging.getLogger("cachemind.gateway")
SEMANTIC_KEY_BYTES: Final = 16
NEAR_MISS: Final = 0.1
"""How far below the threshold candidates are still looked at, for the histogram."""

_FAILURES: Final = 3
_RETRY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Near:
    """A stored vector close to a prompt's; whether it may be served is open."""

    key: ExactKey
    similarity: float


@dataclass(frozen=True, slots=True)
class Found:
    """A prompt's vector, None past the encoder's window, and what is close to it."""

    vector: bytes | None
    near: Sequence[Near]


@dataclass(slots=True)
class _Rows:
    keys: list[ExactKey] = field(default_factory=list)
    vectors: list[bytes] = field(default_factory=list)
    places: dict[ExactKey, int] = field(default_factory=dict)
    matrix: NDArray[np.float32] | None = None

    def put(self, key: ExactKey, vector: bytes) -> None:
        place = self.places.get(key)
        if place is None:
            self.places[key] = len(self.keys)
            self.keys.append(key)
            self.vectors.append(vector)
        elif self.vectors[place] == vector:
            return
        else:
            self.vectors[place] = vector
        self.matrix = None

    def drop(self, key: ExactKey) -> None:
        place = self.places.pop(key, None)
        if place is None:
            return
        last_key, last_vector = self.keys.pop(), self.vectors.pop()
        if last_key != key:
            self.keys[place], self.vectors[place] = last_key, last_vector
            self.places[last_key] = place
        self.matrix = None

    def rows(self, dimensions: int) -> NDArray[np.float32]:
        if self.matrix is None:
            self.matrix = unit_rows(self.vectors, dimensions)
        return self.matrix


class VectorIndex:
    """Least recently used contexts in memory. A hint: entries are looked up anew.

    Use it from one thread.
    """

    def __init__(
        self,
        view: StoreView,
        namespace: Namespace,
        dimensions: int,
        limit_rows: int,
        payloads: Payloads = PLAIN,
    ) -> None:
        """Read vectors from `view`; those that `payloads` do not open are absent."""
        self._payloads = payloads
        self._view = view
        self._namespace = namespace
        self._dimensions = dimensions
        self._limit_rows = limit_rows
        self._contexts: OrderedDict[ContextKey, _Rows] = OrderedDict()

    def near(
        self, context: ContextKey, vector: bytes, floor: float, k: int
    ) -> list[Near]:
        """Return at most `k` keys of `context` with cosine >= `floor`, closest first.

        Raises: `StoreError`.
        """
        rows = self._load(context)
        matrix = rows.rows(self._dimensions)
        return [
            Near(rows.keys[each.row], each.similarity)
            for each in nearest(vector, matrix, threshold=floor, k=k)
        ]

    def put(self, context: ContextKey, key: ExactKey, vector: bytes) -> None:
        """Add a stored vector that the store may not show yet."""
        rows = self._contexts.get(context)
        opened = self._opened(key, vector)
        if rows is not None and opened is not None:
            rows.put(key, opened)
            self._trim()

    def refresh(self, changes: Sequence[Change] | None) -> None:
        """Take in what the fold changed; all of it anew where that is unknown.

        Raises: `StoreError`.
        """
        if changes is None:
            self._contexts.clear()
            return
        for change in changes:
            rows = self._contexts.get(change.context_key)
            if rows is None or change.namespace != self._namespace:
                continue
            vector = self._vector(change) if change.present else None
            if vector is None:
                rows.drop(change.exact_key)
            else:
                rows.put(change.exact_key, vector)
        self._trim()

    def _vector(self, change: Change) -> bytes | None:
        raw = self._view.raw_entry(self._namespace, change.exact_key)
        stored = None if raw is None else entry_bytes.decode(raw).embedding
        return None if stored is None else self._opened(change.exact_key, stored)

    def _opened(self, key: ExactKey, stored: bytes) -> bytes | None:
        try:
            return self._payloads.vector(key, stored)
        except PayloadUnreadable:
            return None

    def _load(self, context: ContextKey) -> _Rows:
        rows = self._contexts.get(context)
        if rows is not None:
            self._contexts.move_to_end(context)
            return rows
        rows = _Rows()
        for row in self._view.context(self._namespace, context):
            vector = self._opened(row.exact_key, row.embedding)
            if vector is not None:
                rows.put(row.exact_key, vector)
        self._contexts[context] = rows
        self._trim()
        return rows

    def _trim(self) -> None:
        held = sum(len(rows.keys) + 1 for rows in self._contexts.values())
        while held > self._limit_rows and len(self._contexts) > 1:
            _, gone = self._contexts.popitem(last=False)
            held -= len(gone.keys) + 1


class SemanticTier:
    """Encoder and index behind one deadline: late or failed means no candidates."""

    def __init__(
        self,
        embedder: Embedder,
        index: VectorIndex,
        metrics: GatewayMetrics,
        *,
        deadline_s: float,
        candidates: int,
    ) -> None:
        self._embedder = embedder
        self._index = index
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._candidates = candidates
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._breaker = Breaker(
            failures=_FAILURES, retry_s=_RETRY_S, now=time.monotonic
        )

    async def find(
        self, prompt: str, context: ContextKey, threshold: float
    ) -> Found | None:
        """Return the prompt's vector and what is close to it in `context`.

        None where the encoder is late, failing or off.
        """
        if not self._breaker.take():
            return None
        loop = asyncio.get_running_loop()
        until = time.monotonic() + self._deadline_s
        work = loop.run_in_executor(
            self._thread, self._work, prompt, context, threshold, until
        )
        try:
            found = await asyncio.wait_for(work, self._deadline_s)
        except (TimeoutError, CacheError) as error:
            self._metrics.embed_failures.inc()
            self._breaker.failed()
            _LOG.warning("semantic look-up failed: %s", str(error) or "too late")
            return None
        except asyncio.CancelledError:
            self._breaker.released()
            raise
        self._breaker.succeeded()
        return found

    async def vector(self, prompt: str, deadline_s: float) -> bytes | None:
        """Return the prompt's vector for storing, None where it is not to be had.

        For who can wait longer than a look-up; the breaker does not count it.
        """
        loop = asyncio.get_running_loop()
        until = time.monotonic() + deadline_s
        work = loop.run_in_executor(self._thread, self._work, prompt, None, 0.0, until)
        try:
            return (await asyncio.wait_for(work, deadline_s)).vector
        except (TimeoutError, CacheError):
            self._metrics.embed_failures.inc()
            return None

    def refresh(self, changes: Sequence[Change] | None) -> None:
        """Bring the index up to date, in the worker thread."""
        if changes is None or changes:
            self._submit(self._index.refresh, changes)

    def put(self, context: ContextKey, key: ExactKey, vector: bytes) -> None:
        """Add an own entry to the index, in the worker thread."""
        self._submit(self._index.put, context, key, vector)

    def close(self) -> None:
        """Wait for the worker thread to end."""
        self._thread.shutdown(cancel_futures=True)

    def _work(
        self, prompt: str, context: ContextKey | None, threshold: float, until: float
    ) -> Found:
        if time.monotonic() >= until:
            raise EmbeddingUnavailable("its turn came too late")
        vector = self._embedder.embed(prompt)
        if vector is None or context is None:
            return Found(vector, ())
        floor = max(threshold - NEAR_MISS, 0.0)
        return Found(vector, self._index.near(context, vector, floor, self._candidates))

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except CacheError as error:
                # What the index holds may now be wrong; it is a copy, start anew.
                _LOG.warning("vector index is rebuilt: %s", error)
                self._index.refresh(None)

        self._thread.submit(run)


def semantic_key(vector: bytes) -> str:
    """Return the base64 of a vector's first 16 bytes: metadata, never a decision."""
    return base64.b64encode(vector[:SEMANTIC_KEY_BYTES]).decode()
