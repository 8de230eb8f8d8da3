"""What a verification of the audit log finds, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import partial
from typing import Final

from cachemind.types import Lsn, Partition


class Step(IntEnum):
    """The numbered steps of a verification."""

    BYTES = 1
    """Each record decodes, and its value has no other encoding."""
    KEYS = 2
    """Each key event is signed by a pinned root key and by the key that it adds."""
    CUTS = 3
    """The log of cuts is dense from 0, in order, each leaf naming the one before."""
    CHECKPOINTS = 4
    """Each cut's checkpoint has the tree's root, signed by a log key of that time."""
    HEADS = 5
    """Each cut names every partition, and no partition ever shrinks."""
    SEQUENCE = 6
    """Receipts are dense from 0, none twice, none in two versions, none missing."""
    SIGNATURES = 7
    """Each receipt is signed by a receipt key of that time."""
    CHAIN = 8
    """Each receipt names the one before, and belongs to this log and partition."""
    SOURCES = 9
    """Each receipt is about a later record of the log than the one before."""
    ROOTS = 10
    """The receipts under each cut have the roots that it names."""
    WITNESSES = 11
    """Pinned cuts and witnesses' cosignatures agree with the log."""
    WAL = 12
    """Each record of the log has its receipt, each receipt its record, unchanged."""
    LIMITS = 13
    """What nothing at hand can show."""


class Severity(StrEnum):
    """How much a finding weighs."""

    TAMPERED = "tampered"
    """The log is not what was signed."""
    UNVERIFIABLE = "unverifiable"
    """It cannot be told whether it is."""
    NOTE = "note"
    """What a reader must know, and no fault."""


class Outcome(StrEnum):
    """The verdict on a log."""

    OK = "ok"
    TAMPERED = "tampered"
    UNVERIFIABLE = "unverifiable"


class Reason(StrEnum):
    """Why: one word for each kind of finding, the same in every release."""

    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA = "unknown-schema"
    OTHER_LOG = "other-log"
    FILE_DAMAGED = "file-damaged"
    FILE_UNNAMED = "file-unnamed"
    DELETED_BEFORE = "deleted-before"

    KEY_EVENT_UNSIGNED = "key-event-unsigned"
    KEY_EVENT_MISNAMED = "key-event-misnamed"
    KEY_EVENT_WITHOUT_EFFECT = "key-event-without-effect"
    NO_KEY_VOUCHED_FOR = "no-key-vouched-for"

    CUT_MISSING = "cut-missing"
    CUTS_REORDERED = "cuts-reordered"
    CUT_DUPLICATE = "cut-duplicate"
    CUT_REPLAYED = "cut-replayed"
    CUT_FORK = "cut-fork"
    CUT_CHAIN = "cut-chain"
    CUTS_ABSENT = "cuts-absent"

    CHECKPOINT_MALFORMED = "checkpoint-malformed"
    CHECKPOINT_OF_OTHER_CUT = "checkpoint-of-other-cut"
    CHECKPOINT_ROOT = "checkpoint-root"
    CHECKPOINT_SIGNATURE = "checkpoint-signature"
    CHECKPOINT_UNSIGNED = "checkpoint-unsigned"
    CHECKPOINT_ROOT_UNKNOWN = "checkpoint-root-unknown"

    PARTITIONS_CHANGED = "partitions-changed"
    HEAD_SHRINKS = "head-shrinks"
    HEAD_CHANGED = "head-changed"
    FRONTIER = "frontier"

    HEAD_MISSING = "head-missing"
    MISSING = "missing"
    TAIL_MISSING = "tail-missing"
    PARTITION_MISSING = "partition-missing"
    PARTITION_UNNAMED = "partition-unnamed"
    REORDERED = "reordered"
    DUPLICATE = "duplicate"
    FORK = "fork"
    REPLAYED = "replayed"

    SIGNATURE = "signature"
    KEY_NAMES_DIFFER = "key-names-differ"
    UNKNOWN_KEY = "unknown-key"
    KEY_OF_OTHER_ROLE = "key-of-other-role"
    KEY_NOT_ADDED_YET = "key-not-added-yet"
    KEY_RETIRED = "key-retired"
    KEY_REVOKED = "key-revoked"

    CHAIN = "chain"
    OTHER_PARTITION = "other-partition"

    SOURCE_REPEATED = "source-repeated"
    SOURCE_ORDER = "source-order"
    SOURCE_TOPIC = "source-topic"

    ROOT = "root"

    PINNED_CUT = "pinned-cut"
    PINNED_CUT_MISSING = "pinned-cut-missing"
    PINNED_CUT_UNKNOWN = "pinned-cut-unknown"
    WITNESS = "witness"

    WAL_CHANGED = "wal-changed"
    WAL_MISSING = "wal-missing"
    WAL_UNSIGNED = "wal-unsigned"
    WAL_NOT_SIGNED_YET = "wal-not-signed-yet"
    WAL_UNTRUE = "wal-untrue"
    WAL_UNREAD = "wal-unread"
    WAL_DELETED = "wal-deleted"
    VOIDED = "voided"

    NOT_COVERED_YET = "not-covered-yet"
    TAIL_UNKNOWABLE = "tail-unknowable"
    RESIGNING_UNKNOWABLE = "re-signing-unknowable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where: a receipt of a partition, a leaf of the log of cuts, or nowhere.

    Units: `at_ns` is what the record claims, nanoseconds since the Unix epoch (UTC).
    """

    partition: Partition | None = None
    seq: int | None = None
    source: Lsn | None = None
    index: int | None = None
    at_ns: int | None = None

    def __str__(self) -> str:
        words = []
        if self.index is not None:
            words.append(f"cut {self.index}")
        if self.partition is not None:
            words.append(f"partition {self.partition}")
        if self.seq is not None:
            words.append(f"seq {self.seq}")
        if self.source is not None:
            words.append(f"LSN {self.source}")
        return " ".join(words) or "log"


NOWHERE: Final = Place()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, in a sentence that holds nothing of a prompt or an answer."""

    severity: Severity
    step: Step
    reason: Reason
    text: str
    place: Place = NOWHERE


tampered = partial(Finding, Severity.TAMPERED)
unverifiable = partial(Finding, Severity.UNVERIFIABLE)
note = partial(Finding, Severity.NOTE)


def outcome_of(findings: Iterable[Finding]) -> Outcome:
    """Return the verdict that findings give together: the worst of them counts."""
    severities = {finding.severity for finding in findings}
    if Severity.TAMPERED in severities:
        return Outcome.TAMPERED
    if Severity.UNVERIFIABLE in severities:
        return Outcome.UNVERIFIABLE
    return Outcome.OK
