"""An encrypted namespace in an operator's hands: folded, checked, shown by the key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import fastavro
import pytest

from cachemind.core.digest import to_hex
from cachemind.core.payloads import Payloads
from cachemind.core.sealed_payload import is_sealed
from cachemind.events import Invalidated, SelectorKind, Stored
from cachemind.types import Sha256
from cachemind_services.bootstrap.payloads import open_payloads
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.settings import load
from tests.integration.cli_host import CliHost, cli_host
from tests.wal_events import ALPHA, rolled_back, stored

pytestmark = pytest.mark.broker

MARKER = "zebrafinch"
ENTRIES = 5


def new_key(path: Path) -> str:
    """Make a wrapping key; return its URI."""
    path.write_text(os.urandom(32).hex())
    path.chmod(0o600)
    return f"file:{path}"


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    """A host with the payload key at hand, and nothing on its log yet."""
    with cli_host(
        broker.bootstrap_servers,
        topic_prefix,
        tmp_path / "host",
        payload_key=new_key(tmp_path / "payload.key"),
        data_keys_url=str(tmp_path / "data-keys"),
    ) as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


@pytest.fixture
def payloads(host: CliHost) -> Payloads:
    """What a gateway seals with."""
    variables = {k: v for k, v in host.environ().items() if k.startswith("CACHEMIND_")}
    opened = open_payloads(load(variables), makes=True)
    assert opened.keys is not None
    opened.keys.refresh()
    opened.keys.close()
    return opened.payloads


def answered(number: int, text: str = MARKER) -> Stored:
    """Return what a gateway would store in the clear."""
    response = json.dumps({"answer": f"{text} of {number}"}).encode()
    return replace(
        stored(number),
        prompt=f"{text} {number}?",
        parameters=json.dumps({"user": text}),
        response=response,
        response_hash=Sha256(sha256(response).digest()),
        embedding=bytes(768),
    )


def filled(host: CliHost, payloads: Payloads) -> None:
    """Write versions 1 to 10: what is sealed, what is not, and a rollback."""
    host.append(*(payloads.stored(answered(n)) for n in range(1, ENTRIES + 1)))
    host.append(payloads.stored(answered(2, f"{MARKER} once more")), stored(9))
    key = answered(3).exact_key.hex()
    wrong = Invalidated(kind=SelectorKind.KEY, value=key, reason="wrong")
    host.append(wrong, rolled_back(ENTRIES + 2), wrong)
    host.wait_folded()


def without_key(host: CliHost) -> CliHost:
    """Return the same host as one sees it who has no payload key."""
    return replace(host, settings={}, process=None)


def lines(host: CliHost, *arguments: str) -> list[Any]:
    """Return what a command printed as lines of JSON."""
    return [json.loads(line) for line in host.run(*arguments).stdout.splitlines()]


def test_sealed_entries_are_folded_as_any_other_and_a_rebuild_agrees(
    host: CliHost, payloads: Payloads
) -> None:
    filled(host, payloads)
    state = host.state()
    assert (state.version, state.entries) == (10, ENTRIES)
    for seen_by in (host, without_key(host)):
        told = seen_by.run("doctor", "--rebuild", "--json").stdout
        findings = json.loads(told)
        assert all(finding["ok"] for finding in findings), findings
        digests = {
            digest
            for finding in findings
            if finding["check"].endswith(f"of {ALPHA}")
            for digest in re.findall(r"digest (\w+)", finding["found"])
        }
        assert digests == {to_hex(state.digest)[:16]}
    host.stop()
    holding = [
        path
        for path in host.data_dir.rglob("*")
        if path.is_file() and MARKER.encode() in path.read_bytes()
    ]
    assert holding == []


@pytest.mark.slow  # a command takes a second, and here are many
def test_what_operators_see_is_sealed_without_the_key_and_open_with_it(
    host: CliHost, payloads: Payloads, tmp_path: Path
) -> None:
    filled(host, payloads)
    keyless = without_key(host)
    host.run("replay", "--to-version", "5")
    _exports(host, keyless, tmp_path)
    _differs(host, keyless)
    _follows(host, keyless)
    key = answered(1).exact_key.hex()
    [seen] = lines(host, "replay", "query", "--key", key)
    [hidden] = lines(keyless, "replay", "query", "--key", key)
    assert seen["response"] == {"answer": f"{MARKER} of 1"}
    assert hidden["response"]["reason"] == "payload-sealed"
    other = replace(
        keyless,
        settings={
            **host.settings,
            "CACHEMIND_PAYLOAD_KEY": new_key(tmp_path / "other.key"),
        },
    )
    [refused] = lines(other, "replay", "query", "--key", key)
    assert refused["response"]["reason"] == "payload-no-key"


def _exports(host: CliHost, keyless: CliHost, tmp_path: Path) -> None:
    seen = lines(host, "replay", "export")
    assert [row["prompt"] for row in seen if MARKER not in row["prompt"]] == []
    hidden = lines(keyless, "replay", "export")
    assert len(seen) == len(hidden) == ENTRIES
    assert {row["prompt"] for row in hidden} == {None}
    assert {row["response"]["reason"] for row in hidden} == {"payload-sealed"}
    keys = {row["response"]["sealed"] for row in hidden}
    assert len(keys) == 1
    for seen_by, marked in ((host, True), (keyless, False)):
        target = tmp_path / f"{marked}.avro"
        seen_by.run("replay", "export", "--format", "avro", "--output", str(target))
        with target.open("rb") as source:
            rows: list[Any] = list(fastavro.reader(source))
        assert [MARKER in str(row) for row in rows] == [marked] * ENTRIES
        assert not any(is_sealed(row["response"]) for row in rows)


def _differs(host: CliHost, keyless: CliHost) -> None:
    for seen_by, marked in ((host, True), (keyless, False)):
        assert MARKER not in str(lines(seen_by, "replay", "diff", "--json"))
        told = lines(seen_by, "replay", "diff", "--json", "--bodies")
        kinds = sorted(change["change"] for change in told)
        assert kinds == ["added", "changed", "removed"]
        assert (MARKER in str(told)) is marked


def _follows(host: CliHost, keyless: CliHost) -> None:
    follow = ("tail", "--from-beginning", "--no-follow", "--json")
    for seen_by in (host, keyless):
        assert MARKER not in str(lines(seen_by, *follow))
        told = [
            event
            for event in lines(seen_by, *follow, "--bodies")
            if event["kind"] == Stored.__name__
        ]
        assert len(told) == ENTRIES + 2
        marked = sum(MARKER in str(event) for event in told)
        assert marked == (ENTRIES + 1 if seen_by is host else 0)
