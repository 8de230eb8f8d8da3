"""Makes a data folder ready for a start: ours, with space, configured, formatted."""

from __future__ import annotations

import subprocess

from cachemind_services.broker.data_folder import BrokerRecord, DataFolder
from cachemind_services.broker.jvm import KafkaJvm
from cachemind_services.broker.postmortem import death_of
from cachemind_services.broker.server_config import Ports, log4j_xml, server_properties
from cachemind_services.broker.sockets import choose_port, free_port


def prepare(
    folder: DataFolder,
    jvm: KafkaJvm,
    *,
    port: int,
    cluster_id: str | None,
    min_free_bytes: int,
) -> BrokerRecord:
    """Return the record of the start that may follow; the folder must be locked.

    Raises: `NoDiskSpace`, `ForeignCluster`, `PortTaken`, `BrokerDied`.
    """
    folder.create()
    folder.check_space(min_free_bytes)
    ours = folder.claim_cluster(cluster_id)
    ports = _ports(folder, port)
    _configure(folder, ports)
    record = BrokerRecord(
        port=ports.broker,
        controller_port=ports.controller,
        cluster_id=ours,
        kafka_version=jvm.kafka.version,
    )
    folder.write_record(record)
    if not folder.is_formatted():
        _format(folder, jvm, record)
    return record


def _ports(folder: DataFolder, wanted: int) -> Ports:
    last = folder.read_record()
    broker = choose_port(wanted, last.port if last else None)
    return Ports(broker, free_port(avoid=broker))


def _configure(folder: DataFolder, ports: Ports) -> None:
    properties = server_properties(folder.kafka, ports)
    folder.server_properties.write_text(properties, "utf-8")
    folder.log4j.write_text(log4j_xml(folder.logs), "utf-8")
    # The last run's logs must not explain this run's death.
    for log in (folder.server_log, folder.console_log):
        if log.exists():
            log.replace(log.with_name(f"{log.stem}.previous.log"))


def _format(folder: DataFolder, jvm: KafkaJvm, record: BrokerRecord) -> None:
    try:
        done = jvm.format_storage(record.cluster_id)
    except subprocess.TimeoutExpired as error:
        raise death_of(folder, record, None, [f"ERROR {error}"]) from error
    if done.returncode != 0 or not folder.is_formatted():
        lines = (done.stdout + done.stderr).splitlines()
        raise death_of(folder, record, done.returncode, lines)
