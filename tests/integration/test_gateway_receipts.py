"""Receipts as callers see them; who signs is written here, on memory adapters."""

from __future__ import annotations

import base64
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cachemind.adapters.memory_receipts import MemoryReceiptIndex
from cachemind.adapters.upstream_http import HttpUpstream, UpstreamTimeouts
from cachemind.codec.codec import Codec
from cachemind.codec.evidence import read_evidence
from cachemind.codec.receipts import decode_receipt, decode_signed_receipt
from cachemind.core.merkle import leaf_hash, verify_inclusion
from cachemind.core.partitioner import partition_of
from cachemind.core.receipt_chain import receipt_for
from cachemind.receipts import NO_LEAF, Seq
from cachemind.types import Lsn, Offset, Partition
from cachemind_services.gateway.app import Gateway
from cachemind_services.gateway.metrics import GatewayMetrics
from tests.gateways import NAMESPACE, PARTITIONS, World, changed, gateway, past_of
from tests.receipt_log import KEY_ID, LOG_ID, ReceiptLog, trace
from tests.upstreams import ScriptedUpstream, served, wait_until

README = Path(__file__).parents[2] / "README.md"
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
OURS = partition_of(NAMESPACE.encode(), PARTITIONS)


class Signer:
    """Writes receipts of what the memory log holds, whenever it is let."""

    def __init__(self, world: World) -> None:
        self._reader = world.log.reader()
        self._codec = Codec()
        self._audit = ReceiptLog(PARTITIONS)
        self._done = 0
        self._next = Offset(0)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.index = MemoryReceiptIndex(PARTITIONS)
        self.runs = threading.Event()
        self.cuts = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def go(self) -> None:
        """Sign from here on, and cut."""
        self.cuts.set()
        self.runs.set()

    def close(self) -> None:
        self._stop.set()
        self.runs.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stop.is_set():
            if self.runs.wait(0.01):
                self.sign()
            time.sleep(0.002)

    def sign(self) -> None:
        with self._lock:
            _, end = self._reader.bounds(Partition(OURS))
            for batch in self._reader.read(Partition(OURS), self._next, end):
                for record in batch:
                    self._sign(record.value, record.lsn)
                    self._next = Offset(record.lsn.offset + 1)
            if self.cuts.is_set() and len(self._audit.receipts[OURS]) > self._done:
                self._done = len(self._audit.receipts[OURS])
                self._audit.cut()
                self.index.add_cuts(self._audit.cuts[-1:])

    def _sign(self, value: bytes | None, source: Lsn) -> None:
        before = self._audit.records[OURS]
        previous = NO_LEAF
        if before:
            last = decode_signed_receipt(before[-1].value or b"")
            previous = leaf_hash(last.receipt)
        receipt = receipt_for(
            value,
            self._codec.decode(value or b""),
            log_id=LOG_ID,
            seq=Seq(len(before)),
            previous=previous,
            source_topic="cachemind.wal",
            source=source,
            signed_at_ns=1,
            key_id=KEY_ID,
        )
        self._audit.add(receipt)
        assert self.index.add_receipts(self._audit.records[OURS][-1:])


@dataclass(frozen=True)
class Audited:
    """A gateway in front of a world whose records are signed on demand."""

    url: str
    signer: Signer
    world: World
    gateway: Gateway

    def ask(self, trace_id: str, query: str = "") -> httpx.Response:
        return httpx.get(f"{self.url}/v1/receipts/{trace_id}{query}", timeout=40)

    def chat(self, body: dict[str, Any] = BODY, **headers: str) -> httpx.Response:
        return httpx.post(self.url + CHAT, json=body, headers=headers, timeout=40)


@contextmanager
def audited(
    upstream_url: str, world: World, signer: Signer, **settings: object
) -> Iterator[Audited]:
    deps = replace(
        world.deps,
        settings=changed(**settings),
        views=[store.view() for store in world.fold.stores],
        wal=world.log.writer(),
        upstream=HttpUpstream(upstream_url, UpstreamTimeouts()),
        past=lambda number: past_of(world.fold, number),
        metrics=GatewayMetrics(),
        receipts=signer.index.view(),
    )
    app = Gateway(deps)
    with served(app, lifespan="on") as url:
        yield Audited(url, signer, world, app)


@pytest.fixture
def upstream_url() -> Iterator[str]:
    with served(ScriptedUpstream()) as url:
        yield url


@pytest.fixture
def world(upstream_url: str) -> Iterator[World]:
    with gateway(upstream_url) as world:
        yield world


@pytest.fixture
def signer(world: World) -> Iterator[Signer]:
    signer = Signer(world)
    yield signer
    signer.close()


@pytest.fixture
def host(upstream_url: str, world: World, signer: Signer) -> Iterator[Audited]:
    with audited(upstream_url, world, signer) as host:
        yield host


# ---- the receipts of a trace ---------------------------------------------------------


def test_a_miss_has_a_receipt_of_its_look_up_and_one_of_what_was_stored(
    host: Audited,
) -> None:
    host.signer.go()
    answer = host.chat()
    name = answer.headers["x-cachemind-trace"]
    wait_until(lambda: len(host.ask(name).json().get("receipts", ())) == 2)
    found = host.ask(name).json()
    assert found["trace_id"] == name
    assert found["next_after"] is None
    look_up, stored = found["receipts"]
    assert [each["receipt"]["kind"] for each in (look_up, stored)] == [
        "reads",
        "stored",
    ]
    assert stored["receipt"]["source"] == answer.headers["x-cachemind-lsn"]
    [item] = stored["receipt"]["items"]
    assert item["trace_id"] == name
    assert item["prompt_hash"] == answer.headers["x-cachemind-prompt-hash"]


def test_an_answer_in_hand_is_held_against_its_receipt_as_readme_says(
    host: Audited, tmp_path: Path
) -> None:
    host.signer.go()
    host.chat({**BODY, "stream": True})
    answer = host.chat()
    assert answer.headers["x-cachemind-outcome"] == "hit_exact"
    (tmp_path / "answer.json").write_bytes(answer.content)
    [command] = re.findall(r"^\$ (sha256sum .*)$", README.read_text("utf-8"), re.M)
    done = subprocess.run(
        command.split(), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = host.ask(answer.headers["x-cachemind-trace"], "?wait=20s").json()
    [item] = read_evidence(found["receipts"][0]).receipt.items
    assert item.response_hash is not None
    assert done.stdout.split()[0] == item.response_hash.hex()


def test_the_exact_bytes_are_there_with_a_path_to_the_checkpoint(host: Audited) -> None:
    host.signer.go()
    name = host.chat().headers["x-cachemind-trace"]
    [first, *_] = host.ask(name, "?wait=20s").json()["receipts"]
    raw = base64.b64decode(first["receipt_bytes"])
    assert decode_receipt(raw).seq == first["seq"]
    evidence = read_evidence(first)
    head = evidence.cut.heads[OURS]
    assert verify_inclusion(
        leaf_hash(raw), first["seq"], head.size, evidence.path, head.root
    )
    assert evidence.record.checkpoint == "a checkpoint\n"


def test_a_receipt_is_not_found_until_a_cut_covers_it(host: Audited) -> None:
    name = host.chat().headers["x-cachemind-trace"]
    missing = host.ask(name)
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "no_receipt"
    host.signer.runs.set()
    assert host.ask(name, "?wait=200ms").status_code == 404
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(host.ask, name, "?wait=20s")
        host.signer.go()
        assert waiting.result().status_code == 200


def test_a_trace_that_is_used_often_is_paged_through(host: Audited) -> None:
    name = "4bf92f3577b34da6a3ce929d0e0e4736"
    for _ in range(40):
        host.chat(traceparent=f"00-{name}-00f067aa0ba902b7-01")
    host.signer.go()
    wait_until(lambda: host.ask(name).json().get("next_after") is not None)
    first = host.ask(name).json()
    assert len(first["receipts"]) == 32
    rest = host.ask(name, f"?after={first['next_after']}").json()
    assert rest["next_after"] is None
    seqs = [each["seq"] for each in first["receipts"] + rest["receipts"]]
    assert seqs == sorted(set(seqs))
    assert len(seqs) == 41


def test_another_namespace_does_not_see_it(upstream_url: str, host: Audited) -> None:
    host.signer.go()
    name = host.chat().headers["x-cachemind-trace"]
    assert host.ask(name, "?wait=20s").status_code == 200
    other = next(
        f"shop{number}"
        for number in range(99)
        if partition_of(f"shop{number}".encode(), PARTITIONS) == OURS
    )
    with audited(upstream_url, host.world, host.signer, namespace=other) as elsewhere:
        assert elsewhere.ask(name, "?wait=300ms").status_code == 404


@pytest.mark.parametrize(
    ("path", "field"),
    [
        pytest.param("/abc", "trace_id", id="not-a-trace"),
        pytest.param("/" + "A" * 32, "trace_id", id="not-lower-case"),
        pytest.param("/" + "a" * 32 + "?wait=31s", "wait", id="too-long"),
        pytest.param("/" + "a" * 32 + "?wait=soon", "wait", id="no-duration"),
        pytest.param("/" + "a" * 32 + "?after=x", "after", id="no-number"),
        pytest.param("/" + "a" * 32 + "?until=1", "until", id="unknown"),
    ],
)
def test_a_wrong_question_names_the_field(host: Audited, path: str, field: str) -> None:
    answer = httpx.get(host.url + "/v1/receipts" + path)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_only_get_asks_for_receipts(host: Audited) -> None:
    answer = httpx.post(host.url + "/v1/receipts/" + "a" * 32)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_without_audit_mode_there_are_no_receipts_and_nothing_goes_upstream(
    world: World,
) -> None:
    answer = httpx.get(world.url + "/v1/receipts/" + "a" * 32)
    assert answer.status_code == 501
    assert "audit mode is off" in answer.json()["error"]["message"]


def test_a_stop_sends_away_who_waits(
    upstream_url: str, world: World, signer: Signer
) -> None:
    with ThreadPoolExecutor() as pool, audited(upstream_url, world, signer) as host:
        waiting = pool.submit(host.ask, trace(1).hex(), "?wait=30s")
        host.ask(trace(2).hex(), "?wait=300ms")
        host.gateway.draining()
        assert waiting.result(5).status_code == 404
        assert host.ask(trace(1).hex(), "?wait=30s").status_code == 404


# ---- an answer that waits for its signature ------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_who_prefers_to_wait_gets_the_signature_of_the_record_that_is_named(
    host: Audited, stream: bool
) -> None:
    host.signer.go()
    for _ in range(2):  # a miss, then a hit
        answer = host.chat({**BODY, "stream": stream}, prefer="wait=20")
        assert answer.headers["preference-applied"] == "wait=20"
        place = answer.headers["x-cachemind-lsn"]
        partition, offset = map(int, place.split("@"))
        found = host.signer.index.of_source(Lsn(Partition(partition), Offset(offset)))
        assert found is not None
        value = base64.b64encode(
            decode_signed_receipt(found.record).signature.value
        ).decode()
        assert answer.headers["x-cachemind-signature"] == (
            f'keyid="{KEY_ID}", sig=:{value}:, partition={OURS}, seq={found.seq}'
        )
        assert "x-cachemind-unsigned" not in answer.headers


def test_after_the_time_the_answer_goes_without_and_says_so(host: Audited) -> None:
    began = time.monotonic()
    answer = host.chat(prefer="respond-slowly, wait=1")
    assert 1 <= time.monotonic() - began < 10
    assert answer.status_code == 200
    assert answer.headers["x-cachemind-unsigned"] == "timeout"
    assert "x-cachemind-signature" not in answer.headers
    assert "preference-applied" not in answer.headers


def test_who_does_not_ask_does_not_wait(host: Audited) -> None:
    answer = host.chat()
    assert answer.status_code == 200
    assert "x-cachemind-unsigned" not in answer.headers
    assert "x-cachemind-signature" not in answer.headers


def test_without_audit_mode_the_preference_is_passed_over(world: World) -> None:
    answer = httpx.post(world.url + CHAT, json=BODY, headers={"prefer": "wait=9"})
    assert answer.status_code == 200
    assert "x-cachemind-unsigned" not in answer.headers
    assert "preference-applied" not in answer.headers
