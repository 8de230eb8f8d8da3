"""API keys: their text, their digests, and all of them as one value, the key book.

A key reads `cmk_<id>_<secret>`: 8 characters that name it and may be shown, and 43
that are 32 random bytes in base64url. Kept is the SHA-256 of the secret alone. A slow
hash guards secrets that can be guessed; 256 uniform bits cannot be, and each request
would pay for it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import orjson

from cachemind.core.access import ACCESS_NAMESPACE, Caller, Role, is_reserved
from cachemind.core.canonical import canonical
from cachemind.errors import InvalidEvent
from cachemind.types import HASH_BYTES, Namespace, Principal, check_namespace

SCHEME: Final = "cmk_"
ID_CHARS: Final = 8
SECRET_BYTES: Final = 32
MOST_KEYS: Final = 4_000
MOST_BYTES: Final = 3 * 2**20
"""Below the largest record of the log, with room for the rest of an event."""

MOST_NAMESPACES: Final = 64
MOST_PREFIXES: Final = 16
LONGEST_NAME: Final = 128
KEPT_MS: Final = 30 * 24 * 3_600 * 1_000
"""How long a key that counts no more is still listed. The log keeps it anyway."""

_ID: Final = re.compile(rf"[A-Za-z0-9]{{{ID_CHARS}}}")
_KEY: Final = re.compile(rf"cmk_([A-Za-z0-9]{{{ID_CHARS}}})_([A-Za-z0-9_-]{{43}})")
_ID_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
_NS_PER_MS: Final = 1_000_000
_REVISION: Final = "revision"
_KEYS: Final = "keys"
_MOST_MS: Final = 2**53
"""The largest whole number that every JSON reader keeps exactly."""


def key_id_of(random: bytes) -> str:
    """Return the id that 8 random bytes make: letters and digits that are not alike.

    It need not be uniform: it names a key and guards nothing.
    """
    if len(random) != ID_CHARS:
        raise ValueError(f"random must be {ID_CHARS} bytes, got {len(random)}")
    return "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in random)


def key_text(key_id: str, secret: str) -> str:
    """Return a key as its holder presents it; `secret` is 32 bytes in base64url."""
    return f"{SCHEME}{key_id}_{secret}"


def secret_digest(secret: str) -> str:
    """Return what is kept of a secret: SHA-256 of its 43 characters, 64 hex digits."""
    return sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key as it is kept: what it grants, and from when to when.

    Units: `_ms` are milliseconds since the Unix epoch (UTC); `expires_ms` and
    `revoked_ms` are None for never. A key counts in [not_before_ms, expires_ms); the
    former is 0 for one that counts as soon as it is known, whatever a clock says.
    """

    key_id: str
    digest: str
    role: Role
    namespaces: tuple[Namespace, ...]
    created_ms: int
    not_before_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    name: str = ""
    prefixes: tuple[str, ...] = ()
    replaces: str = ""
    """The id of the key that this one took over from."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.key_id):
            raise InvalidEvent("key_id", f"must be {ID_CHARS} letters and digits")
        if not re.fullmatch(rf"[0-9a-f]{{{2 * HASH_BYTES}}}", self.digest):
            raise InvalidEvent("digest", "must be 64 lower-case hex digits")
        if len(self.name) > LONGEST_NAME or not self.name.isprintable():
            raise InvalidEvent("name", f"must be at most {LONGEST_NAME} characters")
        if self.replaces and not _ID.fullmatch(self.replaces):
            raise InvalidEvent("replaces", f"must be {ID_CHARS} letters and digits")
        check_grant(self.role, self.namespaces, self.prefixes)
        for field in ("created_ms", "not_before_ms", "expires_ms", "revoked_ms"):
            found = getattr(self, field)
            if found is not None and not 0 <= found <= _MOST_MS:
                raise InvalidEvent(field, f"must be from 0 to {_MOST_MS}")

    def state(self, now_ms: int) -> str:
        """Return `active`, `revoked`, `expired` or `not yet`."""
        if self.revoked_ms is not None:
            return "revoked"
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            return "expired"
        return "not yet" if now_ms < self.not_before_ms else "active"

    def ended_ms(self) -> int | None:
        """Return when the key ceased, or will cease, to count; None for never."""
        ends = [end for end in (self.expires_ms, self.revoked_ms) if end is not None]
        return min(ends, default=None)

    @property
    def caller(self) -> Caller:
        """Return who presents this key."""
        return Caller(
            principal=Principal(f"key:{self.key_id}"),
            role=self.role,
            namespaces=frozenset(self.namespaces),
            prefixes=self.prefixes,
            credential_id=self.key_id,
        )


def check_grant(role: Role, namespaces: Sequence[str], prefixes: Sequence[str]) -> None:
    """Do nothing for a grant that makes sense. Raises: `InvalidEvent`."""
    if not 1 <= len(namespaces) <= MOST_NAMESPACES:
        raise InvalidEvent("namespaces", f"must be 1 to {MOST_NAMESPACES}")
    for namespace in namespaces:
        check_namespace(namespace)
        if is_reserved(namespace) and role not in (Role.AUDITOR, Role.CACHE_ADMIN):
            raise InvalidEvent(
                "namespaces", f"{namespace} is open to admins and auditors only"
            )
    if len(set(namespaces)) != len(namespaces):
        raise InvalidEvent("namespaces", "must not repeat")
    if len(prefixes) > MOST_PREFIXES:
        raise InvalidEvent("prefixes", f"must be at most {MOST_PREFIXES}")
    for prefix in prefixes:
        # An empty one would reach everything while it looks like a limit.
        if not 1 <= len(prefix) <= LONGEST_NAME or not prefix.isprintable():
            raise InvalidEvent("prefixes", f"must be 1 to {LONGEST_NAME} characters")


@dataclass(frozen=True, slots=True)
class KeyBook:
    """All keys, by id. `revision` counts the changes, 0 for no key ever.

    A change makes a new book of the next revision. The fold takes a book only if its
    revision follows the one in force: of two writers at once the second changes
    nothing and has to do its change again (`follows`).
    """

    revision: int
    keys: Mapping[str, ApiKey]
    callers: Mapping[str, Caller]
    """Made once, not for each request."""

    @classmethod
    def of(cls, revision: int, keys: Iterable[ApiKey]) -> KeyBook:
        """Return the book of `keys`. Raises: `InvalidEvent` naming the field."""
        listed = sorted(keys, key=lambda key: key.key_id)
        book = {key.key_id: key for key in listed}
        if len(book) != len(listed):
            raise InvalidEvent("keys", "must not repeat an id")
        if len(listed) > MOST_KEYS:
            raise InvalidEvent("keys", f"must be at most {MOST_KEYS}")
        if not 0 <= revision <= _MOST_MS:
            raise InvalidEvent(_REVISION, f"must be from 0 to {_MOST_MS}")
        return cls(revision, book, {key.key_id: key.caller for key in listed})

    @classmethod
    def parse(cls, policy: str) -> KeyBook:
        """Return the book that a policy holds, an empty one for no policy.

        Raises: `InvalidEvent` naming the field.
        """
        if not policy:
            return cls.of(0, ())
        document = _object(policy)
        if set(document) != {_REVISION, _KEYS}:
            raise InvalidEvent("policy", f"must have {_REVISION} and {_KEYS} alone")
        keys = document[_KEYS]
        if not isinstance(keys, list):
            raise InvalidEvent(_KEYS, "must be a list")
        return cls.of(_revision(document), map(_parsed, keys))

    def render(self) -> str:
        """Return the book as canonical JSON, for `PolicyChanged`."""
        keys = [_written(key) for key in self.keys.values()]
        return canonical({_REVISION: self.revision, _KEYS: keys}).decode()

    def find(self, presented: str, now_ns: int) -> Caller | None:
        """Return who presents this key, None for any key that does not count now.

        The comparison takes one time for every wrong secret.
        """
        match = _KEY.fullmatch(presented)
        if match is None:
            return None
        key = self.keys.get(match[1])
        # Whether an id exists is no secret: it is shown, and names a key in events.
        if key is None or not hmac.compare_digest(secret_digest(match[2]), key.digest):
            return None
        if key.state(now_ns // _NS_PER_MS) != "active":
            return None
        return self.callers[key.key_id]

    def created(self, key: ApiKey, now_ms: int) -> KeyBook:
        """Return the book with one more key. Raises: `InvalidEvent`."""
        if key.key_id in self.keys:
            raise InvalidEvent("key_id", "is taken; try again")
        return self._next([*self.keys.values(), key], now_ms)

    def rotated(
        self, key_id: str, successor_id: str, digest: str, now_ms: int, overlap_ms: int
    ) -> KeyBook:
        """Return the book with a successor of the same grant; both count for a while.

        The old key ends after `overlap_ms`, or when it would have ended anyway; the
        new one lives as long from now as the old one did from its beginning.
        Raises: `InvalidEvent` where the old one does not count or has a successor
        that does, or the id is taken.
        """
        old = self._known(key_id)
        if old.state(now_ms) != "active":
            raise InvalidEvent("key_id", f"{key_id} is {old.state(now_ms)}")
        for key in self.keys.values():
            if key.replaces == key_id and key.state(now_ms) == "active":
                raise InvalidEvent(
                    "key_id", f"{key_id} has a successor: rotate {key.key_id}"
                )
        if successor_id in self.keys:
            raise InvalidEvent("key_id", "is taken; try again")
        began = max(old.created_ms, old.not_before_ms)
        life = None if old.expires_ms is None else old.expires_ms - began
        end = now_ms + overlap_ms
        ended = end if old.expires_ms is None else min(end, old.expires_ms)
        successor = replace(
            old,
            key_id=successor_id,
            digest=digest,
            created_ms=now_ms,
            not_before_ms=0,
            expires_ms=None if life is None else now_ms + life,
            replaces=old.key_id,
        )
        others = [key for key in self.keys.values() if key is not old]
        kept = replace(old, expires_ms=ended)
        return self._next([*others, kept, successor], now_ms)

    def revoked(self, key_id: str, now_ms: int) -> KeyBook:
        """Return the book in which a key counts no more; itself if it did not before.

        Raises: `InvalidEvent` where there is no such key.
        """
        old = self._known(key_id)
        if old.revoked_ms is not None:
            return self
        others = [key for key in self.keys.values() if key is not old]
        return self._next([*others, replace(old, revoked_ms=now_ms)], now_ms)

    def _known(self, key_id: str) -> ApiKey:
        key = self.keys.get(key_id)
        if key is None:
            raise InvalidEvent("key_id", "there is no such key")
        return key

    def _next(self, keys: Iterable[ApiKey], now_ms: int) -> KeyBook:
        # Else a book that is turned over every night grows without end.
        kept = [
            key
            for key in keys
            if (ended := key.ended_ms()) is None or ended > now_ms - KEPT_MS
        ]
        book = KeyBook.of(self.revision + 1, kept)
        if len(book.render().encode()) > MOST_BYTES:
            raise InvalidEvent("keys", f"must be at most {MOST_BYTES} bytes in all")
        return book


def gives_way(namespace: Namespace, policy: str, candidate: str) -> bool:
    """Return whether a namespace's policy is replaced by `candidate`: by any but keys'.

    The fold asks this, and who has to know what the fold will make of the log.
    """
    return namespace != ACCESS_NAMESPACE or follows(policy, candidate)


def follows(policy: str, candidate: str) -> bool:
    """Return whether the book in `candidate` may take the place of that in `policy`.

    Only revisions are looked at: what else a later build writes in a book is not for
    this one's fold to judge.
    """
    try:
        present = _revision(_object(policy)) if policy else 0
        return _revision(_object(candidate)) == present + 1
    except InvalidEvent:
        return False


def _object(text: str) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent("policy", "must be JSON") from error
    if not isinstance(document, dict):
        raise InvalidEvent("policy", "must be a JSON object")
    return document


def _revision(document: Mapping[str, Any]) -> int:
    revision = document.get(_REVISION)
    if not isinstance(revision, int) or isinstance(revision, bool):
        raise InvalidEvent(_REVISION, "must be a whole number")
    return revision


_TEXTS: Final = ("key_id", "digest", "role", "name", "replaces")
_LISTS: Final = ("namespaces", "prefixes")
_TIMES: Final = ("created_ms", "not_before_ms", "expires_ms", "revoked_ms")


def _written(key: ApiKey) -> dict[str, Any]:
    written: dict[str, Any] = {name: str(getattr(key, name)) for name in _TEXTS}
    written |= {name: list(getattr(key, name)) for name in _LISTS}
    return written | {name: getattr(key, name) for name in _TIMES}


def _parsed(found: object) -> ApiKey:
    if not isinstance(found, dict) or set(found) != {*_TEXTS, *_LISTS, *_TIMES}:
        raise InvalidEvent("keys", "a key has missing or unknown members")
    for name in _TEXTS:
        if not isinstance(found[name], str):
            raise InvalidEvent(name, "must be text")
    for name in _LISTS:
        listed = found[name]
        if not isinstance(listed, list) or not all(isinstance(x, str) for x in listed):
            raise InvalidEvent(name, "must be a list of texts")
    for name in _TIMES:
        unset = found[name] is None and name in ("expires_ms", "revoked_ms")
        if not unset and type(found[name]) is not int:
            raise InvalidEvent(name, "must be a whole number")
    if found["role"] not in list(Role):
        raise InvalidEvent("role", "must be one of " + ", ".join(Role))
    lists = {name: tuple(found[name]) for name in _LISTS}
    return ApiKey(**{**found, **lists, "role": Role(found["role"])})
