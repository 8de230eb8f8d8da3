from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.topics import (
    Cleanup,
    FoundTopic,
    Mode,
    TopicSpec,
    check,
    topics,
)

DAY_MS = 24 * 60 * 60 * 1000
DEVELOPMENT = topics(4, Mode.DEVELOPMENT)
PRODUCTION = topics(4, Mode.PRODUCTION)


def as_created(spec: TopicSpec) -> FoundTopic:
    return FoundTopic(
        name=spec.name,
        topic_id="id",
        partitions=spec.partitions,
        replication_factor=spec.replication_factor,
        settings=spec.settings(),
    )


def with_setting(topic: FoundTopic, name: str, value: str) -> FoundTopic:
    return replace(topic, settings={**topic.settings, name: value})


@pytest.mark.parametrize(
    ("spec", "name", "partitions", "cleanup", "retention_ms"),
    [
        (PRODUCTION.requests, "cachemind.requests", 4, Cleanup.DELETE, DAY_MS),
        (
            PRODUCTION.answers,
            "cachemind.answers",
            4,
            Cleanup.COMPACT_AND_DELETE,
            DAY_MS,
        ),
        (PRODUCTION.replies, "cachemind.replies", 4, Cleanup.DELETE, DAY_MS),
        (PRODUCTION.wal, "cachemind.wal", 4, Cleanup.DELETE, -1),
        (PRODUCTION.snapshots, "cachemind.snapshots", 1, Cleanup.COMPACT, -1),
        (PRODUCTION.audit, "cachemind.audit", 4, Cleanup.DELETE, -1),
        (PRODUCTION.audit_cuts, "cachemind.audit.cuts", 1, Cleanup.DELETE, -1),
        (PRODUCTION.dlq, "cachemind.dlq", 1, Cleanup.DELETE, 30 * DAY_MS),
    ],
)
def test_the_table_of_topics(
    spec: TopicSpec, name: str, partitions: int, cleanup: Cleanup, retention_ms: int
) -> None:
    assert (spec.name, spec.partitions) == (name, partitions)
    assert (spec.cleanup, spec.retention_ms) == (cleanup, retention_ms)


def test_another_prefix_gives_another_installation() -> None:
    theirs = {spec.name for spec in topics(4, Mode.PRODUCTION, "team-b").all()}
    ours = {spec.name for spec in PRODUCTION.all()}
    assert "team-b.wal" in theirs
    assert not theirs & ours


@pytest.mark.parametrize("prefix", ["", "a b", "a/b", "x" * 201])
def test_a_prefix_that_kafka_would_refuse_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        topics(4, Mode.PRODUCTION, prefix)


@given(
    partitions=st.integers(1, 500),
    mode=st.sampled_from(Mode),
)
def test_a_topic_created_as_specified_passes_its_own_check(
    partitions: int, mode: Mode
) -> None:
    for spec in topics(partitions, mode).all():
        assert not check(spec, as_created(spec))


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("cleanup.policy", "compact", "delete"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("min.insync.replicas", "1", "at least 2"),
        ("min.insync.replicas", "4", "at most the replication factor 3"),
        ("max.message.bytes", "1048588", "at least 4194304"),
        ("unclean.leader.election.enable", "true", "false"),
    ],
)
def test_a_setting_that_could_lose_events_is_named(
    setting: str, value: str, expected: str
) -> None:
    wal = PRODUCTION.wal
    (fact,) = check(wal, with_setting(as_created(wal), setting, value))
    assert (fact.topic, fact.setting) == ("cachemind.wal", setting)
    assert (fact.expected, fact.found) == (expected, value)


@pytest.mark.parametrize("partitions", [3, 5])
def test_another_number_of_partitions_is_named(partitions: int) -> None:
    found = replace(as_created(DEVELOPMENT.wal), partitions=partitions)
    (fact,) = check(DEVELOPMENT.wal, found)
    assert (fact.setting, fact.expected) == ("partitions", "4")
    assert fact.found == str(partitions)


def test_production_wants_three_copies() -> None:
    found = replace(as_created(PRODUCTION.wal), replication_factor=2)
    (fact,) = check(PRODUCTION.wal, found)
    assert (fact.setting, fact.found) == ("replication.factor", "2")


def test_every_problem_of_a_topic_is_told_at_once() -> None:
    found = with_setting(as_created(DEVELOPMENT.wal), "cleanup.policy", "compact")
    settings = [fact.setting for fact in check(PRODUCTION.wal, found)]
    assert settings == ["replication.factor", "cleanup.policy", "min.insync.replicas"]


def test_a_setting_that_cannot_be_seen_counts_as_wrong() -> None:
    hidden = replace(as_created(PRODUCTION.wal), settings={})
    assert [fact.found for fact in check(PRODUCTION.wal, hidden)] == ["(not set)"] * 4


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retention.ms", "3600000"),
        ("max.message.bytes", "10000000"),
        ("compression.type", "zstd"),
    ],
)
def test_what_is_the_operators_is_left_to_them(setting: str, value: str) -> None:
    wal = PRODUCTION.wal
    assert not check(wal, with_setting(as_created(wal), setting, value))


def test_a_laptop_may_elect_an_unclean_leader() -> None:
    wal = DEVELOPMENT.wal
    found = with_setting(as_created(wal), "unclean.leader.election.enable", "true")
    assert not check(wal, found)


def test_a_snapshot_topic_must_be_compacted() -> None:
    spec = DEVELOPMENT.snapshots
    (fact,) = check(spec, with_setting(as_created(spec), "cleanup.policy", "delete"))
    assert (fact.expected, fact.found) == ("compact", "delete")


def test_a_compacted_topic_is_compacted_before_it_grows() -> None:
    for topics_of_mode in (DEVELOPMENT, PRODUCTION):
        found = topics_of_mode.snapshots.settings()
        assert int(found["segment.ms"]) <= 3_600_000
        assert int(found["segment.bytes"]) <= 2**24
        assert "segment.ms" not in topics_of_mode.wal.settings()
