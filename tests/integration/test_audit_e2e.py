"""Audit mode as application, operator and auditor see it, on the real Kafka."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from cachemind.client import CacheMind, Kafka, NotAllowed
from tests.freezing import freeze
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, served

pytestmark = [pytest.mark.broker, pytest.mark.slow]
TRACE = "x-cachemind-trace"


@dataclass(frozen=True)
class AuditHost:
    serving: Serving
    log_dir: Path
    upstream: str

    @property
    def url(self) -> str:
        return self.serving.url

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=self.url + "/v1", api_key="sk-audit", max_retries=0)

    def receipts(self, trace: str) -> dict[str, Any]:
        """Return the answer about a trace, once there is one."""
        answer = httpx.get(f"{self.url}/v1/receipts/{trace}?wait=20s", timeout=40)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditHost]:
    data, log_dir = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("audit")
    flags = ("--audit-mode", "--log-dir", str(log_dir), "--encoder", "off")
    with (
        served(ScriptedUpstream()) as upstream,
        serving(upstream, data, *flags) as running,
    ):
        yield AuditHost(running, log_dir, upstream)


def asked(host: AuditHost, question: str, **more: Any) -> Any:
    """Return the raw answer of the real client."""
    return host.client.chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": question}], **more
    )


def test_an_answer_has_receipts_that_verify_offline(
    host: AuditHost, tmp_path: Path
) -> None:
    for outcome in ("miss", "hit_exact"):
        answer = asked(host, "Why is the sky blue?")
        assert answer.headers["x-cachemind-outcome"] == outcome
        found = host.receipts(answer.headers[TRACE])
        kinds = [one["receipt"]["kind"] for one in found["receipts"]]
        assert kinds[0] == "reads"
        item = found["receipts"][0]["receipt"]["items"][0]
        assert item["outcome"] == outcome
        assert item["prompt_hash"] == answer.headers["x-cachemind-prompt-hash"]
        saved, keys = tmp_path / "evidence.json", tmp_path / "keys.json"
        saved.write_text(json.dumps(found))
        keys.write_bytes((host.log_dir / "keys.json").read_bytes())
        shown = run_cli(
            "audit", "show", "--evidence", str(saved), "--keys", str(keys), "--json"
        )
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["outcome"] == "ok"


def test_who_asks_over_kafka_alone_is_given_the_same_receipts(
    host: AuditHost, tmp_path: Path
) -> None:
    question = [{"role": "user", "content": "Why is coal black?"}]
    with CacheMind(f"kafka://{_bootstrap(host)}", namespace="default") as cache:
        answer = cache.complete("m", question)
        found = cache.receipt(answer.trace_id, wait_s=30)
        assert found is not None
    assert found.document == host.receipts(answer.trace_id)
    saved = tmp_path / "evidence.json"
    saved.write_text(json.dumps(found.document))
    keys = str(host.log_dir / "keys.json")
    shown = run_cli("audit", "show", "--evidence", str(saved), "--keys", keys)
    assert shown.returncode == 0, shown.stderr


def test_receipts_are_shown_over_kafka_to_who_may_see_the_namespaces(
    host: AuditHost,
) -> None:
    answer = asked(host, "Why is chalk white?")
    shown = host.receipts(answer.headers[TRACE])
    servers = _bootstrap(host)
    found = {}
    for namespace in ("default", "def", "default.x"):
        words = ("--namespace", namespace, "--role", "auditor")
        made = run_cli("grants", "create", *words, "--bootstrap-servers", servers)
        assert made.returncode == 0, made.stderr
        grant = Kafka(role="auditor")
        with CacheMind(f"kafka://{servers}", namespace=namespace, kafka=grant) as cache:
            found[namespace] = cache.receipt(answer.headers[TRACE], timeout_s=60)
            with pytest.raises(NotAllowed, match="look_up"):
                cache.lookup("m", [{"role": "user", "content": "Why is chalk white?"}])
    assert found["default"] is not None
    assert found["default"].document == shown
    assert (found["def"], found["default.x"]) == (None, None)


def test_changed_evidence_is_told_from_sound_evidence(
    host: AuditHost, tmp_path: Path
) -> None:
    answer = asked(host, "Why is the grass green?")
    found = host.receipts(answer.headers[TRACE])
    path = found["receipts"][0]["cut"]["inclusion"]["path"]
    path[0] = path[0][::-1]
    saved = tmp_path / "evidence.json"
    saved.write_text(json.dumps(found))
    keys = str(host.log_dir / "keys.json")
    shown = run_cli("audit", "show", "--evidence", str(saved), "--keys", keys)
    assert shown.returncode == 1
    assert "checkpoint-root" in shown.stdout
    assert "TAMPERED" in shown.stdout


def test_show_asks_the_gateway_by_trace(host: AuditHost) -> None:
    trace = asked(host, "Why is snow white?").headers[TRACE]
    shown = run_cli(
        "audit", "show", trace, "--url", host.url, "--log-dir", str(host.log_dir)
    )
    assert shown.returncode == 0, shown.stderr
    assert "miss" in shown.stdout
    assert shown.stdout.splitlines()[-1].startswith("OK: ")


@pytest.mark.parametrize("stream", [False, True])
def test_who_prefers_to_wait_gets_a_signature(host: AuditHost, stream: bool) -> None:
    for outcome in ("miss", "hit_exact"):
        answer = asked(
            host,
            f"Does it stream? {stream}",
            stream=stream,
            extra_headers={"prefer": "wait=20"},
        )
        assert answer.headers["x-cachemind-outcome"] == outcome
        assert answer.headers["preference-applied"] == "wait=20"
        assert answer.headers["x-cachemind-signature"].startswith('keyid="')
        if stream:
            parts = [chunk for chunk in answer.parse() if chunk.choices]
            assert len(parts) > 1
        found = host.receipts(answer.headers[TRACE])
        signed = [
            f'keyid="{one["signature"]["key_id"]}", sig=:{one["signature"]["value"]}:, '
            f"partition={one['partition']}, seq={one['seq']}"
            for one in found["receipts"]
        ]
        assert answer.headers["x-cachemind-signature"] in signed


def test_a_path_of_another_kind_has_a_receipt_too(host: AuditHost) -> None:
    answer = httpx.get(host.url + "/v1/models")
    [found] = host.receipts(answer.headers[TRACE])["receipts"]
    assert found["receipt"]["items"][0]["outcome"] == "bypass"


def test_another_namespace_gets_404(host: AuditHost, tmp_path: Path) -> None:
    trace = asked(host, "Whose is it?").headers[TRACE]
    host.receipts(trace)
    flags = ("--encoder", "off", "--namespace", "other", "--audit-mode")
    kafka = _bootstrap(host)
    log_dir = tmp_path / "audit"
    shutil.copytree(host.log_dir / "keys", log_dir / "keys")
    shutil.copy(host.log_dir / "keys.json", log_dir)
    with serving(
        host.upstream,
        tmp_path / "data",
        *flags,
        "--log-dir",
        str(log_dir),
        "--bootstrap-servers",
        kafka,
    ) as other:
        own = httpx.get(other.url + "/v1/models").headers[TRACE]
        asked_s = "?wait=20s"
        mine = httpx.get(f"{other.url}/v1/receipts/{own}{asked_s}", timeout=40)
        assert mine.status_code == 200
        theirs = httpx.get(f"{other.url}/v1/receipts/{trace}?wait=1s")
        assert theirs.status_code == 404


def _bootstrap(host: AuditHost) -> str:
    status = run_cli(
        "broker",
        "status",
        "--data-dir",
        str(host.serving.data_dir / "broker"),
        "--json",
    )
    found: str = json.loads(status.stdout)["bootstrap_servers"]
    return found


def test_nothing_unlogged_is_served_while_kafka_is_away(tmp_path: Path) -> None:
    flags = ("--audit-mode", "--log-dir", str(tmp_path / "audit"), "--encoder", "off")
    with (
        served(ScriptedUpstream()) as upstream,
        serving(upstream, tmp_path / "data", *flags) as running,
    ):
        host = AuditHost(running, tmp_path / "audit", upstream)
        assert asked(host, "Is it there?").headers["x-cachemind-outcome"] == "miss"
        broker = running.pid_of("broker")
        freeze(broker)
        running.kill_kafka(broker)
        try:
            for _ in range(3):
                chat = httpx.post(
                    host.url + "/v1/chat/completions",
                    json={
                        "model": "m",
                        "messages": [{"role": "user", "content": "Is it there?"}],
                    },
                    timeout=30,
                )
                assert chat.status_code == 503
                assert chat.json()["error"]["code"] == "wal_unavailable"
            assert httpx.get(host.url + "/v1/models", timeout=30).status_code == 503
        finally:
            os.kill(broker, signal.SIGCONT)
        eventually(lambda: httpx.get(host.url + "/v1/models").status_code == 200, 60)
        began = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - began < 10


def test_the_topics_are_exported_as_text_and_a_witness_signs_what_it_saw(
    host: AuditHost, tmp_path: Path
) -> None:
    host.receipts(asked(host, "What is on the topics?").headers[TRACE])
    kafka = ("--bootstrap-servers", _bootstrap(host))
    out, keys = tmp_path / "dump.jsonl", tmp_path / "keys.json"
    done = run_cli("audit", "export", "--with-wal", "--out", str(out), *kafka)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    counts = Counter(line["topic"] for line in lines)
    assert counts["cachemind.audit"] > 0
    # Receipts may be a moment behind, never ahead.
    assert counts["cachemind.audit"] <= counts["cachemind.wal"]
    assert counts["cachemind.audit.cuts"] > 2
    assert all(base64.b64decode(line["value"]) for line in lines)

    files = ("--witness-key", str(tmp_path / "w.pem"), "--name", "w.example/w1")
    made = run_cli("audit", "witness", "init", *files)
    pinned = json.loads((host.log_dir / "keys.json").read_text())
    keys.write_text(json.dumps({**pinned, "witnesses": [json.loads(made.stdout)]}))
    memory = ("--memory", str(tmp_path / "seen"), "--keys", str(keys))
    for _ in range(2):
        note = tmp_path / "cut.txt"
        done = run_cli(
            "audit", "witness", "cosign", *files, *memory, *kafka, "--out", str(note)
        )
        assert done.returncode == 0, done.stderr
        checked = run_cli("audit", "witness", "check", str(note), "--keys", str(keys))
        assert checked.returncode == 0, checked.stderr
        assert checked.stdout.startswith("w.example/w1  ")
    unpinned = str(host.log_dir / "keys.json")
    refused = run_cli("audit", "witness", "check", str(note), "--keys", unpinned)
    assert refused.returncode == 1


def test_whatever_is_killed_every_answer_gets_its_receipt(host: AuditHost) -> None:
    for role in ("receipts", "signer"):
        traces = [asked(host, f"Before {role} dies?").headers[TRACE]]
        host.serving.kill(role)
        traces += [asked(host, f"While {role} is away?").headers[TRACE]]
        eventually(lambda name=role: host.serving.runs(name))  # type: ignore[misc]  # mypy infers no type for a default
        traces += [asked(host, f"And after {role} is back?").headers[TRACE]]
        for trace in traces:
            found = _eventually_found(host, trace)
            assert found["receipts"][0]["receipt"]["items"][0]["trace_id"] == trace


def _eventually_found(host: AuditHost, trace: str) -> dict[str, Any]:
    """Return the receipts, also where the index was away for a moment."""
    deadline = time.monotonic() + 60
    while True:
        answer = httpx.get(f"{host.url}/v1/receipts/{trace}?wait=20s", timeout=40)
        if answer.status_code == 200 or time.monotonic() > deadline:
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
            return found


def test_a_sealed_copy_of_the_receipts_is_kept_here(host: AuditHost) -> None:
    host.receipts(asked(host, "Is it sealed?").headers[TRACE])
    where = ("--log-dir", str(host.log_dir))

    def outcome() -> str:
        found = json.loads(run_cli("audit", "sealed", "check", *where, "--json").stdout)
        assert sum(one["records"] for one in found["files"]) > 0
        said: str = found["outcome"]
        return said

    # A record that is being written is not whole yet.
    eventually(lambda: outcome() == "ok")
    before = _keys(host.log_dir)
    assert run_cli("audit", "sealed", "rotate", *where).returncode == 0
    host.receipts(asked(host, "And under a new key?").headers[TRACE])
    eventually(lambda: outcome() == "ok")
    assert len(_keys(host.log_dir)) == len(before) + 1


def _keys(log_dir: Path) -> list[Path]:
    return list((log_dir / "keys").glob("seal-*.key"))


def test_an_auditor_comes_to_a_verdict_from_a_dump_and_the_pinned_keys(
    host: AuditHost, tmp_path: Path
) -> None:
    host.receipts(asked(host, "What will the auditor say?").headers[TRACE])
    kafka = ("--bootstrap-servers", _bootstrap(host))
    keys = ("--keys", str(host.log_dir / "keys.json"))
    live = run_cli("audit", "verify", *keys, *kafka, "--against-wal")
    assert live.returncode == 0, live.stdout + live.stderr

    dump = tmp_path / "dump.jsonl"
    assert run_cli("audit", "export", "--out", str(dump), *kafka).returncode == 0
    sound = run_cli("audit", "verify", "--files", str(dump), *keys)
    assert sound.returncode == 0, sound.stdout + sound.stderr

    files = tmp_path / "files"
    for _ in range(2):  # the second goes on where the first ended
        done = run_cli("audit", "export", "--avro", str(files), *kafka)
        assert done.returncode == 0, done.stderr
    sealed = run_cli("audit", "verify", "--files", str(files), *keys)
    assert sealed.returncode == 0, sealed.stdout + sealed.stderr

    lines = dump.read_text().splitlines(keepends=True)
    receipts = [at for at, line in enumerate(lines) if '"cachemind.audit"' in line]
    dump.write_text("".join(lines[: receipts[1]] + lines[receipts[1] + 1 :]))
    missing = run_cli("audit", "verify", "--files", str(dump), *keys, "--json")
    assert missing.returncode == 1
    assert json.loads(missing.stdout)["outcome"] == "tampered"
