"""The known answers of the audit log, recomputed without the package where it counts.

What signs, hashes and encodes here is `hashlib`, `cryptography` and `fastavro`.
"""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from cachemind.codec import Codec
from cachemind.codec.cuts import decode_cuts_record, decode_key_event, decode_leaf
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.core.key_event_record import key_event_in
from cachemind.core.merkle import verify_consistency, verify_inclusion
from cachemind.receipts import Cut, SignedKeyEvent
from cachemind_schemas.loader import AUDIT, released_audit

VECTORS: Final = json.loads(
    (Path(__file__).parents[1] / "vectors" / "receipts.json").read_text("utf-8")
)
README: Final = (Path(__file__).parents[2] / "schemas" / "README.md").read_text("utf-8")
SCHEMAS: Final = {
    name: parse_schema(json.loads(released_audit(name)[-1].text)) for name in AUDIT
}
RECEIPTS: Final = [one for one in VECTORS["steps"] if one["step"] == "receipt"]
KEY_EVENTS: Final = [one for one in VECTORS["steps"] if one["step"] == "key_event"]
LEAVES: Final = [one for one in VECTORS["steps"] if one["step"] == "leaf"]
ROOTS: Final = [bytes.fromhex(one["root_after"]) for one in LEAVES]


def unpacked(name: str, content: bytes) -> Any:
    """Return what fastavro reads, having checked that it writes the same again."""
    assert content[:10].hex() == VECTORS["headers"][name]
    found = schemaless_reader(BytesIO(content[10:]), SCHEMAS[name], None)
    out = BytesIO()
    schemaless_writer(out, SCHEMAS[name], found)
    assert out.getvalue() == content[10:]
    return found


def framed(kind: bytes, body: bytes) -> bytes:
    return b"CMv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def root_by_the_book(leaves: list[bytes]) -> bytes:
    if len(leaves) <= 1:
        return leaves[0] if leaves else sha256(b"").digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = root_by_the_book(leaves[:half]), root_by_the_book(leaves[half:])
    return sha256(b"\x01" + left + right).digest()


def check_signature(public_key: bytes, message: bytes, raw: bytes) -> None:
    key = load_der_public_key(public_key)
    assert isinstance(key, ec.EllipticCurvePublicKey)
    r, s = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    key.verify(encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))


def public_keys() -> dict[str, bytes]:
    found = {}
    for key in VECTORS["keys"].values():
        public = bytes.fromhex(key["public_key"])
        assert sha256(public).hexdigest()[:16] == key["key_id"]
        found[key["key_id"]] = public
    return found


def test_receipts_are_hashed_chained_and_signed_as_documented() -> None:
    keys = public_keys()
    leaves: list[list[bytes]] = [[] for _ in range(VECTORS["partitions"])]
    for step in RECEIPTS:
        exact = bytes.fromhex(step["receipt_bytes"])
        receipt = unpacked("Receipt", exact)
        signed = unpacked("SignedReceipt", bytes.fromhex(step["record_value"]))
        chain = leaves[receipt["partition"]]

        assert signed["receipt"] == exact
        assert signed["signature"]["key_id"] == receipt["key_id"]
        assert receipt["seq"] == len(chain)
        assert receipt["previous"] == (chain[-1] if chain else bytes(32))
        value = bytes.fromhex(step["wal_value"] or "")
        assert receipt["record_hash"] == sha256(value).digest()
        message = framed(b"cachemind/receipt-hash/v1", sha256(exact).digest())
        assert message.hex() == step["signing_input"]
        check_signature(keys[receipt["key_id"]], message, signed["signature"]["value"])
        leaf = sha256(b"\x00" + exact).digest()
        assert leaf.hex() == step["leaf"]
        chain.append(leaf)
        assert root_by_the_book(chain).hex() == step["root_after"]


@pytest.mark.parametrize("step", RECEIPTS, ids=range(len(RECEIPTS)))
def test_a_receipt_has_the_values_beside_it(step: dict[str, Any]) -> None:
    found = unpacked("Receipt", bytes.fromhex(step["receipt_bytes"]))
    assert json.loads(json.dumps(found, default=bytes.hex)) == step["receipt"]
    receipt = decode_receipt(bytes.fromhex(step["receipt_bytes"]))
    assert receipt.kind == step["receipt"]["kind"]
    signed = decode_signed_receipt(bytes.fromhex(step["record_value"]))
    assert signed.receipt.hex() == step["receipt_bytes"]


def test_leaves_are_hashed_and_their_checkpoints_signed_as_documented() -> None:
    log_key = bytes.fromhex(VECTORS["keys"]["log"]["public_key"])
    leaves: list[bytes] = []
    for step in LEAVES:
        record = unpacked("CutsRecord", bytes.fromhex(step["record_value"]))
        assert record["leaf"].hex() == step["leaf_bytes"]
        assert record["checkpoint"] == step["checkpoint"]
        previous = leaves[-1] if leaves else bytes(32)
        leaves.append(sha256(b"\x00" + record["leaf"]).digest())
        assert leaves[-1].hex() == step["leaf"]
        root = root_by_the_book(leaves)
        assert root == bytes.fromhex(step["root_after"])
        if "cut" not in step:
            assert not record["checkpoint"]
            continue
        cut = unpacked("Cut", record["leaf"])
        assert json.loads(json.dumps(cut, default=bytes.hex)) == step["cut"]
        assert (cut["index"], cut["previous"]) == (len(leaves) - 1, previous)
        text, _, line = record["checkpoint"].rpartition("\n\n")
        encoded_root = base64.b64encode(root).decode()
        assert text == f"{VECTORS['log_id']}\n{len(leaves)}\n{encoded_root}"
        dash, name, encoded = line.removesuffix("\n").split(" ")
        assert (dash, name) == ("—", VECTORS["log_id"])
        signature = base64.b64decode(encoded)
        assert signature[:4] == sha256(log_key).digest()[:4]
        key = load_der_public_key(log_key)
        assert isinstance(key, ec.EllipticCurvePublicKey)
        key.verify(signature[4:], f"{text}\n".encode(), ec.ECDSA(SHA256()))


def test_a_cut_has_the_heads_of_its_time() -> None:
    heads = {
        number: {
            "partition": number,
            "size": 0,
            "root": sha256(b"").hexdigest(),
            "frontier": [],
        }
        for number in range(VECTORS["partitions"])
    }
    for step in VECTORS["steps"]:
        if step["step"] == "receipt":
            heads[step["receipt"]["partition"]] = {
                "partition": step["receipt"]["partition"],
                "size": step["receipt"]["seq"] + 1,
                "root": step["root_after"],
                "frontier": step["frontier_after"],
            }
        elif "cut" in step:
            assert step["cut"]["heads"] == list(heads.values())


@pytest.mark.parametrize("step", KEY_EVENTS, ids=range(len(KEY_EVENTS)))
def test_a_key_event_is_signed_by_the_root_and_by_its_key(
    step: dict[str, Any],
) -> None:
    exact = bytes.fromhex(step["event_bytes"])
    event = unpacked("KeyEvent", exact)
    assert json.loads(json.dumps(event, default=bytes.hex)) == step["event"]
    assert decode_key_event(exact).key_id == event["key_id"]
    message = framed(b"cachemind/key-event/v1", exact)
    assert message.hex() == step["signing_input"]

    policy = json.loads(step["policy"])
    signed = unpacked("SignedKeyEvent", base64.b64decode(policy["audit-key-event"]))
    assert signed["event"] == exact
    root = VECTORS["keys"]["root"]
    by_root, by_key = signed["signatures"]
    assert (by_root["key_id"], by_key["key_id"]) == (root["key_id"], event["key_id"])
    check_signature(bytes.fromhex(root["public_key"]), message, by_root["value"])
    check_signature(event["public_key"], message, by_key["value"])


def test_a_key_event_is_on_the_log_with_the_bytes_of_its_leaf() -> None:
    codec = Codec()
    on_the_log = []
    for step in RECEIPTS:
        if step["receipt"]["namespace"] == "cachemind.system":
            event = codec.decode(bytes.fromhex(step["wal_value"]))
            on_the_log.append(key_event_in(event))
    leaves = [bytes.fromhex(one["leaf_bytes"]) for one in LEAVES if "cut" not in one]
    assert on_the_log == leaves
    for leaf in leaves:
        assert isinstance(decode_leaf(leaf), SignedKeyEvent)


def test_the_package_reads_every_record_of_the_topic_of_cuts() -> None:
    for step in LEAVES:
        record = decode_cuts_record(bytes.fromhex(step["record_value"]))
        assert isinstance(decode_leaf(record.leaf), Cut) is ("cut" in step)


def test_the_proofs_hold() -> None:
    for one in VECTORS["proofs"]["inclusion"]:
        leaf = bytes.fromhex(LEAVES[one["index"]]["leaf"])
        path = [bytes.fromhex(node) for node in one["proof"]]
        assert verify_inclusion(
            leaf, one["index"], one["size"], path, ROOTS[one["size"] - 1]
        )
    for one in VECTORS["proofs"]["consistency"]:
        old_root = bytes.fromhex(one["old_root"])
        assert old_root == ROOTS[one["old"] - 1]
        path = [bytes.fromhex(node) for node in one["proof"]]
        assert verify_consistency(
            one["old"], one["size"], old_root, ROOTS[one["size"] - 1], path
        )


def test_a_witness_signed_the_last_checkpoint() -> None:
    cosigned = VECTORS["cosigned"]
    text, _, lines = cosigned["note"].rpartition("\n\n")
    of_log, of_witness = lines.splitlines()
    assert f"{text}\n\n{of_log}\n" == LEAVES[-1]["checkpoint"]

    name, shown_hash, encoded = VECTORS["witness"]["verifier_key"].split("+", 2)
    material = base64.b64decode(encoded)
    key_hash = sha256(name.encode() + b"\n" + material).digest()[:4]
    assert (material[0], key_hash.hex()) == (4, shown_hash)
    signature = base64.b64decode(of_witness.removeprefix(f"— {name} "))
    assert signature[:4] == key_hash
    assert int.from_bytes(signature[4:12], "big") == cosigned["timestamp_s"]
    message = f"cosignature/v1\ntime {cosigned['timestamp_s']}\n{text}\n"
    assert message == cosigned["message"]
    public = ed25519.Ed25519PublicKey.from_public_bytes(material[1:])
    public.verify(signature[12:], message.encode())


def test_the_byte_table_in_the_readme_is_a_vector() -> None:
    section = README.partition("### A receipt, byte by byte")[2].partition("\n### ")[0]
    table = re.findall(r"^\| `([0-9a-f]+)` \|", section, re.M)
    (step,) = [
        one
        for one in RECEIPTS
        if (one["receipt"]["partition"], one["receipt"]["seq"]) == (1, 2)
    ]
    assert "".join(table) == step["receipt_bytes"]


def test_the_readme_has_the_headers_and_a_checkpoint_of_the_vectors() -> None:
    for name, header in VECTORS["headers"].items():
        spaced = bytes.fromhex(header).hex(" ").upper()
        assert f"| {name} | `{spaced}` |" in README
    text, _, line = LEAVES[2]["checkpoint"].rpartition("\n\n")
    shown = [f"    {one}" for one in text.split("\n")]
    assert "\n".join((*shown, "", f"    {line[:40]}")) in README
