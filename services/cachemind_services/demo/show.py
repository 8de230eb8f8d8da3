"""The demonstration: real model, real Kafka, real client, a real kill -9."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from cachemind.errors import CacheError
from cachemind.types import Lsn
from cachemind_services.demo.chat_weights import MODEL_NAME
from cachemind_services.demo.drive import drive, render
from cachemind_services.demo.processes import (
    find_child,
    kill_child,
    running,
    until,
    wait_for,
)
from cachemind_services.sockets import bind_tcp

MODEL_READY_S: Final = 300.0
SERVE_READY_S: Final = 300.0
"""Both fetch or convert something the first time."""

RESTART_S: Final = 30.0
WATCH_S: Final = 0.5
WRITES: Final = 600
KILL_AFTER: Final = 200
DOCTOR_S: Final = 120.0


def show(*, stop_after: bool) -> int:
    """Run the demonstration; return 0 where all of it was as it should be."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as opened:
        folder = Path(
            opened.enter_context(tempfile.TemporaryDirectory(prefix="cachemind-demo-"))
        )
        upstream, gateway = _start(folder, opened)
        _say(f"ready after {time.monotonic() - began:.0f} s\n")
        rows = drive(gateway.url)
        print(render(rows))
        gateway.settle(rows[-1].lsn)
        right = crash(gateway)
        right = gateway.doctor() and right
        _say(f"\nshown in {time.monotonic() - began:.0f} s")
        if not stop_after:
            try:
                _stay(upstream, gateway)
            except KeyboardInterrupt:
                _say("stopping")
    return 0 if right else 1


class _Gateway:
    """A `cachemind serve` of the demonstration."""

    def __init__(
        self, url: str, folder: Path, process: subprocess.Popen[bytes]
    ) -> None:
        self.url = url
        self.folder = folder
        self.pid = process.pid
        self._process = process

    def alive(self) -> bool:
        """Return whether it still runs."""
        return self._process.poll() is None

    def put(self, number: int) -> dict[str, Any]:
        """Store one answer and return where it is on the log."""
        message = {"role": "assistant", "content": f"Answer number {number}."}
        body = {
            "request": {
                "model": "demo-put",
                "messages": [{"role": "user", "content": f"Question number {number}?"}],
            },
            "response": {
                "id": f"demo-{number}",
                "object": "chat.completion",
                "created": 0,
                "model": "demo-put",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            },
        }
        request = urllib.request.Request(  # noqa: S310  # loopback
            self.url + "/v1/cachemind/entries",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def entries(self) -> int:
        """Return how many entries the folded state has."""
        count: int = self._stats()["entries"]
        return count

    def settle(self, lsn: str) -> None:
        """Return once everything up to `lsn` is folded. Raises: `CacheError`."""
        wanted = Lsn.parse(lsn)
        until(
            lambda: Lsn.parse(self._stats()["applied"]) >= wanted,
            f"{lsn} was not folded in time",
            RESTART_S,
        )

    def _stats(self) -> dict[str, Any]:
        url = self.url + "/v1/cachemind/stats"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def doctor(self) -> bool:
        """Rebuild a second store from the log alone; return whether both agree."""
        _say("Rebuilding a second store from the log alone:")
        argv = ["doctor", "--rebuild", "--data-dir", str(self.folder / "data")]
        report = self.folder / "doctor.txt"
        with running(report, argv) as process:
            try:
                code = process.wait(DOCTOR_S)
            except TimeoutError as error:
                raise CacheError("the rebuild took too long") from error
        lines = report.read_text().replace("\r", "\n").splitlines()
        print("\n".join(line for line in lines if line.startswith(("ok", "FAILED"))))
        return code == 0


def crash(gateway: _Gateway) -> bool:
    """Kill the materializer in the middle of writes; return whether all are there."""
    before = gateway.entries()
    acknowledged: list[str] = []
    writer = threading.Thread(
        target=lambda: acknowledged.extend(
            gateway.put(number)["lsn"] for number in range(WRITES)
        )
    )
    writer.start()
    until(lambda: len(acknowledged) > KILL_AFTER or not writer.is_alive(), "", 60)
    killed = kill_child(gateway.pid, "materializer")
    writer.join()
    _say(f"\nkill -9 of the materializer (process {killed}) in the middle of writes")
    until(
        lambda: find_child(gateway.pid, "materializer") is not None,
        "the materializer did not come back",
        RESTART_S,
    )
    gateway.settle(acknowledged[-1])
    found = gateway.entries() - before
    _say(
        f"{len(acknowledged)} writes acknowledged, {found} of them in the state "
        f"beside the {before} from above; last LSN {acknowledged[-1]}"
    )
    return found == len(acknowledged) == WRITES


def _start(folder: Path, opened: ExitStack) -> tuple[str, _Gateway]:
    upstream_port, port = _free_port(), _free_port()
    upstream = f"http://127.0.0.1:{upstream_port}"
    url = f"http://127.0.0.1:{port}"
    _say("Starting the demo upstream (SmolLM2-135M-Instruct) ...")
    upstream_log, serve_log = folder / "upstream.log", folder / "serve.log"
    model = opened.enter_context(
        running(upstream_log, ["demo-upstream", "--port", str(upstream_port)])
    )
    _say(
        "Starting Apache Kafka, materializer and gateway ... (the first time fetches "
        "54 MB and exports the encoder, about a minute)"
    )
    argv = ["serve", "--upstream", upstream, "--port", str(port)]
    argv += ["--data-dir", str(folder / "data")]
    serve = opened.enter_context(running(serve_log, argv))
    wait_for(url + "/readyz", serve, serve_log, SERVE_READY_S)
    wait_for(upstream + "/v1/models", model, upstream_log, MODEL_READY_S)
    return upstream, _Gateway(url, folder, serve)


def _stay(upstream: str, gateway: _Gateway) -> None:
    _say(
        f"\nIt goes on running until Ctrl-C:\n"
        f"  gateway        {gateway.url}/v1\n"
        f"  demo upstream  {upstream}/v1\n"
        f"  metrics        {gateway.url}/metrics\n"
        f"Try it:\n"
        f"  curl -i {gateway.url}/v1/chat/completions -H 'content-type: "
        f"application/json' -d '{json.dumps(_EXAMPLE)}'"
    )
    while gateway.alive():
        time.sleep(WATCH_S)
    _say("the gateway has ended; stopping")


_EXAMPLE: Final = {
    "model": MODEL_NAME,
    "temperature": 0,
    "max_tokens": 40,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
}


def _free_port() -> int:
    with closing(bind_tcp("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _say(text: str) -> None:
    print(text, flush=True)
