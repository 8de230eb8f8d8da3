"""The tasks of a real plan: in ECS's own words, and with the program's own topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import botocore.session  # type: ignore[import-untyped]  # ships no types
import pytest
from botocore.validate import (  # type: ignore[import-untyped]  # ships no types
    ParamValidator,
)

from cachemind.core.access import Role
from cachemind.core.grant_access import rules_of
from cachemind.core.grant_topics import Grant, GrantTopics, grant_specs
from cachemind.core.topics import Mode, topics
from cachemind.types import Namespace
from infra.terraform.container.apply_topics import PLAN, Plan, plan_in
from tests.infra.terraform import Terraform, resources

pytestmark = pytest.mark.slow

RUN: Final = "for_the_hour_of_keys"
ADDRESS: Final = 'module.service.aws_ecs_task_definition.this["{}"]'
TASKS: Final = ("gateway", "signer", "sink", "topics")
MOST_BYTES: Final = 65_536
"""Of a task's description, says ECS."""

Containers = list[dict[str, Any]]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Containers]:
    terraform = Terraform.copy(tmp_path_factory.mktemp("terraform"))
    terraform.init("small")
    told = terraform.test("small", "-verbose", "-filter=tests/protected.tftest.hcl")
    found = resources(told, RUN)
    return {
        task: json.loads(found[ADDRESS.format(task)]["container_definitions"])
        for task in TASKS
    }


@pytest.mark.parametrize("task", TASKS)
def test_each_container_is_described_in_the_words_of_ecs(
    tasks: Mapping[str, Containers], task: str
) -> None:
    model = botocore.session.get_session().get_service_model("ecs")
    shape = model.operation_model("RegisterTaskDefinition").input_shape
    asked = {"family": task, "containerDefinitions": tasks[task]}
    report = ParamValidator().validate(asked, shape)
    assert not report.has_errors(), report.generate_report()
    assert len(json.dumps(asked)) < MOST_BYTES / 2


def test_the_task_of_topics_gets_the_programs_topics_and_grants(
    tasks: Mapping[str, Containers],
) -> None:
    plan = plan_of(tasks)
    grants = [
        Grant(namespace=Namespace("a.shop"), role=role)
        for role in (Role.CACHE_WRITER, Role.CACHE_READER)
    ]
    wanted = [
        *topics(2, Mode.PRODUCTION).all(),
        *(s for one in grants for s in grant_specs("cachemind", one, Mode.PRODUCTION)),
    ]
    assert {one.name: one for one in plan.topics}.keys() == {it.name for it in wanted}
    found = {one.name: one for one in plan.topics}
    for spec in wanted:
        one = found[spec.name]
        assert (one.partitions, one.settings) == (spec.partitions, spec.settings())
        assert one.replication_factor == spec.replication_factor


def test_the_task_of_topics_gives_a_user_what_its_grant_is(
    tasks: Mapping[str, Containers],
) -> None:
    grant = Grant(namespace=Namespace("a.shop"), role=Role.CACHE_WRITER)
    names = GrantTopics("cachemind")
    plan = plan_of(tasks)
    found = {rule for rule in plan.rules if rule.principal == "User:app"}
    assert {
        (rule.resource, rule.name, rule.pattern == "prefixed", rule.operation)
        for rule in found
    } == {
        (rule.resource, rule.name, rule.prefixed, rule.doing)
        for rule in rules_of(names, grant, "User:app")
    }
    assert "User:ceremony" in plan.principals
    for name in (names.requests(grant), names.replies(grant)):
        assert name.startswith(plan.only)
    assert names.group_prefix(grant).startswith(plan.only)


def plan_of(tasks: Mapping[str, Containers]) -> Plan:
    [container] = tasks["topics"]
    [packed] = [it["value"] for it in container["environment"] if it["name"] == PLAN]
    return plan_in(packed)
