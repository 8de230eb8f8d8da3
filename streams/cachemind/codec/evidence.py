"""What proves a receipt, as JSON: all that a verifier needs beside the root key.

Bytes that are hashed or signed are base64 of exactly those bytes; what is shown of them
beside that is for people to read, and a verifier passes it over. Hashes are hex.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cachemind.codec.cuts import (
    decode_cut,
    decode_cuts_record,
    decode_key_event,
    decode_signed_key_event,
)
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.core.audit_evidence import Evidence, KeyLeaf
from cachemind.errors import InvalidEvent, UndecodableRecord
from cachemind.ports.receipt_index import CutProof, FoundReceipt
from cachemind.receipts import (
    CutIndex,
    CutsRecord,
    Receipt,
    ReceiptItem,
    Signature,
    SignedReceipt,
    check_key_id,
)
from cachemind.types import HASH_BYTES, Sha256

T = TypeVar("T")
Json = Mapping[str, Any]
MOST_PATH = 64


def shown_evidence(
    found: FoundReceipt,
    proof: CutProof,
    key_events: Sequence[tuple[CutIndex, bytes]],
) -> dict[str, object]:
    """Return the JSON of a receipt and of all that proves it.

    Raises: `UndecodableRecord`, `UnknownSchema`.
    """
    signed = decode_signed_receipt(found.record)
    receipt = decode_receipt(signed.receipt)
    record = decode_cuts_record(proof.record)
    cut = decode_cut(record.leaf)
    return {
        "partition": found.partition,
        "seq": found.seq,
        "receipt": shown_receipt(receipt),
        "receipt_bytes": _base64(signed.receipt),
        "signature": {
            "key_id": signed.signature.key_id,
            "value": _base64(signed.signature.value),
        },
        "inclusion": {
            "index": found.seq,
            "size": cut.heads[found.partition].size,
            "path": [node.hex() for node in proof.path],
        },
        "cut": {
            "index": proof.index,
            "at_ns": cut.at_ns,
            "leaf_bytes": _base64(record.leaf),
            "inclusion": {
                "index": proof.index,
                "size": proof.index + 1,
                "path": [node.hex() for node in proof.cut_path],
            },
        },
        "checkpoint": record.checkpoint,
        "keys": [
            {"index": index, "leaf_bytes": _base64(leaf), "event": _shown_event(leaf)}
            for index, leaf in key_events
        ],
    }


def read_evidence(given: object) -> Evidence:
    """Return what a JSON of `shown_evidence` says; nothing of it is verified.

    Raises: `UndecodableRecord` naming the field; `UnknownSchema`.
    """
    fields = _object("evidence", given)
    signature = _object("signature", fields.get("signature"))
    signed = SignedReceipt(
        receipt=_bytes(fields, "receipt_bytes"),
        signature=_checked(
            "signature",
            lambda: Signature(
                key_id=check_key_id(str(signature.get("key_id"))),
                value=_bytes(signature, "value"),
            ),
        ),
    )
    cut = _object("cut", fields.get("cut"))
    leaf = _bytes(cut, "leaf_bytes")
    checkpoint = fields.get("checkpoint")
    if not isinstance(checkpoint, str):
        raise UndecodableRecord("evidence: checkpoint must be a text")
    return Evidence(
        signed=signed,
        receipt=decode_receipt(signed.receipt),
        path=_path(fields),
        record=CutsRecord(leaf=leaf, checkpoint=checkpoint),
        cut=decode_cut(leaf),
        cut_path=_path(cut),
        key_leaves=tuple(map(_key_leaf, _list(fields, "keys"))),
    )


def shown_receipt(receipt: Receipt) -> dict[str, object]:
    """Return a receipt as JSON shows it."""
    return {
        "log_id": receipt.log_id,
        "partition": receipt.partition,
        "seq": receipt.seq,
        "previous": receipt.previous.hex(),
        "source_topic": receipt.source_topic,
        "source": str(receipt.source),
        "record_hash": receipt.record_hash.hex(),
        "kind": receipt.kind,
        "namespace": receipt.namespace,
        "timeline": receipt.timeline,
        "writer": receipt.writer,
        "op_hash": _hex(receipt.op_hash),
        "items": list(map(_shown_item, receipt.items)),
        "signed_at_ns": receipt.signed_at_ns,
        "key_id": receipt.key_id,
    }


def _shown_item(item: ReceiptItem) -> dict[str, object]:
    return {
        "trace_id": item.trace_id.hex(),
        "principal": item.principal,
        "occurred_at_us": item.occurred_at_us,
        "outcome": item.outcome,
        "context_hash": _hex(item.context_hash),
        "prompt_hash": _hex(item.prompt_hash),
        "response_hash": _hex(item.response_hash),
    }


def _shown_event(leaf: bytes) -> dict[str, object]:
    event = decode_key_event(decode_signed_key_event(leaf).event)
    return {
        "change": event.change,
        "role": event.role,
        "key_id": event.key_id,
        "last_good_cut": event.last_good_cut,
        "at_ns": event.at_ns,
        "principal": event.principal,
        "reason": event.reason,
    }


def _key_leaf(given: object) -> KeyLeaf:
    fields = _object("keys", given)
    index = fields.get("index")
    if type(index) is not int or index < 0:
        raise UndecodableRecord("evidence: a key's index must be a whole number")
    signed = decode_signed_key_event(_bytes(fields, "leaf_bytes"))
    return KeyLeaf(
        index=CutIndex(index), signed=signed, event=decode_key_event(signed.event)
    )


def _path(fields: Json) -> tuple[Sha256, ...]:
    nodes = _list(_object("inclusion", fields.get("inclusion")), "path")
    if len(nodes) > MOST_PATH:
        raise UndecodableRecord(f"evidence: a path has at most {MOST_PATH} nodes")
    return tuple(map(_node, nodes))


def _node(given: object) -> Sha256:
    try:
        node = bytes.fromhex(str(given))
    except ValueError as error:
        raise UndecodableRecord("evidence: a path's node must be hex") from error
    if len(node) != HASH_BYTES:
        raise UndecodableRecord(f"evidence: a path's node has {HASH_BYTES} bytes")
    return Sha256(node)


def _object(name: str, given: object) -> Json:
    if not isinstance(given, dict):
        raise UndecodableRecord(f"evidence: {name} must be an object")
    return given


def _list(fields: Json, name: str) -> list[Any]:
    given = fields.get(name)
    if not isinstance(given, list):
        raise UndecodableRecord(f"evidence: {name} must be a list")
    return given


def _bytes(fields: Json, name: str) -> bytes:
    try:
        return base64.b64decode(str(fields.get(name)), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UndecodableRecord(f"evidence: {name} must be base64") from error


def _checked(name: str, made: Callable[[], T]) -> T:
    try:
        return made()
    except InvalidEvent as error:
        raise UndecodableRecord(f"evidence: {name}: {error}") from error


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _hex(raw: bytes | None) -> str | None:
    return None if raw is None else raw.hex()
