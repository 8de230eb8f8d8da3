"""Every role tries every command over Kafka, in its namespace and in another's.

Both come from the tables that the process itself asks.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cachemind.core.access import OPERATIONS, RIGHTS, Operation, Right, Role
from cachemind.core.commands import ProblemCode
from cachemind.events import Envelope, Read, Reads
from cachemind.types import Namespace
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import CliHost, cli_host
from tests.integration.grant_probes import PROBE, chat
from tests.integration.grants_host import buried, envelopes, granted, make_topics
from tests.integration.requests_host import (
    COMMAND,
    Answer,
    Answering,
    Client,
    answering,
)
from tests.upstreams import ScriptedUpstream, completion, served

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

SHOP, BANK = Namespace("shop"), Namespace("bank")
QUESTION = chat("Why is the sky blue?")
BODIES: Mapping[Operation, dict[str, Any]] = {
    Operation.LOOK_UP: {"request": QUESTION},
    Operation.COMPLETE: {"request": QUESTION},
    Operation.PUT: {
        "request": QUESTION,
        "response": json.dumps(completion(json.loads(QUESTION))).encode(),
    },
    Operation.INVALIDATE: {"kind": "tag", "value": "t"},
    Operation.FEEDBACK: {
        "matched_key": bytes(32),
        "served_trace_id": b"\1" * 16,
        "verdict": "right",
    },
    Operation.ROLLBACK: {"to_version": 0, "dry_run": True},
    Operation.RECEIPTS: {"trace_id": b"\1" * 16},
}
DONE: Mapping[Operation, str] = {
    Operation.LOOK_UP: "Answered",
    Operation.COMPLETE: "Answered",
    Operation.PUT: "PutDone",
    Operation.INVALIDATE: "Logged",
    Operation.FEEDBACK: "Logged",
    Operation.ROLLBACK: "RollbackDone",
    # There are none without audit mode; nobody stopped it.
    Operation.RECEIPTS: "not_offered",
}
LEAVES_NOTHING = {Operation.ROLLBACK, Operation.RECEIPTS}
"""A rehearsal, and what only shows."""

OVER_KAFKA = [operation for operation, surface in OPERATIONS.items() if surface.kafka]


@dataclass(frozen=True)
class Desk:
    """A host that answers, and a client of each role's grant of the shop."""

    host: CliHost
    answering: Answering
    clients: Mapping[Role, Client]

    def ask(
        self, role: Role, operation: Operation, request_id: uuid.UUID | None = None
    ) -> Answer:
        client, command = self.clients[role], OPERATIONS[operation].kafka
        return client.to(client.command(command, request_id, **BODIES[operation]))

    def principals(self, trace: bytes) -> list[str]:
        """Return who each event of a trace is by, but for who was refused what."""
        return [
            event.principal
            for envelope in envelopes(self.host, SHOP)
            for event in _events(envelope)
            if event.trace_id == trace
        ]


def _events(envelope: Envelope) -> Sequence[Envelope | Read]:
    """Return an event, or the look-ups that one record has."""
    if not isinstance(envelope.body, Reads):
        return [envelope]
    return [read for read in envelope.body.items if read.strategy != "access"]


@pytest.fixture(scope="module")
def desk(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    servers, prefix = broker.bootstrap_servers, f"t{uuid.uuid4().hex[:12]}"
    folder, grants = tmp_path_factory.mktemp("host"), [f"{SHOP}.{one}" for one in Role]
    with (
        served(ScriptedUpstream()) as upstream,
        cli_host(servers, prefix, folder, upstream=upstream) as host,
        answering(host) as process,
    ):
        host.run("dlq", "list")  # makes the topics that all share
        make_topics(host, *grants)
        host.start()
        process.start()
        with granted(host, *grants) as clients:
            yield Desk(host, process, dict(zip(Role, clients, strict=True)))


def may(role: Role, operation: Operation) -> bool:
    """Return what the tables say."""
    right = OPERATIONS[operation].right
    return right is not None and right in RIGHTS[role]


def test_the_tables_have_every_command_that_a_client_can_send() -> None:
    names = {
        branch["name"].rpartition(".")[2] for branch in COMMAND["fields"][2]["type"]
    }
    assert {OPERATIONS[operation].kafka for operation in OVER_KAFKA} == names
    assert set(BODIES) == set(DONE) == set(OVER_KAFKA)


@pytest.mark.parametrize("operation", OVER_KAFKA)
@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_send_what_its_row_says(
    desk: Desk, role: Role, operation: Operation
) -> None:
    before = desk.host.state(SHOP)
    answer = desk.ask(role, operation)
    events = desk.principals(answer.value["trace_id"])
    if may(role, operation):
        assert answer.body.get("code", answer.kind) == DONE[operation], answer.body
        assert set(events) <= {f"kafka:{SHOP}.{role}"}
        assert bool(events) == (operation not in LEAVES_NOTHING)
        return
    right = OPERATIONS[operation].right
    assert answer.kind == "Problem"
    assert (answer.body["code"], answer.body["field"]) == (ProblemCode.FORBIDDEN, right)
    assert str(right) in answer.body["message"]
    assert answer.value["lsn"] is None
    assert events == []
    desk.host.wait_folded()
    after = desk.host.state(SHOP)
    assert (after.version, after.digest) == (before.version, before.digest)


@pytest.mark.parametrize("role", list(Role))
def test_no_role_sends_anything_to_a_namespace_that_is_not_its_own(
    desk: Desk, role: Role
) -> None:
    client, names = desk.clients[role], []
    for operation in OVER_KAFKA:
        names.append(f"{operation} by {role}")
        client.command(
            OPERATIONS[operation].kafka,
            **BODIES[operation],
            namespace=BANK,
            headers={PROBE: names[-1].encode()},
        )
    desk.ask(role, Operation.LOOK_UP)  # with it all before it is done
    graves = [name for name in buried(desk.host, PROBE) if name in names]
    assert graves == names
    assert envelopes(desk.host, BANK) == []


def test_only_who_may_store_leaves_an_answer_behind(desk: Desk) -> None:
    """A completion is a look-up to who may not store: it is answered, not kept."""
    for role in Role:
        if not may(role, Operation.COMPLETE):
            continue
        question = chat(f"What does {role} leave behind?")
        answer = desk.clients[role].want("Complete", request=question)
        assert (answer.body["outcome"], answer.body["status"]) == ("miss", 200)
        assert answer.body["stored"] == (Right.STORE in RIGHTS[role])


@pytest.mark.parametrize("role", [Role.CACHE_WRITER, Role.CACHE_ADMIN])
def test_a_longer_life_than_policy_says_takes_a_right(desk: Desk, role: Role) -> None:
    put = {**BODIES[Operation.PUT], "ttl_s": 100_000}
    answer = desk.clients[role].want("Put", **put)
    if Right.TTL_OVERRIDE in RIGHTS[role]:
        assert (answer.kind, answer.body["ttl_ms"]) == ("PutDone", 100_000_000)
        return
    assert answer.body["code"] == ProblemCode.FORBIDDEN
    assert answer.body["field"] == Right.TTL_OVERRIDE
    assert desk.principals(answer.value["trace_id"]) == []


def test_no_role_is_told_what_another_was_answered(desk: Desk) -> None:
    """The same bytes, under the same id: known on the topic that they came by alone."""
    ids = {operation: uuid.uuid4() for operation in OVER_KAFKA}
    first = {one: desk.ask(Role.CACHE_ADMIN, one, ids[one]) for one in OVER_KAFKA}
    # What answers from now on has read what was answered, by whomever.
    (process,) = desk.answering.running
    desk.answering.stop(process)
    desk.answering.start()
    for role in Role:
        for operation in OVER_KAFKA:
            answer = desk.ask(role, operation, ids[operation])
            denied = answer.body.get("code") == ProblemCode.FORBIDDEN
            assert denied != may(role, operation), (role, answer.body)
            if role is Role.CACHE_ADMIN and operation is not Operation.ROLLBACK:
                # Known: nothing is done again.
                assert answer.raw == first[operation].raw
