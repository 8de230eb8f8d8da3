"""A policy as JSON, as `PolicyChanged` carries it: only what differs from the default.

A member that is absent is as the gateway's own settings have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

import orjson

from cachemind.core.canonical import canonical
from cachemind.core.policy import Policy, Volatile
from cachemind.errors import InvalidEvent

LONGEST: Final = 65_536
_MOST: Final = 2**53
"""The largest whole number that every JSON reader keeps exactly."""


def parse_policy(text: str, default: Policy) -> Policy:
    """Return `default` with what `text` says; `default` for an empty text.

    Raises: `InvalidEvent` naming the member.
    """
    if not text:
        return default
    if len(text) > LONGEST:
        raise InvalidEvent("policy", f"must be at most {LONGEST} characters")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent("policy", "must be JSON") from error
    return policy_from(document, default)


def policy_from(document: object, default: Policy) -> Policy:
    """Return `default` with the members of a JSON or TOML document.

    Raises: `InvalidEvent` naming the member.
    """
    return replace(default, **_checked(document))


def render_policy(document: object) -> str:
    """Return the canonical JSON of a document that is a sound policy.

    Raises: `InvalidEvent` naming the member.
    """
    checked = _checked(document)
    replace(Policy(), **checked)
    return canonical(checked).decode()


def shown_policy(policy: Policy) -> dict[str, Any]:
    """Return every member of a policy."""
    return {item.name: getattr(policy, item.name) for item in fields(Policy)}


def _checked(document: object) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise InvalidEvent("policy", "must be an object")
    found: dict[str, Any] = {}
    for name, value in document.items():
        parse = _MEMBERS.get(name)
        if parse is None:
            known = ", ".join(sorted(_MEMBERS))
            raise InvalidEvent(str(name)[:64], f"is not known here, which are {known}")
        found[name] = parse(name, value)
    return found


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidEvent(name, "must be true or false")
    return value


def _ratio(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidEvent(name, "must be a number")
    return float(value)


def _whole(name: str, value: object) -> int:
    if type(value) is not int or not 0 < value <= _MOST:
        raise InvalidEvent(name, f"must be a whole number from 1 to {_MOST}")
    return value


def _volatile(name: str, value: object) -> Volatile:
    if value not in list(Volatile):
        raise InvalidEvent(name, "must be one of " + ", ".join(Volatile))
    return Volatile(str(value))


_MEMBERS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "enabled": _flag,
    "semantic": _flag,
    "threshold": _ratio,
    "default_ttl_ms": _whole,
    "uncertain_ttl_ms": _whole,
    "max_ttl_ms": _whole,
    "max_entry_bytes": _whole,
    "max_entries": _whole,
    "max_total_bytes": _whole,
    "volatile": _volatile,
    "share_across_credentials": _flag,
}
