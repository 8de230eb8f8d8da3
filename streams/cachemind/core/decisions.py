"""What an event makes of the entries that it names, by the rules of `core.fold`."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from cachemind.core.identifiers import NS_PER_MS
from cachemind.core.packing import MAX_I64
from cachemind.core.selection import selected
from cachemind.core.state import Entry, EntryReader, NamespaceState
from cachemind.core.totals import Changes
from cachemind.events import (
    EXPIRED,
    Envelope,
    Evicted,
    Feedback,
    Invalidated,
    Pinned,
    Stored,
    Verdict,
)
from cachemind.types import Lsn, Version


def is_fenced(state: NamespaceState, envelope: Envelope) -> bool:
    """Return whether the event was decided on a timeline that has been left.

    An `Invalidated` never is: what somebody wanted gone is gone on any timeline.
    """
    return envelope.timeline != state.timeline and not isinstance(
        envelope.body, Invalidated
    )


def changes_of(
    state: NamespaceState, entries: EntryReader, envelope: Envelope, lsn: Lsn
) -> Changes:
    """Return the entries that `envelope` changes, None for one that goes away.

    The part of the fold that makes entries, alone: who rebuilds them has no use for
    totals and a row of history.
    """
    body = envelope.body
    match body:
        case Stored() | Evicted() | Pinned() | Feedback():
            if is_fenced(state, envelope):
                return {}
            return _decided(state, entries, envelope, body, lsn)
        case Invalidated():
            gone = selected(entries, body, envelope.occurred_at_ns)
            return dict.fromkeys(gone)
        case _:
            return {}


def _decided(
    state: NamespaceState,
    entries: EntryReader,
    envelope: Envelope,
    body: Stored | Evicted | Pinned | Feedback,
    lsn: Lsn,
) -> Changes:
    match body:
        case Stored():
            before = entries.entry(body.exact_key)
            if before is not None and before.event_id == envelope.event_id:
                return {}
            return {body.exact_key: _entry(state, envelope, body, lsn, before)}
        case Evicted():
            present = ((key, entries.entry(key)) for key in body.keys)
            return {
                key: None
                for key, entry in present
                if entry is not None and _may_go(entry, envelope, body)
            }
        case Pinned():
            before = entries.entry(body.exact_key)
            if before is None or before.pinned == body.pinned:
                return {}
            return {body.exact_key: replace(before, pinned=body.pinned)}
        case Feedback():
            before = entries.entry(body.matched_key)
            return {} if before is None else {body.matched_key: _judged(before, body)}
        case _:
            assert_never(body)


def _may_go(entry: Entry, envelope: Envelope, body: Evicted) -> bool:
    """Return whether the collector's word on `entry` still holds.

    A key that was expired when it was looked at may have been stored anew since.
    """
    if body.reason == EXPIRED and entry.expires_at_ns > envelope.occurred_at_ns:
        return False
    return not entry.pinned


def _judged(entry: Entry, body: Feedback) -> Entry:
    match body.verdict:
        case Verdict.RIGHT:
            return replace(entry, right=entry.right + 1)
        case Verdict.WRONG:
            return replace(entry, wrong=entry.wrong + 1)
        case _:
            assert_never(body.verdict)


def _entry(
    state: NamespaceState,
    envelope: Envelope,
    body: Stored,
    lsn: Lsn,
    before: Entry | None,
) -> Entry:
    same = before is not None and before.response_hash == body.response_hash
    expires_at_ns = envelope.occurred_at_ns + body.ttl_ms * NS_PER_MS
    return Entry(
        exact_key=body.exact_key,
        context_key=body.context_key,
        event_id=envelope.event_id,
        offset=lsn.offset,
        version=Version(state.version + 1),
        timeline=state.timeline,
        stored_at_ns=envelope.occurred_at_ns,
        # A time past the year 2262 does not fit; such an entry never expires.
        expires_at_ns=min(expires_at_ns, MAX_I64),
        pinned=before is not None and before.pinned,
        right=before.right if before is not None and same else 0,
        wrong=before.wrong if before is not None and same else 0,
        prompt_hash=body.prompt_hash,
        request_hash=body.request_hash,
        response_hash=body.response_hash,
        snapshot_id=body.snapshot_id,
        semantic_key=body.semantic_key,
        encoder_id=body.encoder_id,
        model=body.model,
        parameters=body.parameters,
        finish_reason=body.finish_reason,
        tags=body.tags,
        source_chunks=body.source_chunks,
        prompt=body.prompt,
        embedding=body.embedding,
        response=body.response,
    )
