"""Keys made at the command line, presented by the real client to `cachemind serve`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.codec.codec import Codec
from cachemind.core.access import ACCESS_NAMESPACE
from cachemind.events import Envelope, Read, Reads, Stored
from cachemind.types import Partition
from cachemind_services.broker import EmbeddedBroker
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = pytest.mark.broker

PARTITIONS = 2
HELD = "sk-held-for-the-bank"
QUESTION = "Why is the sky blue?"


@dataclass
class Installation:
    """A running host on a log, and the command line beside it."""

    host: Serving
    log: tuple[str, ...]
    broker: EmbeddedBroker
    prefix: str

    def cli(self, *words: str) -> Any:
        done = run_cli(*words, *self.log, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def key(self, role: str, *namespaces: str) -> str:
        named = [word for name in namespaces for word in ("--namespace", name)]
        made = self.cli("keys", "create", "--role", role, *named)
        key: str = made["key"]
        return key

    def envelopes(self, namespace: str) -> list[Envelope]:
        """Return what the log holds of a namespace."""
        kafka = {"bootstrap.servers": self.broker.bootstrap_servers}
        codec = Codec()
        with closing(KafkaReader(kafka, f"{self.prefix}.wal")) as reader:
            found = [
                codec.decode(record.value or b"")
                for number in map(Partition, range(PARTITIONS))
                for batch in reader.read(number, *reader.bounds(number))
                for record in batch
            ]
        return [envelope for envelope in found if envelope.namespace == namespace]

    def reads(self, namespace: str) -> list[Read]:
        bodies = [envelope.body for envelope in self.envelopes(namespace)]
        return [
            read for body in bodies if isinstance(body, Reads) for read in body.items
        ]

    def status(self, key: str) -> int:
        url = f"{self.host.url}/v1/cachemind/whoami"
        return httpx.get(url, headers={"X-CacheMind-Key": key}).status_code

    def wait_for(self, key: str) -> None:
        eventually(lambda: self.status(key) == 200)

    def ask(self, key: str, prompt: str = QUESTION, **headers: str) -> str:
        with openai.OpenAI(
            base_url=f"{self.host.url}/v1",
            api_key=key,
            max_retries=0,
            default_headers=headers,
        ) as client:
            raw = client.chat.completions.with_raw_response.create(
                model="m",
                messages=[{"role": "user", "content": prompt}],
                temperature=0,
            )
        assert raw.parse().choices[0].message.content
        return str(raw.headers["x-cachemind-outcome"])


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def there(
    upstream: ScriptedUpstream,
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
) -> Iterator[Installation]:
    servers = broker.bootstrap_servers
    assert servers is not None
    data = tmp_path / "data"
    named = {
        "bootstrap-servers": servers,
        "topic-prefix": topic_prefix,
        "data-dir": str(data),
        "partitions": str(PARTITIONS),
    }
    log = tuple(f"--{name}={value}" for name, value in named.items())
    held = tmp_path / "upstream.toml"
    held.write_text(f'[bank]\nauthorization = "Bearer {HELD}"\n', encoding="utf-8")
    held.chmod(0o600)
    flags = (*log, "--encoder", "off", "--auth", "--upstream-credentials", str(held))
    with (
        served(upstream) as url,
        serving(url, data, *flags, "--workers", "2") as host,
    ):
        yield Installation(host, log, broker, topic_prefix)


def test_keys_namespaces_policies_and_revocation_end_to_end(
    there: Installation, upstream: ScriptedUpstream
) -> None:
    # 1. Nobody has a key: nobody is answered.
    with pytest.raises(openai.AuthenticationError):
        there.ask("sk-anything")
    # 2. Two tenants with the same question: two answers, each of its own.
    shop, bank = there.key("cache-writer", "shop"), there.key("cache-writer", "bank")
    both = there.key("cache-writer", "shop", "bank")
    there.wait_for(both)
    assert there.ask(shop) == "miss"
    eventually(lambda: there.ask(shop) == "hit_exact")
    assert there.ask(bank) == "miss"
    eventually(lambda: there.ask(bank) == "hit_exact")
    assert there.ask(both, **{"X-CacheMind-Namespace": "bank"}) == "hit_exact"
    assert len(upstream.received) == 2
    assert upstream.received[1].header("authorization") == f"Bearer {HELD}"
    # 3. A policy from the command line is followed.
    there.cli("policy", "set", _file(there, {"enabled": False}), "--namespace", "shop")
    eventually(lambda: there.ask(shop) == "bypass")
    assert there.ask(bank) == "hit_exact"
    # 4. A revoked key counts no more, on any worker.
    there.cli("keys", "revoke", shop[4:12])
    eventually(lambda: all(there.status(shop) == 401 for _ in range(8)))
    with pytest.raises(openai.PermissionDeniedError, match="rollback"):
        _roll_back(there, bank)
    # 5. What was refused is on the log, and no secret is.
    _check_the_log(there, shop, bank, both)


def _file(there: Installation, policy: dict[str, object]) -> str:
    path = there.host.data_dir / "policy.json"
    path.write_text(json.dumps(policy), encoding="utf-8")
    return str(path)


def _roll_back(there: Installation, key: str) -> None:
    with openai.OpenAI(
        base_url=f"{there.host.url}/v1", api_key=key, max_retries=0
    ) as client:
        client.post("/rollback?to_version=0", cast_to=object)


def _check_the_log(there: Installation, *keys: str) -> None:
    refused = [read.reason for read in there.reads(ACCESS_NAMESPACE)]
    assert refused
    assert set(refused) == {"unauthenticated"}
    bank = {read.reason: read.principal for read in there.reads("bank")}
    assert bank["forbidden:rollback"] == f"key:{keys[1][4:12]}"
    stored = [
        envelope
        for namespace in ("shop", "bank")
        for envelope in there.envelopes(namespace)
        if isinstance(envelope.body, Stored)
    ]
    assert [each.principal for each in stored] == [
        f"key:{key[4:12]}" for key in keys[:2]
    ]
    everything = repr([there.envelopes(n) for n in ("shop", "bank", ACCESS_NAMESPACE)])
    for secret in (*(key[13:] for key in keys), HELD):
        assert secret not in everything
