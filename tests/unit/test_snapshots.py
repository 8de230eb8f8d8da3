from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import avro.schema
import pytest
from avro.io import BinaryDecoder, DatumReader
from hypothesis import given
from hypothesis import strategies as st

from cachemind.codec.manifest import decode_manifest, encode_manifest
from cachemind.core.snapshots import (
    NO_EXPIRY,
    SnapshotFile,
    SnapshotManifest,
    check_name,
    expired,
    find,
    is_of_log,
    newest_first,
)
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.types import Sha256
from cachemind_schemas.loader import released_of
from tests.snapshot_cases import BEGAN_NS, TOPIC, manifest_of

ONE = manifest_of(1, {"a.sst": b"1"}, {"b.sst": b"2", "c.sst": b""}, name="v1.2.0")
TWO = manifest_of(2, {"a.sst": b"1"}, {})

HEADER = "c30166471fde755e0842"
"""Single-object encoding, schema 0.1.0 of a manifest: 42085e75de1f4766."""


@pytest.mark.parametrize("manifest", [ONE, TWO], ids=["named", "empty-partition"])
def test_a_manifest_survives_its_encoding(manifest: SnapshotManifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_apache_avro_reads_the_same_manifest() -> None:
    record = encode_manifest(ONE)
    assert record[:10].hex() == HEADER
    schema = avro.schema.parse(released_of("manifests")[0].text)
    found: Any = DatumReader(schema).read(BinaryDecoder(BytesIO(record[10:])))
    assert found["name"] == "v1.2.0"
    assert found["created_at_ns"] == ONE.created_at_ns
    assert [one["offset"] for one in found["partitions"]] == [100, 101]
    assert [f["name"] for f in found["partitions"][1]["files"]] == ["b.sst", "c.sst"]
    assert found["partitions"][0]["namespaces"][0]["digest"] == bytes([1]) * 32


@given(cut=st.integers(min_value=0, max_value=len(encode_manifest(ONE)) - 1))
def test_a_cut_manifest_is_refused(cut: int) -> None:
    with pytest.raises((UndecodableRecord, UnknownSchema)):
        decode_manifest(encode_manifest(ONE)[:cut])


@given(noise=st.binary(max_size=200))
def test_noise_is_refused_with_our_errors_alone(noise: bytes) -> None:
    with pytest.raises((UndecodableRecord, UnknownSchema)):
        decode_manifest(encode_manifest(ONE)[:10] + noise)


def test_bytes_after_a_manifest_are_refused() -> None:
    with pytest.raises(UndecodableRecord, match="follow"):
        decode_manifest(encode_manifest(ONE) + b"\0")


@pytest.mark.parametrize(
    "name", ["../CURRENT", "a/b", "", "..", ".hidden", "a\0b", "/etc/passwd"]
)
def test_a_file_name_never_leads_out_of_its_folder(name: str) -> None:
    with pytest.raises(InvalidEvent, match=r"files\.name"):
        SnapshotFile(name=name, size_bytes=1, sha256=Sha256(bytes(32)))


@pytest.mark.parametrize("name", ["v1.2.0", "before-the-migration", "A_1"])
def test_names_that_may_be_given(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 129])
def test_names_that_may_not_be_given(name: str) -> None:
    with pytest.raises(InvalidEvent, match="name"):
        check_name(name)


def test_partitions_are_whole_and_in_order() -> None:
    with pytest.raises(InvalidEvent, match="partitions"):
        replace(ONE, partitions=ONE.partitions[1:])


@pytest.mark.parametrize(
    ("cluster", "topic", "partitions", "same"),
    [
        pytest.param("cluster", TOPIC, 2, True, id="this-log"),
        pytest.param("other", TOPIC, 2, False, id="another-cluster"),
        pytest.param("cluster", "other", 2, False, id="a-topic-made-anew"),
        pytest.param("cluster", TOPIC, 4, False, id="more-partitions"),
    ],
)
def test_a_snapshot_belongs_to_one_log(
    cluster: str, topic: str, partitions: int, same: bool
) -> None:
    assert is_of_log(ONE, cluster, topic, partitions) is same


def test_the_newest_of_a_name_is_found_and_an_id_too() -> None:
    again = replace(TWO, name="v1.2.0")
    assert find([ONE, again], "v1.2.0") == again
    assert find([ONE, again], ONE.snapshot_id) == ONE
    assert find([ONE, again], "v9") is None
    assert newest_first([ONE, again]) == [again, ONE]


def test_only_a_retention_that_is_over_expires() -> None:
    dated = replace(TWO, expires_at_ns=BEGAN_NS)
    assert ONE.expires_at_ns == NO_EXPIRY
    assert expired([ONE, dated], BEGAN_NS - 1) == []
    assert expired([ONE, dated], BEGAN_NS) == [dated]
