"""Two hundred attempts to get at another tenant's entries over HTTP: none may leak.

The victim's answers have a marker that nobody else's have. An attempt leaks if the
marker, a key or a hash of the victim's comes back, if it is answered without asking
upstream (which is all that a clock could tell), or if anything of the victim's changes.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from cachemind.core.access import Role
from cachemind.events import Stored
from cachemind_services.gateway.deps import Access
from tests.access_host import KeyRing, envelopes_of, wait_for_key
from tests.gateways import World, gateway
from tests.upstreams import (
    Gate,
    Received,
    ScriptedUpstream,
    Send,
    answers,
    completion,
    good,
    served,
    wait_until,
)

VICTIM, THIEF = "bank", "ban"
MARKER = "SECRET-OF-THE-BANK"
UPSTREAM_KEY = "Bearer sk-shared-by-both"
LEAST = 200
NOTHING_OF_MINE = (b"cache-control", b"no-store")
"""So that no later attempt hits what an earlier one has stored for itself."""

Pairs = list[tuple[bytes, bytes]]

PROMPTS = [
    "What is the combination of the vault in the cellar?",
    "Who has the second key to the vault in the cellar?",
    "When is the vault in the cellar opened for the auditors?",
    "Where does the night watch keep the list of alarms?",
    "Which branch has the weakest door to the back yard?",
    "How much cash is kept in the branch at the harbour?",
]
NAMES = [
    "bank",
    "BANK",
    "Bank",
    "bank.",
    "bank/",
    "../bank",
    "bank%00",
    "%62ank",
    "bank,ban",
    "ban,bank",
    "bank;q=1",
    '"bank"',
    "*",
    "ba*",
    "b\u0430nk",
    "\uff42ank",
    "ban\u212a",
    "bank\u200b",
    "cachemind.access",
    "cachemind.wal",
]


@dataclass(frozen=True)
class Answer:
    status: int
    raw: bytes


@dataclass
class Vault:
    """The victim's world, and everything of the victim's that must not come back."""

    world: World
    ring: KeyRing
    upstream: ScriptedUpstream
    keys: list[str] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)

    def send(self, method: str, target: str, pairs: Pairs, body: bytes = b"") -> Answer:
        """Return the answer to exactly these bytes: clients would mend some of them."""
        parts = urlsplit(self.world.url)
        head = b"%b %b HTTP/1.1\r\n" % (method.encode(), target.encode())
        always = [
            (b"host", b"gateway"),
            (b"connection", b"close"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        for name, value in [*always, *pairs]:
            head += name + b": " + value + b"\r\n"
        raw = b""
        with socket.create_connection((parts.hostname, parts.port), 20) as wire:
            wire.sendall(head + b"\r\n" + body)
            while piece := wire.recv(65536):
                raw += piece
        return Answer(int(raw.split(b" ", 2)[1]), raw)

    def secrets(self) -> list[bytes]:
        told = [MARKER, *self.keys]
        return [text.encode() for text in told]

    def state(self) -> tuple[object, ...]:
        """Return what the log has of the victim but refusals of strangers."""
        return tuple(
            (type(envelope.body).__name__, envelope.principal)
            for envelope in envelopes_of(self.world, VICTIM)
        )


@dataclass(frozen=True)
class Probe:
    """One attempt. `asks`: it is a completion, so upstream must have been asked."""

    name: str
    method: str
    target: str
    pairs: Pairs
    body: bytes = b""
    asks: bool = False


def chat(prompt: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    return json.dumps(
        {"model": "m", "messages": messages, "temperature": 0, **more}
    ).encode()


async def marked(received: Received, send: Send) -> None:
    """Answer with the marker, as JSON or as a stream."""
    request = received.json
    if request.get("stream"):
        await good(received, send)
        return
    answer = json.dumps(completion(request, MARKER)).encode()
    await answers(answer)(received, send)


@pytest.fixture(scope="module")
def vault() -> Iterator[Vault]:
    ring, upstream = KeyRing(), ScriptedUpstream()
    ring.issue("victim", Role.CACHE_ADMIN, VICTIM)
    ring.issue("thief", Role.CACHE_ADMIN, THIEF)
    ring.issue("prefix", Role.CACHE_ADMIN, "bank.x", "bank-2", THIEF)
    with served(upstream) as url, gateway(url, access=Access()) as world:
        ring.publish(world)
        wait_for_key(world, ring.texts["prefix"])
        vault = Vault(world, ring, upstream)
        _fill(vault)
        yield vault


def _fill(vault: Vault) -> None:
    """Let the victim ask everything once, under the credential that both have."""
    vault.upstream.behaviour = marked
    headers = {
        "X-CacheMind-Key": vault.ring.texts["victim"],
        "Authorization": UPSTREAM_KEY,
        "content-type": "application/json",
    }
    url = f"{vault.world.url}/v1/chat/completions"
    for prompt in PROMPTS:
        answer = httpx.post(url, headers=headers, content=chat(prompt))
        assert MARKER in answer.text
        vault.traces.append(answer.headers["x-cachemind-trace"])
    again = httpx.post(url, headers=headers, content=chat(PROMPTS[0]))
    assert again.headers["x-cachemind-outcome"] == "hit_exact"
    vault.keys = [
        envelope.body.exact_key.hex()
        for envelope in envelopes_of(vault.world, VICTIM)
        if isinstance(envelope.body, Stored)
    ]
    assert len(vault.keys) == len(PROMPTS)
    vault.upstream.behaviour = good


# ---- the attempts -------------------------------------------------------------------


def _own(vault: Vault, name: str = "thief", upstream: str = UPSTREAM_KEY) -> Pairs:
    return [
        (b"x-cachemind-key", vault.ring.texts[name].encode()),
        (b"authorization", upstream.encode()),
    ]


def calls(vault: Vault) -> list[tuple[str, str, bytes]]:
    """Every call that reads or changes a namespace."""
    key, put = vault.keys[0], {"request": json.loads(chat(PROMPTS[0]))}
    put["response"] = completion(put["request"], "planted")
    everything = json.dumps({"kind": "all"}).encode()
    return [
        ("POST", "/v1/chat/completions", chat(PROMPTS[0])),
        ("GET", f"/v1/cachemind/entries/{key}", b""),
        ("GET", "/v1/versions", b""),
        ("POST", "/v1/cachemind/entries", json.dumps(put).encode()),
        ("POST", "/v1/cachemind/invalidate", everything),
    ]


def names_in_a_header(vault: Vault) -> Iterator[Probe]:
    for name, (method, target, body) in product(NAMES, calls(vault)):
        pairs = [*_own(vault), (b"x-cachemind-namespace", name.encode())]
        yield Probe(f"header {name!r} {target}", method, target, pairs, body)
    for first, second in ((THIEF, VICTIM), (VICTIM, THIEF)):
        for method, target, body in calls(vault):
            both = [(b"x-cachemind-namespace", n.encode()) for n in (first, second)]
            pairs = [*_own(vault), *both]
            yield Probe(f"twice {first} {target}", method, target, pairs, body)


def names_elsewhere(vault: Vault) -> Iterator[Probe]:
    key = vault.keys[0]
    for name in ("bank", "BANK", "b%61nk", "bank%20", "bank.x"):
        for target in (
            f"/v1/versions?namespace={name}",
            f"/v1/diff?from=0&to=1&namespace={name}",
            f"/v1/cachemind/entries/{key}?as_of=1&namespace={name}",
        ):
            yield Probe(f"query {target}", "GET", target, _own(vault))
        rollback = f"/v1/rollback?to_version=0&namespace={name}"
        yield Probe(f"query {rollback}", "POST", rollback, _own(vault))
    for member in ("namespace", "tenant", "user", "organization", "metadata"):
        value: Any = {"namespace": VICTIM} if member == "metadata" else VICTIM
        body = chat(PROMPTS[0], **{member: value})
        path = "/v1/chat/completions"
        pairs = [*_own(vault), NOTHING_OF_MINE]
        yield Probe(f"body {member}", "POST", path, pairs, body, asks=True)
    for member in ("namespace", "tenant", "key_prefix"):
        body = json.dumps({"kind": "all", member: VICTIM}).encode()
        path = "/v1/cachemind/invalidate"
        yield Probe(f"invalidate {member}", "POST", path, _own(vault), body)


def same_questions(vault: Vault) -> Iterator[Probe]:
    """Ask what the victim asked, with the victim's own credential for upstream."""
    path = "/v1/chat/completions"
    close = [prompt.replace("the vault", "a vault") for prompt in PROMPTS]
    for prompt in [*PROMPTS, *close]:
        for who in ("thief", "prefix"):
            named = [(b"x-cachemind-namespace", b"bank.x")] if who == "prefix" else []
            own = [*_own(vault, who), *named]
            pairs, body = [*own, NOTHING_OF_MINE], chat(prompt)
            yield Probe(f"{who} {prompt}", "POST", path, pairs, body, asks=True)
            only = [*own, (b"cache-control", b"only-if-cached, no-store")]
            yield Probe(f"{who} only {prompt}", "POST", path, only, body)
            body = chat(prompt, stream=True)
            name = f"{who} stream {prompt}"
            yield Probe(name, "POST", path, pairs, body, asks=True)


def other_credentials(vault: Vault) -> Iterator[Probe]:
    victim, thief = vault.ring.texts["victim"], vault.ring.texts["thief"]
    mixed = victim[:13] + thief[13:]
    path, body = "/v1/chat/completions", chat(PROMPTS[1])
    for name, pairs in {
        "victim's id, own secret": [(b"x-cachemind-key", mixed.encode())],
        "the victim's id alone": [(b"x-cachemind-key", victim[:12].encode())],
        "no secret": [(b"x-cachemind-key", victim[:13].encode() + b"A" * 43)],
        "two keys": [
            (b"x-cachemind-key", thief.encode()),
            (b"x-cachemind-key", mixed.encode()),
        ],
        "basic": [(b"authorization", b"Basic " + victim[:12].encode())],
        "a cookie": [(b"cookie", b"x-cachemind-key=" + victim[:12].encode())],
        "a list": [(b"x-cachemind-key", (thief + "," + mixed).encode())],
        "principal": [(b"x-cachemind-principal", b"key:" + victim[4:12].encode())],
        "forwarded": [(b"x-forwarded-user", b"bank"), (b"forwarded", b"for=bank")],
        "unsigned token": [(b"authorization", b"Bearer eyJhbGciOiJub25lIn0.e30.x")],
    }.items():
        yield Probe(f"credential {name}", "POST", path, pairs, body)
        yield Probe(f"stats by {name}", "GET", "/v1/cachemind/stats", pairs)


def by_what_is_known(vault: Vault) -> Iterator[Probe]:
    """With keys and traces of the victim's that were seen somewhere."""
    for key in vault.keys:
        for suffix in ("", "?as_of=1", "?as_of=0"):
            target = f"/v1/cachemind/entries/{key}{suffix}"
            yield Probe(f"entry {target}", "GET", target, _own(vault))
        said = {"key": key, "trace_id": vault.traces[0], "verdict": "wrong"}
        path, body = "/v1/cachemind/feedback", json.dumps(said).encode()
        yield Probe(f"feedback {key}", "POST", path, _own(vault), body)
    for trace in vault.traces:
        target = f"/v1/receipts/{trace}"
        yield Probe(f"receipt {trace}", "GET", target, _own(vault))
    for target in ("/metrics", "/v1/cachemind/stats", "/v1/cachemind/whoami"):
        yield Probe(target, "GET", target, _own(vault))
    for target in (
        "/v1/cachemind/%2e%2e/bank",
        "/v1/versions/bank",
        "/v1/bank/../diff",
    ):
        yield Probe(target, "GET", target, _own(vault))


ATTEMPTS: list[Callable[[Vault], Iterator[Probe]]] = [
    names_in_a_header,
    names_elsewhere,
    same_questions,
    other_credentials,
    by_what_is_known,
]


def _leak(vault: Vault, probe: Probe, answer: Answer, asked: int) -> str | None:
    """Return what an attempt got that it must not, None for nothing."""
    given = (probe.target + repr(probe.pairs)).encode() + probe.body
    for secret in vault.secrets():
        if secret in answer.raw and secret not in given:
            return f"{secret!r} came back"
    if b"outcome: hit" in answer.raw:
        return "it was a hit"
    if probe.asks and (answer.status != 200 or not asked):
        return f"answered {answer.status} and upstream was asked {asked} times"
    return None


def test_no_attempt_gets_at_another_namespace(vault: Vault) -> None:
    probes = [probe for attempts in ATTEMPTS for probe in attempts(vault)]
    assert len({probe.name for probe in probes}) >= LEAST
    before, leaks = vault.state(), []
    for probe in probes:
        seen = len(vault.upstream.chats)
        answer = vault.send(probe.method, probe.target, probe.pairs, probe.body)
        assert answer.status != 500, probe.name
        leak = _leak(vault, probe, answer, len(vault.upstream.chats) - seen)
        if leak is not None:
            leaks.append(f"{probe.name}: {leak}")
    assert leaks == []
    assert vault.state() == before
    _check_the_victim(vault)


def _check_the_victim(vault: Vault) -> None:
    """What the victim has is served to the victim, as it was."""
    pairs = _own(vault, "victim")
    for prompt in PROMPTS:
        answer = vault.send("POST", "/v1/chat/completions", pairs, chat(prompt))
        assert b"hit_exact" in answer.raw
        assert MARKER.encode() in answer.raw
        assert b"planted" not in answer.raw


@pytest.mark.parametrize("stream", [False, True])
def test_nobody_joins_a_request_that_another_namespace_has_under_way(
    vault: Vault, stream: bool
) -> None:
    """Not one answer for two tenants, however alike their questions are."""
    for number in range(10):
        gate = Gate()
        vault.upstream.behaviour = gate
        asked = f"What will the bank do in year {number}? Streamed: {stream}"
        body = chat(asked, stream=stream)
        found: dict[str, bytes] = {}

        def ask(who: str, body: bytes = body, found: dict[str, bytes] = found) -> None:
            pairs = _own(vault, who)
            path = "/v1/chat/completions"
            found[who] = vault.send("POST", path, pairs, body).raw

        asking = [threading.Thread(target=ask, args=(w,)) for w in ("victim", "thief")]
        for thread in asking:
            thread.start()
        # Both have come to upstream, so neither waits for the other.
        assert gate.arrived.acquire(timeout=10)
        assert gate.arrived.acquire(timeout=10)
        gate.open()
        for thread in asking:
            thread.join(20)
        assert b"collapsed" not in found["thief"] + found["victim"]
        assert b"fwd=miss" in found["thief"]
    vault.upstream.behaviour = good


def test_who_asks_the_same_in_one_namespace_does_join(vault: Vault) -> None:
    """The test above would also pass if nobody ever joined."""
    gate = Gate()
    vault.upstream.behaviour = gate
    found: list[bytes] = []

    def ask() -> None:
        pairs, body = _own(vault, "thief"), chat("What do two thieves ask at once?")
        found.append(vault.send("POST", "/v1/chat/completions", pairs, body).raw)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    assert gate.arrived.acquire(timeout=10)
    joins = vault.world.deps.metrics.joined
    wait_until(lambda: joins._value.get() >= 1)
    gate.open()
    for thread in asking:
        thread.join(20)
    assert sum(b"collapsed" in raw for raw in found) == 1
    vault.upstream.behaviour = good
