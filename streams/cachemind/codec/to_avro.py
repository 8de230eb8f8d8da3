"""Events as the plain values that the Avro writer takes.

One function a record, written out field by field: this runs for every request,
and `dataclasses.asdict` costs ten times as much.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from cachemind.events import (
    Body,
    Envelope,
    Evicted,
    Feedback,
    Invalidated,
    KeyShredded,
    Pinned,
    PolicyChanged,
    Read,
    Reads,
    Refused,
    RolledBack,
    SnapshotTaken,
    Stored,
)

Plain = dict[str, Any]
Branch = tuple[str, Plain]

NAMESPACE: Final = "cachemind.v1."


def envelope(event: Envelope) -> Plain:
    """Return the field values of `event`, its body as (branch name, values)."""
    return {
        "event_id": event.event_id,
        "trace_id": event.trace_id,
        "op_hash": event.op_hash,
        "occurred_at_ns": event.occurred_at_ns,
        "timeline": event.timeline,
        "writer_seq": event.writer_seq,
        "namespace": event.namespace,
        "principal": event.principal,
        "writer": event.writer,
        "body": _body(event.body),
    }


def _body(body: Body) -> Branch:
    match body:
        case Reads():
            return NAMESPACE + "Reads", {"items": [_read(one) for one in body.items]}
        case Stored():
            return NAMESPACE + "Stored", _stored(body)
        case _:
            return _rare(body)


def _read(read: Read) -> Plain:
    return {
        "trace_id": read.trace_id,
        "exact_key": read.exact_key,
        "prompt_hash": read.prompt_hash,
        "occurred_at_ns": read.occurred_at_ns,
        "version_seen": read.version_seen,
        "outcome": read.outcome,
        "matched_key": read.matched_key,
        "similarity": read.similarity,
        "response_hash": read.response_hash,
        "strategy": read.strategy,
        "reason": read.reason,
        "principal": read.principal,
    }


def _stored(stored: Stored) -> Plain:
    evidence = stored.evidence
    return {
        "exact_key": stored.exact_key,
        "context_key": stored.context_key,
        "prompt_hash": stored.prompt_hash,
        "request_hash": stored.request_hash,
        "response_hash": stored.response_hash,
        "ttl_ms": stored.ttl_ms,
        "snapshot_id": stored.snapshot_id,
        "semantic_key": stored.semantic_key,
        "encoder_id": stored.encoder_id,
        "model": stored.model,
        "parameters": stored.parameters,
        "finish_reason": stored.finish_reason,
        "evidence": {
            "upstream_status": evidence.upstream_status,
            "streamed": evidence.streamed,
            "entropy_nats": evidence.entropy_nats,
            "confidence_ratio": evidence.confidence_ratio,
            "rule": evidence.rule,
        },
        "tags": stored.tags,
        "source_chunks": stored.source_chunks,
        "prompt": stored.prompt,
        "embedding": stored.embedding,
        "response": stored.response,
    }


def _rare(
    body: Refused
    | Invalidated
    | Evicted
    | Pinned
    | Feedback
    | RolledBack
    | SnapshotTaken
    | PolicyChanged
    | KeyShredded,
) -> Branch:
    match body:
        case SnapshotTaken():
            return NAMESPACE + "SnapshotTaken", {
                "digest": body.digest,
                "version": body.version,
                "snapshot_id": body.snapshot_id,
                "name": body.name,
                "lsns": [
                    {"partition": lsn.partition, "offset": lsn.offset}
                    for lsn in body.lsns
                ],
            }
        case (
            Refused()
            | Invalidated()
            | Evicted()
            | Pinned()
            | Feedback()
            | RolledBack()
            | PolicyChanged()
            | KeyShredded()
        ):
            kind = type(body)
            return NAMESPACE + kind.__name__, {
                name: getattr(body, name) for name in kind.__slots__
            }
        case _:
            assert_never(body)
