"""The Faust agent on the WAL: hands each event over, unread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast

import faust
from faust.types import EventT, HeadersArg, StreamT

from cachemind.agents.app import build_app, raw_topic
from cachemind.ports import Headers, LogRecord
from cachemind.types import Lsn, Offset, Partition


class Accept(Protocol):
    """Takes a record, and what to call once it is dealt with."""

    def __call__(
        self, record: LogRecord, ack: Callable[[], object], /
    ) -> Awaitable[None]:
        """Return once there is room for the next one."""
        ...


def wal_app(
    settings: Mapping[str, str],
    group: str,
    topic: str,
    accept: Accept,
    instance: str | None = None,
) -> faust.App:
    """Return an app whose one agent gives every event of `topic` to `accept`.

    Raises: `InvalidSetting`.
    """
    app = build_app(settings, group, instance=instance)

    async def materialize(stream: StreamT[bytes]) -> None:
        unacked = cast(faust.Stream[bytes], stream).noack()
        async for event in unacked.events():
            await accept(record_of(event), event.ack)

    app.agent(raw_topic(app, topic))(materialize)
    return app


def record_of(event: EventT[bytes]) -> LogRecord:
    """Return the record that `event` was delivered with, as the log has it."""
    message = event.message
    return LogRecord(
        lsn=Lsn(Partition(message.partition), Offset(message.offset)),
        key=message.key,
        value=message.value,
        headers=_headers(message.headers),
        timestamp_ms=round(message.timestamp * 1000),
    )


def _headers(found: HeadersArg | None) -> Headers:
    pairs = found.items() if isinstance(found, Mapping) else found or ()
    # Kafka allows a header without a value.
    return tuple((name, value or b"") for name, value in pairs)
