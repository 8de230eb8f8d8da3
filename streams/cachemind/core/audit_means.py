"""What a verification stands on: a decoder, a check of signatures, what is pinned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cachemind.core.audit_findings import (
    Finding,
    Place,
    Reason,
    Step,
    tampered,
    unverifiable,
)
from cachemind.core.signature_check import SignatureCheck
from cachemind.errors import CacheError, UnknownSchema
from cachemind.receipts import (
    Cut,
    CutsRecord,
    KeyEvent,
    KeyId,
    LogId,
    Receipt,
    SignedKeyEvent,
    SignedReceipt,
)


class AuditDecoder(Protocol):
    """Decodes, and takes no encoding of a value but its one.

    Each raises `UndecodableRecord`, and `UnknownSchema` for what a newer build wrote.
    """

    def signed_receipt(self, value: bytes, /) -> SignedReceipt:
        """Return a record of the topic of receipts."""
        ...

    def receipt(self, receipt: bytes, /) -> Receipt:
        """Return the receipt in one."""
        ...

    def cuts_record(self, value: bytes, /) -> CutsRecord:
        """Return a record of the topic of cuts."""
        ...

    def leaf(self, leaf: bytes, /) -> Cut | SignedKeyEvent:
        """Return the leaf in one."""
        ...

    def key_event(self, event: bytes, /) -> KeyEvent:
        """Return the event in a signed one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RootKey:
    """A key that vouches for all others; `public_key` as DER (SPKI)."""

    key_id: KeyId
    public_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessKey:
    """A witness's Ed25519 key (DER, SPKI) and the name that its lines begin with."""

    name: str
    public_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What an auditor knows from elsewhere, and trusts."""

    log_id: LogId
    roots: tuple[RootKey, ...]
    witnesses: tuple[WitnessKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """All that a verification stands on, besides the log itself."""

    decoder: AuditDecoder
    checks: SignatureCheck
    pinned: Pinned


def undecodable(error: CacheError, place: Place) -> Finding:
    """Return the finding for a record that was not decoded because of `error`."""
    if isinstance(error, UnknownSchema):
        return unverifiable(Step.BYTES, Reason.UNKNOWN_SCHEMA, str(error), place)
    return tampered(Step.BYTES, Reason.UNDECODABLE, str(error), place)
