"""Fresh ids and the secrets derived from the namespace's."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from cachemind.core.identifiers import RANDOM_BYTES, SPAN_BYTES, uuid7
from cachemind.types import ID_BYTES, EventId, Namespace, TraceId

_POOL_BYTES: Final = 4096
SECRET_FIELDS: Final = (
    b"authorization",
    b"api-key",
    b"x-api-key",
    b"x-goog-api-key",
    b"proxy-authorization",
)
CREDENTIAL_FIELDS: Final = (*SECRET_FIELDS, b"openai-organization", b"openai-project")
"""What upstream knows its callers by."""

_MOST_TENANTS: Final = 4096


class Ids:
    """Draws ids from a pool of random bytes, refilled 4 KiB at a time."""

    def __init__(self, random: Callable[[int], bytes]) -> None:
        self._random = random
        self._pool = b""
        self._at = 0

    def draw(self, count: int) -> bytes:
        """Return `count` random bytes, never handed out before."""
        if self._at + count > len(self._pool):
            self._pool, self._at = self._random(max(_POOL_BYTES, count)), 0
        start, self._at = self._at, self._at + count
        return self._pool[start : self._at]

    def event(self, now_ns: int) -> EventId:
        """Return a new event id."""
        return uuid7(now_ns, self.draw(RANDOM_BYTES))

    def trace(self) -> TraceId:
        """Return a new trace id."""
        return TraceId(self._nonzero(ID_BYTES))

    def span(self) -> bytes:
        """Return a new span id."""
        return self._nonzero(SPAN_BYTES)

    def _nonzero(self, count: int) -> bytes:
        drawn = self.draw(count)
        return drawn if any(drawn) else self._nonzero(count)


class Tenants:
    """Turns a caller's upstream credential into a tenant id that reveals nothing."""

    def __init__(
        self,
        secret: bytes,
        namespace: Namespace,
        *,
        shared: bool,
        guessable: bool = True,
    ) -> None:
        """Make ids for one namespace; with `shared` all callers have the same one.

        That one is empty unless keys must not be `guessable`: without a secret part
        anyone could tell by an entry's key whether a question was asked.
        """
        self._key = derived_key(secret, namespace, b"tenant")
        self.shared = shared
        self._all = b"" if guessable else hmac.digest(self._key, b"shared", "sha256")
        self._known: dict[tuple[bytes | None, ...], bytes] = {}

    def of(self, headers: dict[bytes, bytes], query: bytes = b"") -> bytes:
        """Return the tenant of a request, that of all where the policy lets them share.

        Some servers take a key in the query, and an API version there changes the
        answer: other queries are other tenants.
        """
        if self.shared:
            return self._all
        credential = (*map(headers.get, CREDENTIAL_FIELDS), query or None)
        tenant = self._known.get(credential)
        if tenant is None:
            if len(self._known) >= _MOST_TENANTS:
                self._known.clear()
            tenant = self._known[credential] = self._hash(credential)
        return tenant

    def _hash(self, credential: tuple[bytes | None, ...]) -> bytes:
        parts = (
            b"-" if value is None else b"%d:%b" % (len(value), value)
            for value in credential
        )
        return hmac.digest(self._key, b",".join(parts), "sha256")


def derived_key(secret: bytes, namespace: Namespace, purpose: bytes) -> bytes:
    """Return a 32-byte key for one purpose in one namespace.

    The secret is uniform already, so HKDF's expand step with one block is enough.
    Source: RFC 5869 section 2.3.
    """
    label = b"cachemind/" + purpose + b"/v1/" + namespace.encode()
    return hmac.digest(secret, label + b"\1", "sha256")
