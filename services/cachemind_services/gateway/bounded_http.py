"""Uvicorn's HTTP protocol with bounds on a request's head, which it has none of."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

HEAD_BYTES: Final = 131_072
"""Of request line and header; looked at after each read of the socket."""

HEAD_S: Final = 30.0
"""From the connection, or from the head's first byte, to the head's end."""

LINGER_S: Final = 2.0
"""How long what comes after a head that was too long is read and dropped."""

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose head is too long or takes too long.

    A whole head that came in one read costs no timer.
    """

    head_s = HEAD_S
    _head_bytes = 0
    _in_head = False
    _given_up = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # as in uvicorn
        self, transport: asyncio.Transport
    ) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and look at how much head there is so far."""
        if self._given_up:
            return
        self._head_bytes = len(data) + (self._head_bytes if self._in_head else 0)
        super().data_received(data)
        if not self._in_head:
            return
        if self._head_bytes > HEAD_BYTES:
            self._give_up()
        elif self._timer is None:
            self._wait_for_head()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._timer = self.loop.call_later(self.head_s, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._stop_waiting()
        self._given_up = True
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            # Ours would end up inside the answer that is on its way.
            self.transport.close()
            return
        self.transport.write(_TOO_LARGE)
        # Closed over unread bytes, the connection would be reset, and the client
        # would not see the answer.
        self._timer = self.loop.call_later(LINGER_S, self.transport.close)
