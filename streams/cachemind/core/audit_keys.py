"""Verifies key events: who vouches for a key, and that its owner has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cachemind.core.audit_findings import (
    NOWHERE,
    Finding,
    Place,
    Reason,
    Step,
    tampered,
)
from cachemind.core.audit_means import Means
from cachemind.core.public_keys import key_id_of
from cachemind.core.receipt_chain import key_event_signing_input
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.receipts import KeyChange, KeyEvent, KeyId, SignedKeyEvent


def key_event_in(
    signed: SignedKeyEvent, checkpoint: str, means: Means, place: Place
) -> KeyEvent | Finding:
    """Return the key event that counts, or why it does not.

    What it says is not looked at before a root key's signature is seen to hold.
    Raises: `UndecodableRecord`, `UnknownSchema` for what a root key signed.
    """
    if not _signed_by_root(signed, means):
        return _unsigned(place)
    event = means.decoder.key_event(signed.event)
    problem = key_event_problem(signed, event, checkpoint, means, place)
    return event if problem is None else problem


def key_event_problem(
    signed: SignedKeyEvent,
    event: KeyEvent,
    checkpoint: str,
    means: Means,
    place: Place,
) -> Finding | None:
    """Return why `event`, which `signed` says, does not count; None where it does.

    A pinned root key must have signed it, and so must the key that it is about, but
    for its own revocation. What other keys signed besides is not looked at.
    """
    if not _signed_by_root(signed, means):
        return _unsigned(place)
    if event.log_id != means.pinned.log_id:
        text = f"the key event is of the log {event.log_id!r}"
        return tampered(Step.KEYS, Reason.OTHER_LOG, text, place)
    if key_id_of(event.public_key) != event.key_id:
        text = f"the key event names its key {event.key_id}, which has another id"
        return tampered(Step.KEYS, Reason.KEY_EVENT_MISNAMED, text, place)
    if checkpoint:
        text = "a key event has a checkpoint, which only a cut has"
        return tampered(Step.KEYS, Reason.CHECKPOINT_MALFORMED, text, place)
    own = {event.key_id: event.public_key}
    if event.change is not KeyChange.REVOKE and not _signed_by_any(signed, own, means):
        text = f"the event about key {event.key_id} is not signed by that key"
        return tampered(Step.KEYS, Reason.KEY_EVENT_UNSIGNED, text, place)
    return None


def verified_key_events(values: Iterable[bytes], means: Means) -> Iterator[KeyEvent]:
    """Yield the key events that count, of the records of the topic of cuts.

    What does not decode or does not count is left out: it is found once more, and
    told, as the log is verified.
    """
    for value in values:
        try:
            record = means.decoder.cuts_record(value)
            if record.checkpoint:
                continue  # A cut, without looking into it.
            leaf = means.decoder.leaf(record.leaf)
            if isinstance(leaf, SignedKeyEvent):
                event = key_event_in(leaf, record.checkpoint, means, NOWHERE)
                if isinstance(event, KeyEvent):
                    yield event
        except (UndecodableRecord, UnknownSchema):
            continue


def _unsigned(place: Place) -> Finding:
    text = "the key event is not signed by a pinned root key"
    return tampered(Step.KEYS, Reason.KEY_EVENT_UNSIGNED, text, place)


def _signed_by_root(signed: SignedKeyEvent, means: Means) -> bool:
    roots = {root.key_id: root.public_key for root in means.pinned.roots}
    return _signed_by_any(signed, roots, means)


def _signed_by_any(
    signed: SignedKeyEvent, keys: Mapping[KeyId, bytes], means: Means
) -> bool:
    try:
        message = key_event_signing_input(signed.event)
        return any(
            means.checks.ecdsa(keys[one.key_id], message, one.value)
            for one in signed.signatures
            if one.key_id in keys
        )
    except InvalidEvent:
        return False
