"""Kafka's own command-line tools, by the names of its shell scripts."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from cachemind_services.broker.class_archive import present_archive
from cachemind_services.broker.distribution import KafkaDistribution
from cachemind_services.broker.errors import UnknownTool
from cachemind_services.broker.java import JavaRuntime
from cachemind_services.broker.server_config import jvm_options

_LOG4J: Final = Path(__file__).with_name("tools-log4j2.xml")
_HEAP_MB: Final = 256
_NEEDS_NO_BROKER: Final = frozenset(
    ("--help", "-h", "--version", "--bootstrap-server", "--bootstrap-controller")
)


class Bootstrap(Enum):
    """Where a tool takes `--bootstrap-server`."""

    FIRST = "before other arguments"
    LAST = "after other arguments, because a sub-command comes first"
    NEVER = "works on files, or is told where the broker is in its own way"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool's main class, as in Kafka's `bin/` scripts."""

    main_class: str
    bootstrap: Bootstrap = Bootstrap.FIRST


_TOOLS_PACKAGE: Final = "org.apache.kafka.tools"

TOOLS: Final = {
    "connect-plugin-path": Tool(f"{_TOOLS_PACKAGE}.ConnectPluginPath", Bootstrap.NEVER),
    "kafka-acls": Tool(f"{_TOOLS_PACKAGE}.AclCommand"),
    "kafka-broker-api-versions": Tool(f"{_TOOLS_PACKAGE}.BrokerApiVersionsCommand"),
    "kafka-client-metrics": Tool(f"{_TOOLS_PACKAGE}.ClientMetricsCommand"),
    "kafka-cluster": Tool(f"{_TOOLS_PACKAGE}.ClusterTool", Bootstrap.LAST),
    "kafka-configs": Tool(f"{_TOOLS_PACKAGE}.ConfigCommand"),
    "kafka-console-consumer": Tool(f"{_TOOLS_PACKAGE}.consumer.ConsoleConsumer"),
    "kafka-console-producer": Tool(f"{_TOOLS_PACKAGE}.ConsoleProducer"),
    "kafka-console-share-consumer": Tool(
        f"{_TOOLS_PACKAGE}.consumer.ConsoleShareConsumer"
    ),
    "kafka-consumer-groups": Tool(
        f"{_TOOLS_PACKAGE}.consumer.group.ConsumerGroupCommand"
    ),
    "kafka-consumer-perf-test": Tool(f"{_TOOLS_PACKAGE}.ConsumerPerformance"),
    "kafka-delegation-tokens": Tool(f"{_TOOLS_PACKAGE}.DelegationTokenCommand"),
    "kafka-delete-records": Tool(f"{_TOOLS_PACKAGE}.DeleteRecordsCommand"),
    "kafka-dump-log": Tool(f"{_TOOLS_PACKAGE}.DumpLogSegments", Bootstrap.NEVER),
    "kafka-e2e-latency": Tool(f"{_TOOLS_PACKAGE}.EndToEndLatency", Bootstrap.NEVER),
    "kafka-features": Tool(f"{_TOOLS_PACKAGE}.FeatureCommand"),
    "kafka-get-offsets": Tool(f"{_TOOLS_PACKAGE}.GetOffsetShell"),
    "kafka-groups": Tool(f"{_TOOLS_PACKAGE}.GroupsCommand"),
    "kafka-jmx": Tool(f"{_TOOLS_PACKAGE}.JmxTool", Bootstrap.NEVER),
    "kafka-leader-election": Tool(f"{_TOOLS_PACKAGE}.LeaderElectionCommand"),
    "kafka-log-dirs": Tool(f"{_TOOLS_PACKAGE}.LogDirsCommand"),
    "kafka-metadata-quorum": Tool(f"{_TOOLS_PACKAGE}.MetadataQuorumCommand"),
    "kafka-producer-perf-test": Tool(f"{_TOOLS_PACKAGE}.ProducerPerformance"),
    "kafka-reassign-partitions": Tool(
        f"{_TOOLS_PACKAGE}.reassign.ReassignPartitionsCommand"
    ),
    "kafka-replica-verification": Tool(
        f"{_TOOLS_PACKAGE}.ReplicaVerificationTool", Bootstrap.NEVER
    ),
    "kafka-share-consumer-perf-test": Tool(
        f"{_TOOLS_PACKAGE}.ShareConsumerPerformance"
    ),
    "kafka-share-groups": Tool(f"{_TOOLS_PACKAGE}.consumer.group.ShareGroupCommand"),
    "kafka-storage": Tool("kafka.tools.StorageTool", Bootstrap.NEVER),
    "kafka-streams-application-reset": Tool(f"{_TOOLS_PACKAGE}.StreamsResetter"),
    "kafka-streams-groups": Tool(f"{_TOOLS_PACKAGE}.streams.StreamsGroupCommand"),
    "kafka-topics": Tool(f"{_TOOLS_PACKAGE}.TopicCommand"),
    "kafka-transactions": Tool(f"{_TOOLS_PACKAGE}.TransactionsCommand"),
    "kafka-verifiable-consumer": Tool(f"{_TOOLS_PACKAGE}.VerifiableConsumer"),
    "kafka-verifiable-producer": Tool(f"{_TOOLS_PACKAGE}.VerifiableProducer"),
}


def find_tool(name: str) -> Tool:
    """Return the tool called `name`; a `.sh` or `.bat` at its end is ignored.

    Raises: `UnknownTool`, which lists the known ones.
    """
    plain = name.removesuffix(".sh").removesuffix(".bat")
    tool = TOOLS.get(plain)
    if tool is None:
        raise UnknownTool(name, tuple(sorted(TOOLS)))
    return tool


def needs_bootstrap(tool: Tool, arguments: Sequence[str]) -> bool:
    """Return whether the tool must be told where the broker is."""
    if tool.bootstrap is Bootstrap.NEVER:
        return False
    return not any(word.partition("=")[0] in _NEEDS_NO_BROKER for word in arguments)


def with_bootstrap(tool: Tool, arguments: Sequence[str], servers: str) -> list[str]:
    """Return the arguments with `--bootstrap-server` where the tool wants it."""
    option = ["--bootstrap-server", servers]
    if tool.bootstrap is Bootstrap.LAST:
        return [*arguments, *option]
    return [*option, *arguments]


def run_tool(
    kafka: KafkaDistribution, java: JavaRuntime, tool: Tool, arguments: Sequence[str]
) -> int:
    """Run the tool on our own standard streams and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="cachemind-tool-") as scratch:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            [
                str(java.path),
                *jvm_options(java.feature, _HEAP_MB, Path(scratch)),
                *present_archive(kafka, java),
                "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={_LOG4J}",
                "-cp",
                kafka.class_path,
                tool.main_class,
                *arguments,
            ]
        )
        # Ctrl-C reaches the tool too; it decides when to end, we pass on how.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
