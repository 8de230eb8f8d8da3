"""What a transaction holds besides events: answers, twice, and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cachemind.agents.dead_letters import Rejected, dead_letter
from cachemind.agents.known_answers import (
    Known,
    KnownAnswers,
    answer_headers,
    hash_of_command,
    key_of,
)
from cachemind.codec.command_framing import Framing
from cachemind.codec.commands import encode_reply
from cachemind.core.commands import (
    CORRELATION_ID,
    TRACEPARENT,
    Address,
    Command,
    Problem,
    ProblemCode,
    Reply,
)
from cachemind.core.grant_topics import RequestTopic
from cachemind.core.identifiers import SPAN_BYTES, format_traceparent
from cachemind.core.topics import MAX_RECORD_BYTES
from cachemind.ports import LogRecord
from cachemind.ports.commands import Asked, Outgoing
from cachemind.types import Partition, TraceId

MOST_REPLY_BYTES: Final = MAX_RECORD_BYTES - 16 * 1024
"""The rest of what a topic takes is for headers and the batch around the record."""

AGAIN: Final = frozenset({ProblemCode.UNAVAILABLE, ProblemCode.RATE_LIMITED})
"""Nothing was done, and the same id may be tried again: not remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxTopics:
    """Where commands come from, where answers are kept, and what cannot have one.

    `kept_at` is the partition of the topic of answers.
    """

    requests: RequestTopic
    answers: str
    kept_at: Partition
    dlq: str


@dataclass(slots=True, kw_only=True)
class Item:
    """A command that waits. `rejected` says why it can have no answer."""

    record: LogRecord
    rejected: Rejected | None = None
    address: Address | None = None
    asked: Asked | None = None
    foreseen: asyncio.Future[None] | None = None

    @property
    def rolls_back(self) -> bool:
        """Return whether it is for the fold."""
        return self.asked is not None and self.asked.rolls_back


class Outbox:
    """The records of one transaction, and of which command each is."""

    def __init__(
        self,
        topics: OutboxTopics,
        known: KnownAnswers,
        random: Callable[[int], bytes],
        framing: Framing,
    ) -> None:
        self._topics = topics
        self._known = known
        self._random = random
        self._framing = framing
        self._new: dict[bytes, Known] = {}
        self.records: list[Outgoing] = []
        self.items: list[Item] = []

    def put(self, item: Item, reply: Reply | None) -> None:
        """Add what a command leads to; without a `reply`, what is known of its id."""
        if item.rejected is not None:
            self._add(item, self._letter(item.rejected))
            return
        address, asked = item.address, item.asked
        assert address is not None  # noqa: S101 - it was read
        assert asked is not None  # noqa: S101 - it was read
        key = key_of(asked.command, self._topics.requests.kept_as)
        command = hash_of_command(item.record.value or b"")
        known = self._new.get(key) or self._known.get(key)
        if reply is not None:
            known = Known(command, _encoded(reply), reply.trace_id)
            if not _may_be_tried_again(reply):
                self._new[key] = known
                self._add(item, self._kept(key, known))
        elif known is None or known.command != command:
            # Also where the first of the same id was told to try again.
            known = Known(command, _encoded(_misused(asked, known)), asked.trace)
        self._add(item, self._reply(item, address, known))

    def committed(self) -> None:
        """Remember what was answered."""
        for key, known in self._new.items():
            self._known.put(key, known)

    def _add(self, item: Item, record: Outgoing) -> None:
        self.records.append(record)
        self.items.append(item)

    def _letter(self, what: Rejected) -> Outgoing:
        key, value, headers = dead_letter(self._topics.requests.name, what)
        return Outgoing(topic=self._topics.dlq, key=key, value=value, headers=headers)

    def _kept(self, key: bytes, known: Known) -> Outgoing:
        return Outgoing(
            topic=self._topics.answers,
            key=key,
            value=known.reply,
            headers=answer_headers(known, self._traceparent(known.trace)),
            partition=self._topics.kept_at,
        )

    def _reply(self, item: Item, address: Address, known: Known) -> Outgoing:
        return Outgoing(
            topic=address.reply_to,
            key=address.correlation_id,
            value=self._framing.answered(known.reply, item.record.value or b""),
            headers=(
                (CORRELATION_ID, address.correlation_id),
                (TRACEPARENT, self._traceparent(known.trace)),
            ),
        )

    def _traceparent(self, trace: TraceId) -> bytes:
        span = bytes(SPAN_BYTES)
        while not any(span):
            span = self._random(SPAN_BYTES)
        return format_traceparent(trace, span).encode()


def _encoded(reply: Reply) -> bytes:
    """Return the record of a reply, of its size where it is too large."""
    record = encode_reply(reply)
    if len(record) <= MOST_REPLY_BYTES:
        return record
    problem = Problem(
        code=ProblemCode.TOO_LARGE,
        field="",
        message=f"the answer takes {len(record)} bytes, at most {MOST_REPLY_BYTES} fit",
    )
    return encode_reply(replace(reply, body=problem))


def _may_be_tried_again(reply: Reply) -> bool:
    return isinstance(reply.body, Problem) and reply.body.code in AGAIN


def _misused(asked: Asked, known: Known | None) -> Reply:
    command: Command = asked.command
    code, field = ProblemCode.INVALID_REQUEST, "request_id"
    message = "was used before, for another command"
    if known is None:
        code, field = ProblemCode.UNAVAILABLE, ""
        message = "another sending of it could not be answered; try again"
    return Reply(
        request_id=command.request_id,
        namespace=command.namespace,
        trace_id=asked.trace,
        lsn=None,
        body=Problem(code=code, field=field, message=message),
    )
