"""`cachemind serve` as an application developer meets it: real Kafka, real client."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.freezing import freeze
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import (
    Gate,
    ScriptedUpstream,
    completion,
    fails,
    served,
    sse,
    streams,
    wait_until,
)

pytestmark = [pytest.mark.broker, pytest.mark.model]

QUESTION = "What is the capital of France?"
PARAPHRASE = "What's the capital city of France?"


@pytest.fixture(scope="module")
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture(scope="module")
def host(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("serve")
    uds = folder / "gateway.sock"
    with (
        served(upstream) as url,
        serving(url, folder / "data", "--uds", str(uds), "--workers", "2") as running,
    ):
        yield running


@pytest.fixture
def client(host: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{host.url}/v1", api_key="sk-a", max_retries=0
    ) as ours:
        yield ours


def asked(system: str, prompt: str = QUESTION, **more: Any) -> dict[str, Any]:
    """Return a request in a context of its own, so that tests share one server."""
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": prompt},
    ]
    return {"model": "m", "temperature": 0.2, "messages": messages, **more}


def ask(client: openai.OpenAI, body: dict[str, Any]) -> tuple[Any, Any]:
    raw = client.chat.completions.with_raw_response.create(**body)
    return raw.headers, raw.parse()


def outcome(client: openai.OpenAI, body: dict[str, Any]) -> str:
    found: str = ask(client, body)[0]["x-cachemind-outcome"]
    return found


def tail(host: Serving) -> list[dict[str, Any]]:
    done = run_cli(
        "tail",
        "--json",
        "--no-follow",
        "--from-beginning",
        f"--data-dir={host.data_dir}",
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refusals(host: Serving) -> set[tuple[str, int]]:
    return {
        (event["body"]["reason"], event["body"]["upstream_status"])
        for event in tail(host)
        if event["kind"] == "Refused"
    }


def stored(host: Serving) -> int:
    return sum(event["kind"] == "Stored" for event in tail(host))


def test_miss_then_exact_hit_in_json_and_stream(
    client: openai.OpenAI, host: Serving, upstream: ScriptedUpstream
) -> None:
    body = asked("json and stream")
    before = len(upstream.chats)
    miss, first = ask(client, body)
    hit, second = ask(client, body)
    assert miss["x-cachemind-outcome"] == "miss"
    assert hit["x-cachemind-outcome"] == "hit_exact"
    assert second.model_dump() == first.model_dump()
    raw = client.chat.completions.with_raw_response.create(
        **body, stream=True, stream_options={"include_usage": True}
    )
    assert raw.headers["x-cachemind-outcome"] == "hit_exact"
    parts = list(raw.parse())
    text = "".join(c.delta.content or "" for part in parts for c in part.choices)
    assert text == first.choices[0].message.content
    assert parts[-1].usage == first.usage
    assert len(upstream.chats) == before + 1
    eventually(lambda: int(ask(client, body)[0]["x-cachemind-version"]) >= 1)
    partition, _, offset = hit["x-cachemind-lsn"].partition("@")
    assert int(offset) > int(miss["x-cachemind-lsn"].partition("@")[2]), partition


def test_a_paraphrase_hits_by_meaning_and_a_trap_does_not(
    client: openai.OpenAI,
) -> None:
    assert outcome(client, asked("meaning")) == "miss"
    headers, _ = ask(client, asked("meaning", PARAPHRASE))
    assert headers["x-cachemind-outcome"] == "hit_semantic"
    assert 0.92 <= float(headers["x-cachemind-similarity"]) < 1
    first = "How do I return an item within 30 days of purchase?"
    trap = "How do I return an item within 60 days of purchase?"
    assert outcome(client, asked("meaning", first)) == "miss"
    assert outcome(client, asked("meaning", trap)) == "miss"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"temperature": 0.21}, id="temperature-0.21"),
        pytest.param({"temperature": 0.2049}, id="temperature-0.2049"),
        pytest.param({"model": "other"}, id="model"),
        pytest.param(
            {"tools": [{"type": "function", "function": {"name": "f"}}]}, id="tools"
        ),
        pytest.param(asked("another system prompt"), id="system-prompt"),
        pytest.param(
            {
                "messages": [
                    {"role": "system", "content": "contexts"},
                    {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": "Hi"},
                    {"role": "user", "content": QUESTION},
                ]
            },
            id="earlier-turn",
        ),
    ],
)
def test_another_context_is_no_hit(
    client: openai.OpenAI, changed: dict[str, Any]
) -> None:
    ask(client, asked("contexts"))
    assert outcome(client, asked("contexts")) == "hit_exact"
    assert outcome(client, {**asked("contexts"), **changed}) == "miss"


def test_fifty_identical_misses_make_one_upstream_call_over_two_workers(
    host: Serving, upstream: ScriptedUpstream
) -> None:
    before = len(upstream.chats)
    gate = Gate()
    upstream.behaviour = gate
    body = asked("fifty at once")
    try:
        with ThreadPoolExecutor(50) as threads:
            waiting = [
                threads.submit(
                    httpx.post, host.url + "/v1/chat/completions", json=body, timeout=60
                )
                for _ in range(50)
            ]
            assert gate.arrived.acquire(timeout=20)
            time.sleep(1.0)  # the others arrive; none of them may reach upstream
            gate.open()
            found = {each.result().content for each in waiting}
    finally:
        upstream.behaviour = ScriptedUpstream().behaviour
    assert len(upstream.chats) == before + 1
    parsed = [json.loads(content) for content in found]
    assert all(each == parsed[0] for each in parsed)


def test_a_failing_upstream_stores_nothing_and_the_log_says_so(
    host: Serving, client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    before = stored(host)
    frames = sse(completion({**asked("cut")}), include_usage=True)[:4]
    try:
        upstream.behaviour = fails(500)
        with pytest.raises(openai.InternalServerError):
            ask(client, asked("five hundred"))
        upstream.behaviour = streams(frames, cut=True)
        broken = client.chat.completions.create(**asked("cut"), stream=True)
        with pytest.raises((openai.APIError, httpx.RemoteProtocolError)):
            list(broken)
        gate = Gate()
        upstream.behaviour = gate
        upstream.hung_up.clear()
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.5).chat.completions.create(**asked("hang up"))
        wait_until(upstream.hung_up.is_set)
    finally:
        upstream.behaviour = ScriptedUpstream().behaviour
    expected = {("upstream-status", 500), ("stream-cut", 200), ("client-gone", 0)}
    eventually(lambda: expected <= refusals(host))
    assert stored(host) == before
    for context in ("five hundred", "cut", "hang up"):
        assert outcome(client, asked(context)) == "miss"


def test_the_unix_socket_serves_the_same_cache(
    host: Serving, client: openai.OpenAI
) -> None:
    body = asked("unix socket")
    ask(client, body)
    transport = httpx.HTTPTransport(uds=str(host.data_dir.parent / "gateway.sock"))
    with httpx.Client(transport=transport, base_url="http://local") as local:
        answer = local.post(
            "/v1/chat/completions", json=body, headers={"authorization": "Bearer sk-a"}
        )
    assert answer.headers["x-cachemind-outcome"] == "hit_exact"


def test_one_command_stores_looks_up_and_invalidates(host: Serving) -> None:
    url = ("--url", host.url)
    put = run_cli("put", "by hand", "--model=m", "--answer=kept", "--tag=t", *url)
    assert put.returncode == 0, put.stderr
    assert put.stdout.startswith("stored for 86400 s at key ")
    got = run_cli("get", "by hand", "--model=m", *url)
    assert (got.returncode, got.stdout) == (0, "kept\n")
    gone = run_cli("invalidate", "--tag=t", "--reason=test", *url)
    assert gone.stdout.startswith("invalidated 1 entry (LSN ")
    none = run_cli("invalidate", "--tag=t", *url)
    assert none.stdout.startswith("no entry matched: nothing was invalidated (LSN ")
    told = json.loads(run_cli("invalidate", "--tag=t", "--json", *url).stdout)
    assert (told["folded"], told["removed"]) == (True, 0)
    assert run_cli("get", "by hand", "--model=m", *url).returncode == 1
    counted = json.loads(run_cli("stats", "--json", *url).stdout)
    assert counted["counts"]["invalidated"] >= 1
    wrong = run_cli("invalidate", "--key=xyz", *url)
    assert wrong.returncode == 1
    assert "value" in wrong.stderr


def test_doctor_rebuilds_the_state_from_the_log_alone(host: Serving) -> None:
    done = run_cli("doctor", "--rebuild", "--json", f"--data-dir={host.data_dir}")
    findings = json.loads(done.stdout)
    assert done.returncode == 0, findings
    assert all(finding["ok"] for finding in findings)
    assert any(finding["check"] == "rebuild of default" for finding in findings)


def test_no_prompt_or_answer_is_in_metrics_or_plain_tail(
    host: Serving, client: openai.OpenAI
) -> None:
    outcome(client, asked("tail"))
    text = httpx.get(host.url + "/metrics").text
    assert 'cachemind_requests_total{outcome="hit_exact"}' in text
    assert "cachemind_fold_lag_records" in text
    follow = ("tail", "--no-follow", "--from-beginning", f"--data-dir={host.data_dir}")
    shown = run_cli(*follow).stdout
    mine = run_cli(*follow, "--namespace", "default").stdout
    assert mine
    assert mine in shown
    assert run_cli(*follow, "--namespace", "other").stdout == ""
    for secret in ("France", "sk-a", "long enough to be streamed"):
        assert secret not in text
        assert secret not in shown


def test_with_kafka_stopped_it_answers_from_upstream_and_says_so(
    host: Serving, client: openai.OpenAI
) -> None:
    body = asked("outage")
    assert outcome(client, body) == "miss"
    assert outcome(client, body) == "hit_exact"
    broker = host.pid_of("broker")
    freeze(broker)  # the supervisor must not bring it back at once
    host.kill_kafka(broker)
    try:
        headers, answer = ask(client, body)
        assert headers["x-cachemind-outcome"] == "bypass"
        assert "fwd=bypass" in headers["cache-status"]
        assert answer.choices[0].message.content
    finally:
        os.kill(broker, signal.SIGCONT)
    eventually(lambda: outcome(client, body) == "hit_exact", 60)
    host.wait_ready()


def test_a_clean_stop_leaves_no_process_and_a_warm_start_is_quick(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    with served(upstream) as url:
        with serving(url, tmp_path, "--encoder", "off") as first:
            children = first.descendants()
            began = time.monotonic()
            assert first.stop() == 0
            assert time.monotonic() - began < 10
            eventually(
                lambda: not any(Path(f"/proc/{p}").exists() for p in children), 2
            )
        with serving(url, tmp_path, "--encoder", "off") as second:
            assert second.process.poll() is None
            assert second.started_s < 30
            children = second.descendants()
            second.process.kill()
            second.process.wait()
            eventually(
                lambda: not any(Path(f"/proc/{p}").exists() for p in children), 15
            )
