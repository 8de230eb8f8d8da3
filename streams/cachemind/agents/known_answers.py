"""What the request ids of one partition were answered, for when one comes again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cachemind.core.commands import COMMAND_HASH, TRACEPARENT, Command
from cachemind.core.identifiers import parse_traceparent
from cachemind.ports import Headers, LogRecord
from cachemind.types import ID_BYTES, TraceId

KNOWN_BYTES: Final = 64 * 2**20
_BEFORE_TOPIC: Final = b"\0"
OVERHEAD_BYTES: Final = 400
"""Of an answer's objects, whatever it says."""


@dataclass(frozen=True, slots=True)
class Known:
    """An answer. `command` is the SHA-256 of the record that it was given to."""

    command: bytes
    reply: bytes
    trace: TraceId

    @property
    def cost_bytes(self) -> int:
        """Return what it takes in memory."""
        return len(self.reply) + OVERHEAD_BYTES


class KnownAnswers:
    """The newest answers, in at most `limit_bytes`; the oldest go first."""

    def __init__(self, limit_bytes: int = KNOWN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._answers: OrderedDict[bytes, Known] = OrderedDict()

    def get(self, key: bytes) -> Known | None:
        """Return what `key` was answered."""
        return self._answers.get(key)

    def put(self, key: bytes, known: Known) -> None:
        """Remember an answer."""
        older = self._answers.pop(key, None)
        if older is not None:
            self._held_bytes -= older.cost_bytes
        self._answers[key] = known
        self._held_bytes += known.cost_bytes
        while self._held_bytes > self._limit_bytes:
            _, gone = self._answers.popitem(last=False)
            self._held_bytes -= gone.cost_bytes

    def read_back(self, records: Iterable[LogRecord], kept_as: str = "") -> None:
        """Remember what the topic of answers holds of those that are `kept_as` that."""
        for record in records:
            if record.key is None or not _is_of(record.key, kept_as):
                continue
            found = dict(record.headers)
            trace = parse_traceparent(found.get(TRACEPARENT, b"").decode("latin-1"))
            command = found.get(COMMAND_HASH)
            # What somebody else has written there is no answer of ours.
            if record.value and trace is not None and command:
                self.put(record.key, Known(command, record.value, trace))


def key_of(command: Command, kept_as: str = "") -> bytes:
    """Return what an answer is kept under.

    The namespace is part of it, and the topic where it has callers of its own: else
    who guesses an id of others would be told what those were answered.
    """
    key = command.request_id + command.namespace.encode()
    return key + _BEFORE_TOPIC + kept_as.encode() if kept_as else key


def _is_of(key: bytes, kept_as: str) -> bool:
    # Neither a namespace nor a topic has a zero byte; an id may.
    topic = key[ID_BYTES:].partition(_BEFORE_TOPIC)[2]
    return topic == kept_as.encode()


def hash_of_command(value: bytes) -> bytes:
    """Return what tells two commands under one id apart."""
    return sha256(value).digest()


def answer_headers(known: Known, traceparent: bytes) -> Headers:
    """Return the headers of an answer on the topic of answers."""
    return ((COMMAND_HASH, known.command), (TRACEPARENT, traceparent))
