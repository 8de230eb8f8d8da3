from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import avro.schema
import pytest

from cachemind import events
from cachemind.core import cache_commands, commands, hosts, snapshots
from cachemind.types import Lsn
from cachemind_schemas import compat, release
from cachemind_schemas.loader import (
    CURRENT_VERSION,
    FAMILIES,
    Schema,
    current,
    current_of,
    definitions,
    joined,
    parse,
    released,
    released_of,
    unused,
)

Change = Callable[[dict[str, Any]], None]

ROOT = Path(__file__).parents[2]
README = ROOT / "schemas" / "README.md"
VECTORS = ROOT / "tests" / "vectors" / "events.json"
RECORDS = [
    *get_args(events.Body),
    events.Envelope,
    events.Read,
    events.Evidence,
    Lsn,
    snapshots.SnapshotManifest,
    snapshots.SnapshotPartition,
    snapshots.SnapshotNamespace,
    snapshots.SnapshotFile,
    hosts.HostRecord,
    hosts.HostCheckpoint,
    commands.Command,
    commands.Rollback,
    commands.Reply,
    commands.Problem,
    commands.RollbackDone,
    *get_args(cache_commands.CacheCommand),
    *get_args(cache_commands.CacheAnswer),
]
ENUMS = [
    events.Outcome,
    events.SelectorKind,
    events.Verdict,
    commands.ProblemCode,
    commands.RollbackState,
]
FROZEN = {
    "0.1.0": "b5e40c23bccfad2310f5e0c185c2f2655eb95b2646501cc4d9489d5c6cf5d694",
}
FROZEN_OF = {
    "manifests": {
        "0.1.0": "2b0f71f94e95df9b3827e383897f3af46ca9c0bde43358172fb7508d371105f8",
    },
    "hosts": {
        "0.1.0": "6bcc8e7f352af7ada0c64970429baca01a6a1968afbf25a7ad42cfc881d745ef",
    },
    "commands": {
        "0.1.0": "19a551a566b6b4bff79a16c6f810188d256a4ee05ba9a777fdd4b12c4e73d51d",
        "0.2.0": "de69560555016845d849c87392583560baded457b99224c3c51fd6a615314cea",
        "0.3.0": "59672870362a85071d93d672f03c6e67ab23084182e1ce1237d5feefa0ee39aa",
    },
    "replies": {
        "0.1.0": "7a057c7f38f5fc326f157a370a7b272235a6cd34a59637c14a776efd2ebff151",
        "0.2.0": "44fe4cea9e06cd12e0a0a0448217ea6782cf10b74925c94f50a160521eddbaca",
        "0.3.0": "46233fa13f90a6b9e52bf77f2ccae415967c83814fb71432e01a29a6a3183611",
    },
}


def test_every_definition_is_part_of_a_root() -> None:
    assert list(unused(definitions())) == []


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_record_has_the_fields_of_its_event(kind: type) -> None:
    schema = _definition(kind.__name__)
    assert {field["name"] for field in schema["fields"]} == set(kind.__slots__)  # type: ignore[attr-defined]  # each of RECORDS has slots


@pytest.mark.parametrize("kind", ENUMS, ids=lambda kind: kind.__name__)
def test_an_enum_has_the_members_and_an_own_default(kind: Any) -> None:
    schema = _definition(kind.__name__)
    assert schema["symbols"] == ["unrecognised", *[one.value for one in kind]]
    assert schema["default"] == "unrecognised"


def test_every_body_is_a_branch() -> None:
    body = _definition("Envelope")["fields"][-1]
    assert body["name"] == "body"
    assert body["type"] == [kind.__name__ for kind in get_args(events.Body)]


@pytest.mark.parametrize("name", sorted(definitions()))
def test_every_definition_and_field_says_what_it_is(name: str) -> None:
    schema = definitions()[name]
    assert isinstance(schema, dict)
    assert schema["doc"]
    for field in _definition(name.rpartition(".")[2]).get("fields", ()):
        assert field["doc"], field["name"]


def test_no_schema_has_a_map() -> None:
    assert '"map"' not in current().canonical


def test_a_name_that_no_file_defines_is_an_error() -> None:
    named = {k: v for k, v in definitions().items() if not k.endswith("Verdict")}
    with pytest.raises(ValueError, match=r"no file defines cachemind\.v1\.Verdict"):
        joined(named)


@pytest.mark.parametrize(
    "text", ["", "[", "{}", '"Unknown"', '{"type":"record"}', "3", "[" * 9999]
)
def test_text_that_is_no_schema_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not an Avro schema"):
        parse("x", text)


def test_fingerprints_are_those_of_the_specification() -> None:
    # The specification's own example: CRC-64-AVRO of "null", as header bytes.
    null = parse("x", '"null"')
    assert null.crc64[::-1].hex() == "63dd24e7cc258f8a"
    assert null.sha256 == hashlib.sha256(b'"null"').digest()


def test_apache_avro_computes_the_same_fingerprint() -> None:
    apache = avro.schema.parse(current().text)
    canonical = _with_fixed_by_name(apache.canonical_form)
    assert canonical == current().canonical
    assert _crc64(canonical.encode()).to_bytes(8, "little") == current().crc64
    assert hashlib.sha256(canonical.encode()).digest() == current().sha256


@pytest.mark.parametrize("schema", released(), ids=lambda schema: schema.version)
def test_a_released_schema_never_changes(schema: Schema) -> None:
    assert hashlib.sha256(schema.text.encode()).hexdigest() == FROZEN[schema.version]


def test_no_released_schema_has_vanished() -> None:
    assert [schema.version for schema in released()] == list(FROZEN)


def test_what_this_build_writes_is_released() -> None:
    assert released()[-1].version == CURRENT_VERSION
    assert released()[-1].crc64 == current().crc64


def test_the_current_schema_is_compatible_with_every_released_one() -> None:
    assert compat.problems(current(), released()) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_what_this_build_writes_of_a_family_is_released(family: str) -> None:
    assert released_of(family)[-1].crc64 == current_of(family).crc64
    assert compat.problems(current_of(family), released_of(family)) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_released_schema_of_a_family_never_changes(family: str) -> None:
    found = {
        schema.version: hashlib.sha256(schema.text.encode()).hexdigest()
        for schema in released_of(family)
    }
    assert found == FROZEN_OF[family]


def _add_field(schema: dict[str, Any], **extra: Any) -> None:
    schema["fields"].append({"name": "extra", "type": "long", "doc": "d", **extra})


def _add_kind(schema: dict[str, Any]) -> None:
    schema["fields"][-1]["type"].append(
        {"type": "record", "name": "Novel", "namespace": "cachemind.v1", "fields": []}
    )


def _outcome(schema: dict[str, Any]) -> dict[str, Any]:
    reads = schema["fields"][-1]["type"][0]
    fields = reads["fields"][0]["type"]["items"]["fields"]
    found: dict[str, Any] = next(f for f in fields if f["name"] == "outcome")["type"]
    return found


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: _add_field(s, default=0), id="field-with-default"),
        pytest.param(_add_kind, id="new-kind-of-event"),
        pytest.param(lambda s: _outcome(s)["symbols"].append("hit_x"), id="new-symbol"),
        pytest.param(lambda s: s.update(doc="other words"), id="documentation"),
    ],
)
def test_a_compatible_change_passes(change: Change) -> None:
    assert compat.problems(_changed(change), released()) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            _add_field,
            "cannot read what 0.1.0 wrote: reader_field_missing_default_value",
            id="field-without-default",
        ),
        pytest.param(
            lambda s: s["fields"].pop(5),
            "cannot be read by 0.1.0: reader_field_missing_default_value",
            id="field-removed",
        ),
        pytest.param(
            lambda s: s["fields"][5].update(type="string"),
            "cannot read what 0.1.0 wrote: type_mismatch",
            id="type-changed",
        ),
        pytest.param(
            lambda s: s["fields"][5].update(type="double"),
            "cannot be read by 0.1.0: type_mismatch",
            id="type-widened",
        ),
        pytest.param(
            lambda s: s["fields"][0]["type"].update(size=17),
            "cannot read what 0.1.0 wrote: fixed_size_mismatch",
            id="fixed-size-changed",
        ),
        pytest.param(
            lambda s: s["fields"][-1]["type"].pop(),
            "cannot read what 0.1.0 wrote: missing_union_branch",
            id="kind-removed",
        ),
        pytest.param(
            lambda s: _outcome(s)["symbols"].remove("bypass"),
            "cachemind.v1.Outcome lost the symbol bypass of 0.1.0",
            id="symbol-removed",
        ),
        pytest.param(
            lambda s: _outcome(s).update(name="Ending"),
            "cachemind.v1.Outcome of 0.1.0 is gone",
            id="enum-renamed",
        ),
    ],
)
def test_an_incompatible_change_is_named(change: Change, expected: str) -> None:
    found = compat.problems(_changed(change), released())
    assert any(line.startswith(expected) for line in found), found


def test_another_namespace_is_named() -> None:
    moved = parse("x", current().text.replace("cachemind.v1", "cachemind.v2"))
    assert "cachemind.v1.Read of 0.1.0 is gone" in compat.problems(moved, released())


def test_a_release_is_frozen_once(tmp_path: Path) -> None:
    assert release.main([CURRENT_VERSION], tmp_path) == release.DONE
    frozen = tmp_path / f"{CURRENT_VERSION}.avsc"
    assert parse(CURRENT_VERSION, frozen.read_text()).crc64 == current().crc64
    for family, root in FAMILIES.items():
        schema = tmp_path / family / frozen.name
        assert parse(CURRENT_VERSION, schema.read_text()).name.endswith(root)
    assert release.main([CURRENT_VERSION], tmp_path) == release.WRONG_USAGE


def test_only_the_current_version_can_be_released(tmp_path: Path) -> None:
    assert release.main(["9.9.9"], tmp_path) == release.WRONG_USAGE
    assert list(tmp_path.iterdir()) == []


def _changed(change: Change) -> Schema:
    schema = json.loads(current().text)
    change(schema)
    return parse("changed", json.dumps(schema))


def _definition(name: str) -> dict[str, Any]:
    schema: Any = definitions()[f"cachemind.v1.{name}"]
    assert isinstance(schema, dict)
    return schema


def _with_fixed_by_name(canonical: str) -> str:
    """Return what the specification asks for of a `fixed` that is used again.

    Apache avro for Python writes its whole definition each time (1.12.2); the
    specification, and Java, name it after the first.
    """
    for name, size in (("Id16", 16), ("Hash32", 32)):
        whole = f'{{"name":"cachemind.v1.{name}","type":"fixed","size":{size}}}'
        first, found, rest = canonical.partition(whole)
        rest = rest.replace(whole, f'"cachemind.v1.{name}"')
        canonical = first + found + rest
    return canonical


def _crc64(content: bytes) -> int:
    """Return the Rabin fingerprint, written from the specification's Java code."""
    empty = 0xC15D213AA4D7A795
    table = []
    for index in range(256):
        value = index
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1))
        table.append(value)
    result = empty
    for byte in content:
        result = (result >> 8) ^ table[(result ^ byte) & 0xFF]
    return result


def test_the_byte_table_in_the_readme_is_a_vector() -> None:
    text = README.read_text("utf-8")
    section = text.partition("## An envelope")[2].partition("\n## ")[0]
    table = re.findall(r"^\| `([0-9a-f]+)` \|", section, re.M)
    vectors = json.loads(VECTORS.read_text("utf-8"))["events"]
    pinned = next(one for one in vectors if one["name"] == "pinned")
    assert "".join(table) == pinned["single_object"]


def test_the_readme_has_the_fingerprint_and_the_branches() -> None:
    text = README.read_text("utf-8").replace("\n", " ")
    assert f"`{current().crc64[::-1].hex()}` as a number" in text
    kinds = enumerate(kind.__name__ for kind in get_args(events.Body))
    assert ", ".join(f"{position} {name}" for position, name in kinds) in text


def test_the_readme_has_the_fingerprint_of_each_family() -> None:
    text = README.read_text("utf-8")
    for family in FAMILIES:
        assert f"`{current_of(family).crc64[::-1].hex()}`" in text
