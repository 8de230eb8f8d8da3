"""The whole fold against a model that keeps a full copy of the state per version."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cachemind.adapters.memory_store import MemoryStore
from cachemind.agents.past import entries_at
from cachemind.agents.placing import ONE_WRITE_BYTES
from cachemind.agents.rehearsal import preview
from cachemind.core.rollback_report import Strategy
from cachemind.core.timeline import Span
from cachemind.core.verification import digest_mismatch
from cachemind.events import Body, Envelope
from cachemind.types import Namespace, Offset, Version
from tests.fold_cases import envelope, key, rolled_back
from tests.unit.fold_strategies import NAMESPACES, bodies
from tests.unit.rollback_bench import Naive, RollbackBench

FAILPOINTS = [
    "rollback.met",
    "rollback.fenced",
    "rollback.base-opened",
    "rollback.replayed",
    "shadow.begun",
    "shadow.put",
    "shadow.validated",
    "rollback.validated",
    "rollback.before-commit",
    "shadow.sealed",
    "shadow.opened",
    "rollback.after-commit",
]
SHARE = st.integers(0, 100)
KEYS = [key(word) for word in "pqr"]


class Rollbacks(RuleBasedStateMachine):
    """Anything may happen at any time; a checkpoint may be gone or damaged."""

    @initialize(
        strategy=st.sampled_from(Strategy),
        one_write_bytes=st.sampled_from([0, 6_000, ONE_WRITE_BYTES]),
    )
    def begin(self, strategy: Strategy, one_write_bytes: int) -> None:
        self.bench = RollbackBench(strategy, one_write_bytes)
        self.naive = {name: Naive(name) for name in NAMESPACES}
        self.log: list[Envelope] = []
        self.kept: list[Offset] = []
        self.word = 0

    @rule(body=bodies(), name=st.sampled_from(NAMESPACES))
    def an_event(self, body: Body, name: Namespace) -> None:
        self._append(body, name, self.naive[name].timeline)

    @rule(body=bodies(), name=st.sampled_from(NAMESPACES), back=st.integers(1, 5))
    def a_late_event_of_another_timeline(
        self, body: Body, name: Namespace, back: int
    ) -> None:
        self._append(body, name, max(0, self.naive[name].timeline - back))

    @precondition(lambda self: self.log)
    @rule(share=SHARE)
    def a_duplicate(self, share: int) -> None:
        self._put(self.log[share * (len(self.log) - 1) // 100])

    @rule(name=st.sampled_from(NAMESPACES), share=SHARE)
    def a_rollback(self, name: Namespace, share: int) -> None:
        self._roll_back(name, share * self.naive[name].head // 100)

    @rule(name=st.sampled_from(NAMESPACES), off=st.sampled_from([-1, 0, 1]))
    def a_rollback_with_an_expected_head(self, name: Namespace, off: int) -> None:
        head = self.naive[name].head
        self._roll_back(name, max(0, head - 1), expected_head=max(0, head + off))

    @rule(name=st.sampled_from(NAMESPACES))
    def an_undo(self, name: Namespace) -> None:
        if self.naive[name].timeline:
            self._roll_back(name, self.naive[name].timeline - 1)

    @rule(most=st.integers(1, 8))
    def a_fold(self, most: int) -> None:
        self.bench.fold(most=most)
        self._compare()

    @rule(name=st.sampled_from(FAILPOINTS))
    def a_fold_with_a_crash(self, name: str) -> None:
        self.bench.die_at = name
        self.bench.fold()
        self.bench.die_at = ""
        self._compare()

    @rule()
    def a_checkpoint(self) -> None:
        self.kept.append(self.bench.checkpoints.create(self.bench.store))

    @precondition(lambda self: self.kept)
    @rule(share=SHARE, damaged=st.booleans())
    def a_checkpoint_is_lost(self, share: int, damaged: bool) -> None:
        offset = self.kept.pop(share * (len(self.kept) - 1) // 100)
        if damaged:
            self.bench.checkpoints.damaged.add(offset)
        else:
            self.bench.checkpoints.prune(offset)

    @rule(name=st.sampled_from(NAMESPACES), share=SHARE)
    def a_look_at_the_past(self, name: Namespace, share: int) -> None:
        head = self.bench.store.namespace(name).version
        version = Version(share * head // 100)
        copy = self.naive[name].copies[version]
        some = entries_at(self.bench.sources, name, version, set(KEYS))
        assert some.entries == {one: copy.get(one) for one in KEYS}
        assert entries_at(self.bench.sources, name, version, None).entries == copy
        shown = preview(self.bench.sources, name, version)
        assert shown.digest == self.naive[name].digest(version)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        while self.bench.pending():
            self.bench.fold()
        self._compare()
        for name in NAMESPACES:
            assert self.bench.store.namespace(name).version == self.naive[name].head
        require_same(self.bench.rebuilt(), self.bench.store)
        require_same(self.bench.rebuilt(), self.bench.rebuilt())

    def _append(self, body: Body, name: Namespace, timeline: int) -> None:
        self.word += 1
        self._put(
            envelope(
                body,
                f"event {self.word}",
                namespace=name,
                timeline=timeline,
                at_ns=self.word * 1_000_000,
            )
        )

    def _put(self, event: Envelope) -> None:
        self.log.append(event)
        self.naive[event.namespace].apply(event, self.bench.append(event))

    def _roll_back(self, name: Namespace, to: int, *, expected_head: int = -1) -> None:
        body = rolled_back(
            to, f"{name} {self.word}", expected_head=expected_head, reason="r"
        )
        self._append(body, name, self.naive[name].timeline)

    def _compare(self) -> None:
        for name in NAMESPACES:
            require_naive(self.bench.store, self.naive[name], name)


def require_naive(store: MemoryStore, naive: Naive, name: Namespace) -> None:
    """Check that `store` holds what the model says of the version that it is at."""
    state = store.namespace(name)
    entries = {entry.exact_key: entry for entry in store.reader(name).entries()}
    assert entries == naive.copies[state.version]
    assert state.entries == len(entries)
    assert digest_mismatch(state, entries.values()) is None
    assert store.quarantine(name) is None
    rows = store.versions(name, Version(0), Version(state.version + 9))
    assert [row.version for row in rows] == list(range(1, state.version + 1))
    for row in rows:
        assert row.digest == naive.digest(row.version)
        assert row.entries == len(naive.copies[row.version])
        if row.target is not None:
            assert row.digest == naive.digest(row.target)
    touched = store.touched(name, Span(Version(1), state.version))
    assert len(touched) == state.version


def require_same(one: MemoryStore, other: MemoryStore) -> None:
    """Check that two stores of one log show the same, in every kind of row."""
    for name in NAMESPACES:
        assert one.namespace(name) == other.namespace(name)
        ours, theirs = one.reader(name), other.reader(name)
        assert list(ours.entries()) == list(theirs.entries())
        assert all(ours.hits(each) == theirs.hits(each) for each in KEYS)
        last = Version(one.namespace(name).version)
        assert one.versions(name, Version(0), last) == other.versions(
            name, Version(0), last
        )
        span = Span(Version(1), last)
        assert one.touched(name, span) == other.touched(name, span)


def test_any_history_ends_where_the_naive_model_ends() -> None:
    run_state_machine_as_test(
        Rollbacks,
        settings=settings(max_examples=150, stateful_step_count=50, deadline=None),
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_histories_end_where_the_naive_model_ends() -> None:
    run_state_machine_as_test(
        Rollbacks,
        settings=settings(max_examples=3000, stateful_step_count=60, deadline=None),
    )
