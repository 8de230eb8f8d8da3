from __future__ import annotations

import logging
from asyncio import CancelledError

import pytest

from cachemind_services.cli.logs import (
    MOST_ALIKE,
    REPEAT_AFTER_S,
    Repeats,
    not_cancelled,
)


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


def test_what_we_say_of_each_partition_is_said_of_each() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)
    broken = ("partition %d, seq %d: fork", 0, 7), ("partition %d, seq %d: fork", 1, 9)
    for facts in broken:
        assert repeats.filter(said(*facts, name="cachemind.agents.held_partition"))
        assert not repeats.filter(said(*facts, name="cachemind.agents.held_partition"))
    for facts in broken:
        assert repeats.filter(said(*facts, name="cachemind.kafka")) is (
            facts is broken[0]
        )
    now = REPEAT_AFTER_S
    again = said(*broken[0], name="cachemind.agents.held_partition")
    assert repeats.filter(again)
    assert again.getMessage() == "partition 0, seq 7: fork (and 1 like it)"


def test_a_flood_of_ours_is_cut_off_and_counted() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)
    shown = [
        repeats.filter(said("record %d is late", number, name="cachemind.gateway"))
        for number in range(3 * MOST_ALIKE)
    ]
    assert sum(shown) == MOST_ALIKE
    now = REPEAT_AFTER_S
    last = said("record %d is late", 0, name="cachemind.gateway")
    assert repeats.filter(last)
    assert last.getMessage() == f"record 0 is late (and {2 * MOST_ALIKE} like it)"


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
