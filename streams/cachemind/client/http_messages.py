"""Between our calls and httpx: requests, answers, and what went wrong on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx

from cachemind.client.errors import CallFailed, Unavailable
from cachemind.client.http_answers import HttpAnswer
from cachemind.client.http_calls import HttpCall

_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def build(
    client: httpx.Client | httpx.AsyncClient,
    base: str,
    call: HttpCall,
    timeout_s: float,
) -> httpx.Request:
    """Return a call as a request; each wait of it takes at most `timeout_s`."""
    return client.build_request(
        call.method,
        base + call.target,
        headers=dict(call.headers),
        content=call.body,
        timeout=timeout_s,
    )


def answer_of_response(response: httpx.Response, body: bytes) -> HttpAnswer:
    """Return a response whose body was read."""
    return HttpAnswer(
        status=response.status_code, headers=fields_of(response), body=body
    )


def fields_of(response: httpx.Response) -> Mapping[str, str]:
    """Return the header fields by lower-case names."""
    return {name.lower(): value for name, value in response.headers.items()}


def failure_of(error: httpx.HTTPError) -> CallFailed:
    """Return the failure. Its message quotes no header, no query and no body."""
    sent, where = not isinstance(error, _UNSENT), _where(error)
    if isinstance(error, httpx.TimeoutException):
        what = "an answer" if sent else "a connection"
        return Unavailable(f"{where}: {what} did not come in time", sent=sent)
    if isinstance(error, httpx.ConnectError):
        return Unavailable(f"{where} cannot be reached: {_reason(error)}", sent=sent)
    kind = type(error).__name__
    return Unavailable(f"{where} broke off ({kind}: {error})", sent=sent)


def closed() -> CallFailed:
    """Return what a client is told that was closed before."""
    return CallFailed("the client is closed")


def _where(error: httpx.HTTPError) -> str:
    try:
        url = error.request.url
    except RuntimeError:  # nobody has told it
        return "the gateway"
    return f"the gateway {url.scheme}://{url.netloc.decode('ascii')}"


def _reason(error: BaseException) -> str:
    """Return the reason that the system gave, which httpx wraps."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and (found.strerror or str(found)):
            return found.strerror or str(found)
        found = found.__cause__ or found.__context__
    return str(error)
