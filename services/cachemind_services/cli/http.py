"""The few HTTP calls that the command line makes to a gateway."""

from __future__ import annotations

import argparse
import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cachemind.core.access import NAMESPACE_HEADER
from cachemind.errors import CacheError, InvalidSetting
from cachemind_services.cli.options import CLIENT, add_settings, settings_from
from cachemind_services.settings import Settings

TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A gateway's answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the parsed body. Raises: `CacheError` where it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise CacheError(
                f"the gateway answered {self.status} and no JSON"
            ) from error

    def expect(self, *statuses: int) -> Answer:
        """Return self. Raises: `CacheError` with the gateway's own words."""
        if self.status in statuses:
            return self
        problem = self.json()
        error = problem.get("error", {}) if isinstance(problem, dict) else {}
        told = error if isinstance(error, dict) else {}
        message = told.get("message") or "no reason given"
        raise CacheError(f"{self.status}: {message}{_hint(self.status, told)}")


def _hint(status: int, error: Mapping[str, Any]) -> str:
    """Return by which flag that is mended which a gateway says of a header field."""
    if status == HTTPStatus.UNAUTHORIZED:
        return " (--key-file, CACHEMIND_ACCESS_KEY)"
    return " (--in-namespace)" if error.get("param") == NAMESPACE_HEADER else ""


def add_client(parser: argparse.ArgumentParser, more: tuple[str, ...] = ()) -> None:
    """Add the flags that say where the gateway is and who asks, and `more` settings."""
    add_gateway(parser)
    add_api_key(parser)
    parser.add_argument(
        "--in-namespace",
        metavar="NAME",
        help="one of those that the gateway's key is for",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, (*CLIENT, *more))


def add_api_key(parser: argparse.ArgumentParser) -> None:
    """Add the flag for upstream's key, whose caller's entries are its own."""
    parser.add_argument(
        "--api-key",
        default="",
        help="upstream's, sent as Bearer as the application does",
    )


def upstream_key(arguments: argparse.Namespace) -> Mapping[str, str]:
    """Return the field that an application sends. Raises: `InvalidSetting`."""
    key: str = arguments.api_key
    if not (key.isascii() and key.isprintable()):
        raise InvalidSetting("--api-key", "holds what no header field can")
    return {"authorization": f"Bearer {key}"} if key else {}


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the gateway is, and with which key it is asked."""
    parser.add_argument("--url", help="gateway, for example http://127.0.0.1:8080")
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help="holds the gateway's key (cmk_...); default CACHEMIND_ACCESS_KEY",
    )


def call(
    arguments: argparse.Namespace,
    method: str,
    target: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Return the gateway's answer. Raises: `CacheError` where there is none."""
    settings = settings_from(arguments)
    connection = _connect(arguments, settings)
    sent = {"content-type": "application/json", **(headers or {})}
    sent |= _credential(arguments, settings)
    sent |= upstream_key(arguments)
    payload = None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, target, payload, sent)
        response = connection.getresponse()
        return Answer(
            status=response.status,
            headers={name.lower(): value for name, value in response.getheaders()},
            body=response.read(),
        )
    except (OSError, http.client.HTTPException) as error:
        where = arguments.url or f"{connection.host}:{connection.port}"
        raise CacheError(f"no gateway answers at {where}: {error}") from error
    finally:
        connection.close()


def _credential(arguments: argparse.Namespace, settings: Settings) -> Mapping[str, str]:
    """Return the fields that say who asks. Raises: `InvalidSetting`."""
    key = settings.access_key
    if arguments.key_file is not None:
        try:
            key = arguments.key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSetting("--key-file", f"cannot be read: {error}") from error
        if not key:
            raise InvalidSetting("--key-file", f"{arguments.key_file} is empty")
    if not (key.isascii() and key.isprintable()):
        raise InvalidSetting("--key-file", "does not hold a key")
    fields = {"x-cachemind-key": key} if key else {}
    # Without a key too: a gateway that asks for none has one namespace, and says which.
    if arguments.in_namespace is not None:
        fields[NAMESPACE_HEADER] = arguments.in_namespace
    return fields


def _connect(
    arguments: argparse.Namespace, settings: Settings
) -> http.client.HTTPConnection:
    if arguments.url is None and settings.uds is not None:
        return _UnixConnection(str(settings.uds))
    parts = urlsplit(arguments.url or f"http://{settings.host}:{settings.port}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSetting("--url", "must be a URL such as http://127.0.0.1:8080")
    kind = (
        http.client.HTTPSConnection
        if parts.scheme == "https"
        else http.client.HTTPConnection
    )
    return kind(parts.hostname, parts.port, timeout=TIMEOUT_S)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)
