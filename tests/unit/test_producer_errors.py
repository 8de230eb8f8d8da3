"""What a producer that has failed for good is found to have failed of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from cachemind.adapters.kafka_transaction import served
from cachemind.errors import LogTakenOver, LogUnavailable

FENCED = KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))


def raising(
    error: BaseException, behind: BaseException | None = None
) -> Callable[[], None]:
    def step() -> None:
        raise error from behind

    return step


def nothing() -> None:
    """Say nothing."""


@pytest.mark.parametrize(
    ("step", "ask"),
    [
        (raising(FENCED), nothing),
        (raising(SystemError("NULL"), FENCED), nothing),
        (raising(SystemError("NULL")), raising(FENCED)),
    ],
    ids=["said", "behind it", "asked for"],
)
def test_that_it_was_shut_out_is_known_however_it_is_said(
    step: Callable[[], None], ask: Callable[[], None]
) -> None:
    with pytest.raises(LogTakenOver):
        served("append", step, ask)


@pytest.mark.parametrize("ask", [None, nothing])
def test_what_nobody_says_is_a_log_that_is_away(ask: Callable[[], None] | None) -> None:
    with pytest.raises(LogUnavailable, match="for good"):
        served("append", raising(SystemError("NULL")), ask)
