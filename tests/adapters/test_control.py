"""The control socket, on real Unix sockets in a temporary folder."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cachemind.errors import CacheError, ControlUnavailable, SnapshotRefused
from cachemind_services.control import LINE_BYTES, SOCKET, ControlServer, Fields, ask


async def echo(fields: Fields) -> Fields:
    return {"said": fields.get("word")}


async def refuse(fields: Fields) -> Fields:
    del fields
    raise SnapshotRefused("v1", "is damaged")


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    server = ControlServer(tmp_path, {"echo": echo, "refuse": refuse})
    await server.start()
    yield tmp_path
    await server.close()


def talk(folder: Path, sent: bytes) -> list[Fields]:
    """Send bytes as they are; return every answer until the server hangs up."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(folder / SOCKET))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answers:
            return [json.loads(line) for line in answers]


async def test_a_command_is_answered(folder: Path) -> None:
    answer = await asyncio.to_thread(ask, folder, "echo", 10.0, word="hello")
    assert answer == {"said": "hello"}


async def test_only_the_owner_may_connect(folder: Path) -> None:
    assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600


async def test_one_connection_asks_many_times(folder: Path) -> None:
    lines = b'{"command":"echo","word":1}\n{"command":"echo","word":2}\n'
    answers = await asyncio.to_thread(talk, folder, lines)
    assert [answer["said"] for answer in answers] == [1, 2]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param(b'{"command":"rm"}', "there are echo, refuse", id="unknown"),
        pytest.param(b"{}", "no such command", id="no-command"),
        pytest.param(b"[1]", "must be a JSON object", id="not-an-object"),
        pytest.param(b"\xff\xfe", "must be JSON", id="not-json"),
        pytest.param(b"x" * (2 * LINE_BYTES), "at most 65536 bytes", id="too-long"),
    ],
)
async def test_a_bad_line_is_refused_and_the_next_is_heard(
    folder: Path, line: bytes, problem: str
) -> None:
    good = b'{"command":"echo","word":"still here"}\n'
    bad, after = await asyncio.to_thread(talk, folder, line + b"\n" + good)
    assert not bad["ok"]
    assert problem in bad["error"]
    assert after["said"] == "still here"


async def test_our_own_refusals_come_back_in_words(folder: Path) -> None:
    with pytest.raises(CacheError, match="snapshot v1: is damaged"):
        await asyncio.to_thread(ask, folder, "refuse", 10.0)


async def test_where_nobody_listens_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ControlUnavailable, match="no materializer runs"):
        ask(tmp_path, "echo", 1.0)


async def test_a_socket_left_by_a_dead_process_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    with pytest.raises(ControlUnavailable, match="no answer"):
        ask(tmp_path, "echo", 1.0)
    server = ControlServer(tmp_path, {"echo": echo})
    await server.start()
    answer = await asyncio.to_thread(ask, tmp_path, "echo", 10.0, word="new")
    assert answer == {"said": "new"}
    await server.close()
    assert not (tmp_path / SOCKET).exists()


async def test_a_folder_with_a_long_name_has_a_socket_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    server = ControlServer(deep, {"echo": echo})
    await server.start()
    answer = await asyncio.to_thread(ask, deep, "echo", 10.0, word="far")
    assert answer == {"said": "far"}
    await server.close()
