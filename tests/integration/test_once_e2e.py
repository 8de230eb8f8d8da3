"""A change under a key, while what answers and what folds are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, completion, served

pytestmark = [pytest.mark.broker, pytest.mark.slow]
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("data")
    with (
        served(ScriptedUpstream()) as url,
        serving(url, data, "--encoder", "off", "--workers", "2") as running,
    ):
        yield running


def ask(host: Serving, path: str, body: Any, key: str) -> dict[str, Any]:
    """Return the answer, once somebody gives one."""
    found: list[dict[str, Any]] = []

    def answered() -> bool:
        try:
            answer = httpx.post(
                f"{host.url}/v1/cachemind/{path}",
                json=body,
                headers={"Idempotency-Key": key},
                timeout=20,
            )
        except httpx.TransportError:
            return False
        if answer.status_code != 503:
            found.append(answer.raise_for_status().json())
        return bool(found)

    eventually(answered, 60)
    return found[0]


def entry(host: Serving, key: str) -> Any:
    return host.get(f"/v1/cachemind/entries/{key}")


def test_whatever_is_killed_it_is_done_once(host: Serving) -> None:
    put = {"request": CHAT, "response": completion(CHAT)}
    first = ask(host, "entries", put, "put-1")
    judged = {"key": first["key"], "trace_id": "cd" * 16, "verdict": "wrong"}
    told = ask(host, "feedback", judged, "judge-1")
    for role in ("gateway-worker", "materializer", "broker"):
        for pid in host.pids_of(role):
            os.kill(pid, signal.SIGKILL)
        assert ask(host, "feedback", judged, "judge-1") == told
        assert ask(host, "entries", put, "put-1") == first
    assert entry(host, first["key"])["wrong"] == 1
    ask(host, "feedback", judged, "judge-2")
    assert entry(host, first["key"])["wrong"] == 2
    # A store that is made from the log alone knows the same.
    rebuilt = run_cli("doctor", "--rebuild", "--data-dir", str(host.data_dir))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
