"""`cachemind replay` as an operator uses it, on real Kafka and real stores."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import fastavro
import pytest

from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.core.keys import derive_keys
from cachemind.core.partitioner import partition_of
from cachemind.core.request import parse_chat
from cachemind.events import Invalidated, SelectorKind, Stored
from cachemind.types import Sha256
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.gateway.deps import NO_ENCODER
from cachemind_services.gateway.identity import Tenants
from tests.bench.running import free_port
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.wal_events import ALPHA, rolled_back, stored

pytestmark = pytest.mark.broker

SECRET = bytes(range(32))
HOME = partition_of(ALPHA.encode(), PARTITIONS)
MODEL = "the-model"
GOOD, BAD = "42, as ever", "poison"


def asked(prompt: str, **parameters: float) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    return json.dumps({"model": MODEL, "messages": messages, **parameters}).encode()


def answered(
    prompt: str, answer: str, credential: str = "", **parameters: float
) -> Stored:
    """Return what a gateway stores for `prompt` of a caller with `credential`."""
    sent = {b"authorization": credential.encode()} if credential else {}
    tenant = Tenants(SECRET, ALPHA, shared=False).of(sent)
    body = asked(prompt, **parameters)
    keys = derive_keys(parse_chat(body), ALPHA, tenant, NO_ENCODER)
    message = {"role": "assistant", "content": answer}
    response = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    ).encode()
    return replace(
        stored(0),
        exact_key=keys.exact_key,
        context_key=keys.context_key,
        model=MODEL,
        prompt=keys.prompt,
        response=response,
        response_hash=Sha256(sha256(response).digest()),
        encoder_id=NO_ENCODER,
    )


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    """A host whose namespace went from a good answer to a bad one and on."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET.hex())
    secret.chmod(0o600)
    with cli_host(
        broker.bootstrap_servers,
        topic_prefix,
        tmp_path / "host",
        secret_file=str(secret),
    ) as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


def poisoned(host: CliHost) -> list[datetime]:
    """Write versions 1 to 14; 11 poisons what 1 said. Return the time after 10."""
    host.append(answered("what is it?", GOOD))
    host.append(*(stored(number) for number in range(2, 11)))
    time.sleep(0.01)
    between = datetime.now(UTC)
    time.sleep(0.01)
    host.append(answered("what is it?", BAD))
    host.append(*(stored(number) for number in (20, 21)))
    key = stored(5).exact_key.hex()
    host.append(Invalidated(kind=SelectorKind.KEY, value=key, reason="wrong"))
    host.wait_folded()
    return [between]


def test_a_version_is_replayed_queried_exported_compared(
    host: CliHost, tmp_path: Path
) -> None:
    poisoned(host)
    made = host.run("replay", "--to-version", "10", "--json")
    shown = json.loads(made.stdout)
    assert shown["replay"] == "alpha-v10"
    assert shown["namespaces"][0]["version"] == 10
    assert shown["namespaces"][0]["entries"] == 10
    assert "100%" in made.stderr
    queried = host.run("replay", "query", "what is it?", "--model", MODEL)
    assert queried.stdout.strip() == GOOD
    assert "as-of=alpha-v10" in queried.stderr
    missing = host.run("replay", "query", "never asked", "--model", MODEL, code=1)
    assert "504" in missing.stderr
    key = answered("what is it?", GOOD).exact_key.hex()
    found = json.loads(host.run("replay", "query", "--key", key).stdout)
    assert found["response"]["choices"][0]["message"]["content"] == GOOD
    _exports(host, tmp_path)
    _differs(host)
    _replay_left_no_trace(host)


def test_what_was_asked_with_parameters_and_a_credential_is_found(
    host: CliHost, tmp_path: Path
) -> None:
    host.append(answered("mine?", GOOD, "Bearer sk-mine", temperature=0.5))
    host.append(answered("mine?", BAD, "Bearer sk-mine", temperature=0.5))
    host.wait_folded()
    host.run("replay", "--to-version", "1")
    request = tmp_path / "request.json"
    # As an application sends it: that it wants a stream makes no other entry.
    request.write_bytes(asked("mine?", temperature=0.5, stream=True))
    whole = ("replay", "query", "--request", str(request))
    assert host.run(*whole, "--api-key", "sk-mine").stdout.strip() == GOOD
    for words in (whole, (*whole, "--api-key", "sk-other")):
        assert "nothing was cached" in host.run(*words, code=1).stderr
    request.write_text('{"model": "m", "messages": 7}')
    assert "messages" in host.run(*whole, code=1).stderr
    both = host.run(*whole, "a prompt", code=2)
    assert "not both" in both.stderr


def _exports(host: CliHost, tmp_path: Path) -> None:
    lines = host.run("replay", "export").stdout.splitlines()
    exported = [json.loads(line) for line in lines]
    assert len(exported) == 10
    target = tmp_path / "then.avro"
    host.run("replay", "export", "--format", "avro", "--output", str(target))
    with target.open("rb") as source:
        rows: list[Any] = list(fastavro.reader(source))
    assert [row["exact_key"] for row in rows] == [row["exact_key"] for row in exported]


def _differs(host: CliHost) -> None:
    hidden = host.run("replay", "diff", "--json").stdout
    assert GOOD not in hidden
    assert BAD not in hidden
    lines = host.run("replay", "diff", "--json", "--bodies").stdout.splitlines()
    changes = [json.loads(line) for line in lines]
    kinds = sorted(change["change"] for change in changes)
    assert kinds == ["added", "added", "changed", "removed"]
    (changed,) = [change for change in changes if change["change"] == "changed"]
    old, new = changed["fields"]["response"]
    assert GOOD in old
    assert BAD in new
    assert changed["fields"]["version"] == [1, 11]
    assert "2 added, 1 removed, 1 changed" in host.run("replay", "diff").stderr


def _replay_left_no_trace(host: CliHost) -> None:
    """Nothing was appended; the scratch group stands at the replay's end."""
    assert host.state().version == 14
    assert sum(host.ends().values()) == 14
    group = f"{host.prefix}.replay.alpha-v10"
    with closing(KafkaGroupOffsets(host.kafka, group, host.wal)) as offsets:
        assert offsets.committed([HOME]) == {HOME: 10}


def test_an_lsn_and_a_time_lead_to_the_same_state(host: CliHost) -> None:
    (between,) = poisoned(host)
    by_lsn = json.loads(host.run("replay", "--to-lsn", f"{HOME}@9", "--json").stdout)
    by_time = json.loads(
        host.run("replay", "--to-time", between.isoformat(), "--json").stdout
    )
    by_version = json.loads(host.run("replay", "--to-version", "10", "--json").stdout)
    assert by_lsn["namespaces"] == by_time["namespaces"] == by_version["namespaces"]
    assert by_lsn["replay"] == f"lsn-{HOME}@9"
    queried = host.run(
        *("replay", "--to-lsn", f"{HOME}@10", "query", "what is it?"),
        *("--model", MODEL),
    )
    assert queried.stdout.strip() == BAD
    nothing = json.loads(host.run("replay", "--to-version", "0", "--json").stdout)
    assert nothing["namespaces"] == []
    again = host.run("replay", "--replay", "alpha-v10", "--json")
    assert json.loads(again.stdout)["namespaces"] == by_version["namespaces"]


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        pytest.param(("--to-version", "15"), "versions 0 to 0", id="never-was"),
        pytest.param(("--to-lsn", "0@99999"), "the log holds", id="past-the-end"),
        pytest.param(("--to-lsn", "9@1"), "no partition 9", id="no-partition"),
        pytest.param(("--to-time", "yesterday"), "ISO 8601", id="no-time"),
        pytest.param(("--replay", "none"), "no such replay", id="no-replay"),
    ],
)
def test_a_point_that_is_not_there_is_wrong_usage(
    host: CliHost, point: tuple[str, str], problem: str
) -> None:
    host.wait_folded()
    assert problem in host.run("replay", *point, code=2).stderr


@contextmanager
def past_gateway(host: CliHost, *arguments: str) -> Iterator[str]:
    """Run `cachemind replay ... serve` until the block ends; yield its URL."""
    port = free_port()
    argv = [sys.executable, "-m", "cachemind_services.cli.main", "replay", *arguments]
    process = subprocess.Popen(
        [*argv, "serve", "--port", str(port)],
        env=host.environ(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "as of alpha-v10" in process.stdout.readline()
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 30
        while get(url + "/readyz")[0] != 200:
            assert time.monotonic() < until
            time.sleep(0.05)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def get(url: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            headers = {k.lower(): v for k, v in answer.headers.items()}
            return answer.status, headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            headers = {k.lower(): v for k, v in error.headers.items()}
            return error.code, headers, error.read()
    except urllib.error.URLError:
        return 0, {}, b""


def test_a_gateway_as_of_then_serves_hits_and_changes_nothing(host: CliHost) -> None:
    poisoned(host)
    before = host.ends()
    with past_gateway(host, "--to-version", "10") as url:
        chat = f"{url}/v1/chat/completions"
        status, headers, body = get(chat, asked("what is it?"))
        assert status == 200
        assert json.loads(body)["choices"][0]["message"]["content"] == GOOD
        assert headers["x-cachemind-as-of"] == "alpha-v10"
        assert headers["x-cachemind-version"] == "10"
        assert "x-cachemind-lsn" not in headers
        assert get(chat, asked("never asked"))[0] == 504
        assert get(f"{url}/v1/cachemind/invalidate", b"{}")[0] == 405
        stats = json.loads(get(f"{url}/v1/cachemind/stats")[2])
        assert (stats["version"], stats["entries"]) == (10, 10)
    assert host.ends() == before
    assert host.state().version == 14


def test_a_replay_begins_at_a_checkpoint_and_passes_rollbacks(host: CliHost) -> None:
    host.append(*(stored(number) for number in range(1, 11)))
    host.wait_folded()
    host.run("snapshot", "create", "--name", "v1")
    host.append(*(stored(number) for number in range(11, 16)))
    host.append(rolled_back(8))
    key = stored(3).exact_key.hex()
    host.append(Invalidated(kind=SelectorKind.KEY, value=key, reason="wrong"))
    host.wait_folded()
    live = host.state()
    assert (live.version, live.entries) == (17, 7)
    made = host.run("replay", "--to-version", "17", "--json")
    assert f"was made from checkpoint {HOME}@9" in made.stderr
    (shown,) = json.loads(made.stdout)["namespaces"]
    assert (shown["version"], shown["entries"]) == (17, 7)
    assert int(shown["digest"], 16) == live.digest
    (past,) = json.loads(host.run("replay", "--to-version", "8", "--json").stdout)[
        "namespaces"
    ]
    (back,) = json.loads(host.run("replay", "--to-version", "16", "--json").stdout)[
        "namespaces"
    ]
    assert past["digest"] == back["digest"]
    again = host.run("replay", "--to-version", "17", "--json")
    assert "%" not in again.stderr  # it is there already
    assert again.stdout == made.stdout
