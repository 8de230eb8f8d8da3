"""The fold: what one more event makes of a namespace.

Pure and total: what is on the log has happened, so every event is accepted in every
state. Nothing here reads a clock or a configuration; all times are the events' own.

Rules that the events leave open, and why they are so:

* A `Stored` with the event id of the present entry is the same record appended twice
  and changes nothing. A copy that arrives after another event removed or replaced the
  entry cannot be told from a new decision and is applied.
* Of the events of one request (see `requested`) the first that is not fenced takes
  effect, and no other, also after a rollback: it was done, and then taken back.
* A `Stored` over a present entry keeps the pin, which is an operator's word on the
  key; it keeps the feedback only where the response is the same, since feedback
  judges a response.
* A removed entry's hit history goes with it: the state stays bounded by its entries.
* Reads carry no id of their own, so a `Reads` appended twice counts twice. Hits are
  outside of versions and digest for that reason among others.
* A rollback whose `expected_head` is not the head, or that names a version above it,
  changes nothing. Restoring the entries is not done here.
* The policy of the namespace that holds the keys changes only to the book that follows
  the one in force (`api_keys.gives_way`): of two writers at once the first wins.
* `Invalidated` by prefix cannot match an entry that has no readable prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, assert_never

from cachemind.core.api_keys import gives_way
from cachemind.core.decisions import changes_of, is_fenced
from cachemind.core.requested import (
    NO_REQUESTS,
    Remembered,
    Request,
    Requests,
    is_requested,
)
from cachemind.core.rollback_report import REASON_CHARS, refused
from cachemind.core.state import (
    HIT_HISTORY,
    Effect,
    EntryReader,
    Hits,
    NamespaceState,
    Step,
    Totals,
    VersionRow,
)
from cachemind.core.totals import Changes, totals
from cachemind.events import (
    Body,
    Envelope,
    Evicted,
    Feedback,
    Invalidated,
    KeyShredded,
    Pinned,
    PolicyChanged,
    Reads,
    Refused,
    RolledBack,
    SnapshotTaken,
    Stored,
)
from cachemind.types import (
    ContextKey,
    EventId,
    ExactKey,
    Lsn,
    Timeline,
    Version,
)


def apply(
    state: NamespaceState,
    entries: EntryReader,
    envelope: Envelope,
    lsn: Lsn,
    requests: Requests = NO_REQUESTS,
) -> Step:
    """Return what `envelope`, found at `lsn`, does to its namespace.

    `state`, `entries` and `requests` are those of `envelope.namespace` just before
    `lsn`.
    """
    body = envelope.body
    match body:
        case Reads():
            return _reads(state, entries, body)
        case Refused() | SnapshotTaken():
            return _step(Effect.COUNTED, _counted(state, kind_of(body)))
        case Stored() | Evicted() | Pinned() | Feedback() | Invalidated():
            if is_fenced(state, envelope):
                return _step(Effect.FENCED, _counted(state, "fenced"))
            head = requests.head() if is_requested(envelope.event_id) else None
            if head and requests.request(envelope.event_id, head) is not None:
                return unchanged(state)
            changes = changes_of(state, entries, envelope, lsn)
            step = _changed(state, entries, envelope, lsn, changes)
            if head is None:
                return step
            done = Remembered(request=_request(envelope, lsn), head=head.next())
            return replace(step, request=done)
        case RolledBack():
            return _rolled_back(state, envelope, body, lsn)
        case PolicyChanged():
            return _policy_changed(state, envelope, body, lsn)
        case KeyShredded():
            keys = tuple(sorted({*state.shredded_keys, body.key_id}))
            after = replace(state, shredded_keys=keys)
            return _replaced(state, after, envelope, lsn)
        case _:
            assert_never(body)


def kind_of(body: Body) -> str:
    """Return the word for a kind of event in counts and history rows."""
    return _KINDS[type(body)]


_KINDS: Final[Mapping[type[Body], str]] = {
    Reads: "reads",
    Stored: "stored",
    Refused: "refused",
    Invalidated: "invalidated",
    Evicted: "evicted",
    Pinned: "pinned",
    Feedback: "feedback",
    RolledBack: "rolled_back",
    SnapshotTaken: "snapshot_taken",
    PolicyChanged: "policy_changed",
    KeyShredded: "key_shredded",
}

_REASONED: Final = (RolledBack, Invalidated, Evicted)


# ---- reads --------------------------------------------------------------------------


def _reads(state: NamespaceState, entries: EntryReader, body: Reads) -> Step:
    counts = dict(state.counts)
    hits: dict[ExactKey, Hits] = {}
    for read in body.items:
        counts[read.outcome.value] = counts.get(read.outcome.value, 0) + 1
        key = read.matched_key
        if key is None:
            continue
        # An entry that went away between look-up and fold has no history to keep.
        # Only present entries have one, which spares most hits the entry itself.
        before = hits.get(key) or entries.hits(key)
        if before is not None or entries.entry(key) is not None:
            hits[key] = _hit(before, read.occurred_at_ns)
    after = state.advanced(state.version, counts, state.totals)
    return _step(Effect.COUNTED, after, hits=hits)


def _hit(before: Hits | None, at_ns: int) -> Hits:
    if before is None:
        return Hits(count=1, last_ns=(at_ns,))
    last = (at_ns, *before.last_ns)[:HIT_HISTORY]
    return Hits(count=before.count + 1, last_ns=last)


# ---- what the namespace becomes -----------------------------------------------------


def _changed(
    state: NamespaceState,
    entries: EntryReader,
    envelope: Envelope,
    lsn: Lsn,
    changes: Changes,
) -> Step:
    if not changes:
        return unchanged(state)
    sums, left = totals(state, entries.entry, changes)
    return _advanced(state, envelope, lsn, changes, left, sums)


def _request(envelope: Envelope, lsn: Lsn) -> Request:
    event_id, body = envelope.event_id, envelope.body
    if not isinstance(body, Stored):
        return Request(event_id=event_id, offset=lsn.offset)
    return Request(
        event_id=event_id,
        offset=lsn.offset,
        snapshot_id=body.snapshot_id,
        ttl_ms=body.ttl_ms,
    )


def _rolled_back(
    state: NamespaceState, envelope: Envelope, body: RolledBack, lsn: Lsn
) -> Step:
    if body.rollback_id == state.last_rollback:
        return unchanged(state)
    verdict = _refusal(state, body)
    if verdict is not None:
        report = refused(
            state.namespace, state.version, state.digest, body, lsn, verdict
        )
        return replace(_no_change(state, "rollback_refused"), report=report)
    return restored(state, envelope, body, lsn)


def restored(
    after: NamespaceState,
    envelope: Envelope,
    body: RolledBack,
    lsn: Lsn,
    changes: Changes = MappingProxyType({}),
    left: Mapping[ExactKey, ContextKey] = MappingProxyType({}),
) -> Step:
    """Return the step of the rollback `envelope`, whose restored entries are known.

    `changes` maps each key that differs between head and target to what it was;
    `after` and `left` are the `totals` with them. Policy and shredded keys are an
    operator's word on the namespace, not its content: they stay.
    """
    opened = replace(
        after,
        timeline=Timeline(after.version + 1),
        last_rollback=body.rollback_id,
    )
    return _advanced(opened, envelope, lsn, changes, left)


def unchanged(state: NamespaceState) -> Step:
    """Return the step of an event that has had its effect before."""
    return _no_change(state, "no_change")


def _refusal(state: NamespaceState, body: RolledBack) -> str | None:
    if body.expected_head not in (-1, state.version):
        return f"expected head {body.expected_head}, the head is {state.version}"
    if body.to_version > state.version:
        return f"version {body.to_version} is above the head {state.version}"
    return None


def _policy_changed(
    state: NamespaceState, envelope: Envelope, body: PolicyChanged, lsn: Lsn
) -> Step:
    if not gives_way(state.namespace, state.policy, body.policy):
        return _no_change(state, "policy_refused")
    return _replaced(state, replace(state, policy=body.policy), envelope, lsn)


def _replaced(
    before: NamespaceState, after: NamespaceState, envelope: Envelope, lsn: Lsn
) -> Step:
    if before == after:
        return unchanged(before)
    return _advanced(after, envelope, lsn)


def _no_change(state: NamespaceState, word: str) -> Step:
    return _step(Effect.NO_CHANGE, _counted(state, word))


def _advanced(
    state: NamespaceState,
    envelope: Envelope,
    lsn: Lsn,
    changes: Changes = MappingProxyType({}),
    left: Mapping[ExactKey, ContextKey] = MappingProxyType({}),
    sums: Totals | None = None,
) -> Step:
    kind = kind_of(envelope.body)
    version = Version(state.version + 1)
    counts = _plus_one(state.counts, kind)
    after = state.advanced(version, counts, sums or state.totals)
    row = VersionRow(
        version=version,
        offset=lsn.offset,
        timeline=after.timeline,
        digest=after.digest,
        entries=after.entries,
        event_id=envelope.event_id,
        kind=kind,
        occurred_at_ns=envelope.occurred_at_ns,
        principal=envelope.principal,
        target=_target(envelope.body),
        rollback_id=_rollback_id(envelope.body),
        reason=_reason(envelope.body),
    )
    return Step(
        effect=Effect.APPLIED,
        state=after,
        entries=dict(changes),
        hits={},
        version_row=row,
        removed_contexts=dict(left),
    )


def _target(body: Body) -> Version | None:
    return body.to_version if isinstance(body, RolledBack) else None


def _rollback_id(body: Body) -> EventId | None:
    return body.rollback_id if isinstance(body, RolledBack) else None


def _reason(body: Body) -> str:
    if isinstance(body, RolledBack | Invalidated | Evicted | KeyShredded):
        return body.reason[:REASON_CHARS]
    return ""


def _counted(state: NamespaceState, word: str) -> NamespaceState:
    counts = _plus_one(state.counts, word)
    return state.advanced(state.version, counts, state.totals)


def _plus_one(counts: Mapping[str, int], word: str) -> dict[str, int]:
    after = dict(counts)
    after[word] = after.get(word, 0) + 1
    return after


def _step(
    effect: Effect, state: NamespaceState, *, hits: dict[ExactKey, Hits] | None = None
) -> Step:
    """Return a step that leaves entries and version alone."""
    return Step(
        effect=effect,
        state=state,
        entries={},
        hits=hits or {},
        version_row=None,
        removed_contexts={},
    )
