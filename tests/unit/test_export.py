from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from io import BytesIO

import fastavro
from avro.datafile import DataFileReader
from avro.io import DatumReader

from cachemind.codec.export import write_avro, write_json_lines
from cachemind.core.state import Entry
from cachemind.types import ExactKey, Namespace
from cachemind_schemas.loader import exported_entry
from tests.vectors.make_state import BARE, ENTRY

SHOP = Namespace("shop")
ANSWER = '{"choices":[{"message":{"content":"grüß"}}]}'.encode()
WITH_ANSWER = replace(ENTRY, response=ANSWER)


def test_every_field_of_an_entry_is_exported() -> None:
    schema = json.loads(exported_entry().text)
    exported = {field["name"] for field in schema["fields"]}
    assert exported == {"namespace", *(item.name for item in fields(Entry))}
    assert all(field["doc"] for field in schema["fields"])


def test_a_json_line_holds_the_parsed_answer() -> None:
    out = BytesIO()
    assert write_json_lines(out, [(SHOP, WITH_ANSWER), (SHOP, BARE)]) == 2
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["namespace"] == "shop"
    assert first["exact_key"] == ENTRY.exact_key.hex()
    assert first["response"]["choices"][0]["message"]["content"] == "grüß"
    assert second["embedding"] is None


def test_apache_avro_reads_the_container_file() -> None:
    out = BytesIO()
    assert write_avro(out, [(SHOP, WITH_ANSWER), (SHOP, BARE)]) == 2
    out.seek(0)
    reader = DataFileReader(out, DatumReader())
    assert reader.get_meta("avro.codec") == b"deflate"
    first, second = reader
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["response"] == ANSWER
    assert first["embedding"] == ENTRY.embedding
    assert first["source_chunks"] == [one.hex() for one in ENTRY.source_chunks]
    assert second["prompt"] == BARE.prompt


def test_an_export_is_written_while_it_is_read() -> None:
    out = BytesIO()
    sizes = []

    def many() -> Iterator[tuple[Namespace, Entry]]:
        for number in range(3_000):
            sizes.append(len(out.getvalue()))
            key = ExactKey(number.to_bytes(32, "big"))
            yield SHOP, replace(ENTRY, exact_key=key)

    assert write_avro(out, many()) == 3_000
    assert sizes[0] < sizes[-1]
    out.seek(0)
    assert sum(1 for _ in fastavro.reader(out)) == 3_000
