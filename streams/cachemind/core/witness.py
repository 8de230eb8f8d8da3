"""What a witness demands of a log of cuts before it signs that it has seen it.

A witness remembers the last checkpoint that it signed. It signs a later one only where
the log begins with what it saw then, so that whoever holds its line knows that there
is one history up to there, whatever the holders of the log's keys do.
Source: C2SP tlog-witness, "check and persist"; tlog-cosignature v1.0.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from cachemind.core.audit_cuts import LogOfCuts, SettledCut
from cachemind.core.audit_findings import Finding, Severity
from cachemind.core.audit_means import Means
from cachemind.core.audit_notes import CutNote
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.errors import WitnessRefused
from cachemind.receipts import LogId
from cachemind.types import Sha256


def seen_next(
    values: Iterator[bytes], means: Means, before: Checkpoint | None
) -> CutNote:
    """Return the newest checkpoint of a log of cuts, fit to be signed by a witness.

    1. Every leaf and checkpoint up to it holds, by the pinned root keys.
    2. The log has as many leaves as `before`, or more.
    3. Its first so many leaves have the root of `before`.

    Raises: `WitnessRefused`.
    """
    _demand_same_log(means.pinned.log_id, before)
    newest: SettledCut | None = None
    matched = before is None
    for found in LogOfCuts(values, means).leaves():
        if isinstance(found, Finding):
            _demand_no_fault(found)
            continue
        newest = found
        if before is not None and found.checkpoint.size == before.size:
            _demand_root(found.root, before)
            matched = True
    if newest is None:
        raise WitnessRefused("the log has no cut yet")
    if not matched and before is not None:
        raise WitnessRefused(
            f"no cut ends with leaf {before.size}, up to which the log was seen; "
            f"its newest has {newest.checkpoint.size}"
        )
    _demand_root(newest.root, newest.checkpoint.checkpoint)
    return newest.checkpoint


def _demand_same_log(log_id: LogId, before: Checkpoint | None) -> None:
    if before is not None and before.origin != log_id:
        raise WitnessRefused(f"seen before was {before.origin}, this is {log_id}")


def _demand_no_fault(found: Finding) -> None:
    if found.severity is not Severity.NOTE:
        raise WitnessRefused(f"{found.place}: {found.reason}: {found.text}")


def _demand_root(root: Sha256 | None, expected: Checkpoint) -> None:
    if root != expected.root:
        raise WitnessRefused(
            f"the first {expected.size} leaves are not those that were seen before"
        )
