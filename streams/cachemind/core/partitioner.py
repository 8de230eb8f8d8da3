"""Kafka's default partitioner, so that a producer in any language lands right."""

from __future__ import annotations

from typing import Final

from cachemind.types import Partition

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return MurmurHash2 of `key` with Kafka's seed, as an unsigned 32-bit integer.

    Source: Apache Kafka, `org.apache.kafka.common.utils.Utils.murmur2`.
    """
    mixed = _SEED ^ len(key)
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        mixed = (mixed * _MIX & _MASK) ^ word
    if whole < len(key):
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 13) * _MIX & _MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes, partitions: int) -> Partition:
    """Return the partition that Kafka's default partitioner gives `key`.

    Raises: `ValueError` where there is no partition.
    Source: Apache Kafka, `BuiltInPartitioner.partitionForKey`.
    """
    if partitions < 1:
        raise ValueError(f"partitions must be at least 1, got {partitions}")
    return Partition((murmur2(key) & _POSITIVE) % partitions)
