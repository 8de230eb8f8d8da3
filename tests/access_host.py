"""Keys for a gateway in memory: issued, put on its log, presented."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

import httpx

from cachemind.core.access import ACCESS_NAMESPACE, Role
from cachemind.core.api_keys import ApiKey, KeyBook, key_text, secret_digest
from cachemind.core.operation import hash_of
from cachemind.core.partitioner import partition_of
from cachemind.events import Body, Envelope, PolicyChanged, Read, Reads
from cachemind.types import (
    FIRST_TIMELINE,
    EventId,
    Namespace,
    Principal,
    TraceId,
    WriterId,
)
from tests.gateways import PARTITIONS, World
from tests.upstreams import wait_until


@dataclass
class KeyRing:
    """All keys of a test, and the secrets that only their holders have."""

    keys: dict[str, ApiKey] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    revision: int = 0

    def issue(
        self, name: str, role: Role, *namespaces: str, prefixes: tuple[str, ...] = ()
    ) -> str:
        """Return the text of a new key; not on any log yet."""
        key_id = base64.b32encode(sha256(name.encode()).digest())[:8].decode()
        secret = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
        self.keys[name] = ApiKey(
            key_id=key_id,
            digest=secret_digest(secret),
            role=role,
            namespaces=tuple(map(Namespace, namespaces)),
            created_ms=0,
            not_before_ms=0,
            name=name,
            prefixes=prefixes,
        )
        self.texts[name] = key_text(key_id, secret)
        return self.texts[name]

    def change(self, name: str, **fields: object) -> None:
        """Change a key; not on any log yet."""
        self.keys[name] = replace(self.keys[name], **fields)  # type: ignore[arg-type]  # names are checked at run time

    def principal(self, name: str) -> str:
        return f"key:{self.keys[name].key_id}"

    def policy(self) -> str:
        """Return the next book."""
        self.revision += 1
        return KeyBook.of(self.revision, self.keys.values()).render()

    def publish(self, world: World) -> None:
        """Put the next book on the log."""
        append(world, ACCESS_NAMESPACE, PolicyChanged(policy=self.policy()))


def append(world: World, namespace: Namespace, body: Body) -> None:
    """Put an event of another writer on the log."""
    envelope = Envelope(
        event_id=EventId(os.urandom(16)),
        namespace=namespace,
        trace_id=TraceId(os.urandom(16)),
        principal=Principal("operator"),
        occurred_at_ns=time.time_ns(),
        writer=WriterId("operator-1"),
        writer_seq=1,
        timeline=FIRST_TIMELINE,
        op_hash=hash_of(body, time.time_ns()),
        body=body,
    )
    writer = world.log.writer()
    writer.append(namespace.encode(), world.codec.encode(envelope), ()).result(5)


def envelopes_of(world: World, namespace: str) -> list[Envelope]:
    """Return what the WAL holds of a namespace, in order."""
    partition = partition_of(namespace.encode(), PARTITIONS)
    reader = world.log.reader()
    first, end = reader.bounds(partition)
    found = [
        world.codec.decode(record.value)
        for batch in reader.read(partition, first, end)
        for record in batch
        if record.value is not None
    ]
    return [envelope for envelope in found if envelope.namespace == namespace]


def reads_of(world: World, namespace: str) -> list[Read]:
    """Return the look-ups, and the refusals, of a namespace."""
    bodies = [envelope.body for envelope in envelopes_of(world, namespace)]
    return [read for body in bodies if isinstance(body, Reads) for read in body.items]


def status_of(world: World, headers: Mapping[str, str]) -> int:
    """Return what a caller with these headers gets for asking who he is."""
    url = f"{world.url}/v1/cachemind/whoami"
    return httpx.get(url, headers=dict(headers)).status_code


def wait_for_key(world: World, key: str) -> None:
    """Return once the gateway knows `key`."""

    def known() -> bool:
        if status_of(world, {"X-CacheMind-Key": key}) == 200:
            return True
        time.sleep(0.05)  # each refusal is on the log, at a bounded rate
        return False

    wait_until(known)
