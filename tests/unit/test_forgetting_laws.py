"""History given up at any time, against a model that keeps every version whole.

What is said to be reachable can be gone back to, and the state is the model's. The log
is really deleted below the oldest checkpoint.
"""

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

from cachemind.agents.forgetting import Forgetting, ForgettingDeps
from cachemind.agents.rehearsal import preview
from cachemind.core.checkpoint import CheckpointManifest
from cachemind.core.digest import to_bytes
from cachemind.core.snapshots import NO_EXPIRY, SnapshotNamespace, SnapshotPartition
from cachemind.core.verification import digest_mismatch
from cachemind.events import Body, RolledBack
from cachemind.types import Namespace, Offset, Sha256, Version
from cachemind_services.bootstrap.past import Elsewhere, StoredPast
from tests.fold_cases import PARTITION, envelope, rolled_back, stored
from tests.unit.fold_strategies import NAMESPACES, bodies
from tests.unit.rollback_bench import Naive, RollbackBench

SHARE = st.integers(0, 100)
EVENTS = bodies().filter(lambda body: not isinstance(body, RolledBack))


class Forgets(RuleBasedStateMachine):
    """Events, rollbacks, checkpoints that come and go, a log that is cut."""

    @initialize(words=st.lists(st.sampled_from("pqr"), min_size=2, max_size=8))
    def begin(self, words: list[str]) -> None:
        self.bench = RollbackBench()
        self.naive = {name: Naive(name) for name in NAMESPACES}
        self.kept: list[Offset] = []
        self.word = 0
        self.past = StoredPast(
            self.bench.store.view(),
            self.bench.sources,
            Elsewhere(
                snapshot=lambda _: None, progress=lambda: None, close=lambda: None
            ),
        )
        self.forgetting = Forgetting(
            ForgettingDeps(
                store=self.bench.store,
                oldest=self._oldest,
                log_begins=lambda: self.bench.log.reader().bounds(PARTITION)[0],
                rows=3,
            )
        )
        # From the start there is history that is gone.
        self.answers_and_a_checkpoint(words)
        self.history_is_given_up(cut=True)
        assert self.bench.store.horizon(NAMESPACES[0]) > 0

    @rule(body=EVENTS, name=st.sampled_from(NAMESPACES))
    def an_event(self, body: Body, name: Namespace) -> None:
        self._fold(body, name)

    @precondition(lambda self: self.bench.store.applied() >= 0)
    @rule()
    def a_checkpoint(self) -> None:
        self.kept.append(self.bench.checkpoints.create(self.bench.store))

    @precondition(lambda self: len(self.kept) > 1)
    @rule(share=SHARE)
    def a_checkpoint_is_thinned_out(self, share: int) -> None:
        # Never the newest one, as retention has it.
        at = self.kept.pop(share * (len(self.kept) - 2) // 100)
        if at not in self.kept:
            self.bench.checkpoints.prune(at)

    @rule(words=st.lists(st.sampled_from("pqr"), min_size=1, max_size=6))
    def answers_and_a_checkpoint(self, words: list[str]) -> None:
        for word in words:
            answer = stored(word, response=f"answer {self.word}")
            self._fold(answer, NAMESPACES[0])
        self.a_checkpoint()

    @precondition(lambda self: self.kept)
    @rule(cut=st.booleans())
    def history_is_given_up(self, cut: bool) -> None:
        if cut:
            self.bench.log.delete_before(PARTITION, Offset(min(self.kept) + 1))
        self.forgetting.begin()
        for _ in range(20):
            self.forgetting.go_on()

    @rule(name=st.sampled_from(NAMESPACES), share=SHARE, close=st.booleans())
    def a_rollback(self, name: Namespace, share: int, close: bool) -> None:
        self.past.catch_up()
        target = Version(share * self.naive[name].head // 100)
        if close:  # to the edge of what is kept
            target = max(target, self.past.begins(name))
        if not self.past.reaches(name, target):
            return
        assert target >= self.past.begins(name) or target == 0 or self._voided(name)
        shown = preview(self.bench.sources, name, target)
        assert shown.digest == self.naive[name].digest(target)
        self._fold(rolled_back(target, f"{name} {self.word}"), name)

    def _voided(self, name: Namespace) -> bool:
        return bool(self.bench.store.history(name).branches)

    def _oldest(self) -> CheckpointManifest | None:
        if not self.kept:
            return None
        offset = min(self.kept)
        with self.bench.checkpoints.open(offset) as view:
            namespaces = tuple(
                SnapshotNamespace(
                    namespace=state.namespace,
                    version=state.version,
                    timeline=state.timeline,
                    digest=Sha256(to_bytes(state.digest)),
                    entries=state.entries,
                )
                for state in view.namespaces()
            )
        return CheckpointManifest(
            cluster_id="c",
            topic_id="t",
            store_format=1,
            created_at_ns=0,
            name="",
            expires_at_ns=NO_EXPIRY,
            held=SnapshotPartition(
                partition=PARTITION, offset=offset, namespaces=namespaces, files=()
            ),
        )

    def _fold(self, body: Body, name: Namespace) -> None:
        self.word += 1
        event = envelope(
            body,
            f"event {self.word}",
            namespace=name,
            timeline=self.naive[name].timeline,
            at_ns=self.word * 1_000_000,
        )
        self.naive[name].apply(event, self.bench.append(event))
        self.bench.fold()
        store, state = self.bench.store, self.bench.store.namespace(name)
        entries = {one.exact_key: one for one in store.reader(name).entries()}
        assert state.version == self.naive[name].head
        assert entries == self.naive[name].copies[-1]
        assert digest_mismatch(state, entries.values()) is None
        assert store.quarantine(name) is None


def test_what_is_reachable_stays_right_whatever_is_given_up() -> None:
    run_state_machine_as_test(
        Forgets,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_is_reachable_stays_right_in_thousands_of_histories() -> None:
    run_state_machine_as_test(
        Forgets,
        settings=settings(max_examples=3000, stateful_step_count=60, deadline=None),
    )
