"""The events of one writer."""

from __future__ import annotations

from cachemind.core.identifiers import uuid7
from cachemind.core.operation import hash_of
from cachemind.core.writing import Writing
from cachemind.types import FIRST_TIMELINE, Principal, Timeline, TraceId, WriterId
from tests.fold_cases import NS, T0_NS, stored

TRACE = TraceId(bytes(range(16)))


def test_a_writers_events_are_numbered_and_bind_what_they_do() -> None:
    writing = Writing(WriterId("w"), Principal("p"), lambda count: b"r" * count)
    first = writing.event(NS, stored("a"), TRACE, T0_NS)
    later = writing.event(NS, stored("b"), TRACE, T0_NS + 1, Timeline(7))
    assert [first.writer_seq, later.writer_seq] == [1, 2]
    assert [first.timeline, later.timeline] == [FIRST_TIMELINE, 7]
    assert first.event_id == uuid7(T0_NS, b"r" * 10)
    assert later.op_hash == hash_of(stored("b"), T0_NS + 1)
    assert (first.writer, first.principal) == ("w", "p")
    assert (first.namespace, first.trace_id) == (NS, TRACE)
    assert (first.occurred_at_ns, first.body) == (T0_NS, stored("a"))
