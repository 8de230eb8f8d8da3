"""Terraform's plan of topics and rules, applied to a real cluster with passwords."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from typing import Any

import pytest

from cachemind.adapters.kafka_topics import describe_topics, ensure_topics
from cachemind.core.topics import Mode, topics
from cachemind.errors import InvalidSetting, LogRejected, TopicMisconfigured
from infra.terraform.container.apply_topics import (
    PLAN,
    apply,
    main,
    plan_in,
    with_applier,
)
from tests.infra.containerfile import ROOT
from tests.integration.serving import eventually
from tests.integration.test_kafka_security import kafka
from tests.secured_kafka import Secured

__all__ = ["kafka"]  # the fixture: a broker where one has to say who one is

pytestmark = pytest.mark.broker

GATEWAY = "User:bob"
ACLS = ROOT / "infra" / "terraform" / "modules" / "topics" / "acls.json"


def document(
    prefix: str, *, partitions: int = 2, retention_ms: str = "-1"
) -> dict[str, Any]:
    """Return a plan as Terraform writes it: the program's topics, one reader."""
    specs = topics(partitions, Mode.DEVELOPMENT, prefix).all()
    return {
        "topics": [
            {
                "name": spec.name,
                "partitions": spec.partitions,
                "replication_factor": spec.replication_factor,
                "settings": spec.settings() | {"retention.ms": retention_ms},
            }
            for spec in specs
        ],
        "acls": [
            rule("topic", f"{prefix}.", "prefixed", "describe", "describe_configs"),
            rule("topic", f"{prefix}.wal", "literal", "read"),
            rule("cluster", "kafka-cluster", "literal", "describe"),
        ],
    }


def rule(
    resource: str, name: str, pattern: str, *operations: str, principal: str = GATEWAY
) -> dict[str, Any]:
    return {
        "principal": principal,
        "resource": resource,
        "name": name,
        "pattern": pattern,
        "operations": list(operations),
    }


def done(kafka: Secured, wanted: dict[str, Any], who: str = "alice") -> list[str]:
    """Apply a plan; return what was said."""
    return list(apply(kafka.login(who), plan_in(json.dumps(wanted))))


def changes(kafka: Secured, wanted: dict[str, Any]) -> list[str]:
    """Apply a plan; return what was changed, without what others may do."""
    said = done(kafka, wanted)
    return [line for line in said if not line.startswith("left as it is")]


def settled(kafka: Secured, wanted: dict[str, Any]) -> None:
    """Apply a plan, and return once the broker shows all of it."""
    done(kafka, wanted)
    eventually(lambda: not changes(kafka, wanted))


def may_look(kafka: Secured, prefix: str) -> bool:
    """Return whether bob's right to look has come to the broker already."""
    name = f"{prefix}.wal"
    try:
        return describe_topics(kafka.login("bob"), [name])[name].partitions == 2
    except LogRejected:
        return False


def test_what_is_missing_is_made_and_a_second_time_changes_nothing(
    kafka: Secured, topic_prefix: str
) -> None:
    wanted = document(topic_prefix)
    said = done(kafka, wanted)
    assert f"created topic {topic_prefix}.wal" in said
    assert f"allowed {GATEWAY} read on topic {topic_prefix}.wal" in said
    eventually(lambda: not changes(kafka, wanted))


def test_the_program_finds_the_topics_as_it_wants_them(
    kafka: Secured, topic_prefix: str
) -> None:
    settled(kafka, document(topic_prefix))
    specs = topics(2, Mode.DEVELOPMENT, topic_prefix).all()
    # By who may only look: a topic that had to be made would be refused.
    eventually(lambda: may_look(kafka, topic_prefix))
    ensure_topics(kafka.login("bob"), specs)


def test_a_rule_lets_its_principal_do_that_and_nothing_else(
    kafka: Secured, topic_prefix: str
) -> None:
    settled(kafka, document(topic_prefix))
    eventually(lambda: may_look(kafka, topic_prefix))
    other = document(topic_prefix, retention_ms="9") | {"acls": []}
    with pytest.raises(LogRejected):
        done(kafka, other, who="bob")


def test_a_changed_setting_is_brought_to_the_plan_and_another_one_left(
    kafka: Secured, topic_prefix: str
) -> None:
    settled(kafka, document(topic_prefix))
    said = done(kafka, document(topic_prefix, retention_ms="86400001"))
    assert f"{topic_prefix}.wal: retention.ms is 86400001, was -1" in said
    wal = describe_topics(kafka.login("alice"), [f"{topic_prefix}.wal"])
    settings = wal[f"{topic_prefix}.wal"].settings
    assert settings["retention.ms"] == "86400001"
    assert settings["cleanup.policy"] == "delete"


def test_a_rule_that_the_plan_no_longer_has_is_taken_from_its_principal(
    kafka: Secured, topic_prefix: str
) -> None:
    wanted = document(topic_prefix)
    wanted["acls"].append(rule("topic", f"{topic_prefix}.wal", "literal", "write"))
    settled(kafka, wanted)
    said = changes(kafka, document(topic_prefix))
    gone = f"no longer allowed {GATEWAY} write on topic {topic_prefix}.wal"
    assert said == [gone]
    eventually(lambda: not changes(kafka, document(topic_prefix)))


def test_who_is_left_without_a_rule_in_the_plan_keeps_none(
    kafka: Secured, topic_prefix: str
) -> None:
    # As the ceremony's account is, when its hour is over.
    ceremony = rule(
        *("topic", f"{topic_prefix}.wal", "literal", "write"), principal="User:ceremony"
    )
    wanted = document(topic_prefix)
    settled(kafka, wanted | {"acls": [*wanted["acls"], ceremony]})
    said = changes(kafka, wanted | {"principals": ["User:ceremony"]})
    gone = f"no longer allowed User:ceremony write on topic {topic_prefix}.wal"
    assert said == [gone]


def test_what_is_for_those_in_the_plan_alone_is_taken_from_all_others(
    kafka: Secured, topic_prefix: str
) -> None:
    # As the topics of a grant that is no more.
    name = f"{topic_prefix}.requests.shop.cache-admin"
    stranger = rule("topic", name, "literal", "write", principal="User:app")
    wanted = document(topic_prefix)
    settled(kafka, wanted | {"acls": [*wanted["acls"], stranger]})
    assert changes(kafka, wanted) == []
    said = changes(kafka, wanted | {"only": [f"{topic_prefix}.requests."]})
    assert said == [f"no longer allowed User:app write on topic {name}"]


def test_every_rule_of_the_module_is_one_that_kafka_takes(
    kafka: Secured, topic_prefix: str
) -> None:
    # As main.tf of module topics writes them.
    wanted = document(topic_prefix)
    wanted["acls"] = [
        {**one, "name": one["name"].format(prefix=topic_prefix)}
        | {"principal": f"User:{role}"}
        for role, rules in json.loads(ACLS.read_text("utf-8")).items()
        for one in rules
    ]
    said = changes(kafka, wanted)
    allowed = [one for one in said if re.match(r"allowed User:(?!alice)", one)]
    assert len(allowed) == sum(len(one["operations"]) for one in wanted["acls"])
    assert not changes(kafka, wanted)


def test_who_applies_a_plan_may_apply_the_next_one() -> None:
    plan = plan_in(json.dumps(document("x")))
    own = with_applier(plan, "carol").rules - plan.rules
    assert {rule.principal for rule in own} == {"User:carol"}
    assert {rule.operation for rule in own if rule.resource == "cluster"} == {
        *("alter", "create", "describe")
    }
    assert {rule.name for rule in own if rule.resource == "topic"} == {
        topic.name for topic in plan.topics
    }


@pytest.mark.parametrize("user", ["", "bob"])
def test_who_is_in_the_plan_or_has_no_name_gets_nothing_more(user: str) -> None:
    plan = plan_in(json.dumps(document("x")))
    assert with_applier(plan, user) == plan


def test_what_others_may_do_is_told_and_left(kafka: Secured, topic_prefix: str) -> None:
    other = rule(
        "topic", f"{topic_prefix}.requests", "literal", "write", principal="User:app"
    )
    wanted = document(topic_prefix)
    settled(kafka, {"topics": wanted["topics"], "acls": [other]})
    left = f"left as it is: User:app write on topic {topic_prefix}.requests"
    settled(kafka, wanted)
    assert left in done(kafka, wanted)


@pytest.mark.parametrize("partitions", [1, 3])
def test_another_number_of_partitions_is_refused_before_any_change(
    kafka: Secured, topic_prefix: str, partitions: int
) -> None:
    settled(kafka, document(topic_prefix))
    wanted = document(topic_prefix, partitions=partitions)
    wanted["topics"].insert(0, _topic(f"{topic_prefix}.first"))
    with pytest.raises(TopicMisconfigured, match="partitions"):
        done(kafka, wanted)
    alice = kafka.login("alice")
    assert describe_topics(alice, [f"{topic_prefix}.first"]) == {}


def test_fewer_copies_than_planned_are_refused(
    kafka: Secured, topic_prefix: str
) -> None:
    settled(kafka, {"topics": [_topic(f"{topic_prefix}.wal")], "acls": []})
    wanted = _topic(f"{topic_prefix}.wal") | {"replication_factor": 3}
    with pytest.raises(TopicMisconfigured, match=r"replication\.factor"):
        done(kafka, {"topics": [wanted], "acls": []})


def test_without_rules_in_the_plan_none_are_looked_at(
    kafka: Secured, topic_prefix: str
) -> None:
    plan = {"topics": [_topic(f"{topic_prefix}.wal")], "acls": []}
    assert done(kafka, plan) == [f"created topic {topic_prefix}.wal"]


# ---- as a command -------------------------------------------------------------------


@pytest.fixture
def environ(kafka: Secured) -> dict[str, str]:
    return kafka.settings("alice")


def test_the_task_reads_the_plan_and_the_programs_settings(
    environ: dict[str, str], topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Packed, as the module gives it to the task.
    packed = b64encode(gzip.compress(json.dumps(document(topic_prefix)).encode()))
    assert main(environ | {PLAN: packed.decode()}) == 0
    printed = capsys.readouterr().out.splitlines()
    assert f"created topic {topic_prefix}.wal" in printed
    assert printed[-1] == "topics and access rules are as planned"


def test_who_may_not_exits_1_and_what_cannot_be_2(
    environ: dict[str, str], topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {PLAN: json.dumps(document(topic_prefix))}
    assert main(environ | plan | {"CACHEMIND_KAFKA_SASL_USERNAME": "bob"}) == 1
    assert main(environ | plan) == 0
    more = {PLAN: json.dumps(document(topic_prefix, partitions=5))}
    assert main(environ | more) == 2
    assert "partitions" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[]", id="a-list"),
        pytest.param("H4sIAAAA", id="packed-and-cut-off"),
        pytest.param('{"topics": []}', id="no-acls"),
        pytest.param('{"topics": [{"name": "x"}], "acls": []}', id="half-a-topic"),
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=PLAN):
        plan_in(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [("resource", "bucket"), ("pattern", "regex"), ("operations", ["sing"])],
)
def test_a_word_that_kafka_does_not_know_is_refused(field: str, value: object) -> None:
    wrong = rule("topic", "x", "literal", "read") | {field: value}
    with pytest.raises(InvalidSetting, match=PLAN):
        plan_in(json.dumps({"topics": [], "acls": [wrong]}))


def test_each_operation_of_a_rule_is_one_of_its_own() -> None:
    plan = plan_in(json.dumps(document("x", partitions=7)))
    assert {topic.partitions for topic in plan.topics} == {7, 1}
    assert len(plan.rules) == 4


def _topic(name: str) -> dict[str, Any]:
    return {"name": name, "partitions": 1, "replication_factor": 1, "settings": {}}
