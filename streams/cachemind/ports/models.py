"""The encoder and the model server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from cachemind.types import EncoderId


class Embedder(Protocol):
    """Turns text into a vector. One thread at a time."""

    @property
    def encoder_id(self) -> EncoderId:
        """Return a name that changes whenever the vectors do."""
        ...

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        ...

    def embed(self, text: str) -> bytes | None:
        """Return the normalised float16 little-endian vector of `text`.

        None where a vector could not tell the text from another one: past the
        encoder's window (256 word pieces), no word piece at all, or words outside
        of its vocabulary.
        Raises: `EmbeddingUnavailable`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """A request exactly as it should reach the model server.

    `target` is path and query as received. Header names are lower-case. A body that
    is an iterator is sent as it comes.
    """

    method: str
    target: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes | AsyncIterator[bytes]


class UpstreamResponse(Protocol):
    """An answer whose body is still on its way."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers as received, hop-by-hop ones removed."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's bytes untouched. Raises: `UpstreamUnavailable` when cut."""
        ...


class Upstream(Protocol):
    """The model server."""

    def send(
        self, request: UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Return a context manager that yields once the answer's head is in.

        Leaving it early closes the connection. Raises: `UpstreamUnavailable`;
        `InvalidRequest` where a header cannot be sent.
        """
        ...

    async def close(self) -> None:
        """Close idle connections."""
        ...
