"""The class archive is a help and never a need."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path

import pytest

from cachemind.errors import BrokerError
from cachemind_services.broker import EmbeddedBroker, KafkaDistribution
from cachemind_services.broker.class_archive import (
    archive_options,
    archive_path,
    present_archive,
)
from cachemind_services.broker.java import JavaRuntime, find_java
from cachemind_services.broker.kafka_lock import KafkaLock

JAVA = JavaRuntime(Path("/java"), 25, "25.0.2")


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaDistribution:
    folder = tmp_path / "kafka" / "9.9"
    folder.mkdir(parents=True)
    return KafkaDistribution(folder, KafkaLock(kafka_version="9.9", roots=(), jars=()))


class Training:
    """Counts its runs; each one fails as a broker would."""

    def __init__(self) -> None:
        self.runs = 0
        self.said: list[str] = []

    def __call__(self, options: Sequence[str]) -> None:
        self.runs += 1
        raise BrokerError("it died")

    def options(self, kafka: KafkaDistribution) -> list[str]:
        return archive_options(kafka, JAVA, self, self.said.append)


def test_a_training_that_fails_is_told_and_not_tried_again(
    kafka: KafkaDistribution,
) -> None:
    training = Training()
    assert training.options(kafka) == []
    assert any("it died" in line for line in training.said)
    assert training.options(kafka) == []
    assert training.runs == 1


def test_while_another_process_trains_the_broker_starts_without(
    kafka: KafkaDistribution,
) -> None:
    training = Training()
    lock = archive_path(kafka, JAVA).with_suffix(".lock")
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert training.options(kafka) == []
    assert training.runs == 0


def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "gone" / "9.9"
    lock = KafkaLock(kafka_version="9.9", roots=(), jars=())
    training = Training()
    assert training.options(KafkaDistribution(folder, lock)) == []
    assert any("starts slower" in line for line in training.said)


def test_each_java_has_its_own_archive(kafka: KafkaDistribution) -> None:
    newer = JavaRuntime(JAVA.path, 25, "25.0.3")
    moved = JavaRuntime(Path("/other/java"), 25, "25.0.2")
    paths = {archive_path(kafka, java) for java in (JAVA, newer, moved)}
    assert len(paths) == 3


@pytest.mark.broker
def test_a_started_broker_leaves_an_archive_for_the_next(
    broker: EmbeddedBroker,
) -> None:
    assert broker.status().ready
    archive, checked = present_archive(KafkaDistribution.ensure(), find_java())
    assert Path(archive.partition("=")[2]).stat().st_size > 2**20
    assert checked == "-XX:+VerifySharedSpaces"
    # The JVM complains on its console where the archive does not fit.
    assert (broker.data_dir / "logs" / "console.log").read_text() == ""
