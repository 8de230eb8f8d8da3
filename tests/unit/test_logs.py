from __future__ import annotations

import logging
from asyncio import CancelledError

import pytest

from cachemind_services.cli.logs import REPEAT_AFTER_S, Repeats, not_cancelled


def said(message: str, *facts: object, name: str = "kafka") -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, "", 0, message, facts, None)


def test_the_same_message_is_said_once_and_then_counted() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)
    assert repeats.filter(said("connect to %s:%d failed", "127.0.0.1", 9092))
    for port in (9093, 9094):
        assert not repeats.filter(said("connect to %s:%d failed", "127.0.0.1", port))
    now = REPEAT_AFTER_S
    again = said("connect to %s:%d failed", "127.0.0.1", 9095)
    assert repeats.filter(again)
    assert again.getMessage() == "connect to 127.0.0.1:9095 failed (and 2 like it)"


def test_another_message_or_another_speaker_is_not_held_back() -> None:
    repeats = Repeats(lambda: 0.0)
    assert repeats.filter(said("away"))
    assert repeats.filter(said("back"))
    assert repeats.filter(said("away", name="store"))
    assert not repeats.filter(said("away"))


@pytest.mark.parametrize(
    ("error", "shown"), [(CancelledError(), False), (ValueError(), True), (None, True)]
)
def test_a_request_that_the_drain_cut_is_no_error(
    error: BaseException | None, *, shown: bool
) -> None:
    record = said("Exception in ASGI application")
    record.exc_info = None if error is None else (type(error), error, None)
    assert not_cancelled(record) is shown
