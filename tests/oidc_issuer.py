"""An issuer of tokens on this machine, over real HTTP: discovery, keys, rotation."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from cachemind.core.oidc import DISCOVERY

AUDIENCE = "cachemind"
Key = RSAKey | ECKey


class OidcIssuer:
    """Publishes the public halves of `keys`; `down` answers 503 to everything."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.asked: list[str] = []
        self.down = False
        self.url = ""
        self.discovered: dict[str, Any] = {}
        """What the discovery document says besides, or instead."""
        self.published: bytes | None = None
        """What is answered in place of the keys."""

    def add_key(self, key_id: str, algorithm: str = "RS256", bits: int = 2048) -> Key:
        """Make and publish one more key."""
        key: Key = (
            RSAKey.generate_key(bits, {"kid": key_id}, private=True)
            if algorithm == "RS256"
            else ECKey.generate_key("P-256", {"kid": key_id}, private=True)
        )
        self.keys[key_id] = key
        return key

    def token(
        self,
        key_id: str,
        *,
        algorithm: str = "RS256",
        signed_by: Key | None = None,
        header: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """Return a token for `alice`; `changes` of None leave a claim out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": now,
            "exp": now + 300,
            "groups": ["admins"],
            **changes,
        }
        kept = {name: value for name, value in claims.items() if value is not None}
        head = {"alg": algorithm, "kid": key_id, **(header or {})}
        sent = {name: value for name, value in head.items() if value is not None}
        key = signed_by or self.keys[key_id]
        return jwt.encode(sent, kept, key, algorithms=[algorithm])

    def answer(self, path: str) -> bytes | None:
        """Return what is at `path`, None for nothing."""
        self.asked.append(path)
        if path == DISCOVERY:
            where = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            return json.dumps({**where, **self.discovered}).encode()
        if path != "/keys":
            return None
        if self.published is not None:
            return self.published
        public = [key.as_dict(private=False) for key in self.keys.values()]
        return json.dumps({"keys": public}).encode()


@contextmanager
def oidc_issuer() -> Iterator[OidcIssuer]:
    """Run an issuer without keys on a free port of the loopback."""
    issuer = OidcIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = issuer.answer(self.path)
            self.send_response(503 if issuer.down else 404 if body is None else 200)
            self.send_header("content-length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
