"""What every store promises. Subclass it and give a fixture `site`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cachemind.core.collecting import Held
from cachemind.core.entry_bytes import encode
from cachemind.core.fold import apply, unchanged
from cachemind.core.requested import Head, Request
from cachemind.core.rollback_report import (
    Quarantine,
    RollbackReport,
    RollbackStatus,
)
from cachemind.core.state import Change, ContextRow, Entry, Hits, NamespaceState
from cachemind.core.timeline import Branch, History, Span
from cachemind.core.verification import digest_mismatch
from cachemind.core.working_set import WorkingSet
from cachemind.errors import StoreUnavailable
from cachemind.events import Body, Envelope, Evicted, Invalidated, SelectorKind
from cachemind.ports import StoreInspector, StoreWriter
from cachemind.types import ExactKey, Namespace, Offset, Version
from tests.fold_cases import (
    NS,
    NoEntries,
    context,
    envelope,
    event_id,
    folded,
    key,
    lsn,
    read,
    reads,
    requested,
    rolled_back,
    stored,
    whole,
)
from tests.unit.fold_strategies import NAMESPACES

CUTS = st.lists(st.integers(0, 20), max_size=5)
FEW = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
OTHER = Namespace("shop2")


class Site(Protocol):
    """Where the stores of one test are."""

    def store(self, journal_changes: int = 1000) -> StoreWriter:
        """Open a new, empty store."""
        ...

    def view(self, store: StoreWriter) -> StoreInspector:
        """Return a reader of `store` that has not caught up yet."""
        ...


def put(store: StoreWriter, first: int, *events: Envelope) -> Offset:
    """Commit `events` as one batch, the first at offset `first`."""
    work = WorkingSet(
        lambda name: (store.namespace(name), store.reader(name)), store.requests
    )
    for offset, event in enumerate(events, start=first):
        work.apply(event, lsn(offset))
    last = Offset(first + len(events) - 1)
    store.commit(last, work.steps())
    return last


def put_all(store: StoreWriter, log: Sequence[Envelope], cuts: Iterable[int]) -> None:
    """Commit `log` in the batches that `cuts` make of it."""
    for first, end in batches(log, cuts):
        put(store, first, *log[first:end])


def batches(log: Sequence[Envelope], cuts: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Return the ranges that `cuts` make of a log, none of them empty."""
    inside = {cut for cut in cuts if 0 < cut < len(log)}
    return pairwise(sorted({0, *inside, len(log)}))


def removal(*words: str) -> Evicted:
    return Evicted(keys=tuple(key(word) for word in words), reason="lru-k")


def require_fold_in_any_batching(
    site: Site, log: Sequence[Envelope], cuts: Iterable[int]
) -> None:
    """Check that a store holds the fold of its log however it was batched."""
    store = site.store()
    put_all(store, log, cuts)
    view = site.view(store)
    assert view.catch_up() == store.applied() == len(log) - 1
    require_fold(view, folded(log), NAMESPACES)
    kept = WorkingSet(lambda name: (store.namespace(name), store.reader(name)))
    assert whole(kept, NAMESPACES) == whole(folded(log), NAMESPACES)


def require_journal_to_tell_all(
    site: Site, log: Sequence[Envelope], cuts: Iterable[int]
) -> None:
    """Check that who follows the journal knows which entries there are."""
    store = site.store()
    view = site.view(store)
    known: set[tuple[Namespace, ExactKey]] = set()
    seen = Offset(-1)
    for first, end in batches(log, cuts):
        put(store, first, *log[first:end])
        view.catch_up()
        changes = view.changes_since(seen)
        assert changes is not None
        follow(known, changes)
        seen = view.applied()
    assert known == {
        (name, entry.exact_key) for name in NAMESPACES for entry in view.entries(name)
    }


class StoreContract:
    """One test a promise of the ports; the two laws above want their own `given`."""

    def test_an_empty_store_has_nothing_and_says_so(self, site: Site) -> None:
        store = site.store()
        view = site.view(store)
        assert view.applied() == -1
        assert view.catch_up() == store.applied() == -1
        assert store.namespace(NS) == view.namespace(NS) == NamespaceState(namespace=NS)
        assert store.reader(NS).entry(key("p")) is None
        assert view.raw_entry(NS, key("p")) is None
        assert view.namespaces() == []
        assert view.changes_since(Offset(-1)) == []

    def test_a_view_that_never_caught_up_is_empty(self, site: Site) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p")))
        view = site.view(store)
        assert view.applied() == -1
        assert list(view.entries(NS)) == []

    def test_a_commit_shows_as_a_whole_after_a_catch_up_and_not_before(
        self, site: Site
    ) -> None:
        store = site.store()
        view = site.view(store)
        view.catch_up()
        put(store, 0, envelope(stored("p"), "e1"), envelope(stored("q"), "e2"))
        assert view.applied() == -1
        assert view.raw_entry(NS, key("p")) is None
        assert view.catch_up() == 1
        assert view.namespace(NS).version == 2
        entry = store.reader(NS).entry(key("p"))
        assert entry is not None
        assert view.raw_entry(NS, key("p")) == encode(entry)

    def test_a_view_hears_of_each_commit(self, site: Site) -> None:
        store = site.store()
        view = site.view(store)
        view.catch_up()
        assert not view.changed()
        put(store, 0, envelope(reads(read(None))))
        assert view.changed()
        view.catch_up()
        assert not view.changed()

    def test_the_journal_names_what_came_and_what_went(self, site: Site) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p", at_context="c"), "e1"))
        put(store, 1, envelope(stored("p", at_context="d"), "e2"))
        put(store, 2, envelope(removal("p"), "e3"))
        view = site.view(store)
        view.catch_up()
        assert view.changes_since(Offset(0)) == [
            change("p", "c", present=False),
            change("p", "d", present=True),
            change("p", "d", present=False),
        ]
        assert view.changes_since(Offset(2)) == []

    def test_commits_without_changes_leave_no_gap_in_the_journal(
        self, site: Site
    ) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p"), "e1"))
        for offset in range(1, 5):
            put(store, offset, envelope(reads(read("p"))))
        put(store, 5, envelope(stored("q"), "e2"))
        view = site.view(store)
        view.catch_up()
        for offset in range(5):
            changes = view.changes_since(Offset(offset))
            assert changes == [change("q", "c", present=True)]

    def test_a_reader_that_fell_behind_the_journal_is_told(self, site: Site) -> None:
        store = site.store(journal_changes=3)
        for offset, word in enumerate("pqrst"):
            put(store, offset, envelope(stored(word), word))
        view = site.view(store)
        view.catch_up()
        assert view.changes_since(Offset(-1)) is None
        assert view.changes_since(Offset(0)) is None
        kept = view.changes_since(Offset(1))
        assert kept is not None
        assert [line.exact_key for line in kept] == [key("r"), key("s"), key("t")]

    def test_a_commit_larger_than_the_journal_sends_every_reader_to_a_scan(
        self, site: Site
    ) -> None:
        store = site.store(journal_changes=3)
        put(store, 0, envelope(stored("p"), "p"))
        put(store, 1, *(envelope(stored(word), word) for word in "qrst"))
        put(store, 5, envelope(stored("u"), "u"))
        view = site.view(store)
        view.catch_up()
        assert view.changes_since(Offset(0)) is None
        assert view.changes_since(Offset(3)) is None
        assert view.changes_since(Offset(4)) == [change("u", "c", present=True)]

    def test_a_reader_that_is_ahead_saw_another_store(self, site: Site) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p")))
        view = site.view(store)
        view.catch_up()
        assert view.changes_since(Offset(7)) is None

    def test_vectors_are_listed_by_context_and_key(self, site: Site) -> None:
        store = site.store()
        events = [envelope(stored(word), word) for word in "pq"]
        events += [envelope(stored("r", at_context="d"), "r")]
        events += [envelope(stored("s", embedding=None), "s")]
        put(store, 0, *events)
        view = site.view(store)
        view.catch_up()
        rows = view.context(NS, context("c"))
        assert [row.exact_key for row in rows] == sorted([key("p"), key("q")])
        assert all(row.embedding == stored("p").embedding for row in rows)
        assert view.context(OTHER, context("c")) == []

    @pytest.mark.parametrize(
        "body",
        [
            removal("p"),
            Invalidated(kind=SelectorKind.ALL, value="", reason="r"),
            stored("p", at_context="d"),
            stored("p", embedding=None),
        ],
    )
    @pytest.mark.parametrize("together", [True, False])
    def test_a_vector_goes_with_its_entry(
        self, site: Site, body: Body, together: bool
    ) -> None:
        store = site.store()
        first, second = envelope(stored("p"), "e1"), envelope(body, "e2")
        if together:
            put(store, 0, first, second)
        else:
            put(store, 0, first)
            put(store, 1, second)
        view = site.view(store)
        view.catch_up()
        assert view.context(NS, context("c")) == []

    def test_a_vector_that_moved_and_came_back_is_there(self, site: Site) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p"), "e1"))
        put(
            store,
            1,
            envelope(stored("p", at_context="d"), "e2"),
            envelope(stored("p"), "e3"),
        )
        view = site.view(store)
        view.catch_up()
        assert len(view.context(NS, context("c"))) == 1
        assert view.context(NS, context("d")) == []

    def test_a_namespace_never_shows_the_rows_of_another(self, site: Site) -> None:
        store = site.store()
        put(
            store,
            0,
            envelope(stored("p"), "e1"),
            envelope(stored("q"), "e2", namespace=OTHER),
        )
        view = site.view(store)
        view.catch_up()
        assert [entry.exact_key for entry in view.entries(NS)] == [key("p")]
        assert [entry.exact_key for entry in view.entries(OTHER)] == [key("q")]
        assert [state.namespace for state in view.namespaces()] == [NS, OTHER]
        assert view.raw_entry(NS, key("q")) is None

    def test_hits_are_kept_with_their_entry_and_go_with_it(self, site: Site) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p"), "e1"), envelope(reads(read("p", 7))))
        assert store.reader(NS).hits(key("p")) == Hits(count=1, last_ns=(7,))
        put(store, 2, envelope(reads(read("p", 9))))
        assert store.reader(NS).hits(key("p")) == Hits(count=2, last_ns=(9, 7))
        put(store, 3, envelope(removal("p"), "e2"), envelope(stored("p"), "e3"))
        assert store.reader(NS).hits(key("p")) is None

    def test_history_is_read_by_version(self, site: Site) -> None:
        store = site.store()
        put(store, 0, *(envelope(stored(word), word) for word in "pqrst"))
        view = site.view(store)
        view.catch_up()
        rows = view.versions(NS, Version(2), Version(4))
        assert [(row.version, row.offset) for row in rows] == [(2, 1), (3, 2), (4, 3)]
        assert view.versions(NS, Version(6), Version(9)) == []
        assert view.versions(NS, Version(4), Version(2)) == []
        assert len(view.versions(NS, Version(0), Version(5))) == 5

    def test_history_tells_the_keys_that_each_version_changed(self, site: Site) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p"), "e1"), envelope(stored("q"), "e2"))
        put(store, 2, envelope(removal("p", "q"), "e3"), envelope(stored("r"), "e4"))
        view = site.view(store)
        view.catch_up()
        for reading in (store, view):
            assert reading.touched(NS, Span(Version(2), Version(3))) == {
                2: (key("q"),),
                3: tuple(sorted([key("p"), key("q")])),
            }
            assert reading.touched(OTHER, Span(Version(1), Version(9))) == {}
            assert reading.history(NS) == History((), Version(4))
            assert [row.version for row in reading.versions(NS, *FIRST_TWO)] == [1, 2]
            assert [row.entries for row in reading.versions(NS, *FIRST_TWO)] == [1, 2]

    def test_history_tells_a_rollbacks_target_id_and_reason(self, site: Site) -> None:
        store = site.store()
        back = rolled_back(1, reason="r" * 300)
        put(store, 0, envelope(stored("p"), "e1"), envelope(stored("q"), "e2"))
        put(store, 2, envelope(back, "e3"))
        view = site.view(store)
        view.catch_up()
        assert view.history(NS) == History(
            (Branch(Version(3), Version(1)),), Version(3)
        )
        (row,) = view.versions(NS, Version(3), Version(3))
        assert (row.target, row.rollback_id) == (1, back.rollback_id)
        assert row.reason == "r" * 200
        assert view.history(OTHER) == History.empty()

    def test_a_rollbacks_end_is_kept_by_its_id(self, site: Site) -> None:
        store = site.store()
        report = refusal(offset=0)
        commit_end(store, report)
        view = site.view(store)
        view.catch_up()
        for reading in (store, view):
            assert reading.rollback_report(report.rollback_id) == report
            assert reading.rollback_report(report.rollback_id, NS) == report
            assert reading.rollback_report(report.rollback_id, OTHER) is None
            assert reading.rollback_report(event_id("other")) is None
            assert reading.quarantine(NS) is None

    def test_what_is_done_of_a_request_is_kept_by_its_id(self, site: Site) -> None:
        store = site.store()
        first, other = requested("a", "1"), requested("a", "2")
        put(
            store,
            0,
            replace(envelope(stored("p", ttl_ms=5)), event_id=first),
            replace(envelope(stored("q")), event_id=other),
        )
        put(store, 2, replace(envelope(stored("q")), event_id=other))
        view = site.view(store)
        view.catch_up()
        for reading in (store, view):
            found, head = reading.requests(NS), reading.requests(NS).head()
            assert head == Head(generation=0, count=1)
            done = Request(
                event_id=first,
                offset=Offset(0),
                snapshot_id=stored("p").snapshot_id,
                ttl_ms=5,
            )
            assert found.request(first, head) == done
            assert found.request(other, head) == done
            assert found.request(requested("b", "1"), head) is None
            elsewhere = reading.requests(OTHER)
            assert elsewhere.request(first, elsewhere.head()) is None
            assert reading.namespace(NS).version == 1

    @pytest.mark.parametrize("cuts", [[], [5], [3, 4, 9], range(14)])
    def test_which_requests_are_remembered_does_not_depend_on_the_commits(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, cuts: Sequence[int]
    ) -> None:
        monkeypatch.setattr("cachemind.core.requested.GENERATION", 2)
        log = [
            replace(envelope(stored(f"p{at}")), event_id=requested(number))
            for at, number in enumerate("01230145067012")
        ]
        store = site.store()
        put_all(store, log, cuts)
        view = site.view(store)
        view.catch_up()
        require_fold(view, folded(log), [NS])
        # The third 0, the third 1 and the second 2 came when they were forgotten.
        assert view.requests(NS).head() == Head(generation=5, count=1)

    def test_a_quarantine_lasts_until_a_rollback_is_committed(self, site: Site) -> None:
        store, bad = site.store(), RollbackStatus.QUARANTINED
        view = site.view(store)
        commit_end(store, replace(refusal(0), status=bad, verdict="no base holds"))
        expected = Quarantine(offset=Offset(0), reason="no base holds")
        for offset in (1, 2):
            view.catch_up()
            assert store.quarantine(NS) == view.quarantine(NS) == expected
            assert view.quarantine(OTHER) is None
            assert store.quarantined() == view.quarantined() == [NS]
            commit_end(store, refusal(offset))
        commit_end(store, replace(refusal(3), status=RollbackStatus.COMMITTED))
        view.catch_up()
        assert store.quarantine(NS) is view.quarantine(NS) is None
        assert store.quarantined() == view.quarantined() == []

    def test_a_fence_is_seen_at_once_and_without_a_commit(self, site: Site) -> None:
        store = site.store()
        view = site.view(store)
        view.catch_up()
        assert view.fenced_at(NS) == -1
        store.fence(NS, Offset(0))
        assert view.fenced_at(NS) == 0
        store.fence(NS, Offset(7))
        assert view.fenced_at(NS) == 7
        assert not view.changed()

    def test_a_commit_that_does_not_move_on_is_a_callers_bug(self, site: Site) -> None:
        store = site.store()
        put(store, 3, envelope(stored("p"), "e1"))
        with pytest.raises(ValueError, match="not above 3"):
            put(store, 3, envelope(stored("q"), "e2"))
        assert store.namespace(NS).version == 1

    def test_a_commit_without_steps_moves_on(self, site: Site) -> None:
        store = site.store()
        store.commit(Offset(8), {})
        assert store.applied() == 8

    def test_a_closed_store_refuses(self, site: Site) -> None:
        store = site.store()
        put(store, 0, envelope(stored("p"), "e1"))
        store.close()
        with pytest.raises(StoreUnavailable):
            store.commit(Offset(1), {})
        with pytest.raises(StoreUnavailable):
            store.namespace(NS)


FIRST_TWO = (Version(1), Version(2))


def refusal(offset: int) -> RollbackReport:
    """The report of a rollback that was refused at `offset`."""
    event = envelope(rolled_back(9), "e")
    state = NamespaceState(namespace=NS)
    report = apply(state, NoEntries(), event, lsn(offset)).report
    assert report is not None
    return report


def commit_end(store: StoreWriter, report: RollbackReport) -> None:
    """Commit nothing but a rollback's end."""
    step = replace(unchanged(store.namespace(NS)), report=report)
    store.commit(report.offset, {NS: [step]})


def change(word: str, at_context: str, *, present: bool) -> Change:
    return Change(
        namespace=NS,
        context_key=context(at_context),
        exact_key=key(word),
        present=present,
    )


def follow(known: set[tuple[Namespace, ExactKey]], changes: Sequence[Change]) -> None:
    """Bring what a reader knows up to date."""
    for line in changes:
        if line.present:
            known.add((line.namespace, line.exact_key))
        else:
            known.discard((line.namespace, line.exact_key))


def require_fold(
    view: StoreInspector, work: WorkingSet, namespaces: Sequence[Namespace]
) -> None:
    """Check that `view` shows exactly what `work` folded, in every kind of row."""
    for name in namespaces:
        state = work.state(name)
        entries = list(work.reader(name).entries())
        assert view.namespace(name) == state
        assert list(view.entries(name)) == entries
        assert digest_mismatch(state, view.entries(name)) is None
        assert vectors_of(view, name, entries) == expected_vectors(entries)
        assert list(view.held(name, None)) == expected_lives(entries)
        for at, entry in enumerate(entries, start=1):
            after = list(view.held(name, entry.exact_key))
            assert after == expected_lives(entries[at:])
        rows = view.versions(name, Version(0), Version(state.version + 9))
        assert [row.version for row in rows] == list(range(1, state.version + 1))
        if rows:
            assert rows[-1].digest == state.digest


def expected_lives(entries: Sequence[Entry]) -> list[Held]:
    return [
        Held(one.exact_key, one.expires_at_ns, one.pinned, len(encode(one)))
        for one in entries
    ]


def vectors_of(
    view: StoreInspector, name: Namespace, entries: Sequence[Entry]
) -> list[ContextRow]:
    contexts = sorted({entry.context_key for entry in entries})
    return [row for found in contexts for row in view.context(name, found)]


def expected_vectors(entries: Sequence[Entry]) -> list[ContextRow]:
    in_order = sorted(entries, key=lambda entry: (entry.context_key, entry.exact_key))
    return [
        ContextRow(
            exact_key=entry.exact_key,
            embedding=entry.embedding,
            expires_at_ns=entry.expires_at_ns,
        )
        for entry in in_order
        if entry.embedding is not None
    ]
