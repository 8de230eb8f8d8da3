"""A change that is asked for under an `Idempotency-Key` is done once.

The event's id is made from who asks under which key and for what, and of the events of
one request the fold lets the first take effect: whichever worker wrote it, on whichever
host, before or after a crash. So an answer waits for the fold, which alone knows what
came first. Source: draft-ietf-httpapi-idempotency-key-header, section 2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from cachemind.core.requested import Request, requested_id
from cachemind.core.tagged_hash import pae
from cachemind.errors import InvalidRequest, LogUnavailable, StoreError
from cachemind.ports import StoreView
from cachemind.types import EventId, Lsn, Namespace, Principal
from cachemind_services.gateway.admitted import principal_in
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.http_io import Scope

FIELD: Final = "Idempotency-Key"
FOLD_WAIT_S: Final = 5.0
_NAME: Final = FIELD.lower().encode()
_MOST_CHARS: Final = 255
_OTHER_CONTENT: Final = 422


@dataclass(frozen=True, slots=True)
class Done:
    """Where the event of a request is; `first` is that of one with a key."""

    lsn: Lsn
    first: Request | None = None


class Once:
    """Knows which requests of a namespace are done."""

    def __init__(
        self,
        view: StoreView,
        follower: Follower,
        namespace: Namespace,
        principal: Principal,
    ) -> None:
        """`principal` is who asks where authentication is off."""
        self._view = view
        self._follower = follower
        self._namespace = namespace
        self._principal = principal

    def named(self, scope: Scope, *content: bytes) -> EventId | None:
        """Return the id of the event that a request with a key asks for; None without.

        Raises: `InvalidRequest`.
        """
        given = [value for name, value in scope["headers"] if name == _NAME]
        if not given:
            return None
        key = given[0].strip(b'"')
        if len(given) > 1 or not 0 < len(key) <= _MOST_CHARS or not _printable(key):
            problem = f"must be one text of 1 to {_MOST_CHARS} printable ASCII"
            raise InvalidRequest(FIELD, problem)
        who = principal_in(scope) or self._principal
        return requested_id(who, key, pae(*content))

    def done(self, asked: EventId) -> Request | None:
        """Return the request's first event, None where none is folded.

        Raises: `InvalidRequest` for another content than that one's, `LogUnavailable`.
        """
        try:
            requests = self._view.requests(self._namespace)
            first = requests.request(asked, requests.head())
        except StoreError as error:
            raise LogUnavailable(f"what is done cannot be read: {error}") from error
        if first is not None and first.event_id != asked:
            problem = "was used before, for something else"
            raise InvalidRequest(FIELD, problem, status=_OTHER_CONTENT)
        return first

    async def do(
        self, asked: EventId | None, append: Callable[[EventId | None], Awaitable[Lsn]]
    ) -> Done:
        """Append the event of a request unless it is done; without a key append it.

        Raises: `InvalidRequest`, `LogError`; see `settled`.
        """
        if asked is None:
            return Done(await append(None))
        first = self.done(asked)
        if first is None:
            first = await self.settled(asked, await append(asked))
        return Done(Lsn(self._follower.partition, first.offset), first)

    async def settled(self, asked: EventId, lsn: Lsn) -> Request:
        """Return the request's first event, once its event at `lsn` is folded.

        Raises: `InvalidRequest` as `done`; `LogUnavailable` where that takes too long,
        or a rollback came in between: then ask again under the same key.
        """
        if not await self._follower.folded(lsn.offset, FOLD_WAIT_S):
            raise LogUnavailable(
                f"it is on the log at {lsn} and not folded yet: ask again with the "
                f"same {FIELD}"
            )
        first = self.done(asked)
        if first is None:
            raise LogUnavailable(
                f"a rollback came in between: ask again with the same {FIELD}"
            )
        return first


def _printable(key: bytes) -> bool:
    return all(0x20 <= byte < 0x7F for byte in key)
