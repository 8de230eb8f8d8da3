from __future__ import annotations

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.partitioner import murmur2, partition_of

SIGN = 1 << 31


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        # Source: Kafka's own UtilsTest.testMurmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafkas_own_tests(key: bytes, signed_hash: int) -> None:
    assert (murmur2(key) ^ SIGN) - SIGN == signed_hash


@given(key=st.binary(max_size=200), partitions=st.integers(1, 1000))
def test_librdkafka_puts_every_key_into_the_same_partition(
    key: bytes, partitions: int
) -> None:
    assert partition_of(key, partitions) == confluent_kafka.murmur2(key, partitions)


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_without_partitions_is_a_callers_bug(partitions: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        partition_of(b"key", partitions)
