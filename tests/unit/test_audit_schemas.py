from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import avro.schema
import pytest

from cachemind import receipts
from cachemind_schemas import compat, release
from cachemind_schemas.loader import (
    AUDIT,
    CURRENT_VERSION,
    Schema,
    current_audit,
    definitions,
    parse,
    released_audit,
)

RECORDS = [
    receipts.Receipt,
    receipts.ReceiptItem,
    receipts.SignedReceipt,
    receipts.Signature,
    receipts.PartitionHead,
    receipts.Cut,
    receipts.KeyEvent,
    receipts.SignedKeyEvent,
    receipts.CutsRecord,
]
ENUMS = [receipts.KeyRole, receipts.KeyChange]
FROZEN = {
    (
        "Receipt",
        "0.1.0",
    ): "5ff416ea71134341806f1d3bc493b04bb30bf470d8b81d511a9d4a348c954b22",
    (
        "SignedReceipt",
        "0.1.0",
    ): "843525776b92e0e646e06faa86ccd55600ea7f7ed0d042a634557dc58080009e",
    (
        "Cut",
        "0.1.0",
    ): "e9bd7e723d62e1d5c5f1801fb69411eb1638748cb96ec41f1636672b09af3850",
    (
        "KeyEvent",
        "0.1.0",
    ): "b60641feb3e9b67ba402096e8923595ee538c119d9295bb2c35c7990f7134067",
    (
        "SignedKeyEvent",
        "0.1.0",
    ): "f8dddae3c28ee93393a207b35d24923b5ef984c19209f0f77aad140746e94a52",
    (
        "CutsRecord",
        "0.1.0",
    ): "a9381e6c42ae1ed1df15ccc723d7730509c1dfed5bb628419474a81aee47304c",
}
RELEASED = [(name, schema) for name in AUDIT for schema in released_audit(name)]


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_record_has_the_fields_of_its_value(kind: type) -> None:
    fields = {field["name"] for field in _definition(kind.__name__)["fields"]}
    assert fields == set(kind.__slots__)  # type: ignore[attr-defined]  # each of RECORDS has slots


@pytest.mark.parametrize("kind", ENUMS, ids=lambda kind: kind.__name__)
def test_an_enum_has_the_members_and_an_own_default(kind: Any) -> None:
    schema = _definition(kind.__name__)
    assert schema["symbols"] == ["unrecognised", *[one.value for one in kind]]
    assert schema["default"] == "unrecognised"


@pytest.mark.parametrize("name", AUDIT)
def test_nothing_that_is_signed_has_a_map(name: str) -> None:
    assert '"map"' not in current_audit(name).canonical


@pytest.mark.parametrize("name", AUDIT)
def test_what_this_build_writes_is_released(name: str) -> None:
    assert released_audit(name)[-1].version == CURRENT_VERSION
    assert released_audit(name)[-1].crc64 == current_audit(name).crc64


@pytest.mark.parametrize("name", AUDIT)
def test_each_schema_is_compatible_with_every_released_one(name: str) -> None:
    assert compat.problems(current_audit(name), released_audit(name)) == []


@pytest.mark.parametrize(
    ("name", "schema"),
    RELEASED,
    ids=[f"{name}-{one.version}" for name, one in RELEASED],
)
def test_a_released_schema_never_changes(name: str, schema: Schema) -> None:
    found = hashlib.sha256(schema.text.encode()).hexdigest()
    assert found == FROZEN[name, schema.version]


def test_no_released_schema_has_vanished() -> None:
    assert [(name, schema.version) for name, schema in RELEASED] == list(FROZEN)


@pytest.mark.parametrize("name", AUDIT)
def test_apache_avro_computes_the_same_fingerprint(name: str) -> None:
    schema = current_audit(name)
    canonical = _with_fixed_by_name(avro.schema.parse(schema.text).canonical_form)
    assert canonical == schema.canonical


def test_a_release_freezes_every_schema_of_the_audit(tmp_path: Path) -> None:
    assert release.main([CURRENT_VERSION], tmp_path) == release.DONE
    for name in AUDIT:
        frozen = tmp_path / "audit" / name / f"{CURRENT_VERSION}.avsc"
        assert parse("x", frozen.read_text()).crc64 == current_audit(name).crc64


def _definition(name: str) -> dict[str, Any]:
    schema: Any = definitions()[f"cachemind.v1.{name}"]
    assert isinstance(schema, dict)
    return schema


def _with_fixed_by_name(canonical: str) -> str:
    """Return the canonical form with a `fixed` named after its first use.

    Apache avro for Python writes its whole definition each time (1.12.2).
    """
    for name, size in (("Id16", 16), ("Hash32", 32), ("Signature64", 64)):
        whole = f'{{"name":"cachemind.v1.{name}","type":"fixed","size":{size}}}'
        first, found, rest = canonical.partition(whole)
        canonical = first + found + rest.replace(whole, f'"cachemind.v1.{name}"')
    return canonical
