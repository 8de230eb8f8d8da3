"""Who may do what: rights, roles and operations, each in one table.

Deny by default: what no table names nobody may do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cachemind.errors import Forbidden, InvalidRequest
from cachemind.types import Namespace, Principal

ACCESS_NAMESPACE: Final = Namespace("cachemind.access")
"""Holds the keys: its policy is the `KeyBook`. It holds no entries."""

RESERVED_PREFIX: Final = "cachemind."
NAMESPACE_HEADER: Final = "X-CacheMind-Namespace"


class Right(StrEnum):
    """One permission in one namespace."""

    LOOK_UP = "look_up"
    STORE = "store"
    INVALIDATE = "invalidate"
    FEEDBACK = "feedback"
    TTL_OVERRIDE = "ttl_override"
    ROLLBACK = "rollback"
    POLICY = "policy"
    INSPECT = "inspect"
    """Versions, differences, entries with their bodies, counts."""
    RECEIPTS = "receipts"
    KEYS = "keys"


class Role(StrEnum):
    """A set of rights under one name."""

    CACHE_READER = "cache-reader"
    CACHE_WRITER = "cache-writer"
    CACHE_ADMIN = "cache-admin"
    AUDITOR = "auditor"


_WRITER: Final = frozenset(
    {Right.LOOK_UP, Right.STORE, Right.INVALIDATE, Right.FEEDBACK, Right.RECEIPTS}
)
RIGHTS: Final[Mapping[Role, frozenset[Right]]] = MappingProxyType(
    {
        Role.CACHE_READER: frozenset({Right.LOOK_UP}),
        Role.CACHE_WRITER: _WRITER,
        Role.CACHE_ADMIN: frozenset(Right),
        # No bodies: an auditor verifies hashes.
        Role.AUDITOR: frozenset({Right.RECEIPTS}),
    }
)

_IN_RESERVED: Final = frozenset({Right.INSPECT, Right.RECEIPTS, Right.KEYS})
"""What a grant of a reserved namespace gives at most: nothing is stored there."""


class Operation(StrEnum):
    """What can be asked for, by whichever interface."""

    LOOK_UP = "look_up"
    COMPLETE = "complete"
    PASS_ON = "pass_on"  # noqa: S105
    PUT = "put"
    INVALIDATE = "invalidate"
    FEEDBACK = "feedback"
    STATS = "stats"
    ENTRY = "entry"
    VERSIONS = "versions"
    DIFF = "diff"
    ROLLBACK = "rollback"
    ROLLBACK_STATUS = "rollback_status"
    RECEIPTS = "receipts"
    POLICY_SHOW = "policy_show"
    POLICY_SET = "policy_set"
    METRICS = "metrics"
    WHOAMI = "whoami"
    HEALTH = "health"
    READINESS = "readiness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """How an operation is asked for, and the right that it takes.

    `right` None: `known` says whether a credential is needed at all. `http` is a
    method and a path, whose last part may be `{}`; `kafka` a command's record name;
    `cli` a command that asks a gateway (those that need none work with the
    operator's own files and Kafka credentials). Empty: not offered there.
    `namespace` is where the right must be held, where it is not the request's.
    """

    right: Right | None
    http: str = ""
    kafka: str = ""
    cli: str = ""
    known: bool = True
    namespace: Namespace | None = None


OPERATIONS: Final[Mapping[Operation, Surface]] = MappingProxyType(
    {
        Operation.LOOK_UP: Surface(right=Right.LOOK_UP, kafka="Lookup", cli="get"),
        # A miss goes upstream; only who may STORE leaves an entry behind.
        Operation.COMPLETE: Surface(
            right=Right.LOOK_UP, http="POST /v1/chat/completions", kafka="Complete"
        ),
        # Any other path of upstream's, maybe with the namespace's own credential.
        Operation.PASS_ON: Surface(right=Right.STORE),
        Operation.PUT: Surface(
            right=Right.STORE, http="POST /v1/cachemind/entries", kafka="Put", cli="put"
        ),
        Operation.INVALIDATE: Surface(
            right=Right.INVALIDATE,
            http="POST /v1/cachemind/invalidate",
            kafka="Invalidate",
            cli="invalidate",
        ),
        Operation.FEEDBACK: Surface(
            right=Right.FEEDBACK, http="POST /v1/cachemind/feedback", kafka="Feedback"
        ),
        Operation.STATS: Surface(
            right=Right.INSPECT, http="GET /v1/cachemind/stats", cli="stats"
        ),
        Operation.ENTRY: Surface(
            right=Right.INSPECT, http="GET /v1/cachemind/entries/{}"
        ),
        Operation.VERSIONS: Surface(
            right=Right.INSPECT, http="GET /v1/versions", cli="versions"
        ),
        Operation.DIFF: Surface(right=Right.INSPECT, http="GET /v1/diff", cli="diff"),
        Operation.ROLLBACK: Surface(
            right=Right.ROLLBACK,
            http="POST /v1/rollback",
            kafka="Rollback",
            cli="rollback",
        ),
        Operation.ROLLBACK_STATUS: Surface(
            right=Right.INSPECT, http="GET /v1/rollbacks/{}"
        ),
        Operation.RECEIPTS: Surface(
            right=Right.RECEIPTS,
            http="GET /v1/receipts/{}",
            kafka="FindReceipt",
            cli="audit show",
        ),
        Operation.POLICY_SHOW: Surface(
            right=Right.POLICY, http="GET /v1/cachemind/policy", cli="policy show"
        ),
        Operation.POLICY_SET: Surface(
            right=Right.POLICY, http="PUT /v1/cachemind/policy", cli="policy set"
        ),
        # Counts of all namespaces: for who may look into the installation's own.
        Operation.METRICS: Surface(
            right=Right.INSPECT, http="GET /metrics", namespace=ACCESS_NAMESPACE
        ),
        Operation.WHOAMI: Surface(
            right=None, http="GET /v1/cachemind/whoami", cli="whoami"
        ),
        Operation.HEALTH: Surface(right=None, http="GET /healthz", known=False),
        Operation.READINESS: Surface(right=None, http="GET /readyz", known=False),
    }
)

_EXACT: Final[Mapping[str, Operation]] = {
    surface.http: operation
    for operation, surface in OPERATIONS.items()
    if surface.http and not surface.http.endswith("{}")
}
_BELOW: Final[Mapping[str, Operation]] = {
    surface.http.removesuffix("{}"): operation
    for operation, surface in OPERATIONS.items()
    if surface.http.endswith("{}")
}

_BY_COMMAND: Final[Mapping[str, Surface]] = {
    surface.kafka: surface for surface in OPERATIONS.values() if surface.kafka
}

_PREFIXES: Final = ("/v1/cachemind/", "/v1/receipts/", "/v1/rollbacks/")
_PATHS: Final = frozenset(call.partition(" ")[2] for call in _EXACT) - {
    # Upstream's own, of which one method is answered here.
    "/v1/chat/completions"
}


def http_operation(method: str, path: str) -> Operation | None:
    """Return what a request asks for; None for one of our paths that has no such call.

    Every path that is not ours is passed on. `path` is the decoded one that is
    routed by.
    """
    operation = _EXACT.get(f"{method} {path}")
    if operation is not None:
        return operation
    for start, below in _BELOW.items():
        if f"{method} {path}".startswith(start):
            return below
    if path in _PATHS or path.startswith(_PREFIXES):
        return None
    return Operation.PASS_ON


def is_reserved(namespace: str) -> bool:
    """Return whether a namespace is the installation's own."""
    return namespace.startswith(RESERVED_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and the grant.

    `prefixes` narrow the grant to what carries a tag that begins with one of them;
    none: no such limit. `credential_id` names the credential in limits and metrics
    and is no secret.
    """

    principal: Principal
    role: Role
    namespaces: frozenset[Namespace]
    prefixes: tuple[str, ...] = ()
    credential_id: str = ""

    def may(self, right: Right, namespace: Namespace) -> bool:
        """Return whether the grant holds `right` in `namespace`."""
        if namespace not in self.namespaces or right not in RIGHTS[self.role]:
            return False
        return not is_reserved(namespace) or right in _IN_RESERVED

    def reaches(self, tags: Iterable[str]) -> bool:
        """Return whether what carries these tags is inside of the prefix scopes."""
        if not self.prefixes:
            return True
        return any(tag.startswith(self.prefixes) for tag in tags)


def local(namespace: Namespace) -> Caller:
    """Return who asks where authentication is off: anybody on this machine."""
    return Caller(
        principal=Principal("local"),
        role=Role.CACHE_ADMIN,
        namespaces=frozenset({namespace, ACCESS_NAMESPACE}),
    )


def require(caller: Caller, right: Right, namespace: Namespace) -> None:
    """Do nothing where it is granted. Raises: `Forbidden` naming the right."""
    if not caller.may(right, namespace):
        # Its own namespace a caller knows; this one is named nowhere in the request.
        where = f"it is asked for in {namespace}" if is_reserved(namespace) else ""
        raise Forbidden(right, where)


def require_command(caller: Caller, command: str, namespace: Namespace) -> None:
    """Do nothing where a command of that name is granted.

    Raises: `Forbidden` naming the right; also for a command that no table has.
    """
    surface = _BY_COMMAND.get(command)
    if surface is None or surface.right is None:
        raise Forbidden(command)
    require(caller, surface.right, surface.namespace or namespace)


def namespace_of(caller: Caller, asked: str | None) -> Namespace:
    """Return the namespace of a request: the caller's one, or the one asked for.

    Raises: `Forbidden` for another than the caller's own, existing or not;
    `InvalidRequest` where there are several and none is named.
    """
    if asked is None:
        own = [name for name in caller.namespaces if not is_reserved(name)]
        own = own or list(caller.namespaces)
        if len(own) == 1:
            return own[0]
        raise InvalidRequest(
            NAMESPACE_HEADER, "name one of " + ", ".join(sorted(own) or ["none"])
        )
    for name in caller.namespaces:
        if name == asked:
            return name
    raise Forbidden("namespace")
