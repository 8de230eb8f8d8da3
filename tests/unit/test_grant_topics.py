"""A topic's name says what it gives: one way to write it, and one to read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.access import OPERATIONS, RIGHTS, Role, require_command
from cachemind.core.grant_topics import (
    MOST_NAME_CHARS,
    Grant,
    GrantTopics,
    RequestTopic,
    grant_specs,
    reply_rule,
    request_topic,
)
from cachemind.core.topics import Mode, topics
from cachemind.errors import Forbidden, InvalidEvent
from cachemind.types import Namespace

NAMES = GrantTopics("cachemind")
SHOP = Grant(namespace=Namespace("shop"), role=Role.CACHE_WRITER)
OWN = frozenset(spec.name for spec in topics(2, Mode.DEVELOPMENT).all())
COMMANDS = sorted(surface.kafka for surface in OPERATIONS.values() if surface.kafka)

words = st.text("ab1._-", min_size=1, max_size=12)
namespaces = st.builds(lambda first, rest: first + rest, st.sampled_from("ab1"), words)
grants = st.builds(
    lambda name, role: Grant(namespace=Namespace(name), role=role),
    namespaces,
    st.sampled_from(Role),
)
prefixes = st.sampled_from(["cachemind", "c", "cachemind.eu", "requests", "a-b_c"])


def test_the_names_are_the_documented_ones() -> None:
    assert NAMES.requests(SHOP) == "cachemind.requests.shop.cache-writer"
    assert NAMES.replies(SHOP) == "cachemind.replies.shop.cache-writer"
    assert NAMES.group_prefix(SHOP) == "cachemind.client.shop.cache-writer:"
    assert SHOP.caller.principal == "kafka:shop.cache-writer"


@given(prefix=prefixes, grant=grants)
def test_a_name_is_read_as_what_it_was_written_for(prefix: str, grant: Grant) -> None:
    names = GrantTopics(prefix)
    assert names.grant_of(names.requests(grant)) == grant


@given(prefix=prefixes, one=grants, other=grants)
def test_no_two_grants_have_a_name_or_a_group_in_common(
    prefix: str, one: Grant, other: Grant
) -> None:
    names = GrantTopics(prefix)
    same = one == other
    assert (names.requests(one) == names.requests(other)) == same
    assert (names.replies(one) == names.replies(other)) == same
    group = names.group_prefix(other) + "g"
    assert group.startswith(names.group_prefix(one)) == same


@given(grant=grants)
def test_no_installation_reads_anothers_grant(grant: Grant) -> None:
    found = [GrantTopics(p) for p in ("cachemind", "cachemind.eu", "cachemin")]
    for names in found:
        for other in found:
            seen = other.grant_of(names.requests(grant))
            assert seen == (grant if other == names else None)


@pytest.mark.parametrize("part", ["requests", "replies"])
def test_no_installation_lies_among_the_grants_of_another(part: str) -> None:
    for prefix in (f"cachemind.{part}", f"cachemind.{part}.shop", f"a.b.{part}"):
        with pytest.raises(ValueError, match="no part"):
            topics(1, Mode.DEVELOPMENT, prefix)
    assert topics(1, Mode.DEVELOPMENT, part).requests.name == f"{part}.requests"


@pytest.mark.parametrize(
    "topic",
    [
        "cachemind.requests",
        "cachemind.wal",
        "cachemind.requestsx.shop.cache-writer",
        "cachemind.replies.shop.cache-writer",
        "cachemindxrequests.shop.cache-writer",
        "other.cachemind.requests.shop.cache-writer",
        "Cachemind.requests.shop.cache-writer",
    ],
)
def test_another_topic_is_no_grants(topic: str) -> None:
    assert NAMES.grant_of(topic) is None


@pytest.mark.parametrize(
    ("rest", "field"),
    [
        pytest.param("", "topic", id="nothing"),
        pytest.param("shop", "topic", id="no-role"),
        pytest.param("shop.writer", "topic", id="unknown-role"),
        pytest.param("shop.Cache-Writer", "topic", id="upper-case-role"),
        pytest.param("shop.cache_writer", "topic", id="look-alike-role"),
        pytest.param("shop.cache-writer ", "topic", id="space"),
        pytest.param("shop.cache-writer.0", "topic", id="a-part-too-many"),
        pytest.param("cache-writer", "namespace", id="no-namespace"),
        pytest.param(".cache-writer", "namespace", id="empty-namespace"),
        pytest.param("Shop.cache-writer", "namespace", id="upper-case"),
        pytest.param("sh\u043ep.cache-writer", "namespace", id="cyrillic-o"),
        pytest.param("_shop.cache-writer", "namespace", id="begins-with-underscore"),
        pytest.param("a" * 129 + ".cache-writer", "namespace", id="too-long"),
        pytest.param("cachemind.access.cache-admin", "namespace", id="keys"),
        pytest.param("cachemind.x.auditor", "namespace", id="reserved"),
    ],
)
def test_what_no_grant_can_be_named_is_refused(rest: str, field: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        NAMES.grant_of(f"cachemind.requests.{rest}")
    assert caught.value.field == field


def test_the_last_part_is_the_role_whatever_the_namespace_looks_like() -> None:
    name = "cachemind.requests.shop.cache-admin.cache-reader"
    found = NAMES.grant_of(name)
    assert found is not None
    assert (found.namespace, found.role) == ("shop.cache-admin", Role.CACHE_READER)


def test_a_name_that_kafka_does_not_take_is_refused() -> None:
    names = GrantTopics("p" * 200)
    fits = Namespace("n" * (MOST_NAME_CHARS - 200 - len(".requests..auditor")))
    grant = Grant(namespace=fits, role=Role.AUDITOR)
    assert len(names.requests(grant)) == MOST_NAME_CHARS
    with pytest.raises(InvalidEvent, match="longer than 249"):
        names.requests(Grant(namespace=Namespace(fits + "n"), role=Role.AUDITOR))


@pytest.mark.parametrize("mode", Mode)
def test_its_topics_are_as_the_shared_ones_with_one_partition(mode: Mode) -> None:
    shared = topics(7, mode)
    found = grant_specs("cachemind", SHOP, mode)
    for spec, like in zip(found, (shared.requests, shared.replies), strict=True):
        assert spec.name == f"{like.name}.shop.cache-writer"
        assert spec.partitions == 1
        assert spec.settings() == like.settings()
        assert spec.replication_factor == like.replication_factor


# ---- who asks, and where answers go -------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("role", Role)
def test_a_topic_gives_what_its_role_has_and_there_alone(
    role: Role, command: str
) -> None:
    topic = request_topic("cachemind", f"cachemind.requests.a.{role}", trusted=True)
    caller = topic.caller
    assert caller is not None
    right = next(s.right for s in OPERATIONS.values() if s.kafka == command)
    if right in RIGHTS[role]:
        require_command(caller, command, Namespace("a"))
    else:
        with pytest.raises(Forbidden) as caught:
            require_command(caller, command, Namespace("a"))
        assert caught.value.right == right
    for other in ("a.b", "b", "cachemind.access"):
        with pytest.raises(Forbidden):
            require_command(caller, command, Namespace(other))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_shared_topic_that_is_not_trusted_gives_nothing(command: str) -> None:
    topic = RequestTopic(name="cachemind.requests", trusted=False)
    assert topic.principal == "kafka"
    assert topic.caller is not None
    with pytest.raises(Forbidden):
        require_command(topic.caller, command, Namespace("shop"))
    assert RequestTopic(name="cachemind.requests").caller is None


def test_a_command_that_no_table_has_is_denied() -> None:
    with pytest.raises(Forbidden):
        require_command(SHOP.caller, "Transmute", SHOP.namespace)


def test_answers_are_kept_apart_but_for_those_of_the_trusted_shared_topic() -> None:
    kept = [
        RequestTopic(name="cachemind.requests").kept_as,
        RequestTopic(name="cachemind.requests", trusted=False).kept_as,
        RequestTopic(name=NAMES.requests(SHOP), grant=SHOP).kept_as,
    ]
    assert kept == ["", "cachemind.requests", "cachemind.requests.shop.cache-writer"]


REPLY_TO = {
    "cachemind.replies": "shared",
    "cachemind.replies.shop.cache-writer": "shop",
    "cachemind.replies.shop.cache-reader": "",
    "cachemind.replies.shop.x.cache-writer": "",
    "cachemind.replies.": "",
    "cachemind.requests": "",
    "cachemind.requests.shop.cache-writer": "",
    "cachemind.requests.bank.cache-admin": "",
    "cachemind.wal": "",
    "cachemind.answers": "",
    "cachemind.audit": "",
    "cachemind.dlq": "",
    "__consumer_offsets": "",
    "my.topic": "shared",
    "cachemind.repliesx": "shared",
}


@pytest.mark.parametrize(("topic", "who"), REPLY_TO.items())
def test_where_answers_may_go(topic: str, who: str) -> None:
    shared = RequestTopic(name="cachemind.requests")
    granted = RequestTopic(name=NAMES.requests(SHOP), grant=SHOP)
    for name, source in (("shared", shared), ("shop", granted)):
        refusal = reply_rule("cachemind", source, OWN).refusal(topic)
        assert (refusal is None) == (who == name), (name, refusal)
