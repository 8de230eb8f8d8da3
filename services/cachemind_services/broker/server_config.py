"""Texts that configure the JVM and the broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

LOOPBACK: Final = "127.0.0.1"
NODE_ID: Final = 1
SERVER_LOG: Final = "server.log"
_ASCII_END: Final = 0x80


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on the loopback interface."""

    broker: int
    controller: int


def server_properties(log_dir: Path, ports: Ports) -> str:
    """Return `server.properties` of a single KRaft node on loopback.

    Nothing is deleted by time or size unless a topic's own configuration says so.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": (
            f"PLAINTEXT://{LOOPBACK}:{ports.broker},"
            f"CONTROLLER://{LOOPBACK}:{ports.controller}"
        ),
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{ports.broker}",
        "log.dirs": _escaped(str(log_dir)),
        "auto.create.topics.enable": "false",
        "log.retention.ms": -1,
        "log.retention.bytes": -1,
        # One node: every internal topic has one replica.
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A small heap: the cleaner would otherwise take 128 MiB of it.
        "log.cleaner.dedupe.buffer.size": 16 * 2**20,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        # After kill -9 the controller lets the node register again only when its
        # last session has expired; the default of 9 s would be the restart's time.
        "broker.session.timeout.ms": 4_000,
        "broker.heartbeat.interval.ms": 500,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def log4j_xml(logs_dir: Path) -> str:
    """Return a log4j2 configuration: one rotated file, nothing on the console."""
    file = quoteattr(str(logs_dir / SERVER_LOG))
    pattern = quoteattr(f"{logs_dir / SERVER_LOG}.%i")
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName={file} filePattern={pattern}>
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1}} %m%n"/>
      <SizeBasedTriggeringPolicy size="10 MB"/>
      <DefaultRolloverStrategy max="3"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="file"/></Root>
    <Logger name="org.apache.kafka.common.config.AbstractConfig" level="WARN"/>
  </Loggers>
</Configuration>
"""


def jvm_options(java_feature: int, heap_mb: int, tmp_dir: Path) -> list[str]:
    """Return the JVM options of a small broker that starts fast."""
    options = [
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        # A broker out of memory must die and be restarted, not limp.
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={tmp_dir}",
        *module_options(java_feature),
    ]
    if java_feature >= 23:
        # JEP 471: Kafka unmaps its index files through Unsafe; nobody here can help it.
        options.append("--sun-misc-unsafe-memory-access=allow")
    return options


def module_options(java_feature: int) -> list[str]:
    """Return the options that change the JVM's modules.

    A class archive fits only a JVM that runs with the same ones.
    """
    # JEP 454 introduced it: zstd, lz4 and snappy load native code.
    return ["--enable-native-access=ALL-UNNAMED"] if java_feature >= 22 else []


def _escaped(value: str) -> str:
    """Return `value` as java.util.Properties reads it from Latin-1 bytes."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(
        chr(code) if code < _ASCII_END else f"\\u{code:04x}" for code in codes
    )
