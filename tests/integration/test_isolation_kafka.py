"""Attempts to get at another tenant's entries over Kafka: none may leak.

As over HTTP the victim's answers have a marker that nobody else's have. An attempt
leaks if the marker or a key of the victim's comes back, if it is answered as what the
victim has would change it, or if anything of the victim's changes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest

from cachemind.core.access import OPERATIONS
from cachemind.core.state import NamespaceState
from cachemind.types import Namespace
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from tests.integration.cli_host import CliHost, cli_host
from tests.integration.grant_probes import (
    ADMIN,
    PROBE,
    Attempts,
    Owner,
    Probe,
    chat,
    commands,
    leaks,
    send,
)
from tests.integration.grants_host import buried, envelopes, granted, make_topics
from tests.integration.requests_host import Answer, Client, answering, records
from tests.upstreams import (
    Gate,
    Received,
    ScriptedUpstream,
    Send,
    answers,
    completion,
    good,
    served,
)

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

VICTIM = Namespace("bank")
THIEF = "ban"
OTHERS = ("bank.x", "bank-2", "bank.cache-admin", "b")
"""Whose names begin as the victim's do, or whose topics' do."""

LEAST = 60
NAMES = [
    "bank",
    "BANK",
    "bank.",
    "bank/",
    "bank ",
    " bank",
    "bank\0",
    "bank\0ban",
    "ban\0bank",
    "bank,ban",
    "*",
    "",
    "b\u0430nk",
    "\uff42ank",
    "ban\u212a",
    "bank\u200b",
    "bank.x",
    "bank.cache-admin",
    "cachemind.access",
]


@dataclass
class Vault:
    """The victim's host, and all who ask there."""

    host: CliHost
    upstream: ScriptedUpstream
    victim: Client
    thieves: Sequence[Client]
    owner: Owner

    def state(self) -> NamespaceState:
        self.host.wait_folded()
        return self.host.state(VICTIM)

    def ends(self) -> list[int]:
        """Return how much there is of the victim's on the log and on its topics."""
        replies = self.victim.replies.removeprefix(f"{self.host.prefix}.")
        return [
            len(envelopes(self.host, VICTIM)),
            len(records(self.host, replies)),
            len(records(self.host, "replies")),
        ]


async def marked(received: Received, send: Send) -> None:
    answer = json.dumps(completion(received.json, "SECRET-OF-THE-BANK")).encode()
    await answers(answer)(received, send)


@pytest.fixture(scope="module")
def vault(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vault]:
    upstream, prefix = ScriptedUpstream(), f"t{uuid.uuid4().hex[:12]}"
    servers, folder = broker.bootstrap_servers, tmp_path_factory.mktemp("host")
    grants = [f"{name}.{ADMIN}" for name in (VICTIM, THIEF, *OTHERS)]
    with (
        served(upstream) as url,
        cli_host(servers, prefix, folder, upstream=url) as host,
        answering(host) as desk,
    ):
        host.run("dlq", "list")  # makes the topics that all share
        make_topics(host, *grants)
        host.start()
        desk.start()
        with granted(host, *grants) as (victim, *thieves):
            prompts = [f"What is in vault {number} of the bank?" for number in range(4)]
            owner = Owner(VICTIM, prompts, "SECRET-OF-THE-BANK")
            vault = Vault(host, upstream, victim, thieves, owner)
            _fill(vault)
            yield vault


def _fill(vault: Vault) -> None:
    """Let the victim ask everything, and find it again."""
    owner, victim = vault.owner, vault.victim
    vault.upstream.behaviour = marked
    for prompt in owner.prompts:
        request_id = uuid.uuid4()
        sent = victim.command("Complete", request_id, request=chat(prompt))
        first = victim.to(sent)
        assert (first.body["outcome"], first.body["stored"]) == ("miss", True)
        again = victim.want("Lookup", request=chat(prompt))
        assert again.body["outcome"] == "hit_exact"
        assert owner.marker.encode() in again.raw
        owner.request_ids.append(request_id)
        owner.correlation_ids.append(first.correlation_id)
        owner.keys.append(again.body["key"])
        owner.traces.append(first.value["trace_id"])
    vault.upstream.behaviour = good


def all_probes(vault: Vault, by: Client) -> list[Probe]:
    """Return what one thief tries; the first of them with names of all sorts."""
    attempts = Attempts(by, vault.owner)
    prefix, other = vault.host.prefix, next(t for t in vault.thieves if t is not by)
    elsewhere = [
        vault.victim.replies,
        f"{vault.victim.replies}\0",
        vault.victim.requests,
        by.requests,
        by.replies.upper(),
        other.replies,
        *(f"{prefix}.{kind}" for kind in ("replies", "answers", "wal", "dlq", "audit")),
        "__consumer_offsets",
    ]
    first = by is vault.thieves[0]
    return [
        *attempts.by_question(),
        *attempts.by_request_id(),
        *attempts.by_header(),
        *attempts.by_name(NAMES if first else [VICTIM]),
        *attempts.by_reply_to(elsewhere if first else elsewhere[:1]),
    ]


def test_every_command_is_tried(vault: Vault) -> None:
    over_kafka = {surface.kafka for surface in OPERATIONS.values() if surface.kafka}
    assert set(commands(vault.owner)) == over_kafka


def test_no_attempt_gets_at_another_namespace(vault: Vault) -> None:
    before, ends, found = vault.state(), vault.ends(), list[str]()
    asked = len(vault.upstream.chats)
    tried = {by.grant: all_probes(vault, by) for by in vault.thieves}
    for by in vault.thieves:
        send(by, tried[by.grant])
    for by in vault.thieves:
        # One partition: with the last one all that were before it are done.
        by.want("Lookup", request=chat("Is that all?"))
    graves = buried(vault.host, PROBE)
    for by in vault.thieves:
        found += leaks(vault.owner, by, tried[by.grant], graves)
        found += _told_apart(by, tried[by.grant])
    assert found == []
    probes = [probe for each in tried.values() for probe in each]
    assert len({probe.name for probe in probes}) == len(probes) >= LEAST
    assert len(vault.upstream.chats) - asked == sum(probe.asks for probe in probes)
    assert len(graves) == len(set(graves))
    assert (vault.state(), vault.ends()) == (before, ends)
    _check_the_victim(vault)


def _told_apart(by: Client, probes: Sequence[Probe]) -> list[str]:
    """Return the questions whose answer tells whether the victim has asked them.

    All that a clock could tell is what was done: whether it was a hit, whether
    anything was compared, whether upstream was asked.
    """
    answers = {answer.correlation_id: answer for answer in by.answers}
    shown = {
        probe.name: _shape(answers[probe.correlation_id])
        for probe in probes
        if probe.name.startswith(("theirs", "new"))
    }
    assert shown
    return [
        f"{name}: it is told apart"
        for name, shape in shown.items()
        if shape != shown[name.replace("theirs", "new")]
    ]


def _shape(answer: Answer) -> tuple[Any, ...]:
    names = ("outcome", "reason", "key", "similarity", "status", "stored")
    return (answer.kind, *(answer.body.get(name) for name in names))


def _check_the_victim(vault: Vault) -> None:
    """What the victim has is served to the victim, as it was."""
    for prompt, key in zip(vault.owner.prompts, vault.owner.keys, strict=True):
        answer = vault.victim.want("Lookup", request=chat(prompt))
        assert (answer.body["outcome"], answer.body["key"]) == ("hit_exact", key)
        assert vault.owner.marker.encode() in answer.raw


def test_a_dead_letter_that_is_put_back_gets_no_further(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back to the topic that it was sent to: not to one that all share."""
    by, host = vault.thieves[0], vault.host
    before, ends = vault.state(), vault.ends()
    attempts = Attempts(by, vault.owner)
    probes = [
        attempts.of(f"again {command}", command, body, namespace=VICTIM)
        for command, body in commands(vault.owner).items()
    ]
    send(by, probes)
    by.want("Lookup", request=chat("Is that all, again?"))
    letters = [name for name in buried(host, PROBE) if name.startswith("again ")]
    assert len(letters) == len(probes)
    for name, value in host.environ().items():
        monkeypatch.setenv(name, value)
    with redirect_stdout(StringIO()) as shown:
        assert main(["dlq", "replay", "--all", "--yes", "--json"]) == 0
    assert len(shown.getvalue().splitlines()) >= len(probes)
    for one in vault.thieves:
        one.want("Lookup", request=chat("And now?"))
    letters = [name for name in buried(host, PROBE) if name.startswith("again ")]
    assert len(letters) == 2 * len(probes)
    assert (vault.state(), vault.ends()) == (before, ends)


def test_nobody_joins_a_completion_that_another_namespace_has_under_way(
    vault: Vault,
) -> None:
    """Not one answer for two tenants, however alike their questions are."""
    for number in range(3):
        gate = vault.upstream.behaviour = Gate()
        asked = chat(f"What will the bank do in year {number}?")
        both = [vault.victim, vault.thieves[0]]
        sent = [(one, one.command("Complete", request=asked)) for one in both]
        # Both have come to upstream, so neither waits for the other.
        assert gate.arrived.acquire(timeout=20)
        assert gate.arrived.acquire(timeout=20)
        gate.open()
        for one, request in sent:
            assert one.to(request).body["outcome"] == "miss"
    vault.upstream.behaviour = good


def test_who_asks_the_same_in_one_namespace_does_join(vault: Vault) -> None:
    """The test above would also pass if nobody ever joined."""
    gate, by = Gate(), vault.thieves[0]
    vault.upstream.behaviour = gate
    asked, question = len(vault.upstream.chats), chat("What do two thieves ask?")
    sent = [by.command("Complete", request=question) for _ in range(2)]
    assert gate.arrived.acquire(timeout=20)
    gate.open()
    outcomes = sorted(by.to(one).body["outcome"] for one in sent)
    assert outcomes == ["hit_exact", "miss"]
    assert len(vault.upstream.chats) == asked + 1
    vault.upstream.behaviour = good
