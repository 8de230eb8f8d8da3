"""The embedded broker's life on real Kafka: starts, clashes, deaths, ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from socket import create_server
from threading import Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cachemind_services.broker import EmbeddedBroker
from cachemind_services.broker.data_folder import DataFolder
from cachemind_services.broker.errors import (
    BrokerDied,
    BrokerNotReady,
    DataFolderInUse,
    DataFolderUnusable,
    ForeignCluster,
    JavaUnusable,
    NoDiskSpace,
    PortTaken,
)
from tests.conftest import StartBroker

pytestmark = pytest.mark.broker

BROKER = (
    "import argparse, sys; from cachemind_services.broker import commands;"
    "parser = argparse.ArgumentParser(); commands.configure(parser);"
    "sys.exit(commands.run(parser.parse_args()))"
)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", BROKER, *map(str, arguments)]


def broker_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=60
    )


def wait_until(true: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(20) == 0
    assert failures == [None] * len(values)


def consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, 20)]
    finally:
        consumer.close()


def test_three_brokers_run_at_once(
    broker: EmbeddedBroker, start_broker: StartBroker
) -> None:
    brokers = [broker, start_broker(), start_broker()]
    assert all(each.status().ready for each in brokers)
    assert len({each.bootstrap_servers for each in brokers}) == 3
    assert len({each.cluster_id for each in brokers}) == 3


def test_a_second_instance_on_the_folder_names_the_first(
    broker: EmbeddedBroker,
) -> None:
    with pytest.raises(DataFolderInUse) as caught, EmbeddedBroker(broker.data_dir):
        pass
    assert caught.value.pid == broker.pid
    assert broker.status().ready


def test_acknowledged_records_survive_kill_minus_nine(
    tmp_path: Path, topic_prefix: str
) -> None:
    values = [b"%d" % number for number in range(1000)]
    broker = EmbeddedBroker(tmp_path)
    # The starter's thread ends before the broker is used.
    starter = Thread(target=broker.start)
    starter.start()
    starter.join()
    broker.wait_ready()
    before = broker.bootstrap_servers
    produce(before, topic_prefix, values)

    os.kill(broker.pid, signal.SIGKILL)
    assert wait_until(lambda: DataFolder(tmp_path).owner() is None, 10)
    with pytest.raises(BrokerDied, match="was ended by SIGKILL"):
        broker.raise_if_dead()

    with broker:
        assert broker.bootstrap_servers == before
        assert consume(before, topic_prefix, len(values)) == values


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            EmbeddedBroker(tmp_path, port=port).start()
    assert caught.value.port == port
    assert not DataFolder(tmp_path).is_formatted()


def test_a_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.create()
    ours = folder.claim_cluster(None)
    meta = "#\nversion=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n"
    (folder.kafka / "meta.properties").write_text(meta)
    with pytest.raises(ForeignCluster) as caught:
        EmbeddedBroker(tmp_path).start()
    assert caught.value.expected == ours
    assert caught.value.found == "AAAAAAAAAAAAAAAAAAAAAA"


def test_a_folder_that_another_kafka_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    meta = "version=1\ncluster.id=BBBBBBBBBBBBBBBBBBBBBB\nnode.id=1\n"
    (tmp_path / "kafka" / "meta.properties").write_text(meta)
    with pytest.raises(ForeignCluster, match="BBBBBBBBBBBBBBBBBBBBBB"):
        EmbeddedBroker(tmp_path).start()
    # Nothing of ours is left in a folder that is not ours.
    assert not (tmp_path / "cluster_id").exists()


def test_another_cluster_id_than_asked_for_is_refused(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.create()
    folder.claim_cluster("CCCCCCCCCCCCCCCCCCCCCC")
    with pytest.raises(ForeignCluster, match="CCCCCCCCCCCCCCCCCCCCCC"):
        EmbeddedBroker(tmp_path, cluster_id="DDDDDDDDDDDDDDDDDDDDDD").start()


def test_too_little_disk_is_an_error_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(NoDiskSpace) as caught:
        EmbeddedBroker(tmp_path, min_free_mb=2**40).start()
    assert caught.value.free_bytes < caught.value.needed_bytes


def test_a_file_in_the_folders_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderUnusable):
        EmbeddedBroker(tmp_path / "file").start()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param("echo 'openjdk version \"11.0.2\"' >&2", "found 11", id="too-old"),
        pytest.param("echo hello", "printed no version", id="not-java"),
        pytest.param(None, "does not run", id="not-there"),
    ],
)
def test_an_unusable_java_is_named(
    tmp_path: Path, script: str | None, problem: str
) -> None:
    java = tmp_path / "java"
    if script is not None:
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
    with pytest.raises(JavaUnusable, match=problem) as caught:
        EmbeddedBroker(tmp_path / "d", java=java).start()
    assert caught.value.path == java


def test_a_jvm_that_dies_at_the_start_shows_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(BrokerDied, match="Too small maximum heap"):
        EmbeddedBroker(tmp_path, heap_mb=1).start()


def test_a_broker_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, ready_timeout_s=0)
    with pytest.raises(BrokerNotReady), broker:
        pass
    assert not broker.status().running


def test_run_ends_cleanly_within_ten_seconds_of_sigterm(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("run", "--data-dir", tmp_path, "--port", "0"),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, process.stdout or sys.stdin as out:
        servers = out.readline().strip()
        assert EmbeddedBroker(tmp_path).status().bootstrap_servers == servers
        process.terminate()
        assert process.wait(10) == 0
    assert DataFolder(tmp_path).owner() is None


def test_no_jvm_outlives_a_killed_parent(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("run", "--data-dir", tmp_path, "--port", "0"),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, process.stdout or sys.stdin as out:
        out.readline()
        jvm = DataFolder(tmp_path).owner()
        process.kill()
    assert jvm is not None
    assert wait_until(lambda: DataFolder(tmp_path).owner() is None, 10)
    assert wait_until(lambda: not is_alive(jvm), 10)


def test_a_daemon_outlives_its_starter_until_it_is_stopped(tmp_path: Path) -> None:
    where = ("--data-dir", tmp_path)
    assert broker_command("stop", *where).returncode == 1
    assert broker_command("status", *where).returncode == 1
    started = broker_command("start", *where, "--port", "0")
    try:
        assert started.returncode == 0, started.stderr
        status = broker_command("status", *where, "--json")
        assert started.stdout.strip() in status.stdout
        assert status.returncode == 0
        again = broker_command("start", *where, "--port", "0")
        assert again.returncode == 1
        assert "is in use by a broker in process" in again.stderr
        topics = broker_command("cli", *where, "kafka-topics", "--list")
        assert (topics.returncode, topics.stdout.strip()) == (0, "")
        failing = broker_command(
            "cli", *where, "kafka-topics", "--describe", "--topic", "none"
        )
        assert failing.returncode == 1
    finally:
        stopped = broker_command("stop", *where)
    assert stopped.returncode == 0
    assert DataFolder(tmp_path).owner() is None
    assert broker_command("cli", *where, "kafka-topics", "--list").returncode == 1


def test_an_unknown_tool_is_wrong_usage(tmp_path: Path) -> None:
    done = broker_command("cli", "--data-dir", tmp_path, "kafka-nonsense")
    assert done.returncode == 2
    assert "kafka-topics" in done.stderr
