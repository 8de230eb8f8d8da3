"""Payloads as they are kept and as they are read: in the clear, or sealed.

Where a namespace is encrypted, what is stored in the clear is not served: whoever
wants it erased later could not. Where it is not, what is sealed is not served either.
Both are misses, and the answer is stored anew.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Final, Protocol

from cachemind.core.delta import EntryChange
from cachemind.core.entry_bytes import Served
from cachemind.core.payload_cipher import PayloadCipher
from cachemind.core.sealed_payload import Payload, Unreadable, is_sealed, split
from cachemind.core.state import Entry
from cachemind.errors import PayloadUnreadable
from cachemind.events import Stored
from cachemind.types import ExactKey, Sha256

_NO_PARAMETERS: Final = "{}"


class Payloads(Protocol):
    """How the payloads of a namespace are kept. Any thread may ask."""

    @property
    def encrypted(self) -> bool:
        """Return whether the namespace demands encryption."""
        ...

    def stored(self, stored: Stored) -> Stored:
        """Return the event as it goes on the log. Raises: `PayloadUnreadable`."""
        ...

    def opened(self, stored: Stored) -> Stored:
        """Return the event as it was before `stored`, but for what only hashes tell.

        Raises: `PayloadUnreadable`.
        """
        ...

    def served(self, key: ExactKey, served: Served) -> Served:
        """Return what the entry at `key` answers. Raises: `PayloadUnreadable`."""
        ...

    def entry(self, entry: Entry) -> Entry:
        """Return an entry with prompt and response. Raises: `PayloadUnreadable`."""
        ...

    def vector(self, key: ExactKey, raw: bytes) -> bytes:
        """Return the vector of the entry at `key`. Raises: `PayloadUnreadable`."""
        ...


class PlainPayloads:
    """Payloads in the clear."""

    encrypted: bool = False

    def stored(self, stored: Stored) -> Stored:
        """Return the event."""
        return stored

    def opened(self, stored: Stored) -> Stored:
        """Return the event."""
        _demand_plain(stored.response)
        return stored

    def served(self, key: ExactKey, served: Served) -> Served:
        """Return what is served."""
        _demand_plain(served.response)
        return served

    def entry(self, entry: Entry) -> Entry:
        """Return the entry."""
        _demand_plain(entry.response)
        return entry

    def vector(self, key: ExactKey, raw: bytes) -> bytes:
        """Return the vector."""
        _demand_plain(raw)
        return raw


class SealedPayloads:
    """Payloads under the data keys that a cipher has at hand."""

    encrypted: bool = True

    def __init__(self, cipher: PayloadCipher) -> None:
        self._cipher = cipher

    def stored(self, stored: Stored) -> Stored:
        """Return the event with prompt, parameters, response and vector sealed.

        The hash is of the sealed response, as it is on the log: that is what receipts
        are about. The semantic key would tell of the vector, so it goes; the request's
        hash could be compared with guesses, so it is blinded.
        """
        key = stored.exact_key
        response = self._cipher.seal(
            key,
            Payload(
                prompt=stored.prompt,
                parameters=stored.parameters,
                response=stored.response,
            ),
        )
        vector = stored.embedding
        return replace(
            stored,
            prompt=None,
            parameters=_NO_PARAMETERS,
            response=response,
            response_hash=Sha256(sha256(response).digest()),
            request_hash=self._cipher.blind(stored.request_hash),
            semantic_key="",
            embedding=None if vector is None else self._cipher.seal_vector(key, vector),
        )

    def opened(self, stored: Stored) -> Stored:
        """Return the event, opened."""
        key = stored.exact_key
        opened = self._cipher.open(key, stored.response)
        return replace(
            stored,
            prompt=opened.prompt,
            parameters=opened.parameters,
            response=opened.response,
            embedding=self._vector(key, stored.embedding),
        )

    def served(self, key: ExactKey, served: Served) -> Served:
        """Return what is served, opened; its hash is still that of the log."""
        return Served(
            offset=served.offset,
            version=served.version,
            timeline=served.timeline,
            stored_at_ns=served.stored_at_ns,
            expires_at_ns=served.expires_at_ns,
            prompt_hash=served.prompt_hash,
            response_hash=served.response_hash,
            flags=served.flags,
            response=self._cipher.open_response(key, served.response),
        )

    def entry(self, entry: Entry) -> Entry:
        """Return the entry, opened."""
        key = entry.exact_key
        opened = self._cipher.open(key, entry.response)
        return replace(
            entry,
            prompt=opened.prompt,
            parameters=opened.parameters,
            response=opened.response,
            embedding=self._vector(key, entry.embedding),
        )

    def vector(self, key: ExactKey, raw: bytes) -> bytes:
        """Return the vector, opened."""
        return self._cipher.open_vector(key, raw)

    def _vector(self, key: ExactKey, raw: bytes | None) -> bytes | None:
        return None if raw is None else self._cipher.open_vector(key, raw)


PLAIN: Final = PlainPayloads()


def inspected(payloads: Payloads, entry: Entry) -> Entry:
    """Return an entry as operators see it; one that cannot be opened says so.

    In place of the response it then has `{"sealed": key id, "reason": word}`.
    """
    if not is_sealed(entry.response):
        return entry
    try:
        return payloads.entry(entry)
    except PayloadUnreadable as error:
        told = _told(entry.response, error)
        return replace(entry, response=told, embedding=None)


def inspected_event(payloads: Payloads, stored: Stored) -> Stored:
    """Return a `Stored` as operators see it; see `inspected`."""
    if not is_sealed(stored.response):
        return stored
    try:
        return payloads.opened(stored)
    except PayloadUnreadable as error:
        told = _told(stored.response, error)
        return replace(stored, response=told, embedding=None)


def opened_change(payloads: Payloads, change: EntryChange) -> EntryChange:
    """Return a change between entries as operators see them."""
    before, after = change.before, change.after
    return replace(
        change,
        before=None if before is None else inspected(payloads, before),
        after=None if after is None else inspected(payloads, after),
    )


def _told(sealed: bytes, error: PayloadUnreadable) -> bytes:
    told = {"sealed": sealed_under(sealed), "reason": error.reason}
    return json.dumps(told).encode()


def sealed_under(raw: bytes) -> str | None:
    """Return the id of the key that `raw` is sealed under; None where it tells none."""
    try:
        return split(raw)[0].decode("ascii", "replace")
    except PayloadUnreadable:
        return None


def _demand_plain(raw: bytes) -> None:
    if is_sealed(raw):
        raise PayloadUnreadable(Unreadable.SEALED)
