"""A codec that must not wait for its registry."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from cachemind.adapters.memory_registry import MemoryIds
from cachemind.adapters.registered_later import RegisteredLater
from cachemind.adapters.registry import RegistryIds
from cachemind.codec import Codec
from cachemind.errors import LogUnavailable
from tests.schema_registry import Registry, serving_registry
from tests.wal_events import envelope, stored

EVENT = envelope(1, stored(1))


def hangs(registry: Registry) -> None:
    registry.hanging.set()


def test_nothing_waits_for_a_registry_that_hangs_and_then_answers() -> None:
    with ExitStack() as opened:
        registry = opened.enter_context(serving_registry(prepare=hangs))
        ids = RegistryIds(registry.url, "t.wal", timeout_s=0.2)
        opened.callback(ids.close)
        later = RegisteredLater(Codec(ids), retry_s=0.01)
        began = time.monotonic()
        with pytest.raises(LogUnavailable, match="has not answered yet"):
            later.encode(EVENT)
        assert time.monotonic() - began < 0.1
        registry.hanging.clear()
        record = encoded(later)
        assert record[:5] == b"\x00\x00\x00\x00\x01"
        assert Codec(ids).decode(record) == EVENT


def test_what_is_known_already_is_not_asked_for() -> None:
    codec = Codec(MemoryIds())
    codec.prepare()
    assert RegisteredLater(codec).encode(EVENT)[:1] == b"\x00"
    assert RegisteredLater(Codec()).encode(EVENT)[:2] == b"\xc3\x01"


def encoded(later: RegisteredLater) -> bytes:
    deadline = time.monotonic() + 20
    while True:
        try:
            return later.encode(EVENT)
        except LogUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.01)
