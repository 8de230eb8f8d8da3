"""Attempts on Kafka to get at another's namespace through one's own grant's topics.

Each is a record of its own; what may come of it is the same for all: the record is a
dead letter, it is answered with a refusal, or it is answered from what is one's own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.integration.requests_host import Answer, Client, framed
from tests.upstreams import completion

ADMIN: Final = "cache-admin"
"""The role that may do most, so that nothing is refused for want of a right."""

PLANTED: Final = "planted by a stranger"
PROBE: Final = "x-probe"
"""Header that finds a record among the dead letters."""

Headers = Sequence[tuple[str, bytes]]


def chat(prompt: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    return json.dumps(
        {"model": "m", "messages": messages, "temperature": 0, **more}
    ).encode()


@dataclass
class Owner:
    """Whose entries they are: what was asked, under which ids, and what came back."""

    namespace: str
    prompts: Sequence[str]
    marker: str
    request_ids: list[uuid.UUID] = field(default_factory=list)
    correlation_ids: list[str] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    traces: list[bytes] = field(default_factory=list)

    @property
    def grant(self) -> str:
        return f"{self.namespace}.{ADMIN}"

    def secrets(self) -> list[bytes]:
        """Return what must come back to nobody else."""
        shown = [key.hex().encode() for key in self.keys]
        return [self.marker.encode(), *self.keys, *shown]


@dataclass(frozen=True)
class Probe:
    """One record. `own`: it asks for what is one's own, so it may be answered.

    `asks`: it is a completion of one's own that nobody has asked before.
    """

    name: str
    value: bytes
    key: bytes
    headers: Headers
    own: bool = False
    asks: bool = False

    @property
    def correlation_id(self) -> str:
        """Return what an answer to it has."""
        return dict(self.headers)["correlation-id"].decode()


def commands(owner: Owner) -> Mapping[str, dict[str, Any]]:
    """Return every command there is, about what is the owner's."""
    question = chat(owner.prompts[0])
    planted = json.dumps(completion(json.loads(question), PLANTED)).encode()
    return {
        "Lookup": {"request": question},
        "Complete": {"request": question, "cache_control": "no-store"},
        "Put": {"request": question, "response": planted},
        "Invalidate": {"kind": "all"},
        "Feedback": {
            "matched_key": owner.keys[0],
            "served_trace_id": owner.traces[0],
            "verdict": "wrong",
        },
        "Rollback": {"to_version": 0},
        "FindReceipt": {"trace_id": owner.traces[0]},
    }


@dataclass(frozen=True)
class Attempts:
    """What can be tried through `by`'s topics on what is `owner`'s."""

    by: Client
    owner: Owner

    def of(
        self,
        name: str,
        command: str,
        body: dict[str, Any],
        *,
        namespace: str | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
        request_id: uuid.UUID | None = None,
        own: bool = False,
        asks: bool = False,
    ) -> Probe:
        """Return a probe; what is not given is as it should be."""
        told = self.by.namespace if namespace is None else namespace
        value = {
            "request_id": (request_id or uuid.uuid4()).bytes,
            "namespace": told,
            "body": (f"cachemind.v1.{command}", body),
        }
        plain = [
            ("reply-to", self.by.replies.encode()),
            ("correlation-id", f"{name} of {self.by.namespace}".encode()),
        ]
        return Probe(
            name=f"{name} by {self.by.grant}",
            value=framed(value),
            key=told.encode() if key is None else key,
            headers=plain if headers is None else headers,
            own=own,
            asks=asks,
        )

    def by_name(self, names: Sequence[str]) -> Iterator[Probe]:
        """Name another namespace: in the body, in the key, in both."""
        own = self.by.namespace
        for name in names:
            for command, body in commands(self.owner).items():
                yield self.of(f"{command} in {name!r}", command, body, namespace=name)
        theirs = self.owner.namespace
        for command, body in commands(self.owner).items():
            yield self.of(
                f"{command}, body alone",
                command,
                body,
                namespace=theirs,
                key=own.encode(),
            )
            yield self.of(f"{command}, key alone", command, body, key=theirs.encode())

    def by_reply_to(self, topics: Sequence[str]) -> Iterator[Probe]:
        """Have one's own answers sent to where others read."""
        body, mine = commands(self.owner)["Lookup"], self.by.replies.encode()
        for topic in topics:
            for kind, places in {
                "to": [topic.encode()],
                "at last to": [mine, topic.encode()],
                "at first to": [topic.encode(), mine],
            }.items():
                name = f"{kind} {topic!r}"
                headers = [
                    *(("reply-to", place) for place in places),
                    ("correlation-id", name.encode()),
                ]
                last = kind == "at first to"
                yield self.of(name, "Lookup", body, headers=headers, own=last)

    def by_header(self) -> Iterator[Probe]:
        """Say in headers to be somebody else."""
        owner, body = self.owner, commands(self.owner)["Lookup"]
        trace = f"00-{owner.traces[0].hex()}-{'ab' * 8}-01".encode()
        theirs, grant = owner.namespace.encode(), owner.grant.encode()
        for name, value in {
            "correlation-id": owner.correlation_ids[0].encode(),
            "traceparent": trace,
            "namespace": theirs,
            "principal": b"kafka:" + grant,
            "cachemind-principal": b"kafka:" + grant,
            "x-cachemind-namespace": theirs,
            "topic": f"{self.by.prefix}.requests.".encode() + grant,
            "cachemind-dlq-topic": f"{self.by.prefix}.requests.".encode() + grant,
            "cachemind-dlq-key": theirs,
            "command-sha256": bytes(32),
        }.items():
            headers = [
                ("reply-to", self.by.replies.encode()),
                ("correlation-id", f"header {name}".encode()),
                (name, value),
            ]
            yield self.of(f"header {name}", "Lookup", body, headers=headers, own=True)

    def by_request_id(self) -> Iterator[Probe]:
        """Ask under ids that the owner's commands had, in either namespace."""
        for number, request_id in enumerate(self.owner.request_ids):
            command = ("Lookup", "Complete")[number % 2]
            prompt = self.owner.prompts[number]
            body = {"request": chat(prompt), "cache_control": "no-store"}
            for whose in (self.by.namespace, self.owner.namespace):
                own = whose == self.by.namespace
                yield self.of(
                    f"id {number} {command} in {whose}",
                    command,
                    body,
                    namespace=whose,
                    request_id=request_id,
                    own=own,
                    asks=own and command == "Complete",
                )

    def by_question(self) -> Iterator[Probe]:
        """Ask what the owner asked, and beside it what nobody has asked."""
        for number, prompt in enumerate(self.owner.prompts):
            for kind, asked in (("theirs", prompt), ("new", f"{prompt} Or not?")):
                body = {"request": chat(asked), "cache_control": "no-store"}
                for command in ("Lookup", "Complete"):
                    yield self.of(
                        f"{kind} {number} {command}",
                        command,
                        body,
                        own=True,
                        asks=command == "Complete",
                    )


def send(by: Client, probes: Sequence[Probe]) -> None:
    """Send all of them, in order."""
    for probe in probes:
        by.producer.produce(
            by.requests,
            probe.value,
            probe.key,
            headers=[*probe.headers, (PROBE, probe.name.encode())],
        )
    assert by.producer.flush(30) == 0


def leaks(
    owner: Owner, by: Client, probes: Sequence[Probe], buried: Collection[str]
) -> list[str]:
    """Return what came of attempts that must not, each with its name.

    `buried` are the names of those that became dead letters.
    """
    answers = {answer.correlation_id: answer for answer in by.answers}
    found = []
    for probe in probes:
        answer = answers.get(probe.correlation_id)
        if answer is None:
            what = None if probe.name in buried else "nothing came of it"
        elif probe.name in buried:
            what = "it was answered, and buried"
        else:
            what = _leak(owner, probe, answer)
        if what is not None:
            found.append(f"{probe.name}: {what}")
    return found


def _leak(owner: Owner, probe: Probe, answer: Answer) -> str | None:
    """Return what an attempt was told that it must not be, None for nothing."""
    for secret in owner.secrets():
        if secret in answer.raw and secret not in probe.value:
            return f"{secret!r} came back"
    if answer.value["namespace"] == owner.namespace:
        return "it was answered in the owner's namespace"
    body = answer.body
    if not probe.own and body.get("code") != "forbidden":
        return f"it was answered: {answer.kind} {body}"
    if str(body.get("outcome", "")).startswith("hit"):
        return "it was a hit"
    if probe.asks and (body.get("outcome"), body.get("status")) != ("miss", 200):
        return f"upstream was not asked: {answer.kind} {body}"
    return None
