"""What is pinned beside the keys, and what a key event is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.agents.cuts_log import VerifyKeyEvent
from cachemind.codec.audit_decoder import AuditDecoding
from cachemind.core.audit_findings import NOWHERE, Finding
from cachemind.core.audit_keys import key_event_in
from cachemind.core.audit_means import Means, Pinned
from cachemind.core.pinned_keys import pinned_in
from cachemind.errors import InvalidEvent, InvalidSetting
from cachemind.receipts import KeyEvent, SignedKeyEvent
from cachemind_services.settings import Settings

PINNED_FILE: Final = "keys.json"


def pinned_path(settings: Settings) -> Path:
    """Return where the file of a log folder is. Raises: `InvalidSetting`."""
    return settings.keys_dir.parent / PINNED_FILE


def read_pinned(path: Path) -> Pinned:
    """Return what the file at `path` pins.

    Raises: `InvalidSetting` where it is missing or says nothing sound.
    """
    try:
        return pinned_in(path.read_bytes())
    except OSError as error:
        raise InvalidSetting(str(path), f"cannot be read: {error.strerror}") from error
    except InvalidEvent as error:
        raise InvalidSetting(str(path), str(error)) from error


def means_of(pinned: Pinned) -> Means:
    """Return all that a verification needs besides the log."""
    return Means(decoder=AuditDecoding(), checks=OpensslCheck(), pinned=pinned)


def verifier_of(pinned: Pinned) -> VerifyKeyEvent:
    """Return what reads a signed key event, and raises where it does not hold."""
    means = means_of(pinned)

    def verify(signed: SignedKeyEvent) -> KeyEvent:
        found = key_event_in(signed, "", means, NOWHERE)
        if isinstance(found, Finding):
            raise InvalidEvent("key event", found.text)
        return found

    return verify
