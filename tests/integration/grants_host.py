"""Grants on a host: their topics, who asks through them, and what the log has of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cachemind.events import Envelope
from tests.integration.cli_host import CODEC, CliHost
from tests.integration.requests_host import Client, records

WAIT_S = 30.0


def make_topics(host: CliHost, *grants: str) -> None:
    """Make the two topics of each grant, `NAMESPACE.ROLE`."""
    names = [
        f"{host.prefix}.{kind}.{grant}"
        for grant in grants
        for kind in ("requests", "replies")
    ]
    admin = AdminClient({**host.kafka})
    asked = admin.create_topics([NewTopic(name, 1, 1) for name in names])
    for future in asked.values():
        future.result(WAIT_S)


@contextmanager
def granted(host: CliHost, *grants: str, **more: Any) -> Iterator[list[Client]]:
    """Yield a client of each grant, once each has been answered."""
    with ExitStack() as closes:
        clients = []
        for grant in grants:
            namespace = grant.rpartition(".")[0]
            client = Client(
                host.bootstrap_servers, host.prefix, namespace, grant=grant, **more
            )
            clients.append(closes.enter_context(closing(client)))
        yield clients


def envelopes(host: CliHost, namespace: str) -> list[Envelope]:
    """Return what the WAL holds of a namespace, in order."""
    found = [CODEC.decode(record.value) for record in records(host, "wal")]
    return [envelope for envelope in found if envelope.namespace == namespace]


def buried(host: CliHost, header: str) -> list[str]:
    """Return what that header says of each dead letter that has it, in order."""
    told = [dict(letter.headers).get(header) for letter in records(host, "dlq")]
    return [name.decode() for name in told if name is not None]
