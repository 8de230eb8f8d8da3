"""Reads the .avsc files of this package and joins them into whole schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, TypeAlias

from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    parse_schema,
    to_parsing_canonical_form,
)

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

CURRENT_VERSION: Final = "0.1.0"
"""Name of the released schema that the files in `v1/` are, or build upon."""

ROOT: Final = "Envelope"
MANIFEST: Final = "SnapshotManifest"
FAMILIES: Final = {
    "manifests": MANIFEST,
    "hosts": "HostRecord",
    "commands": "Command",
    "replies": "Reply",
}
"""The folder of what is released, and the root, of each of our other records."""

AUDIT: Final = (
    "Receipt",
    "SignedReceipt",
    "Cut",
    "KeyEvent",
    "SignedKeyEvent",
    "CutsRecord",
)
"""Roots of what is on the audit topics; each has released copies of its own."""

_NAMESPACE: Final = "cachemind.v1"
_SOURCE_FOLDER: Final = "v1"
_RELEASED_FOLDER: Final = "released"
_EXPORT_FOLDER: Final = "export"
MANIFESTS_FOLDER: Final = "manifests"
AUDIT_FOLDER: Final = "audit"
_SUFFIX: Final = ".avsc"
_BROKEN: Final = (
    SchemaParseException,
    UnknownType,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Schema:
    """One self-contained schema and its identities.

    `canonical` is Avro's Parsing Canonical Form. `crc64` is its CRC-64-AVRO as the
    8 little-endian bytes of a single-object header; `sha256` is 32 raw bytes.
    """

    version: str
    text: str
    canonical: str
    crc64: bytes
    sha256: bytes

    @property
    def name(self) -> str:
        """Return the root record's full name."""
        return str(json.loads(self.canonical)["name"])


def parse(version: str, text: str) -> Schema:
    """Return the schema written in `text`, which must not refer to another file.

    Raises: `ValueError` where `text` is not a complete Avro schema.
    Source: Avro 1.12 specification, "Parsing Canonical Form for Schemas".
    """
    try:
        canonical = to_parsing_canonical_form(
            parse_schema(json.loads(text), named_schemas={})
        )
    except _BROKEN as error:
        raise ValueError(f"not an Avro schema: {type(error).__name__}") from error
    return Schema(
        version=version,
        text=text,
        canonical=canonical,
        crc64=bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")),
        sha256=bytes.fromhex(fingerprint(canonical, "SHA-256")),
    )


@cache
def current() -> Schema:
    """Return the schema that this build writes: the files of `v1/`, joined."""
    return parse(CURRENT_VERSION, joined(definitions()))


@cache
def current_of(family: str) -> Schema:
    """Return the schema of a family, one of `FAMILIES`, that this build writes."""
    root = f"{_NAMESPACE}.{FAMILIES[family]}"
    return parse(CURRENT_VERSION, joined(definitions(), root))


def current_manifest() -> Schema:
    """Return the schema of a snapshot's manifest that this build writes."""
    return current_of(MANIFESTS_FOLDER)


@cache
def current_audit(name: str) -> Schema:
    """Return the schema of one of `AUDIT` that this build writes."""
    return parse(CURRENT_VERSION, joined(definitions(), f"{_NAMESPACE}.{name}"))


@cache
def exported_entry() -> Schema:
    """Return the schema of an entry in an export."""
    return _exported("ExportedEntry")


@cache
def audit_record() -> Schema:
    """Return the schema of a record in a sealed audit file."""
    return _exported("AuditRecord")


def _exported(name: str) -> Schema:
    file = files(__package__) / _EXPORT_FOLDER / f"{name}{_SUFFIX}"
    return parse(CURRENT_VERSION, file.read_text("utf-8"))


@cache
def released() -> tuple[Schema, ...]:
    """Return every schema of events that was ever released, oldest first."""
    return _frozen(files(__package__) / _RELEASED_FOLDER)


@cache
def released_of(family: str) -> tuple[Schema, ...]:
    """Return every schema of a family that was ever released, oldest first."""
    return _frozen(files(__package__) / _RELEASED_FOLDER / family)


def released_manifests() -> tuple[Schema, ...]:
    """Return every schema of a snapshot's manifest ever released, oldest first."""
    return released_of(MANIFESTS_FOLDER)


@cache
def released_audit(name: str) -> tuple[Schema, ...]:
    """Return every schema of one of `AUDIT` that was ever released, oldest first."""
    return _frozen(files(__package__) / _RELEASED_FOLDER / AUDIT_FOLDER / name)


def _frozen(folder: Traversable) -> tuple[Schema, ...]:
    found = [
        (item.name.removesuffix(_SUFFIX), item.read_text("utf-8"))
        for item in folder.iterdir()
        if item.name.endswith(_SUFFIX)
    ]
    return tuple(
        parse(version, text)
        for version, text in sorted(found, key=lambda one: _order(one[0]))
    )


@cache
def definitions() -> dict[str, Json]:
    """Return each definition of `v1/` by its full name."""
    folder = files(__package__) / _SOURCE_FOLDER
    return {
        f"{_NAMESPACE}.{item.name.removesuffix(_SUFFIX)}": json.loads(
            item.read_text("utf-8")
        )
        for item in folder.iterdir()
        if item.name.endswith(_SUFFIX)
    }


def joined(named: dict[str, Json], root: str = f"{_NAMESPACE}.{ROOT}") -> str:
    """Return one JSON text in which each name is defined where it is first used.

    Raises: `ValueError` where a name is used that no file defines.
    """
    seen: set[str] = set()

    def whole(node: Json) -> Json:
        match node:
            case str():
                return reference(node)
            case list():
                return [whole(branch) for branch in node]
            case dict():
                return {key: inner(key, part) for key, part in node.items()}
            case _:
                return node

    def inner(key: str, part: Json) -> Json:
        match key, part:
            case "fields", list():
                return [
                    {**field, "type": whole(field["type"])}
                    for field in part
                    if isinstance(field, dict)
                ]
            case (("type" | "items"), _) if part not in _COMPLEX:
                return whole(part)
            case _:
                return part

    def reference(name: str) -> Json:
        if name in _PRIMITIVE:
            return name
        full = name if "." in name else f"{_NAMESPACE}.{name}"
        if full in seen:
            return full
        if full not in named:
            raise ValueError(f"no file defines {full}")
        seen.add(full)
        return whole(named[full])

    return json.dumps(reference(root), ensure_ascii=False, separators=(",", ":"))


def unused(named: dict[str, Json]) -> Iterator[str]:
    """Yield each definition that no root reaches."""
    roots = (ROOT, *FAMILIES.values(), *AUDIT)
    text = "".join(joined(named, f"{_NAMESPACE}.{root}") for root in roots)
    for name in named:
        if f'"name":"{name.rpartition(".")[2]}"' not in text:
            yield name


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


_COMPLEX: Final = ("record", "enum", "fixed", "array")
_PRIMITIVE: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
