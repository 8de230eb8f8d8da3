"""A served namespace with a history, and what a user does to it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from cachemind.core.partitioner import partition_of
from cachemind.types import Namespace
from tests.bench.running import wait_for
from tests.integration.serving import Serving, eventually, run_cli

CHAT = "/v1/chat/completions"
PARTITIONS = 4
NAMESPACE = Namespace("default")


def neighbour() -> Namespace:
    """Return another namespace whose events are in the same partition."""
    home = partition_of(NAMESPACE.encode(), PARTITIONS)
    names = (Namespace(f"other-{number}") for number in range(100))
    return next(n for n in names if partition_of(n.encode(), PARTITIONS) == home)


@dataclass
class Shop:
    """One gateway URL and what it is asked."""

    url: str
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def __enter__(self) -> Shop:
        return self

    def __exit__(self, *raised: object) -> None:
        self.client.close()

    def put(self, question: str, answer: str) -> str:
        """Store an answer by hand; return its key."""
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        completion = {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
        body = {"request": asked(question), "response": completion}
        done = self.client.post(self.url + "/v1/cachemind/entries", json=body)
        assert done.status_code == 201, done.text
        key: str = done.json()["key"]
        return key

    def ask(self, question: str) -> tuple[str, str]:
        """Return (outcome, answer) of a question, on a connection of its own."""
        headers = {"connection": "close"}
        answer = self.client.post(
            self.url + CHAT, json=asked(question), headers=headers
        )
        assert answer.status_code == 200, answer.text
        content: str = answer.json()["choices"][0]["message"]["content"]
        return answer.headers["x-cachemind-outcome"], content

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(self.url + "/v1/cachemind/stats").json()
        return found

    def settle(self, version: int) -> None:
        """Return once the gateway shows `version`."""
        eventually(lambda: self.stats()["version"] == version, 60)

    def rollback(self, **query: Any) -> httpx.Response:
        return self.client.post(self.url + "/v1/rollback", params=query)

    def digest(self, version: int) -> str:
        """Return the digest that history recorded for a version."""
        rows = self.client.get(
            self.url + "/v1/versions", params={"first": version, "last": version}
        ).json()["versions"]
        digest: str = rows[0]["digest"]
        return digest

    def head(self) -> int:
        found: int = self.client.get(self.url + "/v1/versions").json()["head"]
        return found


def asked(question: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": question}]}


def cli(host: Serving, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command against the host's gateway."""
    return run_cli(*words, "--url", host.url)


@contextmanager
def second_gateway(
    host: Serving, upstream: str, namespace: Namespace
) -> Iterator[Shop]:
    """Serve another namespace from the same data folder and log: a lone worker."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        argv = [sys.executable, "-m", "cachemind_services.cli.main", "gateway-worker"]
        argv += [f"--fd={listener.fileno()}", "--number=7", "--encoder=off"]
        argv += [f"--upstream={upstream}", f"--namespace={namespace}"]
        argv += [f"--data-dir={host.data_dir}"]
        process = subprocess.Popen(argv, pass_fds=[listener.fileno()])
        try:
            wait_for(url + "/readyz", 60)
            with Shop(url) as shop:
                yield shop
        finally:
            process.terminate()
            process.wait(20)


@dataclass
class Answered:
    """One answer that a reader got, and when it had asked and got it."""

    asked_s: float
    took_s: float
    outcome: str
    content: str


class Readers:
    """Threads that ask the same questions all the time."""

    def __init__(self, shop: Shop, questions: Sequence[str], threads: int) -> None:
        self._shop = shop
        self._questions = questions
        self._stop = threading.Event()
        self.answers: list[Answered] = []
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(number,))
            for number in range(threads)
        ]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def after(self, moment_s: float) -> list[Answered]:
        """Return the answers to what was asked after a moment."""
        return [answer for answer in self.answers if answer.asked_s > moment_s]

    def _read(self, number: int) -> None:
        while not self._stop.is_set():
            question = self._questions[number % len(self._questions)]
            number += 1
            began = time.monotonic()
            try:
                outcome, content = self._shop.ask(question)
            except (httpx.HTTPError, AssertionError) as error:
                self.errors.append(str(error))
                continue
            took = time.monotonic() - began
            self.answers.append(Answered(began, took, outcome, content))
