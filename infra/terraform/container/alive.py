"""Says whether what a container runs answers: exit 0, or 1 with the reason.

usage: python alive.py [URL | materializer]

Without an argument it asks the gateway of this container. `materializer` asks the one
on this data folder over its socket. The other roles answer nobody: each ends itself
when it makes no progress, and is started again.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cachemind.errors import CacheError
from cachemind_services.control import ask

TIMEOUT_S: Final = 4.0
"""Below the five seconds that health checks give it."""

GATEWAY: Final = "http://127.0.0.1:{}/healthz"
PORT: Final = "8080"


def problem(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what is wrong, empty where it answers."""
    asked = arguments[0] if arguments else ""
    if asked == "materializer":
        return _of_materializer(Path(environ["CACHEMIND_DATA_DIR"]))
    return _of_http(asked or GATEWAY.format(environ.get("CACHEMIND_PORT", PORT)))


def _of_materializer(data_dir: Path) -> str:
    try:
        ask(data_dir, "status", TIMEOUT_S)
    except CacheError as error:
        return str(error)
    return ""


def _of_http(url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {error!r}"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"{url}: {status}"


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong; return 0 where nothing is."""
    found = problem(arguments, os.environ)
    if found:
        sys.stderr.write(found + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
