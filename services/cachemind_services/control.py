"""Asking the running materializer for something, over a Unix socket.

One JSON object a line each way: `{"command": "status"}` gives `{"ok": true, ...}`, or
`{"ok": false, "error": "..."}`. The socket is `control.sock` in the data folder and
belongs to its owner alone. One connection may ask many times; each answer comes before
the next question is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from cachemind.errors import CacheError, ControlUnavailable

SOCKET: Final = "control.sock"
LINE_BYTES: Final = 64 * 1024
OWNER_ONLY: Final = 0o600
CONNECT_S: Final = 5.0
_PATH_BYTES: Final = 100
"""Linux takes 108 bytes, other systems fewer."""

Fields = Mapping[str, Any]
Handler = Callable[[Fields], Awaitable[Fields]]


class ControlServer:
    """Answers on the socket until closed."""

    def __init__(self, data_dir: Path, handlers: Mapping[str, Handler]) -> None:
        self._path = data_dir / SOCKET
        self._handlers = handlers
        self._server: asyncio.AbstractServer | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Listen; a socket left by a dead process is replaced.

        Call it as the owner of the stores: nobody else may then serve here.
        Raises: `ControlUnavailable`.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)
            with _short(self._path) as address:
                _bind_private(listener, address)
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listener, limit=LINE_BYTES
            )
        except OSError as error:
            listener.close()
            raise ControlUnavailable(str(self._path), str(error)) from error

    async def close(self) -> None:
        """Stop listening and hang up; a command under way is not undone."""
        if self._server is None:
            return
        self._server.close()
        for writer in tuple(self._open):
            writer.close()
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._open.add(writer)
        try:
            while (line := await _line(reader)) != b"":
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            return  # whoever asked is gone, and nobody else is told
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, line: bytes | None) -> Fields:
        if line is None:
            return _refused(f"a line has at most {LINE_BYTES} bytes")
        try:
            asked = json.loads(line)
        except ValueError:
            return _refused("a line must be JSON")
        if not isinstance(asked, dict):
            return _refused("a line must be a JSON object")
        handler = self._handlers.get(str(asked.get("command")))
        if handler is None:
            known = ", ".join(sorted(self._handlers))
            return _refused(f"no such command; there are {known}")
        try:
            return {"ok": True, **await handler(asked)}
        except CacheError as error:
            return _refused(str(error))


def ask(data_dir: Path, command: str, timeout_s: float, **fields: object) -> Fields:
    """Return the materializer's answer.

    Raises: `ControlUnavailable` where none runs on `data_dir`, or it does not answer
    in time; `CacheError` with its own words where it refuses.
    """
    path = data_dir / SOCKET
    line = json.dumps({"command": command, **fields}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            with _short(path) as address:
                connection.connect(address)
            connection.settimeout(timeout_s)
            connection.sendall(line)
            with connection.makefile("rb") as answers:
                answer = json.loads(answers.readline())
    except FileNotFoundError as error:
        problem = "no materializer runs on this data folder"
        raise ControlUnavailable(str(path), problem) from error
    except (OSError, ValueError) as error:
        raise ControlUnavailable(str(path), f"no answer: {error}") from error
    if not answer.pop("ok"):
        raise CacheError(str(answer["error"]))
    return dict(answer)


def _bind_private(listener: socket.socket, address: str) -> None:
    """Bind with no moment at which anybody else may connect."""
    before = os.umask(0o777 & ~OWNER_ONLY)
    try:
        listener.bind(address)
    finally:
        os.umask(before)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a name for `path` that a socket's address has room for."""
    if len(os.fsencode(path)) <= _PATH_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next line, empty at the end, None for one that is too long."""
    too_long = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError as error:
            await reader.readexactly(error.consumed)
            too_long = True
        else:
            return None if too_long else line


def _refused(problem: str) -> Fields:
    return {"ok": False, "error": problem}
