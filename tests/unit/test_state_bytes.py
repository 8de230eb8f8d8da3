from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core import history_bytes, state_bytes
from cachemind.core.rollback_report import (
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.core.state import (
    Change,
    ContextRow,
    Hits,
    NamespaceState,
    VersionRow,
)
from cachemind.errors import CorruptState
from cachemind.types import (
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Timeline,
    Version,
)
from tests import strategies
from tests.vectors import make_state as known

digests = st.integers(0, 2**256 - 1)
states = st.builds(
    NamespaceState,
    namespace=strategies.namespaces,
    version=strategies.counts.map(Version),
    timeline=strategies.counts.map(Timeline),
    digest=digests,
    entries=strategies.counts,
    entry_bytes=strategies.counts,
    policy=strategies.texts,
    shredded_keys=st.lists(strategies.texts, max_size=3).map(tuple),
    last_rollback=st.none() | strategies.event_ids,
    counts=st.dictionaries(strategies.texts, strategies.counts, max_size=4),
)
hits = st.builds(
    Hits,
    count=strategies.counts,
    last_ns=st.lists(strategies.times_ns, max_size=4).map(tuple),
)
version_rows = st.builds(
    VersionRow,
    version=strategies.counts.map(Version),
    offset=strategies.counts.map(Offset),
    timeline=strategies.counts.map(Timeline),
    digest=digests,
    entries=strategies.counts,
    event_id=strategies.event_ids,
    kind=strategies.texts,
    occurred_at_ns=strategies.times_ns,
    principal=strategies.principals,
    target=st.none() | strategies.counts.map(Version),
    rollback_id=st.none() | strategies.event_ids,
    reason=strategies.texts,
)
context_rows = st.builds(
    ContextRow,
    exact_key=strategies.exact_keys,
    embedding=st.binary(max_size=16),
    expires_at_ns=strategies.times_ns,
)
changes = st.lists(
    st.builds(
        Change,
        namespace=strategies.namespaces,
        context_key=strategies.context_keys,
        exact_key=strategies.exact_keys,
        present=st.booleans(),
    ),
    max_size=3,
).map(tuple)

reports = st.builds(
    RollbackReport,
    rollback_id=strategies.event_ids,
    namespace=strategies.namespaces,
    offset=strategies.counts.map(Offset),
    status=st.sampled_from(RollbackStatus),
    from_version=strategies.counts.map(Version),
    to_version=strategies.counts.map(Version),
    new_version=st.none() | strategies.counts.map(Version),
    restored=strategies.counts,
    removed=strategies.counts,
    changed=strategies.counts,
    replayed=strategies.counts,
    base=st.integers(-1, 2**63 - 1).map(Offset),
    digest=digests,
    strategy=st.sampled_from(Strategy),
    verdict=strategies.texts,
    duration_ms=strategies.counts,
    reason=strategies.texts,
)

KEY = ExactKey(bytes(32))
ID = EventId(bytes(16))
DECODERS: dict[str, Callable[[bytes], object]] = {
    "namespace state": state_bytes.decode_state,
    "hits": state_bytes.decode_hits,
    "version row": lambda raw: state_bytes.decode_version(Version(1), raw),
    "touched keys": history_bytes.decode_touched,
    "rollback target": history_bytes.decode_target,
    "rollback report": lambda raw: history_bytes.decode_report(ID, raw),
    "quarantine": history_bytes.decode_quarantine,
    "context row": lambda raw: state_bytes.decode_context(KEY, raw),
    "journal row": state_bytes.decode_journal,
}


@given(state=states)
def test_a_namespace_state_survives_its_bytes(state: NamespaceState) -> None:
    assert state_bytes.decode_state(state_bytes.encode_state(state)) == state


def test_the_order_in_which_counts_arose_does_not_show() -> None:
    one = NamespaceState(namespace=Namespace("a"), counts={"x": 1, "y": 2})
    two = NamespaceState(namespace=Namespace("a"), counts={"y": 2, "x": 1})
    assert state_bytes.encode_state(one) == state_bytes.encode_state(two)


@given(history=hits)
def test_hits_survive_their_bytes(history: Hits) -> None:
    assert state_bytes.decode_hits(state_bytes.encode_hits(history)) == history


@given(row=version_rows)
def test_a_version_row_survives_its_bytes(row: VersionRow) -> None:
    raw = state_bytes.encode_version(row)
    assert state_bytes.decode_version(row.version, raw) == row


@given(report=reports)
def test_a_rollback_report_survives_its_bytes(report: RollbackReport) -> None:
    raw = history_bytes.encode_report(report)
    assert history_bytes.decode_report(report.rollback_id, raw) == report


@given(keys=st.sets(strategies.exact_keys, max_size=5))
def test_touched_keys_survive_their_bytes_in_order(keys: set[ExactKey]) -> None:
    raw = history_bytes.encode_touched(keys)
    assert history_bytes.decode_touched(raw) == tuple(sorted(keys))


def test_a_report_with_an_unknown_word_is_refused() -> None:
    raw = history_bytes.encode_report(known.REPORT)
    with pytest.raises(CorruptState):
        history_bytes.decode_report(ID, raw.replace(b"committed", b"commuted."))


@given(row=context_rows)
def test_a_context_row_survives_its_bytes(row: ContextRow) -> None:
    raw = state_bytes.encode_context(row)
    assert state_bytes.decode_context(row.exact_key, raw) == row


@given(previous=st.integers(-1, 2**63 - 1).map(Offset), lines=changes)
def test_a_journal_row_survives_its_bytes(
    previous: Offset, lines: tuple[Change, ...]
) -> None:
    raw = state_bytes.encode_journal(previous, lines)
    assert state_bytes.decode_journal(raw) == (previous, lines)


@pytest.mark.parametrize("name", DECODERS)
def test_every_cut_extended_or_newer_row_is_refused(name: str) -> None:
    vectors = json.loads(known.PATH.read_text(encoding="utf-8"))["rows"]
    raw = bytes.fromhex(vectors[name])
    wrong = [raw[:cut] for cut in range(len(raw))]
    for corrupt in (*wrong, raw + b"\x00", b"\x02" + raw[1:]):
        with pytest.raises(CorruptState):
            DECODERS[name](corrupt)


@given(raw=st.binary(max_size=200), name=st.sampled_from(sorted(DECODERS)))
def test_arbitrary_bytes_raise_only_our_error(raw: bytes, name: str) -> None:
    with suppress(CorruptState):
        DECODERS[name](b"\x01" + raw)


def test_a_flag_is_0_or_1() -> None:
    raw = bytearray(state_bytes.encode_journal(Offset(-1), known.CHANGES))
    raw[1 + 8 + 4] = 2
    with pytest.raises(CorruptState, match="flag byte is 2"):
        state_bytes.decode_journal(bytes(raw))


def test_rows_are_those_of_the_vectors() -> None:
    vectors = json.loads(known.PATH.read_text(encoding="utf-8"))["rows"]
    assert known.vectors()["rows"] == vectors


def test_the_vectors_decode_to_what_they_say() -> None:
    rows = json.loads(known.PATH.read_text(encoding="utf-8"))["rows"]
    raw = {name: bytes.fromhex(text) for name, text in rows.items()}
    assert state_bytes.decode_state(raw["namespace state"]) == known.STATE
    assert state_bytes.decode_state(raw["empty namespace state"]) == known.EMPTY_STATE
    assert state_bytes.decode_hits(raw["hits"]) == known.HITS
    assert history_bytes.decode_touched(raw["touched keys"]) == known.TOUCHED
    assert history_bytes.decode_report(
        known.REPORT.rollback_id, raw["rollback report"]
    ) == (known.REPORT)
    assert history_bytes.decode_quarantine(raw["quarantine"]) == known.QUARANTINE
    assert state_bytes.decode_version(Version(9), raw["version row"]) == (
        known.VERSION_ROW
    )
    assert state_bytes.decode_journal(raw["journal row"]) == (
        known.PREVIOUS,
        known.CHANGES,
    )
