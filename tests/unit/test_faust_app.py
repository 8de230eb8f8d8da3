"""The Faust app as ours: what it leaves on disk and in the log of a process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from faust.types import TP

from cachemind.agents.app import _SilentThread, _Thread, build_app

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


async def started_without_broker() -> None:
    app = build_app(SERVERS, "a-group")
    app.finalize()
    await app.on_first_start()


def test_no_folders_are_made_where_a_process_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(started_without_broker())
    assert list(tmp_path.iterdir()) == []


def test_a_group_offset_that_is_late_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    # Not by its constructor, which makes an event loop that only a run closes.
    thread = _Thread.__new__(_Thread)
    thread._log_slow_processing_commit("\nnot committed %r", TP("t", 2))
    assert caplog.records == []


def test_a_partition_that_is_held_back_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # One that the collector sweeps takes no record ever: Faust would log an error
    # every few seconds from the sixth minute on.
    thread = _SilentThread.__new__(_SilentThread)
    thread.verify_event_path(1e9, TP("t", 2))
    assert caplog.records == []
