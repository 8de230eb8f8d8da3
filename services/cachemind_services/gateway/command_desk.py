"""Decides commands from Kafka with the pieces that answer HTTP.

Nothing is decided here but the order: look-ups that ask nobody go together, whatever
may change what is served goes alone, as it came.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cachemind.core.cache_commands import (
    CacheAnswer,
    Complete,
    FindReceipt,
    Lookup,
    ReceiptFound,
)
from cachemind.core.commands import Command, Problem, ProblemCode, Reply
from cachemind.core.identifiers import format_traceparent
from cachemind.errors import (
    Forbidden,
    InvalidRequest,
    LogRejected,
    LogUnavailable,
    PayloadUnreadable,
)
from cachemind.ports import LogWriter, Upstream
from cachemind.ports.commands import Asked
from cachemind.types import Lsn, Namespace
from cachemind_services.gateway.admin import PREFIX
from cachemind_services.gateway.call import Call, upstream_request
from cachemind_services.gateway.command_access import (
    CommandRefusals,
    is_stranger,
    scope_of,
)
from cachemind_services.gateway.command_receipts import receipt_found
from cachemind_services.gateway.command_terms import (
    Told,
    controls,
    problem_of_request,
    told,
)
from cachemind_services.gateway.command_writes import written
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.flight_key import flight_key, not_captured
from cachemind_services.gateway.held_upstream import Held, ask, hear_only
from cachemind_services.gateway.http_io import Header
from cachemind_services.gateway.in_process import heard
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.routes import CHAT_PATH
from cachemind_services.gateway.shared import Shared

READY_S: Final = 10.0
READY_POLL_S: Final = 0.01
FLUSH_S: Final = 3.0
MOST_NAMESPACES: Final = 64
"""Followed at a time; the one that was asked for longest ago goes."""

MOST_ANSWER_BYTES: Final = 4 * 2**20
MOST_AT_ONCE: Final = 64
"""Questions to upstream."""

_STREAM: Final = "must not be asked for: a reply is one record"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskPorts:
    """What a desk stands on.

    `open` gives the ports of one tenure, whose events go to that log; `of` what they
    are for one namespace. `upstream` is the real one.
    """

    open: Callable[[LogWriter], GatewayDeps]
    of: Callable[[GatewayDeps, Namespace], GatewayDeps]
    upstream: Upstream


@dataclass(slots=True)
class _Foreseen:
    """What takes long until its transaction is committed; `number` is its place.

    `shown` is what a question for receipts was answered.
    """

    number: int
    held: Held = field(default_factory=Held)
    task: asyncio.Task[None] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    shown: ReceiptFound | Problem | None = None


class CommandDesk:
    """Decides the commands of one partition of requests; see the port."""

    def __init__(self, ports: DeskPorts) -> None:
        self._ports = ports
        self._wal: LogWriter | None = None
        self._shared: Shared | None = None
        self._spaces: dict[Namespace, Parts] = {}
        self._opening = asyncio.Lock()
        self._foreseen: dict[Command, _Foreseen] = {}
        self._seen = 0
        self._leaders: dict[object, _Foreseen] = {}
        self._at_once = asyncio.Semaphore(MOST_AT_ONCE)
        self._refusals: CommandRefusals | None = None

    # ---- tenures --------------------------------------------------------------------

    async def open(self, wal: LogWriter) -> None:
        """Begin anew: nothing that was decided before is known any more."""
        async with self._opening:
            await self._leave()
            self._wal = wal

    async def close(self) -> None:
        """Release what it holds."""
        for foreseen in self._foreseen.values():
            if foreseen.task is not None:
                foreseen.task.cancel()
        async with self._opening:
            await self._leave()

    async def _leave(self) -> None:
        self._wal = self._refusals = None
        spaces, self._spaces = self._spaces, {}
        for parts in spaces.values():
            await _left(parts)
        shared, self._shared = self._shared, None
        if shared is None:
            return
        if shared.receipts is not None:
            await shared.receipts.close()
        await shared.close()

    async def _parts(self, namespace: Namespace) -> Parts:
        """Return what answers for a namespace.

        Raises: `LogUnavailable` until it shows all that was on the log.
        """
        async with self._opening:
            parts = self._spaces.pop(namespace, None)
            if parts is None:
                parts = await self._opened(namespace)
            self._spaces[namespace] = parts
        return parts

    async def _tenure(self) -> Shared:
        """Return what the namespaces share; made when the first is asked for."""
        if self._wal is None:
            raise LogUnavailable("the partition is not ours just now")
        if self._shared is None:
            deps = await asyncio.to_thread(self._ports.open, self._wal)
            self._shared = Shared(deps)
        return self._shared

    async def _opened(self, namespace: Namespace) -> Parts:
        shared = await self._tenure()
        if len(self._spaces) >= MOST_NAMESPACES:
            await _left(self._spaces.pop(next(iter(self._spaces))))
        parts = Parts(shared, self._ports.of(shared.deps, namespace))
        try:
            await parts.start()
            await _until_ready(parts)
        except BaseException:
            await _left(parts)
            raise
        return parts

    # ---- before ---------------------------------------------------------------------

    async def foresee(self, asked: Asked) -> None:
        """Have upstream asked where a completion will need it; wait for receipts."""
        foreseen = self._of(asked.command)
        if foreseen.task is None or (foreseen.held.missed and foreseen.task.done()):
            foreseen.task = asyncio.create_task(self._ask(asked, foreseen))
        await asyncio.wait([foreseen.task])

    def _of(self, command: Command) -> _Foreseen:
        found = self._foreseen.get(command)
        if found is None:
            self._seen += 1
            found = self._foreseen[command] = _Foreseen(self._seen)
        return found

    async def _ask(self, asked: Asked, foreseen: _Foreseen) -> None:
        if asked.refusal is not None:
            return
        try:
            parts = await self._parts(asked.command.namespace)
            if isinstance(body := asked.command.body, FindReceipt):
                foreseen.shown = await receipt_found(parts.receipts_api, body)
                return
            call = self._call(parts, asked)
        except InvalidRequest:
            return  # as it will be answered
        except LogUnavailable:
            foreseen.held.missed = True
            return
        if call.effective.only_if_cached or _streams(call):
            return
        await self._ask_once(parts, call, foreseen)

    async def _ask_once(self, parts: Parts, call: Call, foreseen: _Foreseen) -> None:
        forced, foreseen.held.missed = foreseen.held.missed, False
        while True:
            look = await parts.chat.look(call)
            if look.served is not None and not forced:
                return
            key = flight_key(call, look, look.fence)
            leader = None if key is None else self._leaders.get((parts.namespace, key))
            # Never for a later one: that one's transaction comes after this one's.
            if leader is None or leader.number >= foreseen.number:
                break
            # What that one is answered may answer this one as well.
            await leader.answered.wait()
        if key is not None:
            self._leaders[parts.namespace, key] = foreseen
        assert self._shared is not None  # noqa: S101 - it has parts
        captured = not not_captured(call, look)
        request = upstream_request(
            call, self._shared.ids.span(), call.body, captured=captured
        )
        async with self._at_once:
            foreseen.held.said = await ask(
                self._ports.upstream, request, MOST_ANSWER_BYTES
            )

    def forget(self, asked: Asked) -> None:
        """Keep nothing of a command any more."""
        foreseen = self._foreseen.pop(asked.command, None)
        if foreseen is None:
            return
        if foreseen.task is not None:
            foreseen.task.cancel()
        foreseen.answered.set()
        for key in [key for key, one in self._leaders.items() if one is foreseen]:
            del self._leaders[key]

    # ---- decisions ------------------------------------------------------------------

    async def decide(self, asked: Sequence[Asked]) -> Sequence[Reply]:
        """Return an answer to each, in order."""
        replies: list[Reply] = []
        names = (one.command.namespace for one in asked if not is_stranger(one))
        spaces = {name: await self._parts(name) for name in dict.fromkeys(names)}
        for group in self._groups(asked):
            replies += await asyncio.gather(
                *(self._reply(spaces.get(one.command.namespace), one) for one in group)
            )
        for parts in spaces.values():
            await parts.writes.drain()
            await parts.wal.flush(FLUSH_S)
        if self._refusals is not None:
            await self._refusals.flush(FLUSH_S)
        if any(one.held.missed for one in self._foreseen.values()):
            raise LogUnavailable("an entry has gone that was to answer; once more")
        return replies

    def _groups(self, asked: Sequence[Asked]) -> Iterator[Sequence[Asked]]:
        together: list[Asked] = []
        for one in asked:
            if self._asks_nobody(one):
                together.append(one)
                continue
            if together:
                yield together
                together = []
            yield [one]
        if together:
            yield together

    def _asks_nobody(self, asked: Asked) -> bool:
        body = asked.command.body
        if asked.refusal is not None:
            return True
        if isinstance(body, Complete):
            return self._of(asked.command).held.said is None
        return isinstance(body, Lookup | FindReceipt)

    async def _reply(self, parts: Parts | None, asked: Asked) -> Reply:
        command = asked.command
        version = -1 if parts is None else int(parts.follower.state.version)
        lsn: Lsn | None = None
        body: CacheAnswer | Problem
        try:
            if asked.refusal is not None:
                raise asked.refusal
            assert parts is not None  # noqa: S101 - a stranger is always refused
            if isinstance(command.body, Lookup | Complete):
                answer = await self._looked_up(parts, asked)
                body, lsn = answer.body, answer.lsn
                version = max(answer.version, version)
            elif isinstance(command.body, FindReceipt):
                body = await self._receipts(parts, command, command.body)
            else:
                scope = scope_of(PREFIX, asked, self._fields(asked))
                body, lsn = await written(parts, asked, scope)
        except Forbidden as error:
            body = (await self._say_no()).tell(parts, asked, error)
        except InvalidRequest as error:
            body = problem_of_request(error)
        except LogRejected as error:
            body = Problem(code=ProblemCode.TOO_LARGE, field="", message=str(error))
        except PayloadUnreadable as error:
            body = Problem(code=ProblemCode.UNAVAILABLE, field="", message=str(error))
        return Reply(
            request_id=command.request_id,
            namespace=command.namespace,
            trace_id=asked.trace,
            lsn=lsn,
            body=body,
            version=version,
        )

    def _call(self, parts: Parts, asked: Asked) -> Call:
        """Return a look-up as the gateway understands it. Raises: `InvalidRequest`."""
        body = asked.command.body
        assert isinstance(body, Lookup | Complete)  # noqa: S101 - nothing else looks up
        fields = [*controls(body), *self._fields(asked)]
        scope = scope_of(CHAT_PATH, asked, fields)
        return parts.understanding.call(time.perf_counter(), scope, body.request)

    async def _say_no(self) -> CommandRefusals:
        if self._refusals is None:
            self._refusals = CommandRefusals(await self._tenure())
        return self._refusals

    def _fields(self, asked: Asked) -> list[Header]:
        """Return the trace, and what upstream is told on the namespace's behalf.

        Where nobody is asked who asks, nothing is told: as over HTTP.
        """
        access = None if self._shared is None else self._shared.deps.access
        held = {} if access is None else access.upstream
        return [*_traced(asked), *held.get(asked.command.namespace, ())]

    async def _looked_up(self, parts: Parts, asked: Asked) -> Told:
        call = self._call(parts, asked)
        if _streams(call):
            raise InvalidRequest("request.stream", _STREAM)
        is_lookup = isinstance(asked.command.body, Lookup)
        hear_only(Held() if is_lookup else self._of(asked.command).held)
        return told(await heard(parts.chat.handle, call.scope, call.body))

    async def _receipts(
        self, parts: Parts, command: Command, body: FindReceipt
    ) -> ReceiptFound | Problem:
        shown = self._of(command).shown
        if shown is None:
            at_once = replace(body, wait_ms=0)
            shown = await receipt_found(parts.receipts_api, at_once)
        return shown


def _traced(asked: Asked) -> list[Header]:
    span = asked.command.request_id[:8]
    if not any(span):
        span = asked.command.request_id[8:]
    return [(b"traceparent", format_traceparent(asked.trace, span).encode())]


def _streams(call: Call) -> bool:
    return call.keys is not None and call.keys.request.stream


async def _until_ready(parts: Parts) -> None:
    until = time.monotonic() + READY_S
    while reasons := parts.not_ready():
        if time.monotonic() > until:
            raise LogUnavailable(f"nothing can be decided yet: {reasons[0]}")
        await asyncio.sleep(READY_POLL_S)


async def _left(parts: Parts) -> None:
    """Stop a namespace whose events are committed, or never will be."""
    await parts.land(0.0)
    await parts.flush(0.0)
    await parts.close()
