"""Whether a broker serves: an answered metadata request, not an open port."""

from __future__ import annotations

import logging
import socket
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

_LOG: Final = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S: Final = 1.0
_METADATA_TIMEOUT_S: Final = 3.0


def answers(host: str, port: int, cluster_id: str) -> bool:
    """Return whether a broker of the cluster answers there and is registered."""
    # librdkafka would back off and complain while nobody listens yet.
    return _accepts(host, port) and _serves(host, port, cluster_id)


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def _serves(host: str, port: int, cluster_id: str) -> bool:
    client = AdminClient(
        {"bootstrap.servers": f"{host}:{port}"}, logger=_LOG, error_cb=_note
    )
    try:
        metadata = client.list_topics(timeout=_METADATA_TIMEOUT_S)
    except KafkaException as error:
        _LOG.debug("no metadata from %s:%d yet: %s", host, port, error)
        return False
    # str: its stub says None, which it is only before the answer.
    return str(metadata.cluster_id) == cluster_id and bool(metadata.brokers)


def _note(error: object) -> None:
    _LOG.debug("%s", error)
