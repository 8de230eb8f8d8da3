"""Every role tries every operation over HTTP, in its namespace and in another's.

Both come from the tables that the gateway itself asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from cachemind.core.access import (
    ACCESS_NAMESPACE,
    OPERATIONS,
    RIGHTS,
    Operation,
    Right,
    Role,
)
from cachemind.events import Invalidated, PolicyChanged, RolledBack, Stored
from cachemind_services.gateway.deps import Access
from tests.access_host import KeyRing, envelopes_of, wait_for_key
from tests.gateways import World, gateway
from tests.upstreams import ScriptedUpstream, completion, served

SHOP, BANK = "shop", "bank"
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    "temperature": 0,
}
BODIES: Mapping[Operation, Any] = {
    Operation.COMPLETE: CHAT,
    Operation.PUT: {"request": CHAT, "response": completion(CHAT)},
    Operation.INVALIDATE: {"kind": "tag", "value": "t"},
    Operation.FEEDBACK: {"key": "00" * 32, "trace_id": "11" * 16, "verdict": "right"},
    Operation.POLICY_SET: {"threshold": 0.95},
}
LAST: Mapping[Operation, str] = {
    Operation.ENTRY: "00" * 32,
    Operation.ROLLBACK_STATUS: "01a22eab-7b02-76bc-b8e7-a980153a2cba",
    Operation.RECEIPTS: "11" * 16,
}
QUERY: Mapping[Operation, str] = {
    Operation.DIFF: "?from=0&to=0",
    Operation.ROLLBACK: "?to_version=999999",
}
OVER_HTTP = [
    operation
    for operation, surface in OPERATIONS.items()
    if surface.http or operation is Operation.PASS_ON
]
DENIED = (401, 403)


@dataclass(frozen=True)
class Host:
    world: World
    ring: KeyRing

    def ask(
        self, operation: Operation, key: str | None, namespace: str | None = None
    ) -> httpx.Response:
        method, path = _call(operation)
        headers = {} if key is None else {"X-CacheMind-Key": self.ring.texts[key]}
        if namespace is not None:
            headers["X-CacheMind-Namespace"] = namespace
        body = BODIES.get(operation)
        url = self.world.url + path
        return httpx.request(method, url, headers=headers, json=body)


def _call(operation: Operation) -> tuple[str, str]:
    http = OPERATIONS[operation].http or "GET /v1/models"
    method, _, path = http.partition(" ")
    path = path.replace("{}", LAST.get(operation, ""))
    return method, path + QUERY.get(operation, "")


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    ring = KeyRing()
    for role in Role:
        ring.issue(role, role, SHOP)
        ring.issue(f"{role} of bank", role, BANK)
    ring.issue("operator", Role.CACHE_ADMIN, ACCESS_NAMESPACE)
    ring.issue("inspector", Role.AUDITOR, ACCESS_NAMESPACE)
    with (
        served(ScriptedUpstream()) as url,
        gateway(url, access=Access()) as world,
    ):
        ring.publish(world)
        wait_for_key(world, ring.texts["operator"])
        yield Host(world, ring)


def granted(role: Role, operation: Operation) -> bool:
    """Return what the tables say; of another namespace's right, no."""
    surface = OPERATIONS[operation]
    if surface.right is None:
        return True
    return surface.namespace is None and surface.right in RIGHTS[role]


@pytest.mark.parametrize("operation", OVER_HTTP)
@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_do_what_its_row_says(
    host: Host, role: Role, operation: Operation
) -> None:
    answer = host.ask(operation, role)
    if granted(role, operation):
        assert answer.status_code not in DENIED, answer.text
    else:
        assert answer.status_code == 403
        right = OPERATIONS[operation].right
        assert answer.json()["error"]["param"] == right
        assert str(right) in answer.json()["error"]["message"]


@pytest.mark.parametrize("operation", OVER_HTTP)
def test_without_a_key_nothing_is_done_but_what_says_nothing(
    host: Host, operation: Operation
) -> None:
    answer = host.ask(operation, None)
    if OPERATIONS[operation].known:
        assert answer.status_code == 401
    else:
        assert answer.status_code == 200


@pytest.mark.parametrize("operation", OVER_HTTP)
@pytest.mark.parametrize("role", list(Role))
def test_no_role_does_anything_in_a_namespace_that_is_not_its_own(
    host: Host, role: Role, operation: Operation
) -> None:
    if not OPERATIONS[operation].known:
        return
    answer = host.ask(operation, f"{role} of bank", SHOP)
    assert answer.status_code == 403
    assert answer.json()["error"]["param"] == "namespace"


@pytest.mark.parametrize("operation", OVER_HTTP)
@pytest.mark.parametrize("name", ["operator", "inspector"])
def test_the_installations_own_namespace_is_looked_into_and_no_more(
    host: Host, name: str, operation: Operation
) -> None:
    surface = OPERATIONS[operation]
    role = Role.CACHE_ADMIN if name == "operator" else Role.AUDITOR
    reserved = {Right.INSPECT, Right.RECEIPTS} & RIGHTS[role]
    answer = host.ask(operation, name)
    if surface.right is None or surface.right in reserved:
        assert answer.status_code not in DENIED
    else:
        assert answer.status_code == 403


def test_what_was_denied_left_nothing_on_the_log(host: Host) -> None:
    """Runs last: only those who may have changed anything."""
    changes = (Stored, Invalidated, RolledBack, PolicyChanged)
    for namespace in (SHOP, BANK):
        asked = {
            (type(envelope.body), envelope.principal)
            for envelope in envelopes_of(host.world, namespace)
            if isinstance(envelope.body, changes)
        }
        rights = {
            Stored: Right.STORE,
            Invalidated: Right.INVALIDATE,
            RolledBack: Right.ROLLBACK,
            PolicyChanged: Right.POLICY,
        }
        may = {
            (
                kind,
                host.ring.principal(role if namespace == SHOP else f"{role} of bank"),
            )
            for kind, right in rights.items()
            for role in Role
            if right in RIGHTS[role]
        }
        assert asked <= may
        assert bool(asked) == (namespace == SHOP)
