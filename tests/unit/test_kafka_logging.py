from __future__ import annotations

import logging

import pytest

import cachemind.adapters.kafka_config  # noqa: F401  # it sets the logger up
from cachemind.adapters.kafka_logging import QUIET_S, FewRepeats


def line(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("kafka", logging.ERROR, __file__, 1, text, args, None)


def test_a_line_is_repeated_once_a_while_with_the_number_held_back() -> None:
    now = 0.0
    few = FewRepeats(lambda: now)
    assert few.filter(line("FAIL [consumer-%d]: refused (after %dms)", 4, 0))
    for client in range(5, 55):
        assert not few.filter(line("FAIL [consumer-%d]: refused (after 3ms)", client))
    assert few.filter(line("FAIL [consumer-4]: certificate"))
    now = QUIET_S
    again = line("FAIL [consumer-%d]: refused (after %dms)", 9, 2)
    assert few.filter(again)
    assert again.getMessage() == (
        "FAIL [consumer-9]: refused (after 2ms) (and 50 more like it)"
    )
    assert not few.filter(line("FAIL [consumer-4]: refused (after 1ms)"))


def test_kafka_clients_log_with_few_repeats(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("cachemind.kafka")
    with caplog.at_level(logging.ERROR, "cachemind.kafka"):
        for _ in range(100):
            logger.error("100 %% refused, a line of this test only")
    assert len(caplog.records) == 1
