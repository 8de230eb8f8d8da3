"""Records that can never be folded go to the dead-letter topic, whole."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final

from cachemind.core.dead_letter import Letter, Source, letter_headers
from cachemind.core.topics import MAX_RECORD_BYTES
from cachemind.errors import LogUnavailable
from cachemind.ports import LogRecord, LogWriter
from cachemind.ports.commands import DeadLetter
from cachemind.types import Lsn

ACK_TIMEOUT_S: Final = 30.0


class Reason(StrEnum):
    """Why a record cannot be folded or answered, in one word: a safe metric label."""

    UNDECODABLE = "undecodable"
    INVALID_EVENT = "invalid_event"
    MISPLACED = "misplaced"
    """On a partition or a topic of another namespace."""

    INVALID_REQUEST = "invalid_request"
    UNKNOWN_SCHEMA = "unknown_schema"
    NO_REPLY = "no_reply"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A record, and why no build will ever fold it. `detail` holds no payload."""

    record: LogRecord
    reason: Reason
    detail: str


class DeadLetters:
    """Writes rejected records of one topic to the dead-letter topic.

    The Kafka key is the source topic; value and headers are the source's, bit for
    bit, with our own headers after them. What headers cannot say by themselves has
    one: the source's key where it has any, and that its value was null.
    """

    def __init__(
        self, writer: LogWriter, topic: str, ack_timeout_s: float = ACK_TIMEOUT_S
    ) -> None:
        self._writer = writer
        self._topic = topic
        self._ack_timeout_s = ack_timeout_s

    def write(self, rejected: Sequence[Rejected]) -> None:
        """Return once every one of `rejected` is durable.

        Raises: `LogUnavailable` (some may be there already; write all again) or
        `LogRejected`.
        """
        waiting = [self._append(one) for one in rejected]
        for future in waiting:
            self._await(future)

    def _append(self, rejected: Rejected) -> Future[Lsn]:
        return self._writer.append(*dead_letter(self._topic, rejected))

    def _await(self, future: Future[Lsn]) -> None:
        try:
            future.result(self._ack_timeout_s)
        except FutureTimeoutError as error:
            raise LogUnavailable(
                f"no dead-letter acknowledgement in {self._ack_timeout_s} s"
            ) from error


def dead_letter(topic: str, rejected: Rejected) -> DeadLetter:
    """Return key, value and headers of the dead letter of a record of `topic`.

    A record that was sent compressed may be larger than any topic takes: of such a
    one the letter has the hash alone.
    """
    record, detail = rejected.record, rejected.detail
    if (size := record.size_bytes) > MAX_RECORD_BYTES:
        hashed = sha256(record.value or b"").hexdigest()
        detail += (
            f"; not kept here: it takes {size} bytes, SHA-256 of its value {hashed}"
        )
        record = replace(record, key=None, value=b"", headers=())
    letter = Letter(
        source=Source(topic=topic, lsn=record.lsn),
        reason=rejected.reason.value,
        detail=detail,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
    return topic.encode(), letter.value or b"", letter_headers(letter)
