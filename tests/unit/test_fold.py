"""What each kind of event means, in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cachemind.core.access import ACCESS_NAMESPACE
from cachemind.core.entry_bytes import encode
from cachemind.core.fold import apply
from cachemind.core.requested import Head, Remembered, Request
from cachemind.core.state import Effect, Hits, NamespaceState, Step
from cachemind.core.verification import digest_mismatch
from cachemind.core.working_set import WorkingSet
from cachemind.events import (
    EXPIRED,
    Body,
    Envelope,
    Evicted,
    Feedback,
    Invalidated,
    KeyShredded,
    Outcome,
    Pinned,
    PolicyChanged,
    Refused,
    RolledBack,
    SelectorKind,
    SnapshotTaken,
    Stored,
    Verdict,
)
from cachemind.types import EventId, Offset, Timeline, TraceId, Version
from tests.fold_cases import (
    NS,
    T0_NS,
    context,
    envelope,
    event_id,
    folded,
    hash_of,
    key,
    lsn,
    nothing,
    read,
    reads,
    requested,
    rolled_back,
    stored,
)

MS = 1_000_000
TRACE = TraceId(hash_of("trace")[:16])


def after(log: Sequence[Envelope], last: Envelope) -> tuple[WorkingSet, Step]:
    """Fold `log`, then `last`; return the set and the step of `last`."""
    work = folded(log)
    return work, work.apply(last, lsn(len(log)))


def present(work: WorkingSet) -> list[str]:
    """The prompts of the present entries, sorted."""
    return sorted(entry.prompt or "-" for entry in work.reader(NS).entries())


def test_a_stored_becomes_an_entry_that_says_where_it_came_from() -> None:
    body = stored("p", ttl_ms=5, tags=("t",), chunks=("c1",))
    work, step = after([], envelope(body, "e1"))
    entry = work.reader(NS).entry(key("p"))
    assert entry is not None
    assert (entry.offset, entry.version, entry.timeline) == (0, 1, 0)
    assert (entry.stored_at_ns, entry.expires_at_ns) == (T0_NS, T0_NS + 5 * MS)
    assert (entry.pinned, entry.right, entry.wrong) == (False, 0, 0)
    assert (entry.event_id, entry.tags) == (event_id("e1"), ("t",))
    assert entry.response == body.response
    assert step.effect is Effect.APPLIED
    assert step.entries == {key("p"): entry}


def test_a_namespace_counts_its_entries_and_their_bytes() -> None:
    work = folded([envelope(stored("p"), "e1"), envelope(stored("q"), "e2")])
    sizes = [len(encode(entry)) for entry in work.reader(NS).entries()]
    assert work.state(NS).entries == 2
    assert work.state(NS).entry_bytes == sum(sizes)


def test_a_version_row_names_the_event_that_made_the_version() -> None:
    _, step = after([envelope(stored("p"), "e1")], envelope(stored("q"), "e2"))
    row = step.version_row
    assert row is not None
    assert (row.version, row.offset, row.kind) == (2, 1, "stored")
    assert (row.event_id, row.principal) == (event_id("e2"), "alice")
    assert row.digest == step.state.digest


def test_a_stored_with_the_event_id_of_the_present_entry_changes_nothing() -> None:
    event = envelope(stored("p"), "e1")
    work, step = after([event], event)
    assert step.effect is Effect.NO_CHANGE
    assert work.state(NS).version == 1
    assert work.state(NS).counts == {"stored": 1, "no_change": 1}


ALL_GONE = Invalidated(kind=SelectorKind.ALL, value="", reason="")
FIRST, SECOND = requested("a", "1"), requested("a", "2")


def asked(body: Body, event_id: EventId = FIRST, timeline: int = 0) -> Envelope:
    return replace(envelope(body, timeline=timeline), event_id=event_id)


@pytest.mark.parametrize("event_id", [FIRST, SECOND], ids=["same", "other-content"])
@pytest.mark.parametrize("between", [(), (envelope(ALL_GONE, "i"),)])
def test_of_the_events_of_a_request_the_first_takes_effect(
    between: tuple[Envelope, ...], event_id: EventId
) -> None:
    before, step = after([asked(stored("p")), *between], asked(stored("q"), event_id))
    assert step.effect is Effect.NO_CHANGE
    assert step.request is None
    assert "q" not in present(before)


def test_another_request_is_another_event() -> None:
    log = [asked(stored("p")), asked(stored("q"), requested("b", "1"))]
    assert present(folded(log)) == ["p", "q"]


def test_feedback_that_is_asked_for_twice_counts_once() -> None:
    judged = asked(
        Feedback(matched_key=key("p"), served_trace_id=TRACE, verdict=Verdict.WRONG)
    )
    work, _ = after([envelope(stored("p")), judged], judged)
    entry = work.reader(NS).entry(key("p"))
    assert entry is not None
    assert entry.wrong == 1


def test_a_request_without_effect_is_done_and_a_fenced_one_is_not() -> None:
    _, step = after([], asked(ALL_GONE))
    assert (step.effect, step.request is not None) == (Effect.NO_CHANGE, True)
    work, step = after([asked(stored("p"), timeline=9)], asked(stored("q")))
    assert step.effect is Effect.APPLIED
    assert step.request == Remembered(
        request=Request(
            event_id=FIRST,
            offset=Offset(1),
            snapshot_id=stored("q").snapshot_id,
            ttl_ms=stored("q").ttl_ms,
        ),
        head=Head(generation=0, count=1),
    )
    assert present(work) == ["q"]


def test_the_newest_requests_are_remembered_and_older_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cachemind.core.requested.GENERATION", 2)
    log = [asked(stored(f"p{n}"), requested(f"{n}")) for n in range(5)]
    for number, effect in (
        (0, Effect.APPLIED),  # of the generation before the last two
        (1, Effect.APPLIED),
        (2, Effect.NO_CHANGE),
        (3, Effect.NO_CHANGE),
        (4, Effect.NO_CHANGE),
    ):
        _, step = after(log, asked(stored("again"), requested(f"{number}")))
        assert step.effect is effect, number
    assert step.request is None


def test_a_request_that_was_rolled_back_is_not_done_again() -> None:
    log = [
        asked(stored("p")),
        envelope(rolled_back(0), "r"),
    ]
    work, step = after(log, asked(stored("q"), SECOND, timeline=2))
    assert step.effect is Effect.NO_CHANGE
    assert work.state(NS).version == 2


def test_a_stored_replaces_the_entry_and_keeps_its_pin() -> None:
    log = [
        envelope(stored("p"), "e1"),
        envelope(Pinned(exact_key=key("p"), pinned=True), "e2"),
    ]
    work, _ = after(log, envelope(stored("p", response="newer"), "e3"))
    entry = work.reader(NS).entry(key("p"))
    assert entry is not None
    assert (entry.response, entry.pinned, entry.version) == (b"newer", True, 3)
    assert work.state(NS).entries == 1


@pytest.mark.parametrize(
    ("response", "right"),
    [
        pytest.param("same", 1, id="feedback-stays-with-the-same-response"),
        pytest.param("other", 0, id="feedback-on-another-response-goes"),
    ],
)
def test_feedback_judges_a_response(response: str, right: int) -> None:
    log = [envelope(stored("p", response="same"), "e1"), feedback("p", Verdict.RIGHT)]
    work, _ = after(log, envelope(stored("p", response=response), "e3"))
    entry = work.reader(NS).entry(key("p"))
    assert entry is not None
    assert entry.right == right


def test_a_stored_for_another_context_leaves_the_old_one() -> None:
    log = [envelope(stored("p", at_context="old"), "e1")]
    _, step = after(log, envelope(stored("p", at_context="new"), "e2"))
    assert step.removed_contexts == {key("p"): context("old")}


def test_a_stored_without_a_vector_leaves_its_context_rows() -> None:
    log = [envelope(stored("p"), "e1")]
    _, step = after(log, envelope(stored("p", embedding=None), "e2"))
    assert step.removed_contexts == {key("p"): context("c")}


def test_an_expiry_past_the_range_of_the_clock_is_its_end() -> None:
    work, _ = after([], envelope(stored("p", ttl_ms=2**63 - 1), "e1"))
    entry = work.reader(NS).entry(key("p"))
    assert entry is not None
    assert entry.expires_at_ns == 2**63 - 1


# ---- reads --------------------------------------------------------------------------


def test_reads_count_outcomes_and_hits_but_make_no_version() -> None:
    log = [envelope(stored("p"), "e1")]
    event = envelope(
        reads(
            read("p", 10),
            read("p", 20, Outcome.HIT_SEMANTIC),
            read(None, 30, Outcome.MISS),
        ),
        "e2",
    )
    work, step = after(log, event)
    assert step.effect is Effect.COUNTED
    assert step.version_row is None
    assert work.state(NS).version == 1
    assert work.reader(NS).hits(key("p")) == Hits(count=2, last_ns=(20, 10))
    assert work.state(NS).counts == {
        "stored": 1,
        "hit_exact": 1,
        "hit_semantic": 1,
        "miss": 1,
    }


def test_only_the_last_four_hits_are_kept_in_log_order() -> None:
    log = [envelope(stored("p"), "e1")]
    log += [envelope(reads(read("p", at)), "r") for at in (5, 9, 7, 8, 6)]
    hits = folded(log).reader(NS).hits(key("p"))
    assert hits == Hits(count=5, last_ns=(6, 8, 7, 9))


def test_a_hit_on_an_entry_that_is_gone_keeps_no_history() -> None:
    work, step = after([], envelope(reads(read("p")), "e1"))
    assert step.hits == {}
    assert work.state(NS).counts == {"hit_exact": 1}


def test_a_removed_entry_takes_its_hits_along() -> None:
    log = [
        envelope(stored("p"), "e1"),
        envelope(reads(read("p")), "e2"),
        envelope(Evicted(keys=(key("p"),), reason="lru-k"), "e3"),
        envelope(stored("p"), "e4"),
    ]
    assert folded(log).reader(NS).hits(key("p")) is None


# ---- invalidation, eviction, pins, feedback -----------------------------------------

SHELF = [
    envelope(stored("apple", tags=("fruit",), model="m1"), "e1", at_ns=T0_NS),
    envelope(stored("apple pie", chunks=("book",), model="m2"), "e2", at_ns=T0_NS + MS),
    envelope(stored("pear", tags=("fruit", "x")), "e3", at_ns=T0_NS + 2 * MS),
    envelope(stored("hidden", prompt=None), "e4", at_ns=T0_NS + 3 * MS),
]


@pytest.mark.parametrize(
    ("kind", "value", "left"),
    [
        (SelectorKind.KEY, key("pear").hex(), ["-", "apple", "apple pie"]),
        (SelectorKind.PREFIX, "apple", ["-", "pear"]),
        (SelectorKind.PREFIX, "pple", ["-", "apple", "apple pie", "pear"]),
        (SelectorKind.TAG, "fruit", ["-", "apple pie"]),
        (SelectorKind.TAG, "fru", ["-", "apple", "apple pie", "pear"]),
        (SelectorKind.MODEL, "m1", ["-", "apple pie", "pear"]),
        (SelectorKind.CHUNK, hash_of("book").hex(), ["-", "apple", "pear"]),
        (SelectorKind.AGE, "9", ["-", "pear"]),
        (SelectorKind.AGE, "0" * 5000 + "10", ["-", "apple pie", "pear"]),
        (SelectorKind.AGE, "9" * 5000, ["-", "apple", "apple pie", "pear"]),
        (SelectorKind.ALL, "", []),
    ],
)
def test_an_invalidation_removes_what_it_selects(
    kind: SelectorKind, value: str, left: list[str]
) -> None:
    body = Invalidated(kind=kind, value=value, reason="r")
    work, step = after(SHELF, envelope(body, "i", at_ns=T0_NS + 10 * MS))
    assert present(work) == left
    assert len(step.entries) == 4 - len(left)
    changed = Effect.APPLIED if len(left) < 4 else Effect.NO_CHANGE
    assert step.effect is changed


def test_an_invalidation_reaches_pinned_entries_and_older_timelines() -> None:
    log = [
        *SHELF,
        envelope(Pinned(exact_key=key("apple"), pinned=True), "p"),
        envelope(rollback(to=5), "r"),
    ]
    body = Invalidated(kind=SelectorKind.ALL, value="", reason="r")
    work, step = after(log, envelope(body, "i", timeline=0))
    assert step.effect is Effect.APPLIED
    assert present(work) == []


def test_an_eviction_spares_pinned_and_absent_entries() -> None:
    log = [*SHELF, envelope(Pinned(exact_key=key("apple"), pinned=True), "p")]
    keys = (key("apple"), key("pear"), key("pear"), key("never stored"))
    work, step = after(log, envelope(Evicted(keys=keys, reason="lru-k"), "v"))
    assert present(work) == ["-", "apple", "apple pie"]
    assert step.entries == {key("pear"): None}
    assert step.removed_contexts == {key("pear"): context("c")}


def test_an_eviction_of_nothing_makes_no_version() -> None:
    event = envelope(Evicted(keys=(key("never"),), reason="expired"), "v")
    _, step = after(SHELF, event)
    assert step.effect is Effect.NO_CHANGE


@pytest.mark.parametrize(
    ("at_ms", "left"),
    [
        pytest.param(9, ["-"], id="a-clock-that-stands-behind"),
        pytest.param(10, [], id="at-the-moment"),
        pytest.param(11, [], id="after-it"),
    ],
)
def test_an_eviction_of_what_has_expired_is_held_to_its_word(
    at_ms: int, left: list[str]
) -> None:
    log = [envelope(stored("p", ttl_ms=10, prompt=None), "e1")]
    body = Evicted(keys=(key("p"),), reason=EXPIRED)
    work, _ = after(log, envelope(body, "v", at_ns=T0_NS + at_ms * MS))
    assert present(work) == left


def test_what_was_stored_anew_meanwhile_outlives_the_eviction_of_the_old() -> None:
    log = [
        envelope(stored("p", ttl_ms=10, prompt=None), "e1"),
        envelope(stored("p", ttl_ms=10, prompt=None), "e2", at_ns=T0_NS + 15 * MS),
    ]
    body = Evicted(keys=(key("p"),), reason=EXPIRED)
    _, step = after(log, envelope(body, "v", at_ns=T0_NS + 20 * MS))
    assert step.effect is Effect.NO_CHANGE


def feedback(word: str, verdict: Verdict, timeline: int = 0) -> Envelope:
    body = Feedback(matched_key=key(word), served_trace_id=TRACE, verdict=verdict)
    return envelope(body, "f", timeline=timeline)


def test_feedback_is_counted_on_the_entry_and_in_the_digest() -> None:
    log = [*SHELF, feedback("pear", Verdict.RIGHT), feedback("pear", Verdict.WRONG)]
    work, step = after(log, feedback("pear", Verdict.WRONG))
    entry = work.reader(NS).entry(key("pear"))
    assert entry is not None
    assert (entry.right, entry.wrong) == (1, 2)
    assert step.state.digest != folded(log).state(NS).digest


@pytest.mark.parametrize(
    "body",
    [
        Feedback(
            matched_key=key("never"), served_trace_id=TRACE, verdict=Verdict.RIGHT
        ),
        Pinned(exact_key=key("never"), pinned=True),
        Pinned(exact_key=key("pear"), pinned=False),
        Invalidated(kind=SelectorKind.KEY, value=key("never").hex(), reason="r"),
    ],
)
def test_an_event_without_effect_makes_no_version(body: Body) -> None:
    _, step = after(SHELF, envelope(body, "n"))
    assert step.effect is Effect.NO_CHANGE
    assert step.state.version == 4
    assert step.version_row is None


def test_a_batch_that_removes_and_replaces_shows_each_entry_once() -> None:
    base = folded([envelope(stored(word), word) for word in "pqr"])
    work = folded(
        [
            envelope(stored("q", response="newer"), "e4"),
            envelope(Evicted(keys=(key("p"),), reason="lru-k"), "e5"),
            envelope(stored("s"), "e6"),
        ],
        base,
        first=3,
    )
    entries = list(work.reader(NS).entries())
    assert [entry.exact_key for entry in entries] == sorted(map(key, "qrs"))
    assert {entry.response for entry in entries if entry.exact_key == key("q")} == {
        b"newer"
    }
    assert digest_mismatch(work.state(NS), entries) is None
    assert work.state(NS).entry_bytes == sum(len(encode(entry)) for entry in entries)


def test_what_leaves_takes_its_share_of_the_digest_along() -> None:
    log = [*SHELF, envelope(Invalidated(kind=SelectorKind.ALL, value="", reason="r"))]
    state = folded(log).state(NS)
    assert (state.digest, state.entries, state.entry_bytes) == (0, 0, 0)


# ---- timelines ----------------------------------------------------------------------


def rollback(to: int, word: str = "rb", head: int = -1) -> RolledBack:
    return RolledBack(
        rollback_id=event_id(word),
        to_version=Version(to),
        expected_head=head,
        reason="r",
    )


def test_a_rollback_makes_one_version_and_opens_the_timeline_of_its_number() -> None:
    _, step = after(SHELF, envelope(rollback(to=2), "r"))
    assert step.effect is Effect.APPLIED
    assert (step.state.version, step.state.timeline) == (5, 5)
    assert step.state.last_rollback == event_id("rb")
    assert step.version_row is not None
    assert step.version_row.timeline == Timeline(5)


@pytest.mark.parametrize(
    ("again", "word"),
    [
        pytest.param(rollback(to=2), "no_change", id="the-same-rollback-twice"),
        pytest.param(rollback(1, "x", head=4), "rollback_refused", id="wrong-head"),
        pytest.param(rollback(6, "x"), "rollback_refused", id="not-yet-a-version"),
    ],
)
def test_a_rollback_that_cannot_be_changes_nothing(
    again: RolledBack, word: str
) -> None:
    log = [*SHELF, envelope(rollback(to=2), "r")]
    _, step = after(log, envelope(again, "r2"))
    assert step.effect is Effect.NO_CHANGE
    assert (step.state.version, step.state.timeline) == (5, 5)
    assert step.state.counts[word] == 1


def test_a_rollback_to_the_expected_head_itself_is_one() -> None:
    _, step = after(SHELF, envelope(rollback(4, head=4), "r"))
    assert step.effect is Effect.APPLIED


@pytest.mark.parametrize(
    "body",
    [
        stored("new"),
        Evicted(keys=(key("pear"),), reason="expired"),
        Pinned(exact_key=key("pear"), pinned=True),
        Feedback(matched_key=key("pear"), served_trace_id=TRACE, verdict=Verdict.RIGHT),
    ],
)
@pytest.mark.parametrize("timeline", [0, 4, 6])
def test_a_decision_on_another_timeline_is_fenced(body: Body, timeline: int) -> None:
    log = [*SHELF, envelope(rollback(to=2), "r")]
    _, step = after(log, envelope(body, "late", timeline=timeline))
    assert step.effect is Effect.FENCED
    assert step.entries == {}
    assert step.version_row is None
    assert step.state.counts["fenced"] == 1
    assert step.state.version == 5


def test_a_decision_on_the_new_timeline_counts() -> None:
    log = [*SHELF, envelope(rollback(to=2), "r")]
    work, step = after(log, envelope(stored("new"), "n", timeline=5))
    assert step.effect is Effect.APPLIED
    assert work.state(NS).version == 6


# ---- the rest -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (
            Refused(
                exact_key=key("p"),
                trace_id=TRACE,
                reason="stream-cut",
                upstream_status=200,
            ),
            "refused",
        ),
        (
            SnapshotTaken(
                snapshot_id="s",
                name="n",
                lsns=(lsn(3),),
                version=Version(4),
                digest=hash_of("d"),
            ),
            "snapshot_taken",
        ),
    ],
)
def test_a_statement_is_counted_and_makes_no_version(body: Body, word: str) -> None:
    _, step = after(SHELF, envelope(body, "s", timeline=99))
    assert step.effect is Effect.COUNTED
    assert step.state.version == 4
    assert step.state.counts[word] == 1


def test_a_policy_is_kept_and_the_same_again_changes_nothing() -> None:
    event = envelope(PolicyChanged(policy='{"a":1}'), "p")
    work, step = after([event], event)
    assert work.state(NS).policy == '{"a":1}'
    assert work.state(NS).version == 1
    assert step.effect is Effect.NO_CHANGE


def test_of_two_books_of_keys_made_at_once_the_first_counts() -> None:
    def book(revision: int, mark: str) -> Envelope:
        policy = f'{{"keys":["{mark}"],"revision":{revision}}}'
        event = envelope(PolicyChanged(policy=policy), mark)
        return replace(event, namespace=ACCESS_NAMESPACE)

    log = [book(1, "a"), book(1, "b"), book(2, "c"), book(4, "d"), book(1, "a")]
    work = folded([])
    effects = [work.apply(each, lsn(at)).effect for at, each in enumerate(log)]
    lost = Effect.NO_CHANGE
    assert effects == [Effect.APPLIED, lost, Effect.APPLIED, lost, lost]
    state = work.state(ACCESS_NAMESPACE)
    assert state.policy == '{"keys":["c"],"revision":2}'
    assert (state.version, state.counts["policy_refused"]) == (2, 3)


def test_no_rollback_brings_a_revoked_key_back() -> None:
    def book(revision: int) -> Envelope:
        policy = f'{{"keys":[],"revision":{revision}}}'
        event = envelope(PolicyChanged(policy=policy), f"b{revision}")
        return replace(event, namespace=ACCESS_NAMESPACE)

    back = replace(envelope(rollback(1), "r"), namespace=ACCESS_NAMESPACE)
    work = folded([])
    for at, each in enumerate([book(1), book(2), back, book(3)]):
        assert work.apply(each, lsn(at)).effect is Effect.APPLIED
        if each is back:
            kept = work.state(ACCESS_NAMESPACE).policy
            assert kept == '{"keys":[],"revision":2}'
    assert work.state(ACCESS_NAMESPACE).version == 4


def test_shredded_keys_are_a_sorted_set() -> None:
    log = [
        envelope(KeyShredded(key_id=key_id, reason="r"), "k")
        for key_id in ("b", "a", "b")
    ]
    state = folded(log).state(NS)
    assert state.shredded_keys == ("a", "b")
    assert state.version == 2


def test_history_says_why_a_key_was_shredded() -> None:
    _, step = after([], envelope(KeyShredded(key_id="a", reason="asked"), "k"))
    assert step.version_row is not None
    assert (step.version_row.kind, step.version_row.reason) == ("key_shredded", "asked")


def test_the_fold_leaves_the_state_that_it_was_given_alone() -> None:
    state, entries = nothing(NS)
    body: Stored = stored("p")
    apply(state, entries, envelope(body), lsn(0))
    assert state == NamespaceState(namespace=NS)
