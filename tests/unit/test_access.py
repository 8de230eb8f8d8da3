"""Rights, roles and operations: the tables say everything, and deny the rest."""

from __future__ import annotations

from typing import get_args

import pytest

from cachemind.core.access import (
    ACCESS_NAMESPACE,
    OPERATIONS,
    RIGHTS,
    Caller,
    Operation,
    Right,
    Role,
    http_operation,
    local,
    namespace_of,
    require,
)
from cachemind.core.cache_commands import CacheCommand
from cachemind.errors import Forbidden, InvalidRequest
from cachemind.receipts import SYSTEM_NAMESPACE
from cachemind.types import Namespace, Principal

SHOP = Namespace("shop")
SHOPS = Namespace("shops")

# Written out, so that a change of the table is a change here, seen by a reviewer.
GRANTED = {
    Role.CACHE_READER: {"look_up"},
    Role.CACHE_WRITER: {"look_up", "store", "invalidate", "feedback", "receipts"},
    Role.CACHE_ADMIN: {
        *("look_up", "store", "invalidate", "feedback", "receipts", "ttl_override"),
        *("rollback", "policy", "inspect", "keys"),
    },
    Role.AUDITOR: {"receipts"},
}


def caller(role: Role, *namespaces: str, prefixes: tuple[str, ...] = ()) -> Caller:
    return Caller(
        principal=Principal("key:aaaaaaaa"),
        role=role,
        namespaces=frozenset(map(Namespace, namespaces)),
        prefixes=prefixes,
    )


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("right", Right)
def test_a_role_has_the_rights_of_its_row_and_no_other(
    role: Role, right: Right
) -> None:
    assert caller(role, SHOP).may(right, SHOP) == (right.value in GRANTED[role])


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("right", Right)
def test_nobody_may_do_anything_in_a_namespace_that_was_not_granted(
    role: Role, right: Right
) -> None:
    for other in (SHOPS, Namespace("sho"), ACCESS_NAMESPACE, Namespace("shop.eu")):
        assert not caller(role, SHOP).may(right, other)


def test_a_role_that_no_table_knows_cannot_be_made() -> None:
    assert set(RIGHTS) == set(Role)
    with pytest.raises(ValueError, match="root"):
        Role("root")


@pytest.mark.parametrize("namespace", [ACCESS_NAMESPACE, SYSTEM_NAMESPACE])
def test_a_reserved_namespace_can_be_looked_into_and_no_more(
    namespace: Namespace,
) -> None:
    admin = caller(Role.CACHE_ADMIN, namespace)
    granted = {right for right in Right if admin.may(right, namespace)}
    assert granted == {Right.INSPECT, Right.RECEIPTS, Right.KEYS}


def test_a_missing_right_is_named() -> None:
    with pytest.raises(Forbidden, match="rollback") as caught:
        require(caller(Role.CACHE_WRITER, SHOP), Right.ROLLBACK, SHOP)
    assert caught.value.right == Right.ROLLBACK
    assert caught.value.status == 403
    require(caller(Role.CACHE_ADMIN, SHOP), Right.ROLLBACK, SHOP)


def test_every_operation_has_a_row_and_no_two_are_asked_for_alike() -> None:
    assert set(OPERATIONS) == set(Operation)
    for interface in ("http", "kafka", "cli"):
        used = [getattr(surface, interface) for surface in OPERATIONS.values()]
        named = [name for name in used if name]
        assert len(named) == len(set(named))


def test_every_command_has_a_row() -> None:
    commands = {surface.kafka for surface in OPERATIONS.values() if surface.kafka}
    assert commands == {kind.__name__ for kind in get_args(CacheCommand)} | {"Rollback"}


def test_only_what_says_nothing_about_a_namespace_needs_no_right() -> None:
    free = {name for name, surface in OPERATIONS.items() if surface.right is None}
    assert free == {Operation.WHOAMI, Operation.HEALTH, Operation.READINESS}
    open_to_all = {name for name, surface in OPERATIONS.items() if not surface.known}
    assert open_to_all == {Operation.HEALTH, Operation.READINESS}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/chat/completions", Operation.COMPLETE),
        ("GET", "/v1/chat/completions", Operation.PASS_ON),
        ("POST", "/v1/chat/completions/", Operation.PASS_ON),
        ("POST", "/api/chat", Operation.PASS_ON),
        ("GET", "/v1/versions", Operation.VERSIONS),
        ("POST", "/v1/versions", None),
        ("GET", "/v1/rollback", None),
        ("POST", "/v1/rollback", Operation.ROLLBACK),
        ("GET", "/v1/rollbacks/01a2", Operation.ROLLBACK_STATUS),
        ("DELETE", "/v1/rollbacks/01a2", None),
        ("GET", "/v1/receipts/4bf9", Operation.RECEIPTS),
        ("GET", "/v1/cachemind/entries/ab", Operation.ENTRY),
        ("POST", "/v1/cachemind/entries", Operation.PUT),
        ("POST", "/v1/cachemind/entries/ab", None),
        ("GET", "/v1/cachemind/nothing", None),
        ("GET", "/metrics", Operation.METRICS),
        ("POST", "/metrics", None),
        ("GET", "/healthz", Operation.HEALTH),
        ("GET", "/V1/versions", Operation.PASS_ON),
    ],
)
def test_a_request_asks_for_one_operation(
    method: str, path: str, expected: Operation | None
) -> None:
    assert http_operation(method, path) is expected


@pytest.mark.parametrize(
    ("tags", "inside"),
    [
        (["public:faq"], True),
        (["internal", "public:faq"], True),
        (["internal"], False),
        (["xpublic:faq"], False),
        (["Public:faq"], False),
        ([], False),
    ],
)
def test_a_prefix_scope_reaches_only_tags_that_begin_with_it(
    tags: list[str], *, inside: bool
) -> None:
    assert (
        caller(Role.CACHE_READER, SHOP, prefixes=("public:",)).reaches(tags) is inside
    )
    assert caller(Role.CACHE_READER, SHOP).reaches(tags)


def test_a_request_is_in_the_callers_one_namespace() -> None:
    assert namespace_of(caller(Role.CACHE_READER, SHOP), None) == SHOP
    assert namespace_of(caller(Role.CACHE_READER, SHOP), "shop") == SHOP
    # The installation's own namespace does not make the choice an open one.
    both = caller(Role.CACHE_ADMIN, SHOP, ACCESS_NAMESPACE)
    assert namespace_of(both, None) == SHOP
    assert namespace_of(both, "cachemind.access") == ACCESS_NAMESPACE


@pytest.mark.parametrize("asked", ["shops", "SHOP", "", "shop ", "\uff53hop", "shop\0"])
def test_a_namespace_that_was_not_granted_cannot_be_picked(asked: str) -> None:
    with pytest.raises(Forbidden):
        namespace_of(caller(Role.CACHE_ADMIN, SHOP), asked)


def test_who_has_several_namespaces_must_name_one() -> None:
    several = caller(Role.CACHE_READER, SHOP, SHOPS)
    assert namespace_of(several, "shops") == SHOPS
    with pytest.raises(InvalidRequest, match="shop, shops") as caught:
        namespace_of(several, None)
    assert caught.value.field == "X-CacheMind-Namespace"


def test_without_authentication_this_machine_may_do_everything_in_its_namespace() -> (
    None
):
    assert all(local(SHOP).may(right, SHOP) for right in Right)
    assert not any(local(SHOP).may(right, SHOPS) for right in Right)


def test_who_lacks_a_right_in_the_installations_own_namespace_is_told_which() -> None:
    admin = Caller(
        principal=Principal("key:a"),
        role=Role.CACHE_ADMIN,
        namespaces=frozenset({Namespace("shop")}),
    )
    with pytest.raises(
        Forbidden, match=r"inspect: it is asked for in cachemind\.access"
    ):
        require(admin, Right.INSPECT, ACCESS_NAMESPACE)
