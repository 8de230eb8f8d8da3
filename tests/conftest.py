"""Fixtures that start real Kafka, the same code as `cachemind broker`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cachemind_services.broker import EmbeddedBroker

StartBroker = Callable[[], EmbeddedBroker]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The session's broker; `bootstrap_servers` says where. Do not stop it.

    Tests share it, so each names its topics and groups with `topic_prefix`.
    """
    folder = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as running:
        yield running


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts a broker of the test's own, as often as it is called."""
    with ExitStack() as running:

        def start() -> EmbeddedBroker:
            folder = tmp_path / f"broker-{uuid.uuid4().hex[:8]}"
            return running.enter_context(EmbeddedBroker(folder))

        yield start


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics, groups and transactional ids that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"
