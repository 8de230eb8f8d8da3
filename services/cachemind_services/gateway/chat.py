"""`POST /v1/chat/completions`: look up, answer, or fetch and remember."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cachemind.core.keys import RequestKeys
from cachemind.errors import (
    CacheError,
    InvalidRequest,
    LogError,
    MalformedCompletion,
    UpstreamUnavailable,
)
from cachemind.events import Outcome, Read
from cachemind.types import Lsn
from cachemind_services.gateway.answers import (
    DateField,
    common_fields,
    hit_body,
    hit_fields,
    miss_fields,
)
from cachemind_services.gateway.call import (
    Call,
    elapsed_s,
    key_of,
    may_stream,
)
from cachemind_services.gateway.deps import (
    GatewayDeps,
    OnWalFailure,
    WalAck,
)
from cachemind_services.gateway.fetcher import Errand, Fetcher
from cachemind_services.gateway.flight import Flight, Listener
from cachemind_services.gateway.flight_key import FlightKey, flight_key, not_captured
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.http_io import (
    ClientGone,
    Header,
    Receive,
    Scope,
    Send,
    disconnected,
    read_body,
    send_error,
    send_invalid,
)
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.look import Look, Reader
from cachemind_services.gateway.signatures import Signatures
from cachemind_services.gateway.understanding import Understanding
from cachemind_services.gateway.wal_session import WalSession
from cachemind_services.gateway.whole_answers import send_hit

_GATEWAY_TIMEOUT: Final = 504
_UNAVAILABLE: Final = 503
_WAL_UNAVAILABLE: Final = "wal-unavailable"
_ROLLED_BACK: Final = "rolled-back"
_NOT_A_CHAT: Final = "not-a-chat"
_LOG: Final = logging.getLogger("cachemind.gateway")
_RETRY_AFTER: Final = ((b"retry-after", b"1"),)


@dataclass(frozen=True, slots=True)
class _Miss:
    """A request that waits for upstream. `ack` is None where nothing is logged."""

    call: Call
    look: Look
    flight: Flight
    joined: bool
    ack: asyncio.Future[Lsn] | None


class ChatHandler:
    """Answers chat completion requests of one namespace."""

    def __init__(
        self,
        deps: GatewayDeps,
        ids: Ids,
        understanding: Understanding,
        wal: WalSession,
        follower: Follower,
        reader: Reader,
        fetcher: Fetcher,
        signatures: Signatures,
        doubt: Callable[[], str | None],
    ) -> None:
        """`doubt` says why nothing of the store may be served, None where it may."""
        self._signatures = signatures
        self._doubt = doubt
        self._understanding = understanding
        self._settings = settings = deps.settings
        self._metrics = deps.metrics
        self._clock = deps.clock
        self._ids = ids
        self._wal = wal
        self._follower = follower
        self._reader = reader
        self._fetcher = fetcher
        self._acked = settings.wal_ack is WalAck.ACKED
        self._refuses = settings.on_wal_failure is OnWalFailure.REFUSE
        self._date = DateField()
        self._flights: dict[FlightKey, Flight] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        try:
            body = await read_body(receive, self._settings.max_body_bytes)
            call = self._understanding.call(started, scope, body)
        except InvalidRequest as error:
            self._metrics.invalid.inc()
            await send_invalid(send, error, receive)
            return
        except ClientGone:
            return
        if call.admitted is None or not may_stream(call):
            await self._answer(call, receive, send)
            return
        call.admitted.meter.begin_stream()
        try:
            await self._answer(call, receive, send)
        finally:
            call.admitted.meter.end_stream()

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with upstream's answer to what is not for the cache, and log it."""
        started = time.perf_counter()
        try:
            body = await read_body(receive, self._settings.max_body_bytes)
        except InvalidRequest as error:
            self._metrics.invalid.inc()
            await send_invalid(send, error, receive)
            return
        except ClientGone:
            return
        call = self._understanding.other(started, scope, body)
        look = Look(outcome=Outcome.BYPASS, reason=_NOT_A_CHAT)
        await self._miss(call, look, receive, send)

    async def look(self, call: Call) -> Look:
        """Return how the look-up of a request ends just now; nothing is logged."""
        keys = call.keys
        if keys is None or call.effective.bypass:
            reason = "not-parsed" if keys is None else "mode-off"
            return Look(outcome=Outcome.BYPASS, reason=reason)
        if (doubt := self._doubt()) is not None:
            return Look(outcome=Outcome.BYPASS, reason=doubt)
        look = self._reader.exact(call, keys)
        if look.served is None and call.effective.lookup:
            look = await self._reader.semantic(call, keys, look)
        return look

    async def _answer(self, call: Call, receive: Receive, send: Send) -> None:
        look = await self.look(call)
        if look.served is None or call.keys is None:
            await self._miss(call, look, receive, send)
        else:
            await self._hit(call, call.keys, look, receive, send)

    # ---- hits ----------------------------------------------------------------------

    async def _hit(
        self, call: Call, keys: RequestKeys, look: Look, receive: Receive, send: Send
    ) -> None:
        served = look.served
        assert served is not None  # noqa: S101 - the caller saw to it
        request = keys.request
        try:
            body = hit_body(
                served, stream=request.stream, include_usage=request.include_usage
            )
            ack = self._wal.read(self._read(call, look))
            lsn = await ack if self._acked else None
            signed = await self._signed(call, lsn)
        except MalformedCompletion:
            look = Look(outcome=Outcome.MISS, reason="malformed-entry")
            await self._miss(call, look, receive, send)
            return
        except LogError:
            await self._without_log(call, receive, send)
            return
        if self._reader.fence != look.fence:
            # Voided, perhaps, while the log took the Read: its trace gets a second.
            look = Look(outcome=Outcome.MISS, reason=_ROLLED_BACK)
            await self._miss(call, look, receive, send)
            return
        now_ns = self._clock.now_ns()
        fields = hit_fields(look, served, now_ns, stream=request.stream)
        fields.append(self._date.at(now_ns))
        fields += self._common(call, look, lsn)
        fields += signed
        self._metrics.hit(look.outcome, elapsed_s(call))
        await send_hit(send, fields, body)

    # ---- misses --------------------------------------------------------------------

    async def _miss(self, call: Call, look: Look, receive: Receive, send: Send) -> None:
        if call.effective.only_if_cached:
            await self._not_cached(call, look, send)
            return
        key = flight_key(call, look, self._reader.fence)
        flight = None if key is None else self._flights.get(key)
        if flight is not None and not flight.joinable:
            flight = None
        if flight is not None:
            look = replace(look, reason=look.reason or "joined")
        try:
            ack = self._wal.read(self._read(call, look))
        except LogError:
            await self._without_log(call, receive, send)
            return
        if flight is None:
            flight = self._start(call, look, key)
            joined = False
        else:
            self._metrics.joined.inc()
            joined = True
        await self._listen(
            _Miss(call, look, flight, joined=joined, ack=ack), receive, send
        )

    async def _not_cached(self, call: Call, look: Look, send: Send) -> None:
        """Answer 504 in place of going upstream, as RFC 9111 section 5.2.1.7 asks."""
        look = replace(look, reason=look.reason or "only-if-cached")
        lsn: Lsn | None = None
        try:
            ack = self._wal.read(self._read(call, look))
            lsn = await ack if self._acked else None
        except LogError:
            if self._refuses:
                await self._refuse(send)
                return
        self._metrics.outcomes[look.outcome].inc()
        status = (b"cache-status", b"CacheMind; detail=only-if-cached")
        fields = (status, *self._common(call, look, lsn))
        message = "the answer is not cached, and only-if-cached forbids to fetch it"
        await send_error(
            send, _GATEWAY_TIMEOUT, message, code="not_cached", headers=fields
        )

    async def _without_log(self, call: Call, receive: Receive, send: Send) -> None:
        """Answer while the log is away: refuse, or upstream only and nothing cached."""
        look = Look(outcome=Outcome.BYPASS, reason=_WAL_UNAVAILABLE)
        self._wal.probe(self._read(call, look))
        if self._refuses:
            await self._refuse(send)
        elif call.effective.only_if_cached:
            await self._not_cached(call, look, send)
        else:
            flight = self._start(call, look, None)
            miss = _Miss(call, look, flight, joined=False, ack=None)
            await self._listen(miss, receive, send)

    async def _refuse(self, send: Send) -> None:
        await send_error(
            send,
            _UNAVAILABLE,
            "the write-ahead log does not answer",
            code="wal_unavailable",
            headers=_RETRY_AFTER,
        )

    def _start(self, call: Call, look: Look, key: FlightKey | None) -> Flight:
        flight = Flight(self._settings.max_cacheable_bytes)
        reason = not_captured(call, look)
        errand = Errand(call, reason, look.vector, shared=key is not None)
        task = asyncio.create_task(self._fetcher.run(flight, errand))
        flight.task = task
        self.tasks.add(task)
        if key is not None:
            self._flights[key] = flight

        def landed(task: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            if key is not None and self._flights.get(key) is flight:
                del self._flights[key]

        task.add_done_callback(landed)
        return flight

    async def _listen(self, miss: _Miss, receive: Receive, send: Send) -> None:
        listener = miss.flight.join()
        watcher = asyncio.create_task(disconnected(receive))
        watcher.add_done_callback(lambda _: listener.hang_up())
        try:
            await self._pass_on(miss, listener, send)
            self._metrics.total.observe(elapsed_s(miss.call))
        except ClientGone:
            pass
        finally:
            watcher.cancel()
            listener.leave()

    async def _pass_on(self, miss: _Miss, listener: Listener, send: Send) -> None:
        try:
            head = await listener.head()
            look, lsn = await self._logged(miss)
            signed = await self._signed(miss.call, head.lsn or lsn)
        except UpstreamUnavailable as error:
            await self._upstream_failed(miss, error, send)
            return
        except InvalidRequest as error:
            self._metrics.invalid.inc()
            await send_invalid(send, error)
            return
        except LogError:
            await self._refuse(send)
            return
        self._metrics.outcomes[look.outcome].inc()
        if look.reason or head.reason:
            self._metrics.reasons.labels(look.reason or head.reason).inc()
        spent_s = 0.0 if miss.joined else miss.flight.upstream_s
        self._metrics.added.observe(max(elapsed_s(miss.call) - spent_s, 0.0))
        fields = miss_fields(look, head, joined=miss.joined)
        fields += self._common(miss.call, look, head.lsn or lsn)
        fields += signed
        await send(
            {"type": "http.response.start", "status": head.status, "headers": fields}
        )
        await self._relay(listener, send)

    async def _relay(self, listener: Listener, send: Send) -> None:
        try:
            while (body := await listener.next()) is not None:
                message = {"type": "http.response.body", "body": body}
                await send({**message, "more_body": True})
        except CacheError as error:
            # Returning without the last message makes the server cut the connection:
            # the client must not take half an answer for a whole one.
            _LOG.warning("an answer was cut short: %s", error)
            return
        await send({"type": "http.response.body", "body": b""})

    async def _logged(self, miss: _Miss) -> tuple[Look, Lsn | None]:
        """Return the look-up's LSN; a bypass where the log took too long."""
        if miss.ack is None or not self._acked:
            return miss.look, None
        try:
            return miss.look, await miss.ack
        except LogError:
            if self._refuses:
                raise
            outcome = Outcome.BYPASS
            return replace(miss.look, outcome=outcome, reason=_WAL_UNAVAILABLE), None

    async def _upstream_failed(
        self, miss: _Miss, error: UpstreamUnavailable, send: Send
    ) -> None:
        self._metrics.outcomes[miss.look.outcome].inc()
        fields = miss_fields(miss.look, None, joined=miss.joined)
        fields += self._common(miss.call, miss.look, None)
        await send_error(
            send,
            error.status,
            str(error),
            code="upstream_unavailable",
            headers=tuple(fields),
        )

    # ---- both ----------------------------------------------------------------------

    async def _signed(self, call: Call, source: Lsn | None) -> Sequence[Header]:
        """Wait for the signature over a record's receipt, where the caller would."""
        if call.wait_s is None:
            return ()
        return await self._signatures.fields(call.wait_s, source)

    def _common(self, call: Call, look: Look, lsn: Lsn | None) -> list[Header]:
        version = self._follower.state.version
        return common_fields(call, look, version, lsn, self._ids.span())

    def _read(self, call: Call, look: Look) -> Read:
        served = look.served
        return Read(
            trace_id=call.trace.trace_id,
            principal=call.principal,
            occurred_at_ns=self._clock.now_ns(),
            outcome=look.outcome,
            exact_key=key_of(call),
            matched_key=look.matched_key,
            similarity=look.similarity,
            strategy=look.strategy,
            version_seen=self._follower.state.version,
            prompt_hash=call.prompt_hash,
            response_hash=None if served is None else served.response_hash,
            reason=look.reason,
        )
