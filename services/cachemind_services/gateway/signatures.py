"""`Prefer: wait`: an answer leaves once its receipt is signed, and says so."""

from __future__ import annotations

import base64
import math
from typing import Final

from cachemind.codec.receipts import decode_signed_receipt
from cachemind.errors import CacheError
from cachemind.ports.receipt_index import FoundReceipt
from cachemind.types import Lsn
from cachemind_services.gateway.http_io import Header
from cachemind_services.gateway.receipts import Receipts

DEFAULT_WAIT_S: Final = 2.0
MOST_WAIT_S: Final = 30.0
_UNSIGNED: Final = b"x-cachemind-unsigned"


class Signatures:
    """Makes the fields of an answer whose caller prefers to wait."""

    def __init__(self, receipts: Receipts | None) -> None:
        """Without `receipts` the preference is passed over."""
        self._receipts = receipts

    async def fields(self, wait_s: float, source: Lsn | None) -> list[Header]:
        """Return the signature over the receipt of the record `source`, once it is.

        After `wait_s`, and where there can be none, a field that says why there is
        none. Source: RFC 7240 section 3 for Preference-Applied, RFC 9651 section 3.2
        for the signature's form.
        """
        if self._receipts is None:
            return []
        if source is None:
            return [(_UNSIGNED, b"not-logged")]
        try:
            found = await self._receipts.find(
                lambda finder: finder.of_source(source), wait_s
            )
        except CacheError:
            return [(_UNSIGNED, b"unavailable")]
        if found is None:
            return [(_UNSIGNED, b"timeout")]
        return [
            (b"x-cachemind-signature", _shown(found)),
            (b"preference-applied", b"wait=%d" % math.ceil(wait_s)),
        ]


def _shown(found: FoundReceipt) -> bytes:
    signature = decode_signed_receipt(found.record).signature
    return b'keyid="%b", sig=:%b:, partition=%d, seq=%d' % (
        signature.key_id.encode(),
        base64.b64encode(signature.value),
        found.partition,
        found.seq,
    )
