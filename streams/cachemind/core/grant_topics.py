"""Grants over Kafka: a pair of topics each, whose name alone says what it gives.

Who may write `<prefix>.requests.<namespace>.<role>` may ask for what the role may in
that namespace; the answers go to the topic of the same name below `<prefix>.replies.`.
The cluster's ACLs say who that is. A role has no dot and a namespace may have some, so
the last part is the role and there is one way to read a name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from cachemind.core.access import Caller, Role, is_reserved
from cachemind.core.topics import Mode, TopicSpec, topics
from cachemind.errors import InvalidEvent
from cachemind.types import Namespace, Principal, check_namespace

SHARED: Final = Principal("kafka")
"""Whoever may write to the topic of requests; who that is, the cluster's ACLs say."""

MOST_NAME_CHARS: Final = 249
"""Of a topic, says Kafka."""

REQUESTS: Final = "requests"
REPLIES: Final = "replies"
_AFTER_GROUP: Final = ":"
"""No namespace has it, so no group of `a` is one of `a.b`, nor the other way round."""

_STRANGER: Final = Caller(
    principal=SHARED, role=Role.CACHE_READER, namespaces=frozenset()
)
"""Nobody knows who that is, so nothing is granted anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role in one namespace. Raises: `InvalidEvent` naming the field."""

    namespace: Namespace
    role: Role

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        if is_reserved(self.namespace):
            raise InvalidEvent("namespace", "is the installation's own")

    @property
    def caller(self) -> Caller:
        """Return who asks by it."""
        name = f"{self.namespace}.{self.role}"
        return Caller(
            principal=Principal(f"{SHARED}:{name}"),
            role=self.role,
            namespaces=frozenset({self.namespace}),
            credential_id=name,
        )


@dataclass(frozen=True, slots=True)
class GrantTopics:
    """The names of an installation's grants."""

    prefix: str

    def requests(self, grant: Grant) -> str:
        """Return the topic of a grant's commands. Raises: `InvalidEvent`."""
        return self._name(REQUESTS, grant)

    def replies(self, grant: Grant) -> str:
        """Return where alone its answers go. Raises: `InvalidEvent`."""
        return self._name(REPLIES, grant)

    def group_prefix(self, grant: Grant) -> str:
        """Return what the names of its clients' consumer groups begin with."""
        name = f"{self.prefix}.client.{grant.namespace}.{grant.role}"
        return name + _AFTER_GROUP

    def grant_of(self, topic: str) -> Grant | None:
        """Return what a topic of commands gives; None where it is no grant's.

        Raises: `InvalidEvent` for one that is named as no grant can be.
        """
        below = f"{self.prefix}.{REQUESTS}."
        if not topic.startswith(below):
            return None
        namespace, _, role = topic.removeprefix(below).rpartition(".")
        if role not in list(Role):
            known = ", ".join(Role)
            raise InvalidEvent("topic", f"its last part is none of {known}")
        return Grant(namespace=Namespace(namespace), role=Role(role))

    def _name(self, kind: str, grant: Grant) -> str:
        name = f"{self.prefix}.{kind}.{grant.namespace}.{grant.role}"
        if len(name) > MOST_NAME_CHARS:
            raise InvalidEvent(
                "namespace", f"makes a topic's name longer than {MOST_NAME_CHARS}"
            )
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRule:
    """Where the answers to one topic's commands may go.

    `only`: there and nowhere else. Otherwise not to `forbidden`, and to nothing that
    begins with one of `below`.
    """

    only: str | None = None
    forbidden: frozenset[str] = frozenset()
    below: tuple[str, ...] = ()

    def refusal(self, topic: str) -> str | None:
        """Return why no answer may go to `topic`, None where it may."""
        if self.only is not None:
            return None if topic == self.only else f"answers go to {self.only} alone"
        if topic in self.forbidden or topic.startswith(("__", *self.below)):
            return f"answers may not go to {topic}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopic:
    """A topic of commands, and who asks there.

    Without a `grant` it is the one of the whole installation: `trusted`, where who may
    write to it may do everything, or else nothing.
    """

    name: str
    grant: Grant | None = None
    trusted: bool = True
    caller: Caller | None = field(init=False)
    """Who asks; None where that may do everything."""

    def __post_init__(self) -> None:
        caller = _STRANGER
        if self.grant is not None:
            caller = self.grant.caller
        anybody = self.grant is None and self.trusted
        object.__setattr__(self, "caller", None if anybody else caller)

    @property
    def principal(self) -> Principal:
        """Return who asks, as events name it."""
        return SHARED if self.caller is None else self.caller.principal

    @property
    def kept_as(self) -> str:
        """Return what tells its answers from those to other topics' commands.

        Empty for the topic that was there before there were others.
        """
        return "" if self.caller is None else self.name


def grant_specs(prefix: str, grant: Grant, mode: Mode) -> tuple[TopicSpec, TopicSpec]:
    """Return the topics of a grant, commands and answers: one partition each.

    A namespace's commands are answered in order, so more would be of no use.
    Raises: `InvalidEvent`; `ValueError` where the prefix is none.
    """
    shared, names = topics(1, mode, prefix), GrantTopics(prefix)
    return (
        replace(shared.requests, name=names.requests(grant)),
        replace(shared.replies, name=names.replies(grant)),
    )


def request_topic(prefix: str, name: str, *, trusted: bool) -> RequestTopic:
    """Return what a topic of commands is. Raises: `InvalidEvent`."""
    grant = GrantTopics(prefix).grant_of(name)
    return RequestTopic(name=name, grant=grant, trusted=trusted)


def reply_rule(prefix: str, topic: RequestTopic, own: frozenset[str]) -> ReplyRule:
    """Return where the answers to a topic's commands may go.

    `own` are the installation's topics. Raises: `InvalidEvent`.
    """
    names = GrantTopics(prefix)
    if topic.grant is not None:
        return ReplyRule(only=names.replies(topic.grant))
    return ReplyRule(
        forbidden=own - {f"{prefix}.{REPLIES}"},
        # What a grant's clients read there is answers to their own commands.
        below=tuple(f"{prefix}.{kind}." for kind in (REQUESTS, REPLIES)),
    )
