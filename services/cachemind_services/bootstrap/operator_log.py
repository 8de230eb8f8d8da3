"""Events that an operator's command writes to a namespace, with who asked on them."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from contextlib import suppress
from typing import Final, Self

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.core.writing import Writing
from cachemind.events import Body
from cachemind.types import (
    ID_BYTES,
    Lsn,
    Namespace,
    Principal,
    TraceId,
    WriterId,
)
from cachemind_services.bootstrap.log import codec_of, kafka_of, topics_of
from cachemind_services.settings import Settings

APPEND_S: Final = 30.0


def who_asks() -> Principal:
    """Return the user and host that this process runs for."""
    user = str(os.getuid())
    with suppress(OSError, KeyError):
        user = getpass.getuser()
    return Principal(f"operator/{user}@{socket.gethostname() or 'localhost'}")


class OperatorLog:
    """Appends the events of one command to one namespace, each durable on return.

    For kinds of events that no timeline fences. A context manager.
    """

    def __init__(self, settings: Settings, namespace: Namespace) -> None:
        self._namespace = namespace
        self._codec = codec_of(settings)
        self._writer = KafkaWriter(kafka_of(settings), topics_of(settings).wal.name)
        self._writing = Writing(
            WriterId(f"operator-{secrets.token_hex(4)}"),
            who_asks(),
            secrets.token_bytes,
        )
        self._trace = TraceId(secrets.token_bytes(ID_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close(APPEND_S)

    def append(self, body: Body) -> Lsn:
        """Return where the event is. Raises: `LogUnavailable`, `LogRejected`."""
        now_ns = SystemClock().now_ns()
        event = self._writing.event(self._namespace, body, self._trace, now_ns)
        record = self._codec.encode(event)
        key = self._namespace.encode()
        return self._writer.append(key, record, ()).result(APPEND_S)
