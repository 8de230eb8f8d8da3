"""What the broker is told, and what its death tells us."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cachemind_services.broker.data_folder import new_cluster_id
from cachemind_services.broker.diagnosis import (
    Cause,
    cause_of_death,
    last_words,
    taken_port,
)
from cachemind_services.broker.errors import BrokerDied, JavaUnusable
from cachemind_services.broker.java import parse_feature
from cachemind_services.broker.server_config import (
    Ports,
    jvm_options,
    log4j_xml,
    server_properties,
)
from cachemind_services.broker.sockets import free_port


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_every_listener_is_on_loopback() -> None:
    found = properties(server_properties(Path("/d"), Ports(broker=1, controller=2)))
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:2"


def test_no_topic_appears_or_loses_records_by_default() -> None:
    found = properties(server_properties(Path("/d"), Ports(1, 2)))
    assert found["auto.create.topics.enable"] == "false"
    assert found["log.retention.ms"] == "-1"
    assert found["log.retention.bytes"] == "-1"


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        pytest.param("/a\\b", "/a\\\\b", id="backslash-is-an-escape"),
        pytest.param("/dätä", "/d\\u00e4t\\u00e4", id="latin-1-is-ambiguous"),
        pytest.param("/\U0001f600", "/\\ud83d\\ude00", id="surrogate-pair"),
        pytest.param("/a b", "/a b", id="space"),
    ],
)
def test_a_folder_name_survives_java_properties(folder: str, expected: str) -> None:
    text = server_properties(Path(folder), Ports(1, 2))
    assert properties(text)["log.dirs"] == expected
    assert text.isascii()


def test_the_log_configuration_is_xml_whatever_the_folder_is_called() -> None:
    root = ET.fromstring(log4j_xml(Path('/data/a&b <c> "d"')))  # noqa: S314 - ours
    file = root.find("./Appenders/RollingFile")
    assert file is not None
    assert file.get("fileName") == '/data/a&b <c> "d"/server.log'
    assert root.find(".//Console") is None


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        pytest.param(17, False, id="java-17-would-refuse-the-option"),
        pytest.param(25, True, id="java-25-would-warn-without"),
    ],
)
def test_options_fit_the_java(feature: int, expected: bool) -> None:
    options = jvm_options(feature, 100, Path("/scratch"))
    assert ("--sun-misc-unsafe-memory-access=allow" in options) is expected
    assert "-Xmx100m" in options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('java version "1.8.0_392"', 8, id="old-numbering"),
        pytest.param('openjdk version "17.0.15" 2025-04-15', 17, id="update"),
        pytest.param('openjdk version "25" 2025-09-16 LTS', 25, id="first-release"),
        pytest.param('openjdk version "26-ea" 2026-03-17', 26, id="early-access"),
        pytest.param(
            'Picked up JAVA_TOOL_OPTIONS: -Dversion=3\nopenjdk version "21.0.1"',
            21,
            id="options-line-first",
        ),
    ],
)
def test_java_version(text: str, expected: int) -> None:
    assert parse_feature(Path("java"), text) == expected


def test_a_program_that_is_not_java_is_refused() -> None:
    with pytest.raises(JavaUnusable) as caught:
        parse_feature(Path("/bin/true"), "hello")
    assert caught.value.path == Path("/bin/true")


BIND = (
    "ERROR KafkaRaftServer Fatal",
    "org.apache.kafka.common.KafkaException: Socket server failed to bind to "
    "127.0.0.1:40029: Address already in use.",
    "INFO AppInfoParser App info kafka.server for 1 unregistered",
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(BIND, Cause.PORT_TAKEN, id="port"),
        pytest.param(
            ("java.io.IOException: No space left on device",), Cause.NO_SPACE, id="disk"
        ),
        pytest.param(
            ("Terminating due to java.lang.OutOfMemoryError: Java heap space",),
            Cause.OUT_OF_MEMORY,
            id="heap",
        ),
        pytest.param(
            ("No space left on device", "Address already in use"),
            Cause.NO_SPACE,
            id="a-full-disk-explains-the-rest",
        ),
        pytest.param(("INFO all is well",), Cause.UNKNOWN, id="nothing-telling"),
        pytest.param((), Cause.UNKNOWN, id="empty-log"),
    ],
)
def test_cause_of_death(lines: tuple[str, ...], expected: Cause) -> None:
    assert cause_of_death(lines) is expected


def test_the_taken_port_is_read_from_the_log() -> None:
    assert taken_port(BIND) == 40029
    assert taken_port(("Address already in use",)) is None


def test_last_words_are_the_telling_lines() -> None:
    assert "INFO" not in last_words(BIND)
    assert "40029" in last_words(BIND)
    assert last_words(("a", "b")) == "b"
    assert last_words(()) == ""


@pytest.mark.parametrize(
    ("exit_code", "expected"),
    [
        pytest.param(1, "ended with exit code 1", id="by-itself"),
        pytest.param(-9, "was ended by SIGKILL", id="signal-seen-by-the-parent"),
        pytest.param(137, "was ended by SIGKILL", id="signal-seen-by-the-guard"),
        pytest.param(143, "was ended by SIGTERM", id="signal-that-java-handled"),
        pytest.param(None, "was given up", id="never-ended"),
    ],
)
def test_a_death_says_how(exit_code: int | None, expected: str) -> None:
    assert expected in str(BrokerDied(exit_code, "why", Path("log")))


def test_a_cluster_id_is_sixteen_bytes_and_no_option() -> None:
    ids = [new_cluster_id() for _ in range(200)]
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)
    assert len(set(ids)) == 200


def test_a_free_port_avoids_the_one_that_is_promised_away() -> None:
    port = free_port()
    assert all(free_port(avoid=port) != port for _ in range(50))
