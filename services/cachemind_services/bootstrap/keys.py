"""Opens keys by URI: `file:PATH`, `pkcs11:..` (RFC 7512) or `aws-kms:ARN`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cachemind.adapters.key_file import open_key_file
from cachemind.adapters.private_file import read_private
from cachemind.adapters.wrap_file import open_wrapper_file
from cachemind.core.kms_uri import SCHEME as KMS
from cachemind.core.kms_uri import parse_kms_uri
from cachemind.core.pkcs11_uri import SCHEME as PKCS11
from cachemind.core.pkcs11_uri import Pkcs11Uri, parse_pkcs11_uri
from cachemind.errors import InvalidSetting, KeyRefused
from cachemind.ports import KeyWrapper, SigningKey
from cachemind.receipts import KeyId, KeyRole
from cachemind_services.setting_values import FILE
from cachemind_services.settings import PREFIX, Settings

if TYPE_CHECKING:
    from cachemind.adapters.kms_calls import KmsCalls
    from cachemind.adapters.pkcs11_object import TokenAccess

ROOT_FILE: Final = "root.pem"
BESIDE: Final = "passphrase"
"""File in the folder of keys that holds what they are encrypted under."""


def open_signing_key(uri: str, settings: Settings) -> SigningKey:
    """Return the key that a URI names.

    Raises: `InvalidSetting` for a URI that names none, or whose provider is not
    installed; `KeyRefused`, `KeyUnavailable`.
    """
    if uri.startswith(FILE):
        return open_key_file(_path(uri), passphrase(settings))
    if uri.startswith(PKCS11):
        access, parsed = _token(uri, settings)
        from cachemind.adapters.key_pkcs11 import Pkcs11Key

        return Pkcs11Key(parsed, access)
    if uri.startswith(KMS):
        calls = _kms(uri)
        from cachemind.adapters.key_kms import KmsKey

        return KmsKey(calls)
    raise _unknown(uri)


def open_key_wrapper(uri: str, settings: Settings) -> KeyWrapper:
    """Return the wrapping key that a URI names. Raises: see `open_signing_key`."""
    if uri.startswith(FILE):
        return open_wrapper_file(_path(uri))
    if uri.startswith(PKCS11):
        access, parsed = _token(uri, settings)
        from cachemind.adapters.wrap_pkcs11 import Pkcs11Wrapper

        return Pkcs11Wrapper(parsed, access)
    if uri.startswith(KMS):
        calls = _kms(uri)
        from cachemind.adapters.wrap_kms import KmsWrapper

        return KmsWrapper(calls)
    raise _unknown(uri)


def open_root_key(settings: Settings) -> SigningKey:
    """Return the key that vouches for all others. Raises: see `open_signing_key`."""
    uri = settings.audit_root_key or f"{FILE}{settings.keys_dir / ROOT_FILE}"
    return open_signing_key(uri, settings)


def passphrase(settings: Settings) -> bytes:
    """Return what keys in files are encrypted under.

    Raises: `InvalidSetting` where it is nowhere; `KeyRefused`, `KeyUnavailable`.
    """
    if settings.audit_passphrase:
        return settings.audit_passphrase.encode()
    path = settings.audit_passphrase_file
    if path is None and settings.log_dir is not None:
        path = settings.keys_dir / BESIDE
    if path is None:
        raise InvalidSetting(
            f"{PREFIX}AUDIT_PASSPHRASE", "is needed for keys in files, found none"
        )
    return read_private(path).rstrip(b"\r\n")


class HeldByProcess:
    """The signing keys that the settings name; without that, those in the folder.

    A key that came into the folder after the start is found too: that is how a key
    is exchanged while receipts are signed. Any thread may ask.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: dict[str, SigningKey] = {}

    def find(self, role: KeyRole, key_id: KeyId) -> SigningKey | None:
        """Return the key of that id; None where it is not held.

        Raises: `KeyUnavailable`, `KeyRefused`, `InvalidSetting`.
        """
        return next((key for key in self.all(role) if key.key_id == key_id), None)

    def first(self, role: KeyRole) -> SigningKey | None:
        """Return the first one named, in the folder the one that is there longest."""
        return next(iter(self.all(role)), None)

    def all(self, role: KeyRole) -> Iterator[SigningKey]:
        """Yield every key of a role, opened when it is its turn."""
        for uri in key_uris(role, self._settings):
            with self._lock:
                if uri not in self._opened:
                    self._opened[uri] = open_signing_key(uri, self._settings)
                key = self._opened[uri]
            yield key

    def close(self) -> None:
        """Leave all providers."""
        with self._lock:
            for key in self._opened.values():
                key.close()
            self._opened.clear()


def key_uris(role: KeyRole, settings: Settings) -> Sequence[str]:
    """Return the URIs of the keys that sign receipts or cuts."""
    named = {
        KeyRole.RECEIPT: settings.audit_receipt_keys,
        KeyRole.LOG: settings.audit_log_keys,
        KeyRole.ROOT: settings.audit_root_key,
    }[role]
    if named:
        return named.split()
    pattern = ROOT_FILE if role is KeyRole.ROOT else f"{role}-*.pem"
    files = sorted(settings.keys_dir.glob(pattern), key=_age)
    return [f"{FILE}{path}" for path in files]


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.stat().st_mtime_ns, path.name
    except OSError:
        # First in line: whoever opens it says why that cannot be done.
        return 0, path.name


def _path(uri: str) -> Path:
    return Path(uri.removeprefix(FILE)).expanduser()


def _token(uri: str, settings: Settings) -> tuple[TokenAccess, Pkcs11Uri]:
    parsed = parse_pkcs11_uri(uri)
    module = Path(parsed.module_path) if parsed.module_path else settings.pkcs11_module
    if module is None:
        raise InvalidSetting(
            f"{PREFIX}PKCS11_MODULE", "is needed for keys in an HSM, found none"
        )
    try:
        from cachemind.adapters.pkcs11_object import TokenAccess
    except ImportError as error:
        raise InvalidSetting(
            "pkcs11:", "keys in an HSM need `pip install cachemind[pkcs11]`"
        ) from error
    return TokenAccess(module=module, pin=lambda: _pin(parsed, settings)), parsed


def _pin(uri: Pkcs11Uri, settings: Settings) -> str:
    """Return the token's PIN, read when it is needed and not kept."""
    if not uri.pin_path and settings.pkcs11_pin:
        return settings.pkcs11_pin
    path = Path(uri.pin_path) if uri.pin_path else settings.pkcs11_pin_file
    if path is None:
        raise InvalidSetting(
            f"{PREFIX}PKCS11_PIN_FILE", "is needed for keys in an HSM, found none"
        )
    try:
        return read_private(path).decode().strip()
    except UnicodeDecodeError as error:
        raise KeyRefused(str(path), "must hold a PIN in UTF-8") from error


def _kms(uri: str) -> KmsCalls:
    parsed = parse_kms_uri(uri)
    try:
        from cachemind.adapters.kms_calls import KmsCalls
    except ImportError as error:
        raise InvalidSetting(
            KMS, "keys in AWS KMS need `pip install cachemind[aws]`"
        ) from error
    return KmsCalls(parsed)


def _unknown(uri: str) -> InvalidSetting:
    scheme = uri.partition(":")[0] if ":" in uri else "none"
    return InvalidSetting(
        "key URI", f"must begin with file:, pkcs11: or aws-kms:, found {scheme}"
    )
