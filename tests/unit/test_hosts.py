from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.codec.host_record import decode_host_record, encode_host_record
from cachemind.core.hosts import (
    MOST_NAMESPACES,
    HostCheckpoint,
    HostRecord,
    hosts_of,
    is_host_key,
    telling,
)
from cachemind.core.snapshots import SnapshotNamespace
from cachemind.errors import InvalidEvent, UndecodableRecord
from cachemind.types import Lsn, Namespace, Offset, Partition, Sha256, Timeline, Version

HOUR_NS = 3_600 * 10**9
NOW_NS = 1_700_000_000 * 10**9


def host(name: str = "aa", noted_at_ns: int = NOW_NS, topic: str = "t") -> HostRecord:
    return HostRecord(
        host_id=name * 4,
        hostname=f"box-{name}",
        noted_at_ns=noted_at_ns,
        cluster_id="c",
        topic_id=topic,
        checkpoint=None,
    )


def checkpoint(offset: int, partition: int = 0, namespaces: int = 1) -> HostCheckpoint:
    return HostCheckpoint(
        partition=Partition(partition),
        offset=Offset(offset),
        created_at_ns=NOW_NS,
        namespaces=tuple(
            SnapshotNamespace(
                namespace=Namespace(f"n{number}"),
                version=Version(offset),
                timeline=Timeline(0),
                digest=Sha256(bytes(32)),
                entries=1,
            )
            for number in range(namespaces)
        ),
    )


@pytest.mark.parametrize(
    "record",
    [host(), host().about(checkpoint(7)), host().about(checkpoint(7, namespaces=0))],
    ids=["host", "checkpoint", "without-namespaces"],
)
def test_a_record_survives_its_encoding(record: HostRecord) -> None:
    assert decode_host_record(encode_host_record(record)) == record


def test_a_record_with_a_bad_field_is_refused_by_name() -> None:
    raw = encode_host_record(host()).replace(b"aaaaaaaa", b"AAAAAAAA")
    with pytest.raises(UndecodableRecord, match="host_id"):
        decode_host_record(raw)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"host_id": "../x"}, "host_id"),
        ({"hostname": "x" * 256}, "hostname"),
        ({"noted_at_ns": -1}, "noted_at_ns"),
    ],
)
def test_what_no_host_says_is_named(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidEvent, match=field):
        replace(host(), **changes)  # type: ignore[arg-type] # the point of the test


def test_keys_tell_hosts_from_snapshots_and_checkpoints_from_each_other() -> None:
    own, one, other = host(), host().about(checkpoint(7)), host().about(checkpoint(8))
    assert len({own.key, one.key, other.key}) == 3
    assert all(map(is_host_key, (own.key, one.key, other.key)))
    assert not is_host_key(b"0123456789abcdef0123456789abcdef")
    assert one.key == host(noted_at_ns=5).about(checkpoint(7)).key


def test_more_namespaces_than_fit_are_left_out_and_the_place_is_still_told() -> None:
    told = host().about(checkpoint(7, namespaces=MOST_NAMESPACES + 1)).checkpoint
    assert told is not None
    assert (told.offset, told.namespaces) == (7, ())


def test_a_host_lives_until_it_has_been_silent_for_long() -> None:
    records = [
        host("aa", NOW_NS - 2 * HOUR_NS).about(checkpoint(9)),
        host("aa", NOW_NS - 2 * HOUR_NS).about(checkpoint(4)),
        host("aa", NOW_NS),
        host("bb", NOW_NS - HOUR_NS),
        host("cc", NOW_NS - HOUR_NS + 1),
        host("dd", NOW_NS + HOUR_NS),
        host("ee", NOW_NS, topic="another log"),
    ]
    found = hosts_of(records, "c", "t", NOW_NS, HOUR_NS)
    assert [one.hostname for one in found] == ["box-aa", "box-bb", "box-cc", "box-dd"]
    assert [one.lives for one in found] == [True, False, True, True]
    assert [kept.offset for kept in found[0].checkpoints] == [4, 9]


lsns = st.builds(
    Lsn,
    st.integers(0, 3).map(Partition),
    st.integers(0, 9).map(Offset),
)


@given(kept=st.sets(lsns), told=st.sets(lsns))
def test_after_a_telling_what_is_told_is_what_is_kept(
    kept: set[Lsn], told: set[Lsn]
) -> None:
    by_partition: dict[Partition, list[Offset]] = {}
    for lsn in kept:
        by_partition.setdefault(lsn.partition, []).append(lsn.offset)
    todo = telling(by_partition, told)
    assert (told | set(todo.publish)) - set(todo.retract) == kept
    assert not set(todo.publish) & told
    assert set(todo.retract) <= told
