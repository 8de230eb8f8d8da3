"""The signer's process on real Kafka: each record has its receipt, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemind.receipts import Cut
from cachemind_services.broker import EmbeddedBroker
from tests.integration.signing_host import SignedLog, signed_log

pytestmark = pytest.mark.broker


@pytest.fixture
def log(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[SignedLog]:
    with signed_log(broker, topic_prefix, tmp_path) as log:
        log.add_first_keys()
        yield log


def test_a_backlog_and_the_live_tail_are_signed_once_and_cut(log: SignedLog) -> None:
    log.append_some(3000)
    signer = log.start()
    log.wait_signed()
    for _ in range(5):
        log.append_some(20)
    log.wait_signed()
    assert signer.stop() == 0
    summary = log.require_sound()
    assert sum(summary.receipts.values()) == 3000 + 100 + 2
    assert isinstance(log.leaves()[-1], Cut)
