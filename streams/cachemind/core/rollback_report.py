"""What came of a rollback, as values that the store keeps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachemind.events import RolledBack
from cachemind.types import EventId, Lsn, Namespace, Offset, Version

NO_BASE: Final = Offset(-1)
"""The base of a rollback that was rebuilt from the log's start."""

REASON_CHARS: Final = 200
"""How much of an operator's words is kept outside of the log."""


class RollbackStatus(StrEnum):
    """How a rollback ended."""

    COMMITTED = "committed"
    REFUSED = "refused"
    QUARANTINED = "quarantined"


class Strategy(StrEnum):
    """How restored entries are checked besides the digest."""

    FIELD_HASH = "field-hash"
    JSON_PATCH = "json-patch"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport:
    """The end of one rollback, whose record is at `offset` of the WAL partition.

    `new_version` is None where it was refused and nothing changed. `restored`,
    `removed` and `changed` count entries, `replayed` events. `base` is the offset of
    the checkpoint that was rebuilt from, -1 for the log's start. `digest` is the
    namespace's afterwards. `reason` is the operator's; `verdict` is `valid`, or says
    what did not fit. `duration_ms` is of this host and not part of any state.
    """

    rollback_id: EventId
    namespace: Namespace
    offset: Offset
    status: RollbackStatus
    from_version: Version
    to_version: Version
    new_version: Version | None
    restored: int
    removed: int
    changed: int
    replayed: int
    base: Offset
    digest: int
    strategy: Strategy
    verdict: str
    duration_ms: int
    reason: str


class RollbackPhase(StrEnum):
    """What a running rollback is at."""

    PLANNING = "planning"
    REPLAYING = "replaying"
    VALIDATING = "validating"
    COMMITTING = "committing"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackProgress:
    """How far a running rollback is; `total` events are to be replayed."""

    rollback_id: EventId
    namespace: Namespace
    offset: Offset
    phase: RollbackPhase
    base: Offset
    replayed: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Why a namespace must not be served on this host, since the record at `offset`."""

    offset: Offset
    reason: str


def refused(
    namespace: Namespace,
    head: Version,
    digest: int,
    body: RolledBack,
    lsn: Lsn,
    verdict: str,
) -> RollbackReport:
    """Return the report of a rollback that changes nothing, for `verdict`."""
    return RollbackReport(
        rollback_id=body.rollback_id,
        namespace=namespace,
        offset=lsn.offset,
        status=RollbackStatus.REFUSED,
        from_version=head,
        to_version=body.to_version,
        new_version=None,
        restored=0,
        removed=0,
        changed=0,
        replayed=0,
        base=NO_BASE,
        digest=digest,
        strategy=Strategy.FIELD_HASH,
        verdict=verdict,
        duration_ms=0,
        reason=body.reason[:REASON_CHARS],
    )
