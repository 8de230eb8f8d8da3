"""Key events as they are on the log: the policy of the system's own namespace.

So they have a place in its order, and a receipt, as all that happens has.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import orjson

from cachemind.core.canonical import canonical
from cachemind.errors import InvalidEvent
from cachemind.events import Envelope, PolicyChanged
from cachemind.receipts import SYSTEM_NAMESPACE

MEMBER: Final = "audit-key-event"


def policy_of(signed: bytes) -> str:
    """Return the policy that carries a `SignedKeyEvent`, given as its exact bytes."""
    return canonical({MEMBER: base64.b64encode(signed).decode()}).decode()


def key_event_in(envelope: Envelope) -> bytes | None:
    """Return the exact bytes of the `SignedKeyEvent` on this event, None for another.

    Raises: `InvalidEvent` naming the field `policy` where it is not as `policy_of`
    writes it.
    """
    body = envelope.body
    if envelope.namespace != SYSTEM_NAMESPACE or not isinstance(body, PolicyChanged):
        return None
    try:
        policy = orjson.loads(body.policy)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(policy, dict) or MEMBER not in policy:
        return None
    signed = _decoded(policy[MEMBER])
    if policy_of(signed) != body.policy:
        raise InvalidEvent("policy", f"must be {MEMBER} alone, as canonical JSON")
    return signed


def _decoded(encoded: object) -> bytes:
    if not isinstance(encoded, str):
        raise InvalidEvent("policy", f"{MEMBER} must be text")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidEvent("policy", f"{MEMBER} must be base64") from error
