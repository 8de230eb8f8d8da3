"""Makes topics and access rules as Terraform has planned them.

usage: TOPICS_PLAN=JSON python apply_topics.py

Connects as the program does, by its settings. What is missing is created, a topic's
settings and the rules of the plan's own principals are brought to the plan's, and so
are all rules about what it says is for those alone. Nothing else is taken from anybody:
who else may use these topics is only told. Another number of partitions, or fewer
copies, is refused before anything is changed. Whoever applies a plan that does not name
it is allowed to come back: on a cluster that is open until it has rules, the first of
them would shut it out.

Exit 0: all is as planned; 1: the cluster refused or was away; 2: it cannot be so.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, unlisted
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from cachemind.adapters.kafka_admin import KafkaAdmin, answer, repeated
from cachemind.adapters.kafka_config import Properties
from cachemind.adapters.kafka_errors import kafka_error
from cachemind.adapters.kafka_topics import describe_topics
from cachemind.core.topics import FoundTopic
from cachemind.errors import (
    CacheError,
    InvalidSetting,
    LogUnavailable,
    TopicMisconfigured,
)
from cachemind_services.bootstrap.log import kafka_of
from cachemind_services.cli.main import exit_code
from cachemind_services.settings import load

_Binding = TypeVar("_Binding", bound=AclBinding)

PLAN: Final = "TOPICS_PLAN"
SEEN_S: Final = 60.0
"""For what was made to be shown by all brokers."""

_NO_PLAN: Final = (ValueError, KeyError, TypeError, OSError, EOFError, zlib.error)
"""What reading something else ends with."""

ANY_HOST: Final = "*"
EVERYTHING: Final = "*"
"""A literal name that Kafka takes for all."""

CLUSTER: Final = "kafka-cluster"
ON_CLUSTER: Final = ("alter", "create", "describe")
ON_TOPICS: Final = ("alter_configs", "describe", "describe_configs")
"""What it takes to apply a plan. Source: Kafka's documentation, Operations in Kafka."""

_RESOURCES: Final = {
    # What librdkafka calls a broker is the cluster in Kafka's own words.
    "cluster": ResourceType.BROKER,
    "group": ResourceType.GROUP,
    "topic": ResourceType.TOPIC,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """What a topic is to be; `settings` are Kafka's own words."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that one principal may do; `pattern` is literal or prefixed."""

    principal: str
    resource: str
    name: str
    pattern: str
    operation: str

    def __str__(self) -> str:
        """Return it in words."""
        return (
            f"{self.principal} {self.operation} on {self.resource} {self.name}"
            f"{'*' if self.pattern == 'prefixed' else ''}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All topics of an installation, and who may do what.

    `principals`: whose rules are these and no others, also where they have none now.
    `only`: what begins so is for nobody but those whom these rules name.
    """

    topics: tuple[PlannedTopic, ...]
    rules: frozenset[Rule]
    principals: frozenset[str]
    only: tuple[str, ...]


def plan_in(text: str) -> Plan:
    """Return the plan that Terraform's output `plan` of module topics holds.

    It may be packed, by gzip in Base64: a task's description has a bounded size.
    Raises: `InvalidSetting`.
    """
    try:
        document = json.loads(_unpacked(text))
        topics = tuple(PlannedTopic(**topic) for topic in document["topics"])
        rules = frozenset(
            Rule(operation=operation, **_without(rule, "operations"))
            for rule in document["acls"]
            for operation in rule["operations"]
        )
        principals = frozenset(map(str, document.get("principals", ())))
        only = tuple(map(str, document.get("only", ())))
    except _NO_PLAN as error:
        raise InvalidSetting(PLAN, f"is not a plan of topics: {error!r}") from error
    for rule in rules:
        _binding(AclBinding, rule)
    principals |= {rule.principal for rule in rules}
    return Plan(topics=topics, rules=rules, principals=principals, only=only)


def _unpacked(text: str) -> str:
    if text.startswith("{"):
        return text
    return gzip.decompress(b64decode(text, validate=True)).decode()


def with_applier(plan: Plan, user: str) -> Plan:
    """Return a plan whose rules let `user`, who applies it, apply the next one too.

    As it is where it has no rules, or has some for that user already.
    """
    principal = f"User:{user}"
    if not user or not plan.rules or principal in plan.principals:
        return plan
    needed = [("cluster", CLUSTER, operation) for operation in ON_CLUSTER] + [
        ("topic", topic.name, operation)
        for topic in plan.topics
        for operation in ON_TOPICS
    ]
    own = {
        Rule(
            principal=principal,
            resource=resource,
            name=name,
            pattern="literal",
            operation=operation,
        )
        for resource, name, operation in needed
    }
    return replace(
        plan, rules=plan.rules | own, principals=plan.principals | {principal}
    )


def apply(properties: Properties, plan: Plan) -> Iterator[str]:
    """Bring the cluster to the plan; yield each change as it is done.

    Raises: `TopicMisconfigured` before any change; `LogRejected`, `LogUnavailable`,
    `InvalidSetting`.
    """
    plan = with_applier(plan, str(properties.get("sasl.username", "")))
    found = describe_topics(properties, [topic.name for topic in plan.topics])
    for topic in plan.topics:
        if topic.name in found:
            _refuse(topic, found[topic.name])
    with closing(KafkaAdmin(properties)) as admin:
        for topic in plan.topics:
            yield from _apply_topic(admin, topic, found.get(topic.name))
        # Last: a cluster that is open until it has rules is closed by the first one.
        if plan.rules:
            yield from _apply_rules(admin, plan)
    seen = repeated("see the topics", SEEN_S, partial(_all, properties, plan))
    for topic, one in seen:
        _refuse(topic, one)


def _all(
    properties: Properties, plan: Plan, _limit_s: float
) -> list[tuple[PlannedTopic, FoundTopic]]:
    """Return what each topic is now. Raises: `LogUnavailable` where one is missing."""
    found = describe_topics(properties, [topic.name for topic in plan.topics])
    unseen = [topic.name for topic in plan.topics if topic.name not in found]
    if unseen:
        # A broker answers from its own metadata, which may lag the controller's.
        raise LogUnavailable(f"created, not visible yet: {', '.join(unseen)}")
    return [(topic, found[topic.name]) for topic in plan.topics]


def _refuse(topic: PlannedTopic, found: FoundTopic) -> None:
    if found.partitions != topic.partitions:
        raise TopicMisconfigured(
            topic.name, "partitions", str(topic.partitions), str(found.partitions)
        )
    if found.replication_factor < topic.replication_factor:
        wanted = f"at least {topic.replication_factor}"
        copies = str(found.replication_factor)
        raise TopicMisconfigured(topic.name, "replication.factor", wanted, copies)


def _apply_topic(
    admin: KafkaAdmin, topic: PlannedTopic, found: FoundTopic | None
) -> Iterator[str]:
    if found is None:
        admin.ask(f"create topic {topic.name}", lambda c, s: _create(c, topic, s))
        yield f"created topic {topic.name}"
        return
    differing = {
        name: value
        for name, value in topic.settings.items()
        if found.settings.get(name) != value
    }
    if differing:
        admin.ask(
            f"configure topic {topic.name}",
            lambda c, s: _configure(c, topic.name, differing, s),
        )
    for name, value in differing.items():
        yield f"{topic.name}: {name} is {value}, was {found.settings.get(name)}"


def _create(client: AdminClient, topic: PlannedTopic, limit_s: float) -> None:
    new = NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config=dict(topic.settings),
    )
    asked = client.create_topics(
        [new], operation_timeout=limit_s, request_timeout=limit_s
    )
    try:
        answer(asked[topic.name], limit_s)
    except KafkaException as error:
        # Asked twice, where the first answer was lost.
        if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _configure(
    client: AdminClient, name: str, settings: Mapping[str, str], limit_s: float
) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    asked = client.incremental_alter_configs([resource], request_timeout=limit_s)
    for future in asked.values():
        answer(future, limit_s)


def _apply_rules(admin: KafkaAdmin, plan: Plan) -> Iterator[str]:
    found = admin.ask("look at access rules", _rules)
    missing = plan.rules - found
    if missing:
        admin.ask("add access rules", lambda c, s: _add(c, sorted(missing, key=str), s))
        admin.ask("see the access rules", partial(_see, plan.rules))
    yield from (f"allowed {rule}" for rule in sorted(missing, key=str))
    for rule in sorted(found - plan.rules, key=str):
        if _is_taken(rule, plan):
            admin.ask("remove an access rule", partial(_remove, rule))
            yield f"no longer allowed {rule}"
        elif _is_within(rule, plan) or _reaches(rule, plan):
            yield f"left as it is: {rule}"


def _is_taken(rule: Rule, plan: Plan) -> bool:
    """Return whether a rule that the plan has not is against it."""
    if rule.name.startswith(plan.only):
        return True
    return rule.principal in plan.principals and _is_within(rule, plan)


def _is_within(rule: Rule, plan: Plan) -> bool:
    """Return whether a rule is about nothing but what the plan names."""
    return any(rule.name.startswith(name) for name in _names(plan))


def _reaches(rule: Rule, plan: Plan) -> bool:
    """Return whether a rule is, among others, about something that the plan names."""
    if rule.pattern == "prefixed":
        return any(name.startswith(rule.name) for name in _names(plan))
    return rule.name == EVERYTHING


def _names(plan: Plan) -> set[str]:
    return {rule.name for rule in plan.rules if rule.resource != "cluster"}


def _rules(client: AdminClient, limit_s: float) -> frozenset[Rule]:
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any, says its documentation
        ResourcePatternType.ANY,
        None,  # type: ignore[arg-type]  # any
        None,  # type: ignore[arg-type]  # any
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    kinds = {kind: word for word, kind in _RESOURCES.items()}
    asked = client.describe_acls(everything, request_timeout=limit_s)
    return frozenset(
        Rule(
            principal=one.principal,
            resource=kinds[one.restype],
            name=one.name,
            pattern=one.resource_pattern_type.name.lower(),
            operation=one.operation.name.lower(),
        )
        for one in answer(asked, limit_s)
        if one.restype in kinds
        and one.permission_type == AclPermissionType.ALLOW
        and one.host == ANY_HOST
    )


def _see(wanted: frozenset[Rule], client: AdminClient, limit_s: float) -> None:
    unseen = wanted - _rules(client, limit_s)
    if unseen:
        raise LogUnavailable(f"added, not visible yet: {min(unseen, key=str)}")


def _add(client: AdminClient, rules: Sequence[Rule], limit_s: float) -> None:
    # One request: it is authorised once, so none of them can lock out the others.
    asked = client.create_acls(
        [_binding(AclBinding, rule) for rule in rules], request_timeout=limit_s
    )
    for future in asked.values():
        answer(future, limit_s)


def _remove(rule: Rule, client: AdminClient, limit_s: float) -> None:
    asked = client.delete_acls(
        [_binding(AclBindingFilter, rule)], request_timeout=limit_s
    )
    for future in asked.values():
        answer(future, limit_s)


def _binding(kind: type[_Binding], rule: Rule) -> _Binding:
    """Return a rule in librdkafka's words. Raises: `InvalidSetting`."""
    try:
        return kind(
            _RESOURCES[rule.resource],
            rule.name,
            ResourcePatternType[rule.pattern.upper()],
            rule.principal,
            ANY_HOST,
            AclOperation[rule.operation.upper()],
            AclPermissionType.ALLOW,
        )
    except KeyError as error:
        raise InvalidSetting(PLAN, f"{rule}: Kafka knows no {error}") from error


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


def main(environ: Mapping[str, str]) -> int:
    """Apply the plan in the environment; print what was done."""
    try:
        plan = plan_in(environ.get(PLAN, ""))
        for line in apply(kafka_of(load(environ)), plan):
            sys.stdout.write(line + "\n")
    except CacheError as error:
        sys.stderr.write(f"topics: {error}\n")
        return exit_code(error)
    sys.stdout.write("topics and access rules are as planned\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
