"""The Faust app of the sink: an agent on each of the two audit topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import faust
from faust.types import StreamT

from cachemind.agents.app import build_app, raw_topic
from cachemind.agents.wal_agent import record_of
from cachemind.ports import LogRecord

Offer = Callable[[LogRecord], None]
"""Takes a delivery, and never waits."""


def sink_app(
    settings: Mapping[str, str], group: str, offers: Mapping[str, Offer]
) -> faust.App:
    """Return an app that gives every event of each topic to its `Offer`.

    Raises: `InvalidSetting`.
    """
    app = build_app(settings, group)
    for topic, offer in offers.items():
        app.agent(raw_topic(app, topic), name=f"seal-{topic}")(_agent(offer))
    return app


def _agent(offer: Offer) -> Callable[[StreamT[bytes]], Awaitable[None]]:
    async def seal(stream: StreamT[bytes]) -> None:
        unacked = cast(faust.Stream[bytes], stream).noack()
        async for event in unacked.events():
            # Not when it is sealed: what the group is told is a hint.
            event.ack()
            offer(record_of(event))

    return seal
