"""The model server over HTTP, bytes untouched both ways."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from yarl import URL

from cachemind.core.http_fields import end_to_end
from cachemind.errors import InvalidRequest, UpstreamUnavailable
from cachemind.ports import UpstreamRequest, UpstreamResponse

KEEP_ALIVE_S: Final = 4.0
"""Below the 5 s after which uvicorn and Node close an idle connection: a POST that
races with the close cannot be repeated."""

_MAX_FIELD_BYTES: Final = 65_536
_PIECE_BYTES: Final = 262_144
_BAD_GATEWAY: Final = 502
_GATEWAY_TIMEOUT: Final = 504
_FINAL_STATUS: Final = range(200, 600)
_FORBIDDEN: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What RFC 9110 section 5.5 allows in no field value."""

_OURS_TO_SET: Final = frozenset({b"host", b"expect"})
_NEVER_ADDED: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTimeouts:
    """How long to wait, in seconds.

    `connect_s` for a pooled or new connection, `first_byte_s` for the answer's head,
    `idle_s` between two pieces of the body, `total_s` for all of it.
    """

    connect_s: float = 5.0
    first_byte_s: float = 300.0
    idle_s: float = 120.0
    total_s: float = 900.0


class HttpUpstream:
    """An `Upstream` over a pool of connections of the event loop that uses it first.

    `base_url` is scheme and authority, with a path prefix where the server has one.
    Proxies from the environment are not used, redirects are not followed, cookies
    are not kept.
    """

    def __init__(
        self, base_url: str, timeouts: UpstreamTimeouts, *, connections: int = 256
    ) -> None:
        self._base = base_url.rstrip("/")
        self._timeouts = timeouts
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def send(self, request: UpstreamRequest) -> AsyncIterator[UpstreamResponse]:
        """Yield the answer once its head is in. Leaving early closes the connection.

        Raises: `UpstreamUnavailable`; `InvalidRequest` where a header cannot be sent.
        """
        deadline = asyncio.get_running_loop().time() + self._timeouts.total_s
        response = await self._open(request)
        try:
            _check_head(response)
            yield HttpResponse(response, self._timeouts.idle_s, deadline)
        finally:
            response.close()

    async def close(self) -> None:
        """Close idle connections."""
        if self._session is not None:
            await self._session.close()

    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections, keepalive_timeout=KEEP_ALIVE_S
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    connect=self._timeouts.connect_s,
                    sock_connect=self._timeouts.connect_s,
                ),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=_NEVER_ADDED,
                max_line_size=_MAX_FIELD_BYTES,
                max_field_size=_MAX_FIELD_BYTES,
            )
        return self._session

    async def _open(self, request: UpstreamRequest) -> aiohttp.ClientResponse:
        streamed = not isinstance(request.body, bytes)
        wait_s = self._timeouts.total_s if streamed else self._timeouts.first_byte_s
        try:
            async with asyncio.timeout(wait_s):
                return await self._pool().request(
                    request.method,
                    URL(self._base + request.target, encoded=True),
                    headers=_text_fields(request),
                    data=_payload(request.body),
                    allow_redirects=False,
                )
        except aiohttp.ServerTimeoutError as error:
            raise UpstreamUnavailable(
                "no connection in time", status=_GATEWAY_TIMEOUT
            ) from error
        except TimeoutError as error:
            raise UpstreamUnavailable(
                "no answer in time", status=_GATEWAY_TIMEOUT
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamUnavailable(_problem(error), status=_BAD_GATEWAY) from error


class HttpResponse:
    """An `UpstreamResponse` whose body is still on its way."""

    def __init__(
        self, response: aiohttp.ClientResponse, idle_s: float, deadline: float
    ) -> None:
        self._response = response
        self._idle_s = idle_s
        self._deadline = deadline
        self.status = response.status
        self.headers: Sequence[tuple[bytes, bytes]] = end_to_end(response.raw_headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's bytes untouched.

        Raises: `UpstreamUnavailable` when it breaks off or takes too long.
        """
        now = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout_at(
                    min(now() + self._idle_s, self._deadline)
                ):
                    chunk = await self._response.content.readany()
            except TimeoutError as error:
                raise UpstreamUnavailable(
                    "the answer stalled", status=_GATEWAY_TIMEOUT
                ) from error
            except (aiohttp.ClientError, OSError) as error:
                raise UpstreamUnavailable("the answer was cut short") from error
            if not chunk:
                return
            yield chunk


def _check_head(response: aiohttp.ClientResponse) -> None:
    """Raise `UpstreamUnavailable` where no server could pass the head on.

    aiohttp's parser lets control characters and any status through; 101 answers an
    upgrade that we never ask for.
    """
    if response.status not in _FINAL_STATUS:
        raise UpstreamUnavailable("answered with an unknown status")
    for _, value in response.raw_headers:
        if _FORBIDDEN.search(value):
            raise UpstreamUnavailable("sent a header with control characters")


def _text_fields(request: UpstreamRequest) -> list[tuple[str, str]]:
    """Return the header as aiohttp takes it: it writes text as UTF-8.

    The length of a body in memory is left to aiohttp, that of a stream is the
    client's word.
    """
    whole = isinstance(request.body, bytes)
    fields = [
        (_text(name, name), _text(name, value))
        for name, value in end_to_end(request.headers)
        if name not in _OURS_TO_SET and not (whole and name == b"content-length")
    ]
    if isinstance(request.body, bytes) and len(request.body) > _PIECE_BYTES:
        fields.append(("content-length", str(len(request.body))))
    return fields


def _text(name: bytes, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"header {name.decode('ascii', 'replace')}", "must be ASCII or UTF-8"
        ) from error


def _payload(
    body: bytes | AsyncIterator[bytes],
) -> bytes | AsyncIterator[bytes] | None:
    if not isinstance(body, bytes):
        return body
    # In pieces, so that a long body does not hold the event loop.
    return _pieces(body) if len(body) > _PIECE_BYTES else body or None


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]


def _problem(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not trusted"
        case aiohttp.ClientConnectorError():
            return "cannot be reached"
        case aiohttp.ServerDisconnectedError():
            return "closed the connection without an answer"
        case _:
            return "did not answer in HTTP"
