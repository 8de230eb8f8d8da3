"""Fetches an answer for a flight and sees to what becomes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from cachemind.core.admission import NotAdmitted
from cachemind.core.completion import JsonObject, parse_object
from cachemind.errors import (
    CacheError,
    LogRejected,
    LogUnavailable,
    MalformedCompletion,
    UpstreamUnavailable,
)
from cachemind.ports import UpstreamResponse
from cachemind.types import Lsn, Offset
from cachemind_services.gateway.admission import AdmissionDesk, Answered
from cachemind_services.gateway.answers import EVENT_STREAM, hit_body
from cachemind_services.gateway.call import Call, key_of, upstream_request
from cachemind_services.gateway.deps import GatewayDeps, OnWalFailure
from cachemind_services.gateway.flight import Flight, Head
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.http_io import JSON
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.look import Reader
from cachemind_services.gateway.stream_capture import StreamCapture
from cachemind_services.gateway.turns import Turns
from cachemind_services.gateway.usage import UsageWish
from cachemind_services.gateway.writes import Writes

FOLD_WAIT_S: Final = 2.0
_EVENT_STREAM: Final = b"text/event-stream"


@dataclass(frozen=True, slots=True)
class Errand:
    """What to fetch, and for whom.

    `reason` says why the answer is not to be captured, "" where it is. `vector` is
    the prompt's, where it is known already. `shared`: an identical request's answer
    will do as well.
    """

    call: Call
    reason: str
    vector: bytes | None
    shared: bool


class Fetcher:
    """Runs errands: one upstream answer each, published as it comes."""

    def __init__(
        self,
        deps: GatewayDeps,
        ids: Ids,
        writes: Writes,
        desk: AdmissionDesk,
        reader: Reader,
        turns: Turns | None,
        follower: Follower,
    ) -> None:
        self._deps = deps
        self._ids = ids
        self._writes = writes
        self._desk = desk
        self._reader = reader
        self._turns = turns
        self._follower = follower
        self._metrics = deps.metrics
        self._limit = deps.settings.max_cacheable_bytes
        self._usage = UsageWish()

    async def run(self, flight: Flight, errand: Errand) -> None:
        """Fetch the answer, publish it to `flight`, store it or say why not.

        The last event of a stream, and the whole of a JSON answer, leave only once
        their `Stored` is acknowledged.
        """
        vector = flight.vector = asyncio.create_task(self._vector(errand))
        try:
            await self._fetch(flight, errand)
            flight.end()
        except UpstreamUnavailable as error:
            if not flight.status:
                self._metrics.upstream_status.labels("none").inc()
            reason = "stream-cut" if flight.status else "upstream-unavailable"
            self._refuse(flight, errand, reason)
            flight.fail(error)
        except CacheError as error:
            flight.fail(error)
        except asyncio.CancelledError:
            self._refuse(flight, errand, "client-gone")
            raise
        finally:
            vector.cancel()
            if not flight.ended:
                flight.fail(UpstreamUnavailable("given up", status=500))

    async def _fetch(self, flight: Flight, errand: Errand) -> None:
        if self._turns is None or not errand.shared:
            await self._ask(flight, errand)
            return
        key, turns = key_of(errand.call), self._turns
        async with turns.take(key, self._deps.settings.turn_wait_s):
            offset = turns.stored_at(key)
            if offset is not None and await self._found(flight, errand.call, offset):
                return
            await self._ask(flight, errand)
            if flight.stored is not None:
                turns.stored(key, flight.stored.offset)

    async def _found(self, flight: Flight, call: Call, offset: Offset) -> bool:
        """Answer with what another worker stored at `offset`, if it may be served.

        It shows here once it is folded, a few milliseconds later.
        """
        assert call.keys is not None  # noqa: S101 - only parsed requests are shared
        request = call.keys.request
        await self._follower.folded(offset, FOLD_WAIT_S)
        served = self._reader.exact(call, call.keys).served
        if served is None:
            return False
        body = hit_body(
            served, stream=request.stream, include_usage=request.include_usage
        )
        headers = EVENT_STREAM if request.stream else (JSON,)
        flight.begin(Head(status=200, headers=headers, lsn=None, reason="joined"))
        await flight.publish(body)
        return True

    async def _ask(self, flight: Flight, errand: Errand) -> None:
        call = errand.call
        tried = False
        for body, added in self._usage.attempts(call, capture=not errand.reason):
            started = time.perf_counter()
            request = upstream_request(
                call, self._ids.span(), body, captured=not errand.reason
            )
            async with self._deps.upstream.send(request) as answer:
                if added and self._usage.refused(answer.status):
                    tried = True
                    continue
                if tried and answer.status < 300 and call.keys is not None:
                    self._usage.declined(call.keys.request.model)
                flight.status = answer.status
                flight.upstream_s = time.perf_counter() - started
                self._metrics.upstream.observe(flight.upstream_s)
                kind = f"{answer.status // 100}xx"
                self._metrics.upstream_status.labels(kind).inc()
                await self._receive(flight, errand, answer, added)
                return

    async def _receive(
        self, flight: Flight, errand: Errand, answer: UpstreamResponse, added: bool
    ) -> None:
        reason = errand.reason or _uncapturable(errand.call, answer)
        if reason:
            await self._pass_on(flight, errand, answer, reason)
        elif _streams(errand.call):
            await self._stream(flight, errand, answer, added)
        else:
            await self._whole(flight, errand, answer)

    async def _pass_on(
        self, flight: Flight, errand: Errand, answer: UpstreamResponse, reason: str
    ) -> None:
        flight.begin(_head(answer, None, reason))
        async for chunk in answer.chunks():
            await flight.publish(chunk)
        self._refuse(flight, errand, reason)

    async def _whole(
        self, flight: Flight, errand: Errand, answer: UpstreamResponse
    ) -> None:
        started = time.perf_counter()
        chunks = answer.chunks()
        body = await _gather(chunks, self._limit)
        flight.upstream_s += time.perf_counter() - started
        if len(body) > self._limit:
            flight.begin(_head(answer, None, "too-large"))
            await flight.publish(body)
            async for chunk in chunks:
                await flight.publish(chunk)
            self._refuse(flight, errand, "too-large")
            return
        try:
            completion = parse_object(body)
        except MalformedCompletion:
            lsn, reason = None, "malformed"
            self._refuse(flight, errand, reason)
        else:
            lsn, reason = await self._settle(flight, errand, completion, streamed=False)
        flight.begin(_head(answer, lsn, reason))
        await flight.publish(body)

    async def _stream(
        self, flight: Flight, errand: Errand, answer: UpstreamResponse, added: bool
    ) -> None:
        flight.begin(_head(answer, None, ""))
        capture = StreamCapture(self._limit, usage_added=added)
        async for chunk in answer.chunks():
            await flight.publish(capture.feed(chunk))
        last = capture.end()
        if capture.problem:
            self._refuse(flight, errand, capture.problem)
        else:
            await self._settle(flight, errand, capture.completion(), streamed=True)
        await flight.publish(last)

    async def _settle(
        self,
        flight: Flight,
        errand: Errand,
        completion: JsonObject,
        *,
        streamed: bool,
    ) -> tuple[Lsn | None, str]:
        """Return the LSN of the answer's `Stored`, or why there is none.

        Raises: `LogUnavailable` where it is refused what cannot be logged.
        """
        call = errand.call
        flight.settling = True
        assert call.keys is not None  # noqa: S101 - only parsed requests are captured
        answered = Answered(
            completion=completion, status=flight.status, streamed=streamed
        )
        vector = await self._vector_in_time(flight)
        stored = self._desk.stored(call, call.keys, answered, vector)
        if isinstance(stored, NotAdmitted):
            self._refuse(flight, errand, stored.reason)
            return None, stored.reason
        try:
            trace = call.trace.trace_id
            lsn = await self._writes.store(stored, trace, call.principal)
        except LogRejected:
            self._metrics.admissions.labels("log-rejected").inc()
            return None, "log-rejected"
        except LogUnavailable:
            self._metrics.admissions.labels("wal-unavailable").inc()
            if self._deps.settings.on_wal_failure is OnWalFailure.REFUSE:
                raise
            return None, "wal-unavailable"
        flight.stored = lsn
        self._metrics.admissions.labels(stored.evidence.rule).inc()
        return lsn, ""

    async def _vector(self, errand: Errand) -> bytes | None:
        if errand.vector is not None or errand.reason or errand.call.keys is None:
            return errand.vector
        return await self._desk.vector(errand.call.keys.prompt)

    async def _vector_in_time(self, flight: Flight) -> bytes | None:
        """Return the prompt's vector; None where the answer would wait too long."""
        vector = flight.vector
        if vector is None:
            return None
        deadline_s = self._deps.settings.embed_deadline_s
        done, _ = await asyncio.wait({vector}, timeout=deadline_s)
        return vector.result() if done else None

    def _refuse(self, flight: Flight, errand: Errand, reason: str) -> None:
        if errand.reason:
            return  # its Read says so already
        call = errand.call
        self._writes.refuse(key_of(call), call.trace.trace_id, reason, flight.status)


async def _gather(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """Return the whole body, or its beginning as soon as that is past `limit`."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


def _head(answer: UpstreamResponse, lsn: Lsn | None, reason: str) -> Head:
    return Head(status=answer.status, headers=answer.headers, lsn=lsn, reason=reason)


def _uncapturable(call: Call, answer: UpstreamResponse) -> str:
    """Return why an answer cannot be captured, "" where it can."""
    if not 200 <= answer.status < 300:
        return "upstream-status"
    headers = dict(answer.headers)
    if headers.get(b"content-encoding", b"identity") != b"identity":
        return "content-encoding"
    is_stream = headers.get(b"content-type", b"").lower().startswith(_EVENT_STREAM)
    if is_stream != _streams(call):
        return "not-a-stream" if _streams(call) else "unexpected-stream"
    return ""


def _streams(call: Call) -> bool:
    return call.keys is not None and call.keys.request.stream
