"""The embedded broker's life on real Kafka."""

from __future__ import annotations

import pytest

from cachemind_services.broker import EmbeddedBroker
from tests.conftest import StartBroker

pytestmark = pytest.mark.broker


def test_three_brokers_run_at_once(
    broker: EmbeddedBroker, start_broker: StartBroker
) -> None:
    brokers = [broker, start_broker(), start_broker()]
    assert all(each.status().ready for each in brokers)
    assert len({each.bootstrap_servers for each in brokers}) == 3
    assert len({each.cluster_id for each in brokers}) == 3
