"""The semantic tier: a prompt's vector and what is close to it, in a worker thread."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from cachemind.errors import CacheError, EmbeddingUnavailable
from cachemind.ports import Change, Embedder
from cachemind.types import ContextKey, EncoderId, ExactKey
from cachemind_services.gateway.breaker import Breaker
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.vector_index import HeldContexts, Near, VectorIndex

_LOG: Final = logging.getLogger("cachemind.gateway")
SEMANTIC_KEY_BYTES: Final = 16
NEAR_MISS: Final = 0.1
"""How far below the threshold candidates are still looked at, for the histogram."""

_FAILURES: Final = 3
_RETRY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """A prompt's vector, None past the encoder's window, and what is close to it."""

    vector: bytes | None
    near: Sequence[Near]


class Encoder:
    """A worker's encoder, its thread, its breaker and the vectors it holds.

    Late or failed means no vector.
    """

    def __init__(
        self,
        embedder: Embedder,
        metrics: GatewayMetrics,
        *,
        deadline_s: float,
        limit_rows: int,
    ) -> None:
        self._embedder = embedder
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._breaker = Breaker(
            failures=_FAILURES, retry_s=_RETRY_S, now=time.monotonic
        )
        self.contexts = HeldContexts(limit_rows)

    @property
    def encoder_id(self) -> EncoderId:
        """Return which encoder it is."""
        return self._embedder.encoder_id

    @property
    def dimensions(self) -> int:
        """Return how many numbers a vector has."""
        return self._embedder.dimensions

    async def find(
        self, prompt: str, search: Callable[[bytes], Sequence[Near]]
    ) -> Found | None:
        """Return the prompt's vector and what `search` finds close to it.

        None where the encoder is late, failing or off.
        """
        if not self._breaker.take():
            return None
        try:
            found = await self._ask(prompt, search, self._deadline_s)
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
        try:
            return (await self._ask(prompt, None, deadline_s)).vector
        except (TimeoutError, CacheError):
            self._metrics.embed_failures.inc()
            return None

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread, after what was asked for before."""
        self._thread.submit(work)

    def close(self) -> None:
        """Wait for the worker thread to end."""
        self._thread.shutdown(cancel_futures=True)

    async def _ask(
        self,
        prompt: str,
        search: Callable[[bytes], Sequence[Near]] | None,
        deadline_s: float,
    ) -> Found:
        until = time.monotonic() + deadline_s
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._work, prompt, search, until)
        return await asyncio.wait_for(work, deadline_s)

    def _work(
        self,
        prompt: str,
        search: Callable[[bytes], Sequence[Near]] | None,
        until: float,
    ) -> Found:
        if time.monotonic() >= until:
            raise EmbeddingUnavailable("its turn came too late")
        vector = self._embedder.embed(prompt)
        if vector is None or search is None:
            return Found(vector, ())
        return Found(vector, search(vector))


class SemanticTier:
    """Looks prompts of one namespace up by meaning."""

    def __init__(self, encoder: Encoder, index: VectorIndex, candidates: int) -> None:
        self._encoder = encoder
        self._index = index
        self._candidates = candidates

    async def find(
        self, prompt: str, context: ContextKey, threshold: float
    ) -> Found | None:
        """Return the prompt's vector and what is close to it in `context`.

        None where the encoder is late, failing or off.
        """
        floor = max(threshold - NEAR_MISS, 0.0)

        def search(vector: bytes) -> Sequence[Near]:
            return self._index.near(context, vector, floor, self._candidates)

        return await self._encoder.find(prompt, search)

    async def vector(self, prompt: str, deadline_s: float) -> bytes | None:
        """Return the prompt's vector for storing, None where it is not to be had."""
        return await self._encoder.vector(prompt, deadline_s)

    def refresh(self, changes: Sequence[Change] | None) -> None:
        """Bring the index up to date, in the worker thread."""
        if changes is None or changes:
            self._submit(lambda: self._index.refresh(changes))

    def put(self, context: ContextKey, key: ExactKey, vector: bytes) -> None:
        """Add an own entry to the index, in the worker thread."""
        self._submit(lambda: self._index.put(context, key, vector))

    def _submit(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except CacheError as error:
                # What the index holds may now be wrong; it is a copy, start anew.
                _LOG.warning("vector index is rebuilt: %s", error)
                self._index.refresh(None)

        self._encoder.submit(run)


def semantic_key(vector: bytes) -> str:
    """Return the base64 of a vector's first 16 bytes: metadata, never a decision."""
    return base64.b64encode(vector[:SEMANTIC_KEY_BYTES]).decode()
