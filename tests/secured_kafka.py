"""A Kafka that asks who one is, by SASL/SCRAM, and holds to its access rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, unlisted
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cachemind.core.topics import Mode, topics
from cachemind_services.broker import EmbeddedBroker, storage
from cachemind_services.broker.server_config import Ports, server_properties
from cachemind_services.broker.sockets import free_port
from infra.terraform.container.apply_topics import apply, plan_in
from tests.integration.serving import eventually

SECRET: Final = "correct-horse-battery"
_ACLS: Final = Path(__file__).parents[1] / "infra/terraform/modules/topics/acls.json"
RULES: Final[Mapping[str, list[dict[str, object]]]] = json.loads(_ACLS.read_text())
"""By role: what its account may do; `{prefix}` is that of the topics."""

_MECHANISM: Final = "SCRAM-SHA-256"
_ITERATIONS: Final = 4_096
_WAIT_S: Final = 30.0

Properties = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Secured:
    """A broker's two addresses: where anybody may do all, and where none is nobody."""

    plain: str
    servers: str

    def login(self, name: str, password: str = SECRET) -> Properties:
        """Return what a client needs to come in as `name`."""
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": _MECHANISM,
            "sasl.username": name,
            "sasl.password": password,
        }

    def settings(self, name: str) -> dict[str, str]:
        """Return the variables that let a process of ours come in as `name`."""
        return {
            "CACHEMIND_KAFKA_" + key.upper().replace(".", "_"): str(value)
            for key, value in self.login(name).items()
        }


@contextmanager
def secured_broker(
    folder: Path, users: Sequence[str], admins: Sequence[str] = (), more: str = ""
) -> Iterator[Secured]:
    """Run a broker with a second listener, where one has to say who one is.

    `admins` may do everything, `users` what rules let them; `more` is for
    `server.properties`. Ours is not configurable in this way on purpose, so this adds
    to what it writes.
    """
    port = free_port()

    def secured(log_dir: Path, ports: Ports) -> str:
        plain = f"PLAINTEXT://127.0.0.1:{ports.broker}"
        client = f"CLIENT://127.0.0.1:{port}"
        supers = ";".join(f"User:{name}" for name in ("ANONYMOUS", *admins))
        return server_properties(log_dir, ports) + (
            f"listeners={plain},CONTROLLER://127.0.0.1:{ports.controller},{client}\n"
            f"advertised.listeners={plain},{client}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            f"listener.name.client.sasl.enabled.mechanisms={_MECHANISM}\n"
            f"listener.name.client.{_MECHANISM.lower()}.sasl.jaas.config="
            "org.apache.kafka.common.security.scram.ScramLoginModule required;\n"
            "authorizer.class.name="
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            f"super.users={supers}\n{more}"
        )

    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            # No longer than it starts: the session's own may start beside it.
            patch.setattr(storage, "server_properties", secured)
            broker = running.enter_context(EmbeddedBroker(folder))
        plain = str(broker.bootstrap_servers)
        _enrol(plain, sorted({*users, *admins}))
        yield Secured(plain, f"127.0.0.1:{port}")


def _enrol(servers: str, names: Sequence[str]) -> None:
    """Give each its password, and return once the broker knows them all."""
    client = AdminClient({"bootstrap.servers": servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
    asked = client.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(name, info, SECRET.encode()) for name in names]
    )
    for future in asked.values():
        future.result(_WAIT_S)

    def known() -> bool:
        everybody: Any = client.describe_user_scram_credentials()
        return set(names) <= set(everybody.result(_WAIT_S))

    eventually(known)


def install(properties: Properties, prefix: str, partitions: int) -> None:
    """Make the topics of an installation, and the rules of its roles' accounts.

    As the task `topics` does, in whose account's name `properties` come.
    """
    document = json.dumps(
        {
            "topics": [
                {
                    "name": spec.name,
                    "partitions": spec.partitions,
                    "replication_factor": spec.replication_factor,
                    "settings": spec.settings(),
                }
                for spec in topics(partitions, Mode.DEVELOPMENT, prefix).all()
            ],
            "acls": [
                rule | {"principal": f"User:{role}", "name": name}
                for role, rules in RULES.items()
                for rule in rules
                for name in [str(rule["name"]).replace("{prefix}", prefix)]
            ],
        }
    )
    list(apply(properties, plan_in(document)))
