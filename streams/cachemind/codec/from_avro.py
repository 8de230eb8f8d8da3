"""The plain values that the Avro reader gives, as events again.

A record's fields have the names of the event's, so its values are passed by name;
only enums, arrays and nested records need a step of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from cachemind.errors import UnknownSchema
from cachemind.events import (
    Body,
    Envelope,
    Evicted,
    Evidence,
    Feedback,
    Invalidated,
    KeyShredded,
    Outcome,
    Pinned,
    PolicyChanged,
    Read,
    Reads,
    Refused,
    RolledBack,
    SelectorKind,
    SnapshotTaken,
    Stored,
    Verdict,
)
from cachemind.types import Lsn

Plain = dict[str, Any]
Symbol = TypeVar("Symbol", Outcome, SelectorKind, Verdict)

OUTCOMES: Final[Mapping[str, Outcome]] = {one.value: one for one in Outcome}
_SELECTORS: Final[Mapping[str, SelectorKind]] = {one.value: one for one in SelectorKind}
_VERDICTS: Final[Mapping[str, Verdict]] = {one.value: one for one in Verdict}


def envelope(values: Plain) -> Envelope:
    """Return the event that `values` (its body as (branch name, values)) describe.

    Takes `values` over and changes them.
    Raises: `InvalidEvent`, `UnknownSchema` for a body or an enum symbol that this
    build lacks.
    """
    branch, body = values["body"]
    kind = branch.rpartition(".")[2]
    builder = _BUILDERS.get(kind)
    if builder is None:
        raise UnknownSchema(f"event type {branch}")
    values["body"] = builder(body)
    return Envelope(**values)


def known(symbols: Mapping[str, Symbol], symbol: str, enum: str) -> Symbol:
    """Return the member for `symbol`; the schema's default symbol has none.

    Raises: `UnknownSchema`: a newer writer meant something that we must not guess.
    """
    found = symbols.get(symbol)
    if found is None:
        raise UnknownSchema(f"symbol {symbol!r} of enum {enum}")
    return found


def _read(values: Plain) -> Read:
    values["outcome"] = known(OUTCOMES, values["outcome"], "Outcome")
    return Read(**values)


def _reads(values: Plain) -> Reads:
    return Reads(items=tuple([_read(one) for one in values["items"]]))


def _stored(values: Plain) -> Stored:
    values["evidence"] = Evidence(**values["evidence"])
    values["tags"] = tuple(values["tags"])
    values["source_chunks"] = tuple(values["source_chunks"])
    return Stored(**values)


def _invalidated(values: Plain) -> Invalidated:
    values["kind"] = known(_SELECTORS, values["kind"], "SelectorKind")
    return Invalidated(**values)


def _evicted(values: Plain) -> Evicted:
    return Evicted(keys=tuple(values["keys"]), reason=values["reason"])


def _feedback(values: Plain) -> Feedback:
    values["verdict"] = known(_VERDICTS, values["verdict"], "Verdict")
    return Feedback(**values)


def _snapshot_taken(values: Plain) -> SnapshotTaken:
    values["lsns"] = tuple(Lsn(**one) for one in values["lsns"])
    return SnapshotTaken(**values)


_BUILDERS: Final[Mapping[str, Callable[[Plain], Body]]] = {
    "Reads": _reads,
    "Stored": _stored,
    "Refused": lambda values: Refused(**values),
    "Invalidated": _invalidated,
    "Evicted": _evicted,
    "Pinned": lambda values: Pinned(**values),
    "Feedback": _feedback,
    "RolledBack": lambda values: RolledBack(**values),
    "SnapshotTaken": _snapshot_taken,
    "PolicyChanged": lambda values: PolicyChanged(**values),
    "KeyShredded": lambda values: KeyShredded(**values),
}
