"""The command `FindReceipt`, answered by what answers `GET /v1/receipts/{trace_id}`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import urlencode

from cachemind.core.cache_commands import FindReceipt, ReceiptFound
from cachemind.core.commands import Problem, ProblemCode
from cachemind.errors import InvalidRequest
from cachemind_services.gateway.command_terms import OK, refusal
from cachemind_services.gateway.http_io import Receive, Scope, Send
from cachemind_services.gateway.in_process import get, heard
from cachemind_services.gateway.receipts_api import (
    NOT_KEPT,
    RECEIPTS_PREFIX,
    ReceiptsApi,
)

_LOG: Final = logging.getLogger("cachemind.requests")

MOST_WAIT_MS: Final = 1_000
"""The commands of a partition are answered in order: those behind wait as well."""

_CODES: Final[Mapping[int, ProblemCode]] = {
    404: ProblemCode.NOT_FOUND,
    NOT_KEPT: ProblemCode.NOT_OFFERED,
    503: ProblemCode.UNAVAILABLE,
}


async def receipt_found(api: ReceiptsApi, body: FindReceipt) -> ReceiptFound | Problem:
    """Return a page of the receipts of a trace, waiting at most `MOST_WAIT_MS`."""
    try:
        answer = await heard(partial(_answer, api), _scope(body), b"")
    except InvalidRequest as error:
        code = ProblemCode.INVALID_REQUEST
        return Problem(code=code, field=error.field, message=error.problem)
    except Exception as error:  # noqa: BLE001 - whatever reading an index ends in
        # An index that cannot be read must not hold up the commands of others.
        _LOG.exception("receipts could not be read")
        message = f"the receipts cannot be read: {type(error).__name__}"
        return Problem(code=ProblemCode.FAILED, field="", message=message)
    if answer.status == OK:
        return ReceiptFound(document=answer.body)
    return refusal(answer, _CODES.get(answer.status, ProblemCode.FAILED))


def _scope(body: FindReceipt) -> Scope:
    if not 0 <= body.wait_ms <= MOST_WAIT_MS:
        raise InvalidRequest("wait_ms", f"must be from 0 to {MOST_WAIT_MS}")
    if body.after < -1:
        raise InvalidRequest("after", "must be a seq, or -1")
    query = {"wait": f"{body.wait_ms}ms"}
    if body.after >= 0:
        query["after"] = str(body.after)
    return get(RECEIPTS_PREFIX + body.trace_id.hex(), urlencode(query))


async def _answer(api: ReceiptsApi, scope: Scope, _: Receive, send: Send) -> None:
    await api.receipts(scope, send)
