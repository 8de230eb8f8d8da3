"""AWS KMS for the tests: moto's server, and a front of it that is slow or away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import urlsplit

import botocore.session  # type: ignore[import-untyped] # it brings no types
import pytest
from moto.server import ThreadedMotoServer

REGION = "eu-central-1"
FORWARD_S = 30.0


def set_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what AWS's tools ask for before they ask a server."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@contextmanager
def moto_kms() -> Iterator[str]:
    """Run moto's server; yield its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    # It writes a line for each request otherwise.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def new_key(kms: str, spec: str, usage: str) -> str:
    """Make a key of a kind for a use; return its ARN."""
    client = botocore.session.get_session().create_client(
        "kms", region_name=REGION, endpoint_url=kms
    )
    made = client.create_key(KeySpec=spec, KeyUsage=usage)
    client.close()
    arn: str = made["KeyMetadata"]["Arn"]
    return arn


class KmsFront(ThreadingHTTPServer):
    """Passes requests on to a KMS after `delay_s`; hangs up while `away` is set."""

    daemon_threads = True

    def __init__(self, kms: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        parts = urlsplit(kms)
        self.behind = (parts.hostname or "", parts.port)
        self.delay_s = 0.0
        self.away = Event()
        self.turned_away = 0
        self.closing = Event()

    @property
    def url(self) -> str:
        """Return where it listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


class _Handler(BaseHTTPRequestHandler):
    server: KmsFront

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.away.is_set():
            self.server.turned_away += 1
            return
        self.server.closing.wait(self.server.delay_s)
        connection = HTTPConnection(*self.server.behind, timeout=FORWARD_S)
        connection.request("POST", self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name
        """Keep the test's output clean."""


@contextmanager
def fronted_kms() -> Iterator[KmsFront]:
    """Run moto's server with a front before it."""
    with moto_kms() as kms, KmsFront(kms) as front:
        thread = Thread(target=front.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield front
        finally:
            front.closing.set()
            front.shutdown()
            thread.join()
