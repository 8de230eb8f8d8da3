"""Which requests may share one answer, and which answers are to be stored."""

from __future__ import annotations

from cachemind.events import Outcome
from cachemind.types import Offset
from cachemind_services.gateway.call import Call, is_disputed
from cachemind_services.gateway.look import Look

FlightKey = tuple[bytes, bool, bool, Offset]


def flight_key(call: Call, look: Look, fence: Offset) -> FlightKey | None:
    """Return what another request must equal to share this one's answer.

    None where the request wants an answer of its own, or where upstream may read
    the body in another way than we do. An answer from before a rollback is not for
    those who ask after it.
    """
    keys, effective = call.keys, call.effective
    if keys is None or not effective.lookup or not effective.store:
        return None  # who may not store does not get what another one's flight finds
    if look.outcome is Outcome.BYPASS or is_disputed(call):
        return None
    request = keys.request
    return keys.exact_key, request.stream, request.include_usage, fence


def not_captured(call: Call, look: Look) -> str:
    """Return why the answer is not to be stored, "" where it may be."""
    if look.outcome is Outcome.BYPASS:
        return look.reason
    if not call.may_store:
        return "not-granted"
    return "" if call.effective.store else "no-store"
