"""Between our calls and httpx: requests, answers, and what went wrong on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx

from cachemind.client.errors import CallFailed, NotValid, Unavailable
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
    """Return the failure. Its message quotes no header and no body."""
    if isinstance(error, httpx.UnsupportedProtocol):
        return NotValid("url: expected http://HOST:PORT or https://...", field="url")
    if isinstance(error, httpx.TimeoutException):
        return Unavailable(
            f"no answer in time ({type(error).__name__})",
            sent=not isinstance(error, _UNSENT),
        )
    return Unavailable(
        f"the gateway did not answer ({type(error).__name__})",
        sent=not isinstance(error, _UNSENT),
    )
