"""The one exception tree. An error carries its facts as attributes.

No message holds a prompt, a response body or a secret.
"""

from __future__ import annotations


class CacheError(Exception):
    """Base of every error that this package raises on purpose."""


# ---- bytes and events from outside -------------------------------------------------


class InvalidEvent(CacheError):
    """An event breaks its own rules (a field is out of range or malformed)."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class UndecodableRecord(CacheError):
    """The bytes of a record are not an event in any known encoding."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"record cannot be decoded: {reason}")
        self.reason = reason


class UnknownSchema(CacheError):
    """A record was written with a schema or an event type this build lacks.

    Never skipped: a newer writer may have put a meaning there that we must keep.
    """

    def __init__(self, identity: str) -> None:
        super().__init__(
            f"record uses {identity}, which this build does not know; "
            "upgrade before folding further"
        )
        self.identity = identity


class InvalidRequest(CacheError):
    """A client's request is wrong; `field` names the part."""

    def __init__(self, field: str, problem: str, *, status: int = 400) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
        self.status = status


class Unauthenticated(CacheError):
    """The caller brought no credential that counts."""

    status = 401

    def __init__(self) -> None:
        # One text for all cases: which part was wrong helps only who guesses.
        super().__init__("a valid key or token is needed")


class Forbidden(CacheError):
    """The caller is known and may not do this; `right` names what is missing."""

    status = 403

    def __init__(self, right: str, hint: str = "") -> None:
        lacks = "has no grant in that" if right == "namespace" else "lacks the right"
        super().__init__(f"this caller {lacks} {right}{hint and f': {hint}'}")
        self.right = right


# ---- the log ------------------------------------------------------------------------


class LogError(CacheError):
    """Something about the Kafka log."""


class LogUnavailable(LogError):
    """The log did not take or give a record in time. Retrying is safe."""


class LogTakenOver(LogUnavailable):
    """Another process has begun to write in our place."""


class OffsetOutOfRange(LogUnavailable):
    """The log does not have the offset asked for: deleted, or never written.

    Retrying cannot help: a reader has to begin elsewhere, `first` to `end`.
    """

    def __init__(self, where: str, asked: int, first: int, end: int) -> None:
        super().__init__(f"{where}: offset {asked} is outside of [{first}, {end}]")
        self.asked = asked
        self.first = first
        self.end = end


class LogRejected(LogError):
    """The log refuses this record for good (too large, not authorised)."""


class AccessUncontrolled(LogRejected):
    """The cluster asks nobody what he may do."""

    def __init__(self) -> None:
        super().__init__(
            "the cluster has no authorizer, so it holds to no access rules"
        )


class TopicMisconfigured(LogError):
    """A topic exists with a configuration that would lose or reorder events."""

    def __init__(self, topic: str, setting: str, expected: str, found: str) -> None:
        super().__init__(f"topic {topic}: {setting} must be {expected}, found {found}")
        self.topic = topic
        self.setting = setting
        self.expected = expected
        self.found = found


class FoldStopped(CacheError):
    """A partition's fold stopped at a record that it must not skip."""

    def __init__(self, lsn: str, reason: str) -> None:
        super().__init__(f"fold stopped at {lsn}: {reason}")
        self.lsn = lsn
        self.reason = reason


class NoProgress(CacheError):
    """A partition's records are not dealt with though the log answers and goes on."""

    def __init__(self, lsn: str, end: int) -> None:
        super().__init__(f"no progress from {lsn} on though the log goes on to {end}")
        self.lsn = lsn
        self.end = end


class StepStuck(CacheError):
    """A step of the work does not end, and nothing says why."""

    def __init__(self, step: str, waited_s: float) -> None:
        super().__init__(f"{step} has not ended for {waited_s:.0f} s")
        self.step = step
        self.waited_s = waited_s


# ---- the store ----------------------------------------------------------------------


class StoreError(CacheError):
    """Something about the RocksDB stores."""


class StoreLocked(StoreError):
    """Another process owns the store."""


class StoreUnavailable(StoreError):
    """The store is not there yet, or cannot be read or written."""


class StoreMismatch(StoreError):
    """The store belongs to another log (cluster, topic or format)."""


class CorruptState(StoreError):
    """Stored bytes are not what this build writes; `what` names the kind of row."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem


class DigestMismatch(CacheError):
    """A recomputed state digest differs from the recorded one."""

    def __init__(self, namespace: str, recorded: str, computed: str) -> None:
        super().__init__(
            f"namespace {namespace}: recorded digest {recorded}, computed {computed}"
        )
        self.namespace = namespace
        self.recorded = recorded
        self.computed = computed


# ---- versions -----------------------------------------------------------------------


class UnknownVersion(CacheError):
    """A version that the namespace never had."""


class RollbackRejected(CacheError):
    """A state of the past could not be rebuilt, or failed its validation.

    `reason` says what does not fit; another base may still do.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the state of the past does not hold: {reason}")
        self.reason = reason


class CheckpointRefused(StoreError):
    """A checkpoint is missing, damaged or not of this log; `where` names it."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"checkpoint {where}: {problem}")
        self.where = where
        self.problem = problem


# ---- snapshots ----------------------------------------------------------------------


class SnapshotError(CacheError):
    """Something about shipped snapshots."""


class SnapshotUnavailable(SnapshotError):
    """The folder or object store did not take or give what was asked."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"snapshots at {where}: {problem}")
        self.where = where
        self.problem = problem


class SnapshotRefused(SnapshotError):
    """A snapshot is missing a part, damaged or of another log; `name` is its name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"snapshot {name}: {problem}")
        self.name = name
        self.problem = problem


# ---- upstream and encoder -----------------------------------------------------------


class UpstreamUnavailable(CacheError):
    """The model server did not answer, or broke off. `status` is for the client."""

    def __init__(self, problem: str, *, status: int = 502) -> None:
        super().__init__(f"upstream: {problem}")
        self.problem = problem
        self.status = status


class MalformedCompletion(CacheError):
    """The model server's answer is not a chat completion; `reason` is a fixed text."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a chat completion: {reason}")
        self.reason = reason


class EmbeddingUnavailable(CacheError):
    """The encoder failed or has no weights; a caller treats it as a miss."""


# ---- keys and receipts ---------------------------------------------------------------


class KeyUnavailable(CacheError):
    """A key's provider does not answer just now; a retry may succeed."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"key {key}: {problem}")
        self.key = key
        self.problem = problem


class KeyRefused(CacheError):
    """A key will not do what it was asked: disabled, deleted, wrong or not allowed."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"key {key}: {problem}")
        self.key = key
        self.problem = problem


class PayloadUnreadable(CacheError):
    """An entry's payload cannot be sealed or opened; `reason` is one of few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the payload cannot be read here: {reason}")
        self.reason = reason


class MalformedNote(CacheError):
    """A text is no signed note, no checkpoint or no verifier key."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"not a signed note: {problem}")
        self.problem = problem


# ---- audit files ---------------------------------------------------------------------


class AuditFilesError(CacheError):
    """Something about the sealed files of the audit log."""


class AuditFilesUnavailable(AuditFilesError):
    """The folder or bucket did not take or give what was asked; a retry may do."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"audit files at {where}: {problem}")
        self.where = where
        self.problem = problem


class AuditScratchLost(AuditFilesUnavailable):
    """What was written for a file is gone, or cannot be trusted: begin it anew."""


class AuditFileTaken(AuditFilesError):
    """A sealed file of this name is there already, with other bytes."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is sealed already, with other bytes")
        self.name = name


class AuditFileDamaged(AuditFilesError):
    """A sealed file is missing, or not what its manifest says; `name` is its path."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class AuditBroken(CacheError):
    """Receipts or cuts cannot go on from what is there; `reason` is one of few words.

    `where` names the topic, partition and place.
    """

    def __init__(self, where: str, reason: str, problem: str) -> None:
        super().__init__(f"audit log at {where}: {reason}: {problem}")
        self.where = where
        self.reason = reason
        self.problem = problem


class WitnessRefused(CacheError):
    """A witness does not sign, or what it should have signed does not hold."""


# ---- processes ----------------------------------------------------------------------


class InvalidSetting(CacheError):
    """A setting is wrong or missing; `name` is the variable or file key."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class ControlUnavailable(CacheError):
    """The materializer's control socket cannot be made, or nobody answers there."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class BrokerError(CacheError):
    """The embedded Kafka could not be fetched, started or stopped."""
