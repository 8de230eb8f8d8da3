"""The header fields that say what the cache did, and hits as answers."""

from __future__ import annotations

from email.utils import formatdate
from typing import Final

from cachemind.core.completion import parse_object
from cachemind.core.completion_chunks import frames
from cachemind.core.entry_bytes import Served
from cachemind.core.identifiers import format_traceparent
from cachemind.events import Outcome
from cachemind.types import Lsn, Version
from cachemind_services.gateway.call import Call
from cachemind_services.gateway.flight import Head
from cachemind_services.gateway.http_io import JSON, Header
from cachemind_services.gateway.look import Look

NS_PER_S: Final = 1_000_000_000
EVENT_STREAM: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
_OURS: Final = b"x-cachemind-"
_REPLACED: Final = frozenset({b"traceparent"})
_FORWARDED: Final = {
    Outcome.MISS: b"CacheMind; fwd=miss",
    Outcome.BYPASS: b"CacheMind; fwd=bypass",
}
_OUTCOMES: Final = {each: each.value.encode() for each in Outcome}


class DateField:
    """The Date field of our own answers, made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._field: Header = (b"date", b"")

    def at(self, now_ns: int) -> Header:
        """Return the field for this time. Source: RFC 9110 section 5.6.7."""
        second = now_ns // NS_PER_S
        if second != self._second:
            self._second = second
            self._field = (b"date", formatdate(second, usegmt=True).encode())
        return self._field


def hit_fields(
    look: Look, served: Served, now_ns: int, *, stream: bool
) -> list[Header]:
    """Return the fields of a hit, content type first.

    Source: RFC 9211 for Cache-Status, RFC 9111 section 5.1 for Age.
    """
    age_s = max(now_ns - served.stored_at_ns, 0) // NS_PER_S
    ttl_s = (served.expires_at_ns - now_ns) // NS_PER_S
    kind = b"exact" if look.outcome is Outcome.HIT_EXACT else b"semantic"
    return [
        *(EVENT_STREAM if stream else (JSON,)),
        (b"cache-status", b"CacheMind; hit; ttl=%d; detail=%b" % (ttl_s, kind)),
        (b"age", b"%d" % age_s),
    ]


def miss_fields(look: Look, head: Head | None, *, joined: bool) -> list[Header]:
    """Return upstream's fields, where it answered, with the cache's word on it.

    Source: RFC 9211 section 2.
    """
    fields: list[Header] = []
    word = _FORWARDED[look.outcome]
    reason = look.reason
    if head is not None:
        fields += [
            (name, value)
            for name, value in head.headers
            if name not in _REPLACED and not name.startswith(_OURS)
        ]
        word += b"; fwd-status=%d" % head.status
        word += b"; stored" if head.lsn is not None else b""
        reason = reason or head.reason
    word += b"; collapsed" if joined else b""
    word += b"; detail=" + reason.encode() if reason else b""
    fields.append((b"cache-status", word))
    return fields


def common_fields(
    call: Call, look: Look, version: Version, lsn: Lsn | None, span: bytes
) -> list[Header]:
    """Return the fields that every answered request gets."""
    trace = call.trace
    fields = [
        (b"x-cachemind-outcome", _OUTCOMES[look.outcome]),
        (b"x-cachemind-version", b"%d" % version),
        (b"x-cachemind-trace", trace.trace_id.hex().encode()),
        (b"x-cachemind-prompt-hash", call.prompt_hash.hex().encode()),
        (
            b"traceparent",
            format_traceparent(trace.trace_id, span, sampled=trace.sampled).encode(),
        ),
    ]
    if look.matched_key is not None:
        fields.append((b"x-cachemind-entry", look.matched_key.hex().encode()))
    if look.similarity is not None:
        fields.append((b"x-cachemind-similarity", b"%.4f" % look.similarity))
    if lsn is not None:
        fields.append((b"x-cachemind-lsn", str(lsn).encode()))
    return fields


def hit_body(served: Served, *, stream: bool, include_usage: bool) -> bytes:
    """Return the stored bytes, or the stream that joins to them.

    Raises: `MalformedCompletion` where the stored response cannot be streamed.
    """
    if not stream:
        return served.response
    completion = parse_object(served.response)
    return b"".join(frames(completion, include_usage=include_usage))
