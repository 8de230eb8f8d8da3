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
from cachemind.core.identifiers import RANDOM_BYTES, uuid7
from cachemind.core.operation import hash_of
from cachemind.events import Body, Envelope
from cachemind.types import (
    FIRST_TIMELINE,
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
        self._writer_id = WriterId(f"operator-{secrets.token_hex(4)}")
        self._principal = who_asks()
        self._trace = TraceId(secrets.token_bytes(ID_BYTES))
        self._seq = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close(APPEND_S)

    def append(self, body: Body) -> Lsn:
        """Return where the event is. Raises: `LogUnavailable`, `LogRejected`."""
        now_ns = SystemClock().now_ns()
        self._seq += 1
        envelope = Envelope(
            event_id=uuid7(now_ns, secrets.token_bytes(RANDOM_BYTES)),
            namespace=self._namespace,
            trace_id=self._trace,
            principal=self._principal,
            occurred_at_ns=now_ns,
            writer=self._writer_id,
            writer_seq=self._seq,
            timeline=FIRST_TIMELINE,
            op_hash=hash_of(body, now_ns),
            body=body,
        )
        record = self._codec.encode(envelope)
        key = self._namespace.encode()
        return self._writer.append(key, record, ()).result(APPEND_S)
