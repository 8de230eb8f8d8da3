"""Verifies dumps in tests, thousands of them: what was seen once is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.codec import Codec
from cachemind.codec.audit_decoder import AuditDecoding
from cachemind.core.audit_findings import Finding, Outcome, Severity, outcome_of
from cachemind.core.audit_means import Means, Pinned
from cachemind.core.audit_notes import CutNote
from cachemind.core.audit_verify import AuditLog, Summary, Verification
from cachemind.core.audit_wal import WalJoin, WalRecord
from cachemind.receipts import Cut, CutsRecord, Receipt, SignedKeyEvent, SignedReceipt
from cachemind.types import Offset, Partition
from tests.audit_dump import PINNED, Dump

_KEPT = 4_096


class RememberingCheck(OpensslCheck):
    """The real check; asked the same again, it says the same."""

    def __init__(self) -> None:
        self._ecdsa = lru_cache(_KEPT)(super().ecdsa)

    def ecdsa(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return self._ecdsa(public_key, message, signature)


class RememberingDecoder(AuditDecoding):
    """The real decoder, which does not decode the same bytes again."""

    def __init__(self) -> None:
        self._signed_receipt = lru_cache(_KEPT)(super().signed_receipt)
        self._receipt = lru_cache(_KEPT)(super().receipt)
        self._cuts_record = lru_cache(_KEPT)(super().cuts_record)
        self._leaf = lru_cache(_KEPT)(super().leaf)

    def signed_receipt(self, value: bytes, /) -> SignedReceipt:
        return self._signed_receipt(value)

    def receipt(self, receipt: bytes, /) -> Receipt:
        return self._receipt(receipt)

    def cuts_record(self, value: bytes, /) -> CutsRecord:
        return self._cuts_record(value)

    def leaf(self, leaf: bytes, /) -> Cut | SignedKeyEvent:
        return self._leaf(leaf)


_CHECK, _DECODER, _CODEC = RememberingCheck(), RememberingDecoder(), Codec()


def verified(
    dump: Dump,
    *,
    pins: Sequence[CutNote] = (),
    pinned: Pinned = PINNED,
    wal_from: int | None = None,
) -> tuple[list[Finding], Summary]:
    """Return all that is found about `dump`, beside its WAL from an offset on."""
    joins = {}
    if wal_from is not None:
        for number, records in enumerate(dump.wal):
            kept = [WalRecord(Offset(at), v) for at, v in records if at >= wal_from]
            partition = Partition(number)
            joins[partition] = WalJoin(
                partition, Offset(wal_from), iter(kept), _CODEC.decode
            )
    log = AuditLog(
        cuts=lambda: dump.cuts,
        receipts={Partition(p): iter(v) for p, v in enumerate(dump.receipts)},
        wal=joins,
    )
    means = Means(decoder=_DECODER, checks=_CHECK, pinned=pinned)
    verification = Verification(log, means, pins)
    return list(verification.findings()), verification.summary()


def problems(dump: Dump, *, pins: Sequence[CutNote] = ()) -> list[Finding]:
    """Return what is wrong with `dump`, without notes."""
    found, _ = verified(dump, pins=pins)
    return [one for one in found if one.severity is not Severity.NOTE]


def outcome(dump: Dump, *, pins: Sequence[CutNote] = ()) -> Outcome:
    """Return the verdict on `dump`."""
    return outcome_of(verified(dump, pins=pins)[0])
