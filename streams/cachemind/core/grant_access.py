"""Access rules of a cluster: what lets a user have a grant, and who has one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachemind.core.grant_topics import Grant, GrantTopics
from cachemind.errors import InvalidRequest

EVERYBODY: Final = "User:*"
ANY_HOST: Final = "*"
_ANY_NAME: Final = "*"
_NOBODY: Final = frozenset({_ANY_NAME, "ANONYMOUS"})
"""Names of users that are none: Kafka calls ANONYMOUS whom it did not ask who he is."""


class Resource(StrEnum):
    """What a rule is about."""

    TOPIC = "topic"
    GROUP = "group"


class Doing(StrEnum):
    """What a rule lets somebody do; `ALL` is each of them."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    DESCRIBE = "describe"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AccessRule:
    """One thing that a principal may do, or may not where it is not `allowed`.

    `prefixed`: about all whose name begins with `name`. `host` is where it counts.
    """

    principal: str
    resource: Resource
    name: str
    prefixed: bool
    doing: Doing
    allowed: bool = True
    host: str = ANY_HOST

    def covers(self, topic: str, doing: Doing) -> bool:
        """Return whether it is about doing this with that topic."""
        if self.resource is not Resource.TOPIC or self.doing not in (doing, Doing.ALL):
            return False
        if self.prefixed:
            return topic.startswith(self.name)
        return self.name in (topic, _ANY_NAME)


def user_of(text: str) -> str:
    """Return a principal as Kafka writes it. Raises: `InvalidRequest`."""
    kind, _, name = text.partition(":")
    if kind != "User" or not name or not name.isprintable():
        raise InvalidRequest("--user", "write it as Kafka does, User:NAME")
    if name in _NOBODY:
        raise InvalidRequest("--user", "name somebody: a grant says who asks")
    return text


def rules_of(names: GrantTopics, grant: Grant, user: str) -> frozenset[AccessRule]:
    """Return what lets a user ask by a grant and read the answers, and no more.

    A producer that is idempotent needs nothing else, from Kafka 3.0 on.
    """
    found = [
        AccessRule(
            principal=user,
            resource=Resource.TOPIC,
            name=name,
            prefixed=False,
            doing=doing,
        )
        for name, does in (
            (names.requests(grant), Doing.WRITE),
            (names.replies(grant), Doing.READ),
        )
        for doing in (does, Doing.DESCRIBE)
    ]
    group = AccessRule(
        principal=user,
        resource=Resource.GROUP,
        name=names.group_prefix(grant),
        prefixed=True,
        doing=Doing.READ,
    )
    return frozenset({*found, group})


def who_may(doing: Doing, topic: str, rules: Iterable[AccessRule]) -> tuple[str, ...]:
    """Return the principals that rules let do this with a topic, sorted.

    Who is above all rules, as a super user is, is in none of them.
    """
    about = [rule for rule in rules if rule.covers(topic, doing)]
    denied = {rule.principal for rule in about if not rule.allowed}
    if EVERYBODY in denied:
        return ()
    return tuple(sorted({rule.principal for rule in about if rule.allowed} - denied))
