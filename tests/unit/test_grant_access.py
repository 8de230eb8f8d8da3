"""Which access rules a grant is made of, and whom those of a cluster let use it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cachemind.core.access import Role
from cachemind.core.grant_access import (
    AccessRule,
    Doing,
    Resource,
    rules_of,
    user_of,
    who_may,
)
from cachemind.core.grant_topics import Grant, GrantTopics
from cachemind.errors import InvalidRequest
from cachemind.types import Namespace

NAMES = GrantTopics("cachemind")
SHOP = Grant(namespace=Namespace("shop"), role=Role.CACHE_WRITER)
TOPIC = NAMES.requests(SHOP)


def rule(
    principal: str,
    name: str = TOPIC,
    doing: Doing = Doing.WRITE,
    *,
    prefixed: bool = False,
    allowed: bool = True,
    resource: Resource = Resource.TOPIC,
) -> AccessRule:
    return AccessRule(
        principal=principal,
        resource=resource,
        name=name,
        prefixed=prefixed,
        doing=doing,
        allowed=allowed,
    )


def test_a_user_gets_one_side_of_each_topic_and_groups_of_its_own() -> None:
    found = {
        (one.resource, one.name, one.prefixed, one.doing)
        for one in rules_of(NAMES, SHOP, "User:app")
    }
    assert found == {
        ("topic", "cachemind.requests.shop.cache-writer", False, "write"),
        ("topic", "cachemind.requests.shop.cache-writer", False, "describe"),
        ("topic", "cachemind.replies.shop.cache-writer", False, "read"),
        ("topic", "cachemind.replies.shop.cache-writer", False, "describe"),
        ("group", "cachemind.client.shop.cache-writer:", True, "read"),
    }


@pytest.mark.parametrize(
    ("rules", "who"),
    [
        pytest.param([], [], id="nobody"),
        pytest.param([rule("User:b"), rule("User:a")], ["User:a", "User:b"], id="two"),
        pytest.param([rule("User:a", doing=Doing.ALL)], ["User:a"], id="all-is-each"),
        pytest.param([rule("User:a", doing=Doing.READ)], [], id="reads-only"),
        pytest.param([rule("User:a", "*")], ["User:a"], id="every-topic"),
        pytest.param(
            [rule("User:a", "cachemind.requests", prefixed=True)],
            ["User:a"],
            id="by-prefix",
        ),
        pytest.param([rule("User:a", "cachemind.requests")], [], id="another-topic"),
        pytest.param([rule("User:a", TOPIC + "x", prefixed=True)], [], id="longer"),
        pytest.param(
            [rule("User:a", resource=Resource.GROUP)], [], id="a-group-of-that-name"
        ),
        pytest.param(
            [
                rule("User:a"),
                rule("User:a", "cachemind.", prefixed=True, allowed=False),
            ],
            [],
            id="denied-wins",
        ),
        pytest.param(
            [rule("User:a"), rule("User:*", allowed=False)], [], id="all-are-denied"
        ),
        pytest.param([rule("User:*")], ["User:*"], id="everybody"),
    ],
)
def test_who_may_ask(rules: Sequence[AccessRule], who: list[str]) -> None:
    assert list(who_may(Doing.WRITE, TOPIC, rules)) == who


@pytest.mark.parametrize(
    "text",
    [
        "",
        "app",
        "User:",
        "Group:app",
        "user:app",
        "User:*",
        "User:ANONYMOUS",
        "User:a\n",
        ":app",
    ],
)
def test_a_user_is_written_as_kafka_does_and_is_somebody(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        user_of(text)
    assert caught.value.field == "--user"


def test_a_users_name_may_hold_what_a_certificate_has() -> None:
    assert user_of("User:CN=app,O=Shop") == "User:CN=app,O=Shop"
