"""How the values of settings are written; each parser raises `ValueError`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cachemind.core.kms_uri import SCHEME as KMS
from cachemind.core.kms_uri import parse_kms_uri
from cachemind.core.pkcs11_uri import SCHEME as PKCS11
from cachemind.core.pkcs11_uri import parse_pkcs11_uri
from cachemind.errors import CacheError, InvalidSetting
from cachemind.types import check_namespace

DATA_KEYS: Final = "data-keys"
"""Folder in the data folder for wrapped data keys, where no other place is named."""

FILE: Final = "file:"
"""What names a key in a file begins with."""

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def text(raw: str) -> str:
    """Return any text as it is."""
    return raw


def flag(raw: str) -> bool:
    """Return whether a word says yes."""
    lowered = raw.lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return lowered in _TRUE


def path(raw: str) -> Path:
    """Return a path, `~` for the home folder."""
    if not raw:
        raise ValueError("must be a path")
    return Path(raw).expanduser()


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`."""

    def parse(raw: str) -> int:
        value = int(raw) if raw.lstrip("-").isdigit() and raw.isascii() else None
        if value is None or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return parse


def ratio(raw: str) -> float:
    """Return a number from 0 to 1."""
    try:
        value = float(raw)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be a number from 0 to 1")
    return value


@dataclass(frozen=True, slots=True)
class OneOf:
    """Parses one of a few words."""

    words: tuple[str, ...]

    def __call__(self, raw: str) -> str:
        """Return `raw`, which is one of the words."""
        if raw not in self.words:
            raise ValueError("must be one of " + ", ".join(self.words))
        return raw


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that takes one of `words`."""
    return OneOf(words)


def url(raw: str) -> str:
    """Return an HTTP URL without the path that every request brings."""
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as http://127.0.0.1:11434")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or a fragment")
    # Every request brings its own path, which begins with /v1.
    return raw.rstrip("/").removesuffix("/v1")


def key_uri(raw: str) -> str:
    """Return what may name a key, none where it is empty; nothing is opened.

    What is wrong is said without it: a PIN may be in it.
    """
    try:
        if raw.startswith(PKCS11):
            parse_pkcs11_uri(raw)
        elif raw.startswith(KMS):
            parse_kms_uri(raw)
        elif raw and not (raw.startswith(FILE) and raw != FILE):
            raise ValueError(f"must be {FILE}PATH, {PKCS11}... or {KMS}...")
    except InvalidSetting as error:
        raise ValueError(str(error)) from error
    return raw


def namespace_name(raw: str) -> str:
    """Return a namespace's name."""
    try:
        return check_namespace(raw)
    except CacheError as error:
        raise ValueError(str(error)) from error
