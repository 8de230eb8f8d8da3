"""What a decision of a writer makes of the entries it names.

The rules behind it are in `core.fold`, which asks here once an event is not fenced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from cachemind.core.identifiers import NS_PER_MS
from cachemind.core.packing import MAX_I64
from cachemind.core.state import Entry, EntryReader, NamespaceState
from cachemind.core.totals import Changes
from cachemind.events import Envelope, Evicted, Feedback, Pinned, Stored, Verdict
from cachemind.types import Lsn, Version


def decided(
    state: NamespaceState,
    entries: EntryReader,
    envelope: Envelope,
    body: Stored | Evicted | Pinned | Feedback,
    lsn: Lsn,
) -> Changes:
    """Return the entries that change, None for one that goes away."""
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
                if entry is not None and not entry.pinned
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
