"""Every role tries every command that asks a gateway.

Both come from the tables that the gateway itself asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cachemind.core.access import OPERATIONS, RIGHTS, Operation, Role
from cachemind.events import Invalidated, RolledBack, Stored
from cachemind_services.cli.main import main
from cachemind_services.gateway.deps import Access
from tests.access_host import KeyRing, envelopes_of, wait_for_key
from tests.gateways import World, gateway
from tests.upstreams import ScriptedUpstream, served, wait_until

SHOP, BANK = "shop", "bank"
PINNED = Path(__file__).parent.parent / "vectors" / "audit_keys.json"
PROMPT = ("Why is the sky blue?", "--model", "m")
WORDS: Mapping[Operation, tuple[str, ...]] = {
    Operation.LOOK_UP: PROMPT,
    Operation.PUT: (*PROMPT, "--answer", "Rayleigh"),
    Operation.INVALIDATE: ("--tag", "t"),
    Operation.DIFF: ("0", "0"),
    Operation.POLICY_SET: ("policy.toml",),
    Operation.ROLLBACK: ("--to-version", "999999"),
    Operation.RECEIPTS: ("11" * 16, "--keys", str(PINNED), "--wait", "0s"),
}
COMMANDS = [operation for operation, surface in OPERATIONS.items() if surface.cli]
REFUSED = "lacks the right"


@dataclass(frozen=True)
class Host:
    world: World
    ring: KeyRing
    folder: Path

    def argv(self, operation: Operation, key: str, *more: str) -> list[str]:
        path = self.folder / "key"
        path.write_text(key)
        (self.folder / "policy.toml").write_text("threshold = 0.95")
        given = WORDS.get(operation, ())
        files = [str(self.folder / word) for word in given if word.endswith(".toml")]
        words = (*OPERATIONS[operation].cli.split(), *(files or given))
        return [*words, "--url", self.world.url, "--key-file", str(path), *more]


def failed(operation: Operation) -> int:
    """Return a refused command's exit code; of one that verifies: it cannot tell."""
    return 2 if operation is Operation.RECEIPTS else 1


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    ring = KeyRing()
    for role in Role:
        ring.issue(role, role, SHOP)
    ring.issue("both", Role.CACHE_ADMIN, SHOP, BANK)
    with (
        served(ScriptedUpstream()) as url,
        gateway(url, access=Access()) as world,
    ):
        ring.publish(world)
        wait_for_key(world, ring.texts["both"])
        yield Host(world, ring, tmp_path_factory.mktemp("keys"))


@pytest.mark.parametrize("operation", COMMANDS)
@pytest.mark.parametrize("role", list(Role))
def test_a_command_does_what_the_role_of_its_key_may(
    host: Host, role: Role, operation: Operation, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(host.argv(operation, host.ring.texts[role]))
    written = capsys.readouterr()
    right = OPERATIONS[operation].right
    if right is None or right in RIGHTS[role]:
        # It may have found nothing, but nobody stopped it.
        assert "cachemind: 401" not in written.err
        assert REFUSED not in written.err
        return
    assert code == failed(operation)
    assert written.out == ""
    assert f"cachemind: 403: this caller lacks the right {right}" in written.err


@pytest.mark.parametrize("operation", COMMANDS)
def test_a_command_with_a_key_that_does_not_count_does_nothing(
    host: Host, operation: Operation, capsys: pytest.CaptureFixture[str]
) -> None:
    key = f"cmk_Nothere2_{'x' * 43}"
    assert main(host.argv(operation, key)) == failed(operation)
    written = capsys.readouterr()
    assert "cachemind: 401: " in written.err
    assert key not in written.out + written.err


@pytest.mark.parametrize("operation", COMMANDS)
def test_a_command_picks_no_namespace_that_its_key_is_not_for(
    host: Host, operation: Operation, capsys: pytest.CaptureFixture[str]
) -> None:
    key = host.ring.texts[Role.CACHE_ADMIN]
    # What also works without a gateway has one flag for both.
    alone = operation in (Operation.POLICY_SHOW, Operation.POLICY_SET)
    flag = "--namespace" if alone else "--in-namespace"
    assert main(host.argv(operation, key, flag, BANK)) == failed(operation)
    assert "cachemind: 403: " in capsys.readouterr().err


def test_a_command_picks_one_of_the_namespaces_of_its_key(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    key = host.ring.texts["both"]
    assert main(host.argv(Operation.STATS, key)) == 1
    assert "X-CacheMind-Namespace: name one of bank, shop" in capsys.readouterr().err
    words = host.argv(Operation.STATS, key, "--in-namespace", BANK, "--json")
    assert main(words) == 0
    assert '"namespace": "bank"' in capsys.readouterr().out


def test_a_policy_is_set_and_shown_through_a_gateway(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    key = host.ring.texts["both"]
    assert main(host.argv(Operation.POLICY_SET, key, "--namespace", BANK)) == 0
    written = capsys.readouterr()
    assert written.out == "threshold = 0.95\n"
    assert written.err.startswith(f"policy of {BANK}, since ")
    words = host.argv(Operation.POLICY_SHOW, key, "--namespace", BANK)
    wait_until(lambda: main(words) == 0 and "0.95" in capsys.readouterr().out)


def test_what_was_denied_left_nothing_on_the_log(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    def changes() -> int:
        kinds = (Stored, Invalidated, RolledBack)
        found = envelopes_of(host.world, SHOP)
        return sum(isinstance(envelope.body, kinds) for envelope in found)

    before = changes()
    for role in (Role.CACHE_READER, Role.AUDITOR):
        for operation in (Operation.PUT, Operation.INVALIDATE, Operation.ROLLBACK):
            assert main(host.argv(operation, host.ring.texts[role])) == 1
    capsys.readouterr()
    assert changes() == before
