"""What holds for every log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from cachemind.core.state import Effect
from cachemind.core.state_bytes import decode_state, encode_state
from cachemind.core.verification import digest_mismatch
from cachemind.core.working_set import WorkingSet
from cachemind.events import Envelope
from cachemind.types import Namespace
from tests.fold_cases import folded, lsn, whole
from tests.unit.fold_strategies import NAMESPACES, logs

LAWS = settings(max_examples=60, deadline=None)


@LAWS
@given(log=logs(), cuts=st.lists(st.integers(0, 20), max_size=4))
def test_any_batching_gives_the_same_state(
    log: list[Envelope], cuts: list[int]
) -> None:
    batched = folded([])
    edges = [0, *sorted(cut for cut in cuts if cut <= len(log)), len(log)]
    for first, end in pairwise(edges):
        batched = folded(log[first:end], batched, first)
    assert whole(batched, NAMESPACES) == whole(folded(log), NAMESPACES)


@LAWS
@given(log=logs(), data=st.data())
def test_a_snapshot_at_any_offset_changes_nothing(
    log: list[Envelope], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(log)))
    snapshot = folded(log[:cut])
    restored = folded(log[cut:], snapshot, cut)
    assert whole(restored, NAMESPACES) == whole(folded(log), NAMESPACES)


@LAWS
@given(log=logs())
def test_the_recorded_digest_is_that_of_the_entries(log: list[Envelope]) -> None:
    work = folded(log)
    for namespace in NAMESPACES:
        state = work.state(namespace)
        entries = list(work.reader(namespace).entries())
        assert digest_mismatch(state, entries) is None
        assert state.entries == len(entries)


@LAWS
@given(log=logs())
def test_versions_are_dense_and_each_has_its_row(log: list[Envelope]) -> None:
    work = folded([])
    seen: dict[Namespace, int] = dict.fromkeys(NAMESPACES, 0)
    for offset, event in enumerate(log):
        step = work.apply(event, lsn(offset))
        applied = step.effect is Effect.APPLIED
        assert (step.version_row is not None) == applied
        seen[event.namespace] += applied
        assert step.state.version == seen[event.namespace]
        if step.version_row is not None:
            assert step.version_row.version == step.state.version
            assert step.version_row.offset == offset


@LAWS
@given(log=logs())
def test_an_event_touches_only_its_own_namespace(log: list[Envelope]) -> None:
    together = folded(log)
    for namespace in NAMESPACES:
        alone = folded_alone(log, namespace)
        assert whole(alone, [namespace]) == whole(together, [namespace])


def folded_alone(log: Sequence[Envelope], namespace: Namespace) -> WorkingSet:
    """Fold only what is of `namespace`, at the offsets that it has in `log`."""
    work = folded([])
    for offset, event in enumerate(log):
        if event.namespace == namespace:
            work.apply(event, lsn(offset))
    return work


@LAWS
@given(log=logs(max_size=12))
def test_a_step_never_keeps_hits_of_what_it_removes(log: list[Envelope]) -> None:
    work = folded([])
    for offset, event in enumerate(log):
        step = work.apply(event, lsn(offset))
        gone = {key for key, entry in step.entries.items() if entry is None}
        assert not gone & step.hits.keys()
        assert gone <= step.removed_contexts.keys()


@LAWS
@given(log=logs())
def test_every_folded_state_survives_its_bytes(log: list[Envelope]) -> None:
    work = folded(log)
    for namespace in NAMESPACES:
        state = work.state(namespace)
        assert decode_state(encode_state(state)) == state
