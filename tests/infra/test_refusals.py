"""A wrong value stops the plan of each example, with a message that says what is right.

The modules' own rules are tested in infra/terraform/tests/refused*.tftest.hcl; here
each example is shown to hand its values to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from tests.infra.terraform import EXAMPLES, Message, Terraform, errors

pytestmark = pytest.mark.slow

FILE: Final = """
mock_provider "aws" {{
  override_during = plan
  source          = "../../tests/mocks"
}}

run "wrong" {{
  command = plan
  plan_options {{
    target = [module.{target}]
  }}
  variables {{
    {variable} = {value}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A value in HCL, a module whose plan needs it, and what must be said."""

    variable: str
    value: str
    target: str
    message: str


INTERNET: Final = '["0.0.0.0/0"]'
TAG: Final = '"111122223333.dkr.ecr.eu-central-1.amazonaws.com/cachemind:latest"'
NONE: Final = "{ receipt = 1, log = 0 }"
ROOT: Final = '[{ namespace = "shop", role = "root", user = "app" }]'
EVERYWHERE: Final = (
    Wrong("replication_factor", "1", "service", "replication_factor is at least 3"),
    Wrong("retention_days", "{ wal = 0.5 }", "service", "is at least one day, or -1"),
    Wrong("client_cidrs", INTERNET, "network", "never open to the internet"),
    Wrong("lock_days", "0", "audit", "lock_days is a whole number of days"),
)
ONCE: Final = (
    Wrong("client_cidrs", '["8.8.8.0/24"]', "network", "never open to the internet"),
    Wrong("administrators", '["*"]', "keys", "with no wildcard"),
    Wrong("image", TAG, "service", "a tag may be moved to something else"),
    Wrong("availability_zones", '["a", "b"]', "network", "names three zones"),
    Wrong("grants", ROOT, "service", "grants: role is one of cache-reader"),
    Wrong(
        "settings", '{ audit_mode = "false" }', "service", "settings does not change"
    ),
    Wrong("secrets_version", "0", "service", "secrets_version is a whole number"),
    Wrong("generations", NONE, "keys", "generations gives receipt and log a whole"),
    Wrong("passwords_version", "1.5", "kafka", "passwords_version is a whole number"),
    Wrong("kafka_client_cidrs", INTERNET, "network", "brokers are never open to the"),
    Wrong("passwords", "{}", "kafka", "passwords has one for each account"),
)
ACCOUNTS: Final = '["gateway", "collector", "signer", "sink", "topics", "auditor"]'
SHORT: Final = f'{{ for name in {ACCOUNTS} : name => "x" }}'
OWN_CLUSTER: Final = (Wrong("passwords", SHORT, "kafka", "at least 32 characters"),)
NOWHERE: Final = '{ services = ["kms"] }'
EXISTING_CLUSTER: Final = (
    Wrong("mechanism", '"OAUTHBEARER"', "service", "what the program speaks"),
    Wrong("kafka_cidrs", INTERNET, "network", "not the whole internet"),
    Wrong("existing_endpoints", NOWHERE, "network", "says where its interfaces are"),
    Wrong("accounts", '{ warmer = "w" }', "service", "accounts names roles"),
)


def wrongs(example: str) -> Sequence[Wrong]:
    """Return what an example is tried with.

    The seldom ones on one alone: test_examples.py says that the others hand on the
    same.
    """
    existing = example == "bring-your-own-kafka"
    more = ONCE if example == "production" else ()
    return (*EVERYWHERE, *more, *(EXISTING_CLUSTER if existing else OWN_CLUSTER))


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_wrong_value_stops_the_plan_and_says_so(
    example: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    terraform = Terraform.copy(tmp_path_factory.mktemp("terraform"))
    tests = terraform.example(example) / "tests"
    cases = {f"wrong_{n}.tftest.hcl": wrong for n, wrong in enumerate(wrongs(example))}
    for name, wrong in cases.items():
        text = FILE.format(
            target=wrong.target, variable=wrong.variable, value=wrong.value
        )
        (tests / name).write_text(text)
    terraform.init(example)
    filters = [f"-filter=tests/{name}" for name in cases]
    told = terraform.test(example, *filters)
    for name, wrong in cases.items():
        found = errors(said_of(told, f"tests/{name}"))
        assert found, wrong
        # Each module that is handed the value may say so.
        assert all(wrong.message in " ".join(one.split()) for one in found), found


def said_of(messages: Sequence[Message], file: str) -> Sequence[Message]:
    return [message for message in messages if message.get("@testfile") == file]
