"""API keys as an operator makes, lists, exchanges and takes them back."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cachemind.adapters.clock import SystemClock
from cachemind.core.access import ACCESS_NAMESPACE, Role
from cachemind.core.api_keys import (
    ID_CHARS,
    SECRET_BYTES,
    ApiKey,
    KeyBook,
    check_grant,
    key_id_of,
    key_text,
    secret_digest,
)
from cachemind.types import Lsn, check_namespace
from cachemind_services.bootstrap.policies import change_policy, read_policy
from cachemind_services.settings import Settings

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a new key shall allow.

    Units: `_ms` are milliseconds; `life_ms` is None for no end, and begins after
    `delay_ms`.
    """

    name: str
    role: Role
    namespaces: Sequence[str]
    prefixes: Sequence[str]
    life_ms: int | None
    delay_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A new key. `text` is shown once and kept nowhere."""

    key: ApiKey
    text: str
    lsn: Lsn | None


def create_key(settings: Settings, grant: Grant) -> Made:
    """Return a new key that is on the log.

    Raises: `InvalidEvent` naming what makes no sense; `LogUnavailable`,
    `LogRejected`, `TopicMisconfigured`, `BrokerError`.
    """
    check_grant(grant.role, grant.namespaces, grant.prefixes)
    key_id, secret = _random()
    now_ms = _now_ms()
    begins = now_ms + grant.delay_ms
    key = ApiKey(
        key_id=key_id,
        digest=secret_digest(secret),
        role=grant.role,
        namespaces=tuple(check_namespace(name) for name in grant.namespaces),
        created_ms=now_ms,
        not_before_ms=begins if grant.delay_ms else 0,
        expires_ms=None if grant.life_ms is None else begins + grant.life_ms,
        name=grant.name,
        prefixes=tuple(grant.prefixes),
    )
    book, lsn = _change(settings, lambda book: book.created(key, now_ms))
    return Made(key=book.keys[key_id], text=key_text(key_id, secret), lsn=lsn)


def list_keys(settings: Settings) -> Sequence[tuple[ApiKey, str]]:
    """Return every key with its state now, by when it was made. Raises: as above."""
    book = KeyBook.parse(read_policy(settings, ACCESS_NAMESPACE))
    now_ms = _now_ms()
    by_age = sorted(book.keys.values(), key=lambda key: (key.created_ms, key.key_id))
    return [(key, key.state(now_ms)) for key in by_age]


def rotate_key(settings: Settings, key_id: str, overlap_ms: int) -> Made:
    """Return the successor of a key; both count for `overlap_ms`. Raises: as above."""
    successor, secret = _random()
    now_ms = _now_ms()

    def rotated(book: KeyBook) -> KeyBook:
        digest = secret_digest(secret)
        return book.rotated(key_id, successor, digest, now_ms, overlap_ms)

    book, lsn = _change(settings, rotated)
    return Made(key=book.keys[successor], text=key_text(successor, secret), lsn=lsn)


def revoke_key(settings: Settings, key_id: str) -> Lsn | None:
    """Return where it is on the log that a key counts no more; None: it was before.

    Raises: as above.
    """
    now_ms = _now_ms()
    _, lsn = _change(settings, lambda book: book.revoked(key_id, now_ms))
    return lsn


def _change(
    settings: Settings, change: Callable[[KeyBook], KeyBook]
) -> tuple[KeyBook, Lsn | None]:
    done = change_policy(
        settings,
        ACCESS_NAMESPACE,
        lambda policy: change(KeyBook.parse(policy)).render(),
    )
    return KeyBook.parse(done.policy), done.lsn


def _random() -> tuple[str, str]:
    """Return a new id and a new secret."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES))
    return key_id_of(secrets.token_bytes(ID_CHARS)), secret.decode().rstrip("=")


def _now_ms() -> int:
    return SystemClock().now_ns() // _NS_PER_MS
