"""Who asks, in which namespace, with which rights: where authentication is on.

What a credential is good for is worked out once a second and remembered by the exact
bytes of the fields that matter; a change of the key book forgets all of it.
"""

from __future__ import annotations

from typing import Final

from cachemind.core.access import (
    NAMESPACE_HEADER,
    OPERATIONS,
    Caller,
    Operation,
    Right,
    namespace_of,
    require,
)
from cachemind.core.credentials import (
    AUTHORIZATION,
    KEY_HEADER,
    Presented,
    authenticated,
    presented,
)
from cachemind.errors import Forbidden, InvalidRequest, Unauthenticated
from cachemind.types import Namespace
from cachemind_services.gateway.admitted import Admitted, admitted_as, tell_admitted
from cachemind_services.gateway.deps import Access
from cachemind_services.gateway.followed_keys import FollowedKeys
from cachemind_services.gateway.http_io import Header, Scope
from cachemind_services.gateway.identity import CREDENTIAL_FIELDS, SECRET_FIELDS
from cachemind_services.gateway.limits import Meters
from cachemind_services.gateway.shared import Shared

KNOWN_NS: Final = 1_000_000_000
_NAMESPACE: Final = NAMESPACE_HEADER.lower().encode()
_MOST_KNOWN: Final = 4_096
_OURS: Final = frozenset({KEY_HEADER, _NAMESPACE})
_IN_PART: Final = frozenset(
    {Right.LOOK_UP, Right.STORE, Right.INVALIDATE, Right.FEEDBACK}
)
"""What can be done to a part of a namespace; all else is about the whole of it."""


class Door:
    """Admits requests, or raises why not."""

    def __init__(self, shared: Shared, access: Access) -> None:
        self._clock = shared.deps.clock
        self._access = access
        self._meters = Meters(access.limits)
        self._known: dict[tuple[Header, ...], Admitted] = {}
        self.keys = FollowedKeys(shared, self._known.clear)
        held = {name for fields in access.upstream.values() for name, _ in fields}
        self._fields = _OURS.union(CREDENTIAL_FIELDS, held)

    async def admit(self, scope: Scope) -> Admitted:
        """Return who asks; from here on the scope's fields are those for upstream.

        Raises: `Unauthenticated`, `Forbidden`, `InvalidRequest`, `TooMany`.
        """
        fields = self._fields
        passing: list[Header] = []
        deciding: list[Header] = []
        for pair in scope["headers"]:
            (deciding if pair[0] in fields else passing).append(pair)
        known_as, now_ns = tuple(deciding), self._clock.now_ns()
        admitted = self._known.get(known_as)
        if admitted is None or now_ns >= admitted.until_ns:
            admitted = await self._identified(scope, known_as, now_ns)
        passing += admitted.upstream
        scope["headers"] = passing
        tell_admitted(scope, admitted)
        admitted.meter.request(now_ns)
        return admitted

    def require(self, admitted: Admitted, operation: Operation) -> Namespace:
        """Return the namespace of a request whose caller may ask for this there.

        Raises: `Forbidden`, `InvalidRequest`.
        """
        if operation is Operation.COMPLETE and admitted.may_complete:
            assert admitted.namespace is not None  # noqa: S101 - else it may not
            return admitted.namespace
        surface, caller = OPERATIONS[operation], admitted.caller
        namespace = surface.namespace or admitted.namespace
        if namespace is None:
            namespace = namespace_of(caller, None)
        right = surface.right
        if right is not None:
            require(caller, right, namespace)
            if caller.prefixes and right not in _IN_PART:
                raise Forbidden(right)
        return namespace

    async def _identified(
        self, scope: Scope, deciding: tuple[Header, ...], now_ns: int
    ) -> Admitted:
        book = self.keys.book
        caller = await authenticated(deciding, book, self._access.tokens, now_ns)
        found = presented(deciding)
        if caller is None or found is None:
            self._known.pop(deciding, None)
            raise Unauthenticated
        until_ns = now_ns + KNOWN_NS
        key = book.keys.get(caller.credential_id) if found.is_key else None
        if key is not None and key.expires_ms is not None:
            until_ns = min(until_ns, key.expires_ms * 1_000_000)
        meter = self._meters.of(caller.credential_id, now_ns)
        try:
            namespace = _namespace(caller, deciding)
        except (Forbidden, InvalidRequest):
            # Known, and nowhere: so it is said who was refused, and counted.
            tell_admitted(scope, admitted_as(caller, None, meter, until_ns=now_ns))
            meter.request(now_ns)
            raise
        upstream = self._for_upstream(namespace, deciding, found)
        admitted = admitted_as(caller, namespace, meter, upstream, until_ns)
        if book is self.keys.book:  # the issuer may have been asked meanwhile
            self._remember(deciding, admitted)
        return admitted

    def _remember(self, deciding: tuple[Header, ...], admitted: Admitted) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[deciding] = admitted

    def _for_upstream(
        self,
        namespace: Namespace | None,
        deciding: tuple[Header, ...],
        found: Presented,
    ) -> tuple[Header, ...]:
        """Return the caller's own fields, or the namespace's where it has no secret.

        The namespace's come alone then: a caller must not have a part of them.
        """
        own = tuple(
            pair
            for pair in deciding
            if pair[0] not in _OURS
            and not (found.in_authorization and pair[0] == AUTHORIZATION)
        )
        if namespace is None or any(name in SECRET_FIELDS for name, _ in own):
            return own
        held = self._access.upstream.get(namespace, ())
        names = {name for name, _ in held}
        return (*(pair for pair in own if pair[0] not in names), *held)


def _namespace(caller: Caller, deciding: tuple[Header, ...]) -> Namespace | None:
    """Return the namespace that is named, or the caller's only one.

    Raises: `Forbidden`, `InvalidRequest`.
    """
    named = [value for name, value in deciding if name == _NAMESPACE]
    if len(named) > 1:
        raise InvalidRequest(NAMESPACE_HEADER, "is given twice")
    try:
        asked = named[0].decode("ascii") if named else None
    except UnicodeDecodeError:
        raise Forbidden("namespace") from None
    if asked is None:
        try:
            return namespace_of(caller, None)
        except InvalidRequest:
            return None  # said where a namespace is needed
    return namespace_of(caller, asked)
