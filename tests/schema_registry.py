"""A small schema registry that follows the documented REST interface.

For tests: what the Confluent client asks of a registry, its failures, and the
compatibility that it demands, judged by Apache avro's own checker.
Source: Confluent Schema Registry API reference ("Subjects", "Schemas", "Config",
"Errors") and "Schema Evolution and Compatibility".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import unquote

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityType,
)
from avro.errors import AvroException
from avro.schema import parse as apache_parse

BACKWARD, FORWARD = "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE"
FULL, NONE = "FULL_TRANSITIVE", "NONE"


class Registry(ThreadingHTTPServer):
    """Ids count up from 1 over all subjects; one schema has one id everywhere."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.schemas: list[dict[str, str]] = []
        self.subjects: dict[str, list[int]] = {}
        self.levels: dict[str, str] = {}
        self.requests: list[str] = []
        self.failure: tuple[int, bytes] | None = None
        self.user: str | None = None
        self.hanging = Event()
        self.released = Event()
        self.lock = Lock()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def fails(self, status: int, code: int, message: str) -> None:
        answer = {"error_code": code, "message": message}
        self.failure = status, json.dumps(answer).encode()

    def demand(self, subject: str, level: str) -> None:
        """Let `subject` take only what is compatible by `level`; all, by default."""
        self.levels[subject] = level

    def handed_to(self, other: Registry) -> None:
        """Let `other` know what this one knows, as after a restart."""
        other.schemas, other.subjects = self.schemas, self.subjects
        other.levels = self.levels

    def register(self, subject: str, schema: dict[str, str]) -> int:
        """Return the id. Raises: `AvroException`, `_Incompatible`."""
        with self.lock:
            if schema.get("schemaType", "AVRO") == "AVRO":
                apache_parse(schema["schema"])
            versions = self.subjects.setdefault(subject, [])
            if schema not in self.schemas or self._id(schema) not in versions:
                self._check(subject, schema["schema"])
            if schema not in self.schemas:
                self.schemas.append(schema)
            if self._id(schema) not in versions:
                versions.append(self._id(schema))
            return self._id(schema)

    def _id(self, schema: dict[str, str]) -> int:
        return self.schemas.index(schema) + 1

    def _check(self, subject: str, newer: str) -> None:
        level = self.levels.get(subject, NONE)
        for known in self.subjects[subject]:
            older = self.schemas[known - 1]["schema"]
            if level in (BACKWARD, FULL):
                _can_read(newer, older)
            if level in (FORWARD, FULL):
                _can_read(older, newer)


class _Incompatible(Exception):
    pass


def _can_read(reader: str, writer: str) -> None:
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call] # avro leaves its __init__ unannotated
    found = checker.get_compatibility(apache_parse(reader), apache_parse(writer))
    if found.compatibility is not SchemaCompatibilityType.compatible:
        raise _Incompatible(", ".join(sorted(found.locations)))


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_POST(self) -> None:
        schema = self._body()
        if self._refused():
            return
        subject = self._subject("/versions")
        if subject is None:
            self._send(404, {"error_code": 404, "message": "HTTP 404 Not Found"})
            return
        try:
            self._send(200, {"id": self.server.register(subject, schema)})
        except _Incompatible as error:
            message = f"schema being registered is incompatible: {error}"
            self._send(409, {"error_code": 409, "message": message})
        except AvroException:
            self._send(422, {"error_code": 42201, "message": "Invalid schema"})

    def do_GET(self) -> None:
        if self._refused():
            return
        path = self._path()
        subject = self._subject("/versions/latest")
        if subject is not None:
            self._latest(subject)
            return
        if not path.startswith("/schemas/ids/"):
            self._send(404, {"error_code": 404, "message": "HTTP 404 Not Found"})
            return
        schema_id = int(path.removeprefix("/schemas/ids/"))
        if not 1 <= schema_id <= len(self.server.schemas):
            self._send(404, {"error_code": 40403, "message": "Schema not found"})
            return
        self._send(200, self.server.schemas[schema_id - 1])

    def _latest(self, subject: str) -> None:
        known = self.server.subjects.get(subject)
        if not known:
            self._send(404, {"error_code": 40401, "message": "Subject not found"})
            return
        schema = self.server.schemas[known[-1] - 1]
        place = {"subject": subject, "version": len(known), "id": known[-1]}
        self._send(200, {**place, **schema})

    def _body(self) -> dict[str, str]:
        length = int(self.headers["Content-Length"])
        found: dict[str, str] = json.loads(self.rfile.read(length))
        return found

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _subject(self, suffix: str) -> str | None:
        path = self._path()
        if not (path.startswith("/subjects/") and path.endswith(suffix)):
            return None
        return unquote(path.removeprefix("/subjects/").removesuffix(suffix))

    def _refused(self) -> bool:
        self.server.requests.append(f"{self.command} {self._path()}")
        if self.server.hanging.is_set():
            self.server.released.wait(30)
            return True
        if self.server.user and self.headers["Authorization"] != _basic(
            self.server.user
        ):
            self._send(401, {"error_code": 40101, "message": "Unauthorized"})
            return True
        if self.server.failure:
            self._write(*self.server.failure)
            return True
        return False

    def _send(self, status: int, answer: Any) -> None:
        self._write(status, json.dumps(answer).encode())

    def _write(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name
        """Keep the test's output clean."""


def _basic(user: str) -> str:
    return "Basic " + base64.b64encode(user.encode()).decode()


@contextmanager
def serving_registry(
    port: int = 0, prepare: Callable[[Registry], None] = lambda _: None
) -> Iterator[Registry]:
    """Yield a registry that answers; `prepare` is called before it does."""
    server = Registry(port)
    prepare(server)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
