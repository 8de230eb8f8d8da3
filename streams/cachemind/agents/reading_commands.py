"""From a record of `requests` to what it asks for, or to why nobody can answer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cachemind.agents.dead_letters import Reason, Rejected
from cachemind.codec.command_framing import Framing, SingleObjectFraming
from cachemind.core.access import is_reserved
from cachemind.core.commands import Address, Command, address_of
from cachemind.core.grant_topics import Grant
from cachemind.errors import (
    CacheError,
    InvalidEvent,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.ports import LogRecord

PLAIN: Final[Framing] = SingleObjectFraming()


class Unanswerable(CacheError):
    """A command that cannot be read, or whose answer cannot go anywhere."""

    def __init__(self, record: LogRecord, reason: Reason, detail: str) -> None:
        super().__init__(f"it goes to the dead letters, {reason}: {detail}")
        self.rejected = rejected(record, reason, detail)


def rejected(record: LogRecord, reason: Reason, detail: str) -> Rejected:
    """Return a record with why it is not answered."""
    return Rejected(record=record, reason=reason, detail=detail)


def read_command(
    record: LogRecord, framing: Framing = PLAIN, grant: Grant | None = None
) -> tuple[Address, Command]:
    """Return what a record asks for, and where the answer goes.

    With a `grant` it is a record of that one's topic.
    Raises: `Unanswerable`; `LogUnavailable`, `LogRejected` of a schema registry.
    """
    try:
        address = address_of(record.headers)
        if record.value is None:
            raise UndecodableRecord("it has no value")
        command = framing.decode(record.value)
        _check_place(record, command, grant)
        if record.key != command.namespace.encode():
            raise InvalidEvent("key", "is not the namespace of the command")
        if is_reserved(command.namespace):
            # Its events are keys and policies: whoever may send commands may not
            # write it, nor roll a revocation back.
            raise InvalidEvent("namespace", "is the installation's own")
    except InvalidEvent as error:
        raise Unanswerable(record, Reason.INVALID_REQUEST, str(error)) from error
    except UndecodableRecord as error:
        raise Unanswerable(record, Reason.UNDECODABLE, error.reason) from error
    except UnknownSchema as error:
        raise Unanswerable(record, Reason.UNKNOWN_SCHEMA, str(error)) from error
    return address, command


def _check_place(record: LogRecord, command: Command, grant: Grant | None) -> None:
    """Check that a command is of the namespace of its topic. Raises: `Unanswerable`."""
    if grant is None:
        return
    own = grant.namespace
    for what, found in (
        ("key", record.key),
        ("namespace", command.namespace.encode()),
    ):
        if found != own.encode():
            detail = f"the topic is for the namespace {own}, its {what} is another"
            raise Unanswerable(record, Reason.MISPLACED, detail)


def require_answerable(
    record: LogRecord, address: Address, refuses: Callable[[str], str | None]
) -> None:
    """Check that the answer may go where it should.

    Raises: `Unanswerable`; what `refuses` raises.
    """
    refusal = refuses(address.reply_to)
    if refusal is not None:
        raise Unanswerable(record, Reason.NO_REPLY, refusal)
