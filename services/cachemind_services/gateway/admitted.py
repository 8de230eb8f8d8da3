"""What is known of a request's caller once it is admitted; travels in its scope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cachemind.core.access import OPERATIONS, Caller, Operation, Right
from cachemind.errors import Forbidden
from cachemind.types import Namespace, Principal
from cachemind_services.gateway.http_io import Header, Scope
from cachemind_services.gateway.limits import Meter

_KEY: Final = "cachemind.admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A caller, the namespace that is asked in, and what upstream gets to see.

    `namespace` is None where the caller has several and names none. `upstream` are
    the credential's fields for upstream. It holds until `until_ns`. `may_complete` and
    `may_store` say what nearly every request needs: whether it may ask for an answer
    there, and whether that may become an entry.
    """

    caller: Caller
    namespace: Namespace | None
    upstream: tuple[Header, ...]
    meter: Meter
    until_ns: int
    may_complete: bool
    may_store: bool


def admitted_as(
    caller: Caller,
    namespace: Namespace | None,
    meter: Meter,
    upstream: tuple[Header, ...] = (),
    until_ns: int = 0,
) -> Admitted:
    """Return what is known of a caller who asks in a namespace."""
    completes = OPERATIONS[Operation.COMPLETE].right
    return Admitted(
        caller=caller,
        namespace=namespace,
        upstream=upstream,
        meter=meter,
        until_ns=until_ns,
        may_complete=_may(caller, completes, namespace),
        # What upstream answers has no tag, so it would be outside of any prefix.
        may_store=not caller.prefixes and _may(caller, Right.STORE, namespace),
    )


def _may(caller: Caller, right: Right | None, namespace: Namespace | None) -> bool:
    return right is not None and namespace is not None and caller.may(right, namespace)


def tell_admitted(scope: Scope, admitted: Admitted) -> None:
    """Say who asks, for everything that answers the request."""
    scope[_KEY] = admitted


def admitted_in(scope: Scope) -> Admitted | None:
    """Return who asks; None where authentication is off."""
    admitted: Admitted | None = scope.get(_KEY)
    return admitted


def principal_in(scope: Scope) -> Principal | None:
    """Return who asks; None where authentication is off."""
    admitted = admitted_in(scope)
    return None if admitted is None else admitted.caller.principal


def require_in(scope: Scope, right: Right, namespace: Namespace) -> None:
    """Do nothing where the caller has the right. Raises: `Forbidden`."""
    admitted = admitted_in(scope)
    if admitted is not None and not admitted.caller.may(right, namespace):
        raise Forbidden(right)


def require_tags(scope: Scope, right: Right, tags: Iterable[str]) -> None:
    """Do nothing where what has these tags is inside of the caller's prefixes.

    Raises: `Forbidden`.
    """
    admitted = admitted_in(scope)
    if admitted is not None and not admitted.caller.reaches(tags):
        raise Forbidden(right)
