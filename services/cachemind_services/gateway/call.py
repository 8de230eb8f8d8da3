"""One chat completion request as the gateway understands it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cachemind.core.cache_control import Effective
from cachemind.core.canonical import ambiguous
from cachemind.core.identifiers import (
    SPAN_BYTES,
    SpanId,
    TraceContext,
    format_traceparent,
    parse_trace_context,
)
from cachemind.core.keys import RequestKeys
from cachemind.ports import UpstreamRequest
from cachemind.types import ExactKey, Principal, Sha256
from cachemind_services.gateway.admitted import Admitted
from cachemind_services.gateway.http_io import Header, Scope, target_of
from cachemind_services.gateway.identity import Ids

_NO_SPAN: Final = SpanId(bytes(SPAN_BYTES))
_OURS: Final = b"x-cachemind-"
_LENGTH_TO_BE_SET: Final = frozenset({b"content-length", b"traceparent"})


@dataclass(slots=True, kw_only=True)
class Call:
    """What stays with a request from its first byte to its last.

    `keys` is None where the body was not parsed; then nothing is cached. `wait_s` is
    how long the caller prefers to wait for a signature, None for not at all. `admitted`
    is None where authentication is off; `may_store`: the answer may become an entry.
    """

    started: float
    scope: Scope
    body: bytes
    trace: TraceContext
    keys: RequestKeys | None
    effective: Effective
    prompt_hash: Sha256
    principal: Principal
    admitted: Admitted | None = None
    may_store: bool = True
    disputed: bool | None = None
    wait_s: float | None = None


def trace_of(headers: dict[bytes, bytes], ids: Ids) -> TraceContext:
    """Return the caller's trace, or a new one where it has none or a broken one."""
    raw = headers.get(b"traceparent")
    if raw is not None:
        found = parse_trace_context(raw.decode("latin-1"))
        if found is not None:
            return found
    return TraceContext(ids.trace(), _NO_SPAN, sampled=False)


def upstream_headers(call: Call, traceparent: bytes, *, captured: bool) -> list[Header]:
    """Return the header fields for upstream: the caller's, with our place in the trace.

    An answer that is to be captured must not come compressed.
    """
    kept = [
        (name, value)
        for name, value in call.scope["headers"]
        if not name.startswith(_OURS)
        and name not in _LENGTH_TO_BE_SET
        and not (captured and name == b"accept-encoding")
    ]
    if captured:
        kept.append((b"accept-encoding", b"identity"))
    kept.append((b"traceparent", traceparent))
    return kept


def upstream_request(
    call: Call, span: bytes, body: bytes, *, captured: bool
) -> UpstreamRequest:
    """Return what upstream is sent for a request, under a span of its own."""
    trace = format_traceparent(call.trace.trace_id, span, sampled=call.trace.sampled)
    return UpstreamRequest(
        method=call.scope["method"],
        target=target(call),
        headers=upstream_headers(call, trace.encode(), captured=captured),
        body=body,
    )


def is_disputed(call: Call) -> bool:
    """Return whether another reader may understand the body differently.

    Worked out at most once a request: it takes a slow, strict parser.
    """
    if call.disputed is None:
        call.disputed = ambiguous(call.body)
    return call.disputed


def target(call: Call) -> str:
    """Return path and query for upstream."""
    return target_of(call.scope)


def elapsed_s(call: Call) -> float:
    """Return the seconds since the request came in."""
    return time.perf_counter() - call.started


def key_of(call: Call) -> ExactKey:
    """Return the exact key; of a body that was not parsed, the hash of its bytes."""
    if call.keys is not None:
        return call.keys.exact_key
    return ExactKey(sha256(call.body).digest())


def may_stream(call: Call) -> bool:
    """Return whether the answer may be a stream; of a body not parsed nobody knows."""
    return call.keys is None or call.keys.request.stream
