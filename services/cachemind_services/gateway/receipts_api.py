"""`GET /v1/receipts/{trace_id}`: the receipts of a trace with all that proves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from cachemind.codec.evidence import shown_evidence
from cachemind.errors import InvalidRequest, StoreError
from cachemind.ports.receipt_index import ReceiptFinder
from cachemind.types import ID_BYTES, Namespace, TraceId
from cachemind_services.gateway.http_io import Scope, Send, send_error, send_json
from cachemind_services.gateway.query import Query
from cachemind_services.gateway.receipts import Receipts, TooManyWait
from cachemind_services.gateway.signatures import MOST_WAIT_S

RECEIPTS_PREFIX: Final = "/v1/receipts/"
PAGE: Final = 32
"""Receipts in one answer."""

PAGE_BYTES: Final = 2**20
"""No more are added after so many, so that an answer fits into a Kafka record."""

_KNOWN: Final = frozenset({"wait", "after"})
_HEX: Final = frozenset("0123456789abcdef")
NOT_KEPT: Final = 501
_RETRY: Final = ((b"retry-after", b"1"),)


@dataclass(frozen=True, slots=True)
class _Page:
    """Receipts with their proofs, and the seq after which there are more."""

    receipts: list[orjson.Fragment]
    next_after: int | None


class ReceiptsApi:
    """Shows the receipts of the gateway's own namespace, and of no other."""

    def __init__(self, receipts: Receipts | None, namespace: Namespace) -> None:
        """Without `receipts` every question is answered with 501."""
        self._receipts = receipts
        self._namespace = namespace

    async def receipts(self, scope: Scope, send: Send) -> None:
        """Answer with every receipt that names the trace, 404 while there is none.

        Raises: `InvalidRequest`.
        """
        if self._receipts is None:
            problem = "no receipts are kept here: audit mode is off"
            await send_error(send, NOT_KEPT, problem, code="not_offered")
            return
        trace = _trace(scope["path"].removeprefix(RECEIPTS_PREFIX))
        query = Query(scope, _KNOWN)
        wait_s, after = _wait_s(query.text("wait", "0")), query.whole("after")
        try:
            page = await self._receipts.find(
                lambda finder: self._page(
                    finder, trace, -1 if after is None else after
                ),
                wait_s,
            )
        except (StoreError, TooManyWait) as error:
            code = "receipts_unavailable"
            await send_error(send, 503, str(error), code=code, headers=_RETRY)
            return
        if page is None:
            message = "no receipt names this trace; it may not be signed yet (?wait=2s)"
            await send_error(send, 404, message, param="trace_id", code="no_receipt")
        else:
            answer: dict[str, object] = {
                "trace_id": trace.hex(),
                "receipts": page.receipts,
                "next_after": page.next_after,
            }
            await send_json(send, 200, answer)

    def _page(self, finder: ReceiptFinder, trace: TraceId, after: int) -> _Page | None:
        """Return the receipts that are proven by now, None where none is."""
        found = finder.of_trace(self._namespace, trace, after, PAGE + 1)
        shown: list[orjson.Fragment] = []
        size, last = 0, after
        key_events = finder.key_events() if found else ()
        for receipt in found:
            proof = finder.proof(receipt)
            if proof is None:
                # Nor are those after it: a cut covers all before the last it covers.
                break
            if len(shown) == PAGE or size > PAGE_BYTES:
                return _Page(shown, last)
            text = orjson.dumps(shown_evidence(receipt, proof, key_events))
            shown.append(orjson.Fragment(text))
            size, last = size + len(text), receipt.seq
        return _Page(shown, None) if shown else None


def _trace(text: str) -> TraceId:
    if len(text) != 2 * ID_BYTES or not _HEX.issuperset(text):
        raise InvalidRequest("trace_id", "must be 32 lower-case hex characters")
    return TraceId(bytes.fromhex(text))


def _wait_s(text: str) -> float:
    """Return what `2s`, `500ms` or `2` mean. Raises: `InvalidRequest`."""
    unit_s = 0.001 if text.endswith("ms") else 1.0
    number = text.removesuffix("ms").removesuffix("s")
    if not (number.isascii() and number.isdigit() and len(number) < 9):
        raise InvalidRequest("wait", "must be a duration such as 2s or 500ms")
    wait_s = int(number) * unit_s
    if wait_s > MOST_WAIT_S:
        raise InvalidRequest("wait", f"must be at most {MOST_WAIT_S:.0f}s")
    return wait_s
