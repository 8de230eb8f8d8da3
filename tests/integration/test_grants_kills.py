"""Two processes share the topics of grants, and die: each command is done once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from cachemind.events import Stored
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import CliHost, cli_host
from tests.integration.grant_probes import chat
from tests.integration.grants_host import envelopes, granted, make_topics
from tests.integration.requests_host import Client, answering
from tests.upstreams import completion

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

# Two grants of one namespace: their answers are kept in one partition.
GRANTS = ("a.cache-admin", "a.cache-writer", "b.cache-admin", "c.cache-writer")
KILLS, EACH = 5, 60


def put(client: Client, number: int) -> str:
    """Send an answer to a question of its own; return the command's id."""
    question = chat(f"What is {number}?")
    answer = json.dumps(completion(json.loads(question))).encode()
    return client.command("Put", flush=False, request=question, response=answer)


def test_whatever_dies_each_command_of_a_grant_is_done_and_answered_once(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> None:
    servers, sent = broker.bootstrap_servers, {grant: list[str]() for grant in GRANTS}
    with (
        cli_host(servers, topic_prefix, tmp_path / "host") as host,
        answering(host) as desk,
    ):
        host.run("dlq", "list")  # makes the topics that all share
        make_topics(host, *GRANTS)
        host.start()
        processes = [desk.start(), desk.start()]
        with granted(host, *GRANTS) as clients:
            for kill in range(KILLS):
                for number, client in enumerate(clients * EACH):
                    sent[client.grant].append(put(client, 1_000 * kill + number))
                for client in clients:
                    client.producer.flush(30)
                # In the middle of what was sent just now.
                clients[kill % 4].to(sent[GRANTS[kill % 4]][-EACH // 2])
                processes[kill % 2].kill()
                processes[kill % 2] = desk.start()
            for client in clients:
                client.to(sent[client.grant][-1], 120)
                assert {one.kind for one in client.answers} == {"PutDone"}
                ids = [one.correlation_id for one in client.answers]
                assert ids == sent[client.grant]
        _check(host)


def _check(host: CliHost) -> None:
    """Each command has left one event, by who sent it."""
    stored = Counter(
        envelope.principal
        for namespace in "abc"
        for envelope in envelopes(host, namespace)
        if isinstance(envelope.body, Stored)
    )
    assert stored == {f"kafka:{grant}": KILLS * EACH for grant in GRANTS}
