"""Grants over Kafka: made, shown and taken back with the operator's own credentials."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from cachemind.adapters.kafka_acls import KafkaAcls
from cachemind.adapters.kafka_grants import KafkaGrants
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.core.grant_access import (
    ANY_HOST,
    AccessRule,
    Doing,
    rules_of,
    who_may,
)
from cachemind.core.grant_topics import Grant, GrantTopics, grant_specs
from cachemind.core.topics import Mode
from cachemind.errors import AccessUncontrolled, CacheError, InvalidRequest, LogError
from cachemind_services.bootstrap.log import kafka_of
from cachemind_services.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGrant:
    """A grant, its topics, and who may ask by it and read the answers.

    None where the cluster asks nobody who he is: then everybody may.
    """

    grant: Grant
    requests: str
    replies: str
    group_prefix: str
    writers: tuple[str, ...] | None
    readers: tuple[str, ...] | None


def create_grant(settings: Settings, grant: Grant, user: str = "") -> ShownGrant:
    """Make what is missing of a grant's topics and of a user's rules; all or nothing.

    Raises: `InvalidRequest` for a user where the cluster holds to no rules;
    `InvalidEvent`, `TopicMisconfigured`, `LogUnavailable`, `LogRejected`.
    """
    kafka, names = kafka_of(settings), GrantTopics(settings.topic_prefix)
    mode = Mode.PRODUCTION if settings.production else Mode.DEVELOPMENT
    specs = grant_specs(settings.topic_prefix, grant, mode)
    with closing(KafkaAcls(kafka)) as acls:
        # Rules first: of a topic that is not there they give nothing.
        missing: frozenset[AccessRule] = frozenset()
        if user:
            missing = rules_of(names, grant, user) - _rules_for(acls, user)
        try:
            acls.add(missing)
            ensure_topics(kafka, specs)
        except CacheError:
            _take_back(acls, missing)
            raise
        return _shown(names, grant, _rules(acls))


def list_grants(settings: Settings) -> Sequence[ShownGrant]:
    """Return every grant that has a topic. Raises: `LogUnavailable`, `LogRejected`."""
    kafka, names = kafka_of(settings), GrantTopics(settings.topic_prefix)
    with (
        closing(KafkaGrants(kafka, settings.topic_prefix)) as topics,
        closing(KafkaAcls(kafka)) as acls,
    ):
        rules = _rules(acls)
        found = [names.grant_of(name) for name in topics.listed()]
        return [_shown(names, grant, rules) for grant in found if grant is not None]


def revoke_grant(settings: Settings, grant: Grant, user: str, *, topics: bool) -> None:
    """Take a grant from a user; with its topics from all, whose rules go as well.

    Raises: as `create_grant`.
    """
    kafka, names = kafka_of(settings), GrantTopics(settings.topic_prefix)
    with (
        closing(KafkaAcls(kafka)) as acls,
        closing(KafkaGrants(kafka, settings.topic_prefix)) as found,
    ):
        if user:
            own = rules_of(names, grant, user)
            acls.remove(
                rule
                for rule in _rules_for(acls, user)
                if replace(rule, host=ANY_HOST) in own
            )
        if topics:
            places = {rule.name for rule in rules_of(names, grant, "")}
            rules = _rules(acls) or ()
            # First: made anew the topics must be nobody's.
            acls.remove(rule for rule in rules if rule.name in places)
            found.delete([names.requests(grant), names.replies(grant)])


def _take_back(acls: KafkaAcls, rules: frozenset[AccessRule]) -> None:
    try:
        acls.remove(rules)
    except LogError as error:
        logger.warning("some access rules may be left: %s", error)


def _rules(acls: KafkaAcls) -> frozenset[AccessRule] | None:
    try:
        return acls.rules()
    except AccessUncontrolled:
        return None


def _rules_for(acls: KafkaAcls, user: str) -> frozenset[AccessRule]:
    try:
        return acls.rules()
    except AccessUncontrolled as error:
        raise InvalidRequest(
            "--user", f"leave it out, as {user} cannot be told apart: {error}"
        ) from error


def _shown(
    names: GrantTopics, grant: Grant, rules: frozenset[AccessRule] | None
) -> ShownGrant:
    requests, replies = names.requests(grant), names.replies(grant)
    return ShownGrant(
        grant=grant,
        requests=requests,
        replies=replies,
        group_prefix=names.group_prefix(grant),
        writers=None if rules is None else who_may(Doing.WRITE, requests, rules),
        readers=None if rules is None else who_may(Doing.READ, replies, rules),
    )
