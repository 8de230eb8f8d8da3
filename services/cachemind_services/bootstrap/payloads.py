"""How the payloads of the namespace are kept: in the clear, or under data keys."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cachemind.adapters.aead import AesGcm
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.data_key_bucket import DataKeyBucket
from cachemind.adapters.data_key_folder import DataKeyFolder
from cachemind.agents.payload_keys import PayloadKeys
from cachemind.core.payload_cipher import PayloadCipher
from cachemind.core.payloads import PLAIN, Payloads, SealedPayloads
from cachemind.errors import InvalidSetting, KeyRefused, KeyUnavailable
from cachemind.ports import KeyWrapper
from cachemind.ports.data_keys import DataKeyStore, HeldKeys
from cachemind.types import Namespace
from cachemind_services.bootstrap.keys import open_key_wrapper
from cachemind_services.setting_values import DATA_KEYS
from cachemind_services.settings import PREFIX, Settings

_KEY: Final = f"{PREFIX}PAYLOAD_KEY"
_URL: Final = f"{PREFIX}DATA_KEYS_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPayloads:
    """How payloads are kept, and the keys for it; None where they are in the clear."""

    payloads: Payloads = PLAIN
    keys: HeldKeys | None = None


def open_payloads(settings: Settings, *, makes: bool) -> OpenPayloads:
    """Return how the namespace's payloads are kept; no key is at hand yet.

    With `makes` its first data key is made where there is none.
    Raises: `InvalidSetting`.
    """
    if not settings.payload_key:
        return OpenPayloads()
    namespace = Namespace(settings.namespace)
    cipher = PayloadCipher(namespace, AesGcm, secrets.token_bytes)
    keys = PayloadKeys(
        namespace,
        open_data_keys(settings),
        _wrapper(settings),
        cipher,
        SystemClock(),
        secrets.token_bytes,
        makes=makes,
    )
    return OpenPayloads(payloads=SealedPayloads(cipher), keys=keys)


def read_payloads(settings: Settings) -> Payloads:
    """Return how payloads are kept, with the keys that there are, to read them.

    Raises: `InvalidSetting`, `KeyUnavailable`, `KeyRefused`.
    """
    opened = open_payloads(settings, makes=False)
    if opened.keys is not None:
        try:
            opened.keys.refresh()
        finally:
            opened.keys.close()
    return opened.payloads


def open_data_keys(settings: Settings) -> DataKeyStore:
    """Return where the data keys are. Raises: `InvalidSetting`.

    Where Kafka is shared so must be the keys: another host's own would be of no use
    here, and an erasure would not reach them.
    """
    url = settings.data_keys_url
    if not url and not settings.embedded:
        raise InvalidSetting(
            _URL, "name the place for data keys that all hosts of this log share"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("", "file"):
        return DataKeyBucket(url)
    if not url:
        return DataKeyFolder(settings.data_dir / DATA_KEYS)
    path = Path(url2pathname(parts.path)) if parts.scheme else Path(url)
    return DataKeyFolder(path.expanduser())


def _wrapper(settings: Settings) -> KeyWrapper:
    try:
        return open_key_wrapper(settings.payload_key, settings)
    except (InvalidSetting, KeyRefused) as error:
        raise InvalidSetting(_KEY, str(error)) from error
    except KeyUnavailable as error:
        raise InvalidSetting(_KEY, f"cannot be opened: {error}") from error
