"""Terraform's topics and ACLs against the program's own: they must never disagree."""

from __future__ import annotations

import ast
import json
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cachemind.core.access import Role
from cachemind.core.grant_topics import (
    MOST_NAME_CHARS,
    Grant,
    GrantTopics,
    grant_specs,
)
from cachemind.core.topics import Mode, TopicSpec, topics
from cachemind.errors import InvalidEvent
from cachemind.types import Namespace

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = ROOT / "infra" / "terraform" / "modules" / "topics"
GENERATED: Final[Mapping[str, Any]] = json.loads((MODULE / "topics.json").read_text())
TABLE: Final[Mapping[str, Any]] = GENERATED["topics"]
GRANTED: Final[Mapping[str, Any]] = GENERATED["grants"]
VARIABLES: Final = (MODULE / "variables.tf").read_text()
RULES: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = json.loads(
    (MODULE / "acls.json").read_text()
)
PREFIX: Final = "{prefix}"
READER: Final = "cachemind-reader"
PROCESSES: Final = ("gateway", "signer", "sink", "collector")
MAKER: Final = "topics"
LOOKING: Final = ("describe", "describe_configs")
READING: Final = sorted(RULES.keys() - {MAKER})
GRANTS: Final = {f"{PREFIX}.requests.": "read", f"{PREFIX}.replies.": "write"}
"""What the topics of grants begin with, which come and go while it runs."""


def specs(partitions: int) -> Mapping[str, TopicSpec]:
    """Return the program's topics by their names without the prefix."""
    return {
        spec.name.removeprefix("any."): spec
        for spec in topics(partitions, Mode.PRODUCTION, "any").all()
    }


@pytest.mark.parametrize("partitions", [1, 2, 7, 1024])
def test_the_table_is_the_programs(partitions: int) -> None:
    found = {
        name: (
            partitions if row["as_many_as_wal"] else row["partitions"],
            row["replication_factor"],
            row["settings"],
        )
        for name, row in TABLE.items()
    }
    assert found == {
        name: (spec.partitions, spec.replication_factor, spec.settings())
        for name, spec in specs(partitions).items()
    }


def test_the_table_is_what_its_generator_writes() -> None:
    generator = runpy.run_path(str(MODULE / "generate.py"))
    assert (MODULE / "topics.json").read_text() == generator["rendered"]()


def test_retention_is_set_for_topics_that_keep_by_time_and_no_other() -> None:
    by_time = sorted(
        name for name, spec in specs(1).items() if spec.cleanup == "delete"
    )
    accepted = VARIABLES.partition("setsubtract(keys(var.retention_days), ")[2]
    assert sorted(json.loads(accepted.partition(")")[0])) == by_time


# ---- grants -------------------------------------------------------------------------


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("namespace", ["a", "a.b-c_9", "n" * 128])
def test_a_grants_names_are_the_programs(namespace: str, role: Role) -> None:
    grant = Grant(namespace=Namespace(namespace), role=role)
    names, specs = GrantTopics("any"), grant_specs("any", grant, Mode.PRODUCTION)
    assert role in GRANTED["roles"]
    for kind, spec in zip(("requests", "replies"), specs, strict=True):
        row, shared = GRANTED["topics"][kind], TABLE[kind]
        assert (filled(row["name"], grant), row["partitions"]) == (spec.name, 1)
        assert spec.partitions == 1
        assert spec.settings() == shared["settings"]
        assert spec.replication_factor == shared["replication_factor"]
    assert filled(GRANTED["group"], grant) == names.group_prefix(grant)


def filled(template: str, grant: Grant) -> str:
    return template.format(prefix="any", namespace=grant.namespace, role=grant.role)


@pytest.mark.parametrize(
    "namespace",
    ["a", "9", "a.b_c-d", "n" * 128, "n" * 129, "", ".a", "A", "a b", "cachemind.x"],
)
def test_terraform_refuses_the_namespaces_that_the_program_refuses(
    namespace: str,
) -> None:
    [pattern] = re.findall(r'regex\("([^"]+)", grant\.namespace\)', VARIABLES)
    [own] = re.findall(r'!startswith\(grant\.namespace, "([^"]+)"\)', VARIABLES)
    taken = bool(re.search(pattern, namespace)) and not namespace.startswith(own)
    try:
        Grant(namespace=Namespace(namespace), role=Role.CACHE_READER)
    except InvalidEvent:
        assert not taken
    else:
        assert taken


def test_terraform_and_the_program_agree_on_how_long_a_topics_name_is() -> None:
    assert f"<= {MOST_NAME_CHARS}" in VARIABLES


# ---- ACLs ---------------------------------------------------------------------------


def rules(kind: str, role: str) -> Iterator[Mapping[str, Any]]:
    return (rule for rule in RULES[role] if rule["resource"] == kind)


def test_every_topic_in_an_acl_is_one_of_the_program() -> None:
    known = {f"{PREFIX}.{name}" for name in TABLE} | {f"{PREFIX}.", *GRANTS}
    named = {rule["name"] for role in RULES for rule in rules("topic", role)}
    assert named == known


def test_a_role_does_to_all_topics_no_more_than_look_at_them() -> None:
    for role in RULES.keys() - {MAKER}:
        for rule in rules("topic", role):
            if rule["pattern"] == "prefixed" and rule["name"] not in GRANTS:
                assert tuple(rule["operations"]) == LOOKING


def test_the_topics_of_grants_are_for_who_answers_and_for_their_own_side_only() -> None:
    found = {
        (role, rule["name"]): rule["operations"]
        for role in RULES
        for rule in rules("topic", role)
        if rule["name"] in GRANTS
    }
    assert found == {("gateway", name): [one] for name, one in GRANTS.items()}
    grant = Grant(namespace=Namespace("shop"), role=Role.AUDITOR)
    names = GrantTopics(PREFIX)
    for name, prefix in zip(
        (names.requests(grant), names.replies(grant)), GRANTS, strict=True
    ):
        assert name.startswith(prefix)


@pytest.mark.parametrize(
    ("topic", "writers"),
    [
        ("requests", set()),
        ("answers", {"gateway"}),
        ("replies", {"gateway"}),
        ("wal", {"gateway", "ceremony", "collector"}),
        ("snapshots", {"gateway"}),
        ("audit", {"signer"}),
        ("audit.cuts", {"signer"}),
        ("dlq", {"gateway"}),
    ],
)
def test_who_may_write(topic: str, writers: set[str]) -> None:
    assert writers == {
        role
        for role in RULES
        for rule in rules("topic", role)
        if rule["name"] == f"{PREFIX}.{topic}" and "write" in rule["operations"]
    }


def test_nobody_but_the_task_for_it_may_make_or_change_a_topic() -> None:
    allowed = {"describe", "describe_configs", "read", "write"}
    for role in RULES.keys() - {MAKER}:
        for rule in RULES[role]:
            assert set(rule["operations"]) <= allowed


def test_the_task_makes_topics_and_rules_and_neither_reads_nor_deletes() -> None:
    # Rules can be made only by who may alter the cluster: Kafka has no narrower word.
    found = [
        (rule["resource"], rule["name"], *rule["operations"]) for rule in RULES[MAKER]
    ]
    assert found == [
        ("cluster", "kafka-cluster", "alter", "describe"),
        ("topic", f"{PREFIX}.", "alter_configs", "create", *LOOKING),
    ]


def names_of_the_program() -> set[str]:
    """Return the groups and transactional ids: texts after a settings' topic prefix.

    What is put in at run time is `*`.
    """
    found = set()
    for path in (ROOT / "services" / "cachemind_services").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr):
                continue
            head, *rest = node.values
            if "topic_prefix" in ast.unparse(head):
                found.add("".join(map(_shown, rest)))
    return found


def _shown(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "*"


def test_groups_and_transactional_ids_are_those_of_the_program() -> None:
    # The two names that are made from a part of one found in the text:
    # signer.py's roles, and a request session's id, which is its topic's and a number:
    # that of the shared topic is the group's name, and those of grants are below it.
    made = {"-*": {"-signer-*", "-cutter-*"}, ".requests": {".requests", ".requests.*"}}
    wanted = {
        name for found in names_of_the_program() for name in made.get(found, {found})
    }
    granted = {
        rule["name"].removeprefix(PREFIX)
        + ("*" if rule["pattern"] != "literal" else "")
        for role in RULES
        for kind in ("group", "transactional_id")
        for rule in rules(kind, role)
    }
    assert granted == wanted | {READER}


def test_the_names_that_are_made_from_parts_are_still_made_so() -> None:
    signer = (ROOT / "services/cachemind_services/bootstrap/signer.py").read_text()
    assert 'f"signer-{partition}"' in signer
    assert 'f"cutter-{keys.log_id}"' in signer
    requests = (ROOT / "streams/cachemind/adapters/kafka_requests.py").read_text()
    assert 'f"{topics.requests}.{partition}"' in requests


@pytest.mark.parametrize("role", PROCESSES)
def test_a_process_may_ask_which_cluster_it_is(role: str) -> None:
    assert [rule["operations"] for rule in rules("cluster", role)] == [["describe"]]


def test_an_auditor_reads_and_does_nothing_else() -> None:
    topics_read = list(rules("topic", "auditor"))
    assert {op for rule in topics_read for op in rule["operations"]} == {"read"}
    assert [rule["name"] for rule in RULES["auditor"] if rule not in topics_read] == [
        READER
    ]


@pytest.mark.parametrize("role", READING)
def test_who_reads_may_ask_where_the_group_of_readers_is(role: str) -> None:
    # librdkafka asks for the coordinator of the group that it is made to name.
    text = (ROOT / "streams/cachemind/adapters/kafka_config.py").read_text()
    assert f'"group.id": "{READER}"' in text
    found = [rule for rule in rules("group", role) if rule["name"] == READER]
    assert [rule["operations"] for rule in found] == [["describe"]]
