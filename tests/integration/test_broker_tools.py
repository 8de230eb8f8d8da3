"""Every tool that Kafka ships is known, and every known one is in the jars."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Final

import pytest

from cachemind_services.broker import EmbeddedBroker, KafkaDistribution
from cachemind_services.broker.tools import TOOLS

pytestmark = pytest.mark.broker

NO_SCRIPT_IN_BIN: Final = {
    "org.apache.kafka.tools.ClientCompatibilityTest",
    "org.apache.kafka.tools.ConnectInternalTopics",
    "org.apache.kafka.tools.LogCompactionTester",
    "org.apache.kafka.tools.OAuthCompatibilityTool",
    "org.apache.kafka.tools.TransactionalMessageCopier",
    "org.apache.kafka.tools.VerifiableShareConsumer",
}


def has_main(code: bytes) -> bool:
    return b"\x01\x00\x04main\x01" in code and b"([Ljava/lang/String;)V" in code


def programs(jar: Path) -> set[str]:
    with zipfile.ZipFile(jar) as archive:
        return {
            name.removesuffix(".class").replace("/", ".")
            for name in archive.namelist()
            if name.endswith(".class") and has_main(archive.read(name))
        }


def test_the_tools_are_those_in_the_jars(broker: EmbeddedBroker) -> None:
    assert broker.status().ready  # the session's broker fetched Kafka
    kafka = KafkaDistribution.ensure()
    jars = [Path(path) for path in kafka.class_path.split(os.pathsep)]
    shipped = {
        program
        for jar in jars
        if jar.name.startswith(("kafka-tools-", "kafka_"))
        for program in programs(jar)
    }
    known = {tool.main_class for tool in TOOLS.values()}
    assert known <= shipped
    missing = {name for name in shipped - known if name.startswith("org.apache.")}
    assert missing <= NO_SCRIPT_IN_BIN
