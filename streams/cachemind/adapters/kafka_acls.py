"""The access rules of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, unlisted
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from cachemind.adapters.kafka_admin import DEADLINE_S, KafkaAdmin, answer
from cachemind.adapters.kafka_config import Properties
from cachemind.adapters.kafka_errors import kafka_error
from cachemind.core.grant_access import AccessRule, Doing, Resource
from cachemind.errors import AccessUncontrolled, LogRejected, LogUnavailable

_Binding = TypeVar("_Binding", bound=AclBinding)
_DENIED: Final = (
    "access rules: the account that asks may not; on the cluster it needs Alter to "
    "change them, Describe to see them"
)
_AUTHORIZER: Final = "authorizer.class.name"
_RESOURCES: Final = {
    ResourceType.TOPIC: Resource.TOPIC,
    ResourceType.GROUP: Resource.GROUP,
}
_KINDS: Final = {word: kind for kind, word in _RESOURCES.items()}
_DOINGS: Final = {AclOperation[doing.name]: doing for doing in Doing}


class KafkaAcls:
    """Looks at access rules, adds and removes some."""

    def __init__(self, properties: Properties, deadline_s: float = DEADLINE_S) -> None:
        """Contact no broker yet. Raises: `InvalidSetting`."""
        self._admin = KafkaAdmin(properties, deadline_s)

    def rules(self) -> frozenset[AccessRule]:
        """Return the rules about topics and groups, whatever the host.

        Raises: `AccessUncontrolled` where the cluster holds to none;
        `LogUnavailable`, `LogRejected`.
        """
        return self._admin.ask("look at access rules", _rules)

    def add(self, rules: Iterable[AccessRule]) -> None:
        """Return once all are in force. Raises: as `rules`."""
        wanted = sorted(rules)
        if not wanted:
            return
        self._admin.ask("add access rules", lambda c, s: _add(c, wanted, s))
        self._admin.ask("see access rules", lambda c, s: _see(c, wanted, s))

    def remove(self, rules: Iterable[AccessRule]) -> None:
        """Remove rules, if they are there. Raises: as `rules`."""
        gone = sorted(rules)
        if gone:
            self._admin.ask("remove access rules", lambda c, s: _remove(c, gone, s))

    def close(self) -> None:
        """Leave the cluster."""
        self._admin.close()


def _rules(client: AdminClient, limit_s: float) -> frozenset[AccessRule]:
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any, says its documentation
        ResourcePatternType.ANY,
        None,  # type: ignore[arg-type]  # any
        None,  # type: ignore[arg-type]  # any
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    with _controlled():
        found = answer(
            client.describe_acls(everything, request_timeout=limit_s), limit_s
        )
    if not found and _has_no_authorizer(client, limit_s):
        raise AccessUncontrolled
    return frozenset(
        AccessRule(
            principal=one.principal,
            resource=_RESOURCES[one.restype],
            name=one.name,
            prefixed=one.resource_pattern_type == ResourcePatternType.PREFIXED,
            doing=_DOINGS[one.operation],
            allowed=one.permission_type == AclPermissionType.ALLOW,
            host=one.host,
        )
        for one in found
        if one.restype in _RESOURCES and one.operation in _DOINGS
    )


def _add(client: AdminClient, rules: list[AccessRule], limit_s: float) -> None:
    # One request: it is authorised once.
    asked = client.create_acls(
        [_binding(AclBinding, rule) for rule in rules], request_timeout=limit_s
    )
    with _controlled():
        for future in asked.values():
            answer(future, limit_s)


def _see(client: AdminClient, rules: list[AccessRule], limit_s: float) -> None:
    unseen = set(rules) - _rules(client, limit_s)
    if unseen:
        raise LogUnavailable(f"added, not visible yet: {min(unseen)}")


def _remove(client: AdminClient, rules: list[AccessRule], limit_s: float) -> None:
    asked = client.delete_acls(
        [_binding(AclBindingFilter, rule) for rule in rules], request_timeout=limit_s
    )
    with _controlled():
        for future in asked.values():
            answer(future, limit_s)


def _has_no_authorizer(client: AdminClient, limit_s: float) -> bool:
    """Return whether a broker says so: librdkafka shows no rules where none count.

    Who may not ask that has met an authorizer.
    """
    brokers = client.list_topics(timeout=limit_s).brokers
    resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
    asked = client.describe_configs([resource], request_timeout=limit_s)
    try:
        (settings,) = (answer(future, limit_s) for future in asked.values())
    except KafkaException as error:
        if kafka_error(error).code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return False
        raise
    found = settings.get(_AUTHORIZER)
    return found is not None and found.value == ""


@contextmanager
def _controlled() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        code = kafka_error(error).code()
        if code == KafkaError.SECURITY_DISABLED:
            raise AccessUncontrolled from error
        if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            # What the broker says is its own memory of the request.
            raise LogRejected(_DENIED) from error
        raise


def _binding(kind: type[_Binding], rule: AccessRule) -> _Binding:
    return kind(
        _KINDS[rule.resource],
        rule.name,
        ResourcePatternType.PREFIXED if rule.prefixed else ResourcePatternType.LITERAL,
        rule.principal,
        rule.host,
        AclOperation[rule.doing.name],
        AclPermissionType.ALLOW if rule.allowed else AclPermissionType.DENY,
    )
