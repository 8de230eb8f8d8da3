"""An installation on a Kafka that asks who one is, and two who have a grant there.

CacheMind's processes have the account `gateway` with the rules of acls.json and no
others. Two applications have a grant of a namespace each, both with the role that may
do most; the name of one namespace begins as the other's does.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from cachemind.core.state import NamespaceState
from cachemind.types import Namespace
from cachemind_services.cli.main import main
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.integration.grant_probes import ADMIN, Owner, chat
from tests.integration.grants_host import envelopes
from tests.integration.requests_host import Client, answering, records
from tests.secured_kafka import RULES, Properties, Secured, install, secured_broker
from tests.upstreams import ScriptedUpstream, completion, served

SHOP, EU = Namespace("shop"), Namespace("shop.eu")
SHOP_APP, EU_APP, LATE_APP = "shop-app", "eu-app", "late-app"
OPERATOR = "topics"
WAIT_S = 20.0


@dataclass
class Town:
    """An installation, and two who ask: the shop, and the one that it must not see."""

    kafka: Secured
    host: CliHost
    shop: Client
    eu: Client
    owner: Owner

    @property
    def prefix(self) -> str:
        return self.host.prefix

    def thief(self) -> Properties:
        """Return how the shop's application comes in."""
        return self.kafka.login(SHOP_APP)

    def admin(self) -> AdminClient:
        """Return Kafka's own client of administration, in the thief's name."""
        return AdminClient(self.thief())

    def grants(self, *words: str) -> str:
        return grants(self.host, self.kafka, *words)

    def client(self, user: str, grant: str) -> Client:
        """Return a client in somebody's name, of whichever grant."""
        return granted(self.kafka, self.prefix, user, grant)

    def elsewhere(self) -> list[str]:
        """Return all topics but those of the shop's own grant."""
        admin = AdminClient({**self.host.kafka})
        names = admin.list_topics(timeout=WAIT_S).topics
        own = (self.shop.requests, self.shop.replies)
        return sorted(set(names) - set(own))

    def what_is_theirs(self) -> tuple[NamespaceState, list[int]]:
        """Return the other's state, and how much there is of theirs."""
        self.host.wait_folded()
        topics = [f"{kind}.{self.eu.grant}" for kind in ("requests", "replies")]
        counts = [len(records(self.host, topic)) for topic in (*topics, "replies")]
        return self.host.state(EU), [*counts, len(envelopes(self.host, EU))]


def grants(host: CliHost, kafka: Secured, *words: str) -> str:
    """Run `cachemind grants` in the operator's name; return what it printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as shown:
        for name, value in (host.environ() | kafka.settings(OPERATOR)).items():
            patch.setenv(name, value)
        assert main(["grants", *words]) == 0, words
    return shown.getvalue()


def granted(kafka: Secured, prefix: str, user: str, grant: str) -> Client:
    return Client(
        kafka.servers,
        prefix,
        grant.rpartition(".")[0],
        grant=grant,
        kafka=kafka.login(user),
        group=f"{prefix}.client.{grant}:{uuid.uuid4().hex}",
    )


def words_for(namespace: str, role: str, user: str) -> tuple[str, ...]:
    return ("--namespace", namespace, "--role", role, "--user", f"User:{user}")


@contextmanager
def running_town(folder: Path) -> Iterator[Town]:
    """Run it; the other has stored answers already."""
    prefix, users = f"t{uuid.uuid4().hex[:12]}", [*RULES, SHOP_APP, EU_APP, LATE_APP]
    with (
        secured_broker(folder / "kafka", users, [OPERATOR]) as kafka,
        served(ScriptedUpstream()) as upstream,
        cli_host(
            kafka.plain, prefix, folder / "host", upstream=upstream, auth="true"
        ) as host,
        answering(host) as desk,
    ):
        install(kafka.login(OPERATOR), prefix, PARTITIONS)
        host.settings = {**host.settings, **kafka.settings("gateway")}
        host.start()
        for namespace, user in ((SHOP, SHOP_APP), (EU, EU_APP)):
            grants(host, kafka, "create", *words_for(namespace, ADMIN, user))
        desk.start()
        with (
            closing(granted(kafka, prefix, SHOP_APP, f"{SHOP}.{ADMIN}")) as shop,
            closing(granted(kafka, prefix, EU_APP, f"{EU}.{ADMIN}")) as eu,
        ):
            prompts = [f"What costs article {n} in the EU?" for n in range(2)]
            owner = Owner(EU, prompts, "SECRET-OF-THE-EU")
            town = Town(kafka, host, shop, eu, owner)
            _fill(town)
            yield town


def _fill(town: Town) -> None:
    """Let the other store answers, and find them again."""
    owner, eu = town.owner, town.eu
    for prompt in owner.prompts:
        request_id, question = uuid.uuid4(), chat(prompt)
        answer = json.dumps(completion(json.loads(question), owner.marker)).encode()
        sent = eu.command("Put", request_id, request=question, response=answer)
        first = eu.to(sent)
        assert first.kind == "PutDone", first.body
        again = eu.want("Lookup", request=question)
        assert again.body["outcome"] == "hit_exact"
        assert owner.marker.encode() in again.raw
        owner.request_ids.append(request_id)
        owner.correlation_ids.append(first.correlation_id)
        owner.keys.append(again.body["key"])
        owner.traces.append(first.value["trace_id"])
