"""`POST /v1/rollback` and `GET /v1/rollbacks/{id}`.

The record on the WAL is the commit point; all that is refused is refused before it,
or by the fold, from the state alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from cachemind.core.payloads import PLAIN, Payloads
from cachemind.core.rollback_goal import (
    FORBIDDEN,
    Done,
    Wish,
    decided,
    ending,
    goal_of,
    require_not_forgotten,
)
from cachemind.core.rollback_report import RollbackReport, Strategy
from cachemind.errors import InvalidRequest, LogUnavailable
from cachemind.events import RolledBack
from cachemind.ports import Clock
from cachemind.types import EventId, Lsn, Namespace, Offset, Principal, TraceId
from cachemind_services.gateway.admitted import principal_in
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.http_io import (
    Header,
    Scope,
    Send,
    send_error,
    send_json,
)
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.prefer import preferred_wait_s
from cachemind_services.gateway.query import Query
from cachemind_services.gateway.rollback_wish import (
    KNOWN,
    Asked,
    parse_id,
    parse_wish,
)
from cachemind_services.gateway.shown import (
    shown_id,
    shown_progress,
    shown_rehearsal,
    shown_report,
)
from cachemind_services.gateway.time_travel import (
    Rehearsal,
    TimeTravel,
    TimeTraveller,
)
from cachemind_services.gateway.versions_api import (
    DIFF_PATH,
    VERSIONS_PATH,
)
from cachemind_services.gateway.wal_session import WalSession

ROLLBACK_PATH: Final = "/v1/rollback"
ROLLBACKS_PREFIX: Final = "/v1/rollbacks/"
CATCH_UP_S: Final = 5.0
"""How long a rollback waits for the fold before it is decided on."""

WAIT_S: Final = 20.0
"""How long the answer waits for the fold by default; 202 after that."""

SERVER_ERROR: Final = 500
_MOST_WAIT_S: Final = 300
_ELSEWHERE: Final = (b"cross-site", b"same-site")


def is_of_past(path: str) -> bool:
    """Return whether `path` is answered from versions, here or in `versions_api`."""
    ours = (VERSIONS_PATH, DIFF_PATH, ROLLBACK_PATH)
    return path in ours or path.startswith(ROLLBACKS_PREFIX)


class RollbackApi:
    """Rolls the gateway's namespace back, or says what that would do."""

    def __init__(
        self,
        past: TimeTraveller,
        follower: Follower,
        wal: WalSession,
        ids: Ids,
        clock: Clock,
        payloads: Payloads = PLAIN,
    ) -> None:
        self._payloads = payloads
        self._past = past
        self._follower = follower
        self._wal = wal
        self._ids = ids
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def rollback(self, scope: Scope, send: Send, trace: TraceId) -> None:
        """Roll back, or rehearse it where `dry_run` is asked for."""
        headers = dict(scope["headers"])
        if headers.get(b"sec-fetch-site") in _ELSEWHERE:
            # A page of another site must not do this with its visitor's browser.
            raise InvalidRequest("sec-fetch-site", "is another site", status=FORBIDDEN)
        asked = parse_wish(Query(scope, KNOWN), self._past.namespace)
        asked_s = preferred_wait_s(headers.get(b"prefer"), WAIT_S, _MOST_WAIT_S)
        wait_s = WAIT_S if asked_s is None else asked_s
        await self._caught_up()
        if asked.wish.dry_run:
            await self._rehearse(asked, send)
            return
        async with self._one_at_a_time:
            decision = await self._decided(asked.wish)
            if isinstance(decision, Done):
                await self._answer(decision, send)
                return
            lsn = await self._append(decision, trace, principal_in(scope))
        await self._finish(decision.rollback_id, lsn, wait_s, send)

    async def status(self, text: str, send: Send) -> None:
        """Answer how a rollback ended, or how far it is."""
        rollback_id, namespace = parse_id("id", text), self._past.namespace

        def look(travel: TimeTravel) -> RollbackReport | dict[str, object] | None:
            found = travel.progress()
            report = travel.report(namespace, rollback_id)
            if report is not None:
                return report
            require_not_forgotten(travel, namespace, rollback_id, "id")
            lsn = travel.pending(namespace, rollback_id)
            if lsn is None:
                # It may have been folded between the two.
                travel.catch_up()
                return travel.report(namespace, rollback_id)
            asked = (namespace, rollback_id)
            shown = None
            if found is not None and (found.namespace, found.rollback_id) == asked:
                shown = shown_progress(found)
            return self._running(rollback_id, lsn, shown)

        known = await self._past.ask(look)
        if isinstance(known, RollbackReport):
            await send_json(send, 200, shown_report(known, self._follower.partition))
        elif known is not None:
            await send_json(send, 200, known)
        else:
            await send_error(
                send, 404, "there is no such rollback", param="id", code="not_found"
            )

    # ---- before the record ---------------------------------------------------------

    async def _caught_up(self) -> None:
        """Wait until all that was on the log is folded.

        Raises: `LogUnavailable` where that takes too long.
        """
        end = await self._past.ask(lambda travel: travel.log_end())
        if not await self._follower.folded(Offset(end - 1), CATCH_UP_S):
            raise LogUnavailable(
                f"the fold is at {self._follower.applied} of {end - 1}; try again later"
            )

    async def _rehearse(self, asked: Asked, send: Send) -> None:
        wish = asked.wish

        def look(travel: TimeTravel) -> Rehearsal:
            goal = goal_of(wish, travel)
            strategy = wish.strategy or Strategy.FIELD_HASH
            return travel.rehearse(wish.namespace, goal.target, strategy)

        rehearsal = await self._past.ask(look)
        shown = shown_rehearsal(
            rehearsal, limit=asked.limit, bodies=asked.bodies, payloads=self._payloads
        )
        await send_json(send, 200, {"namespace": wish.namespace, **shown})

    async def _decided(self, wish: Wish) -> Done | RolledBack:
        """Return what to do, rehearsed by the strategy where one is asked for.

        The record has no place for it.
        """
        fresh, strategy = self._ids.event(self._clock.now_ns()), wish.strategy
        decision = await self._past.ask(lambda travel: decided(wish, travel, fresh))
        if strategy is not None and isinstance(decision, RolledBack):
            target = decision.to_version
            await self._past.ask(
                lambda travel: travel.rehearse(wish.namespace, target, strategy)
            )
        return decision

    # ---- the record and after ------------------------------------------------------

    async def _append(
        self, body: RolledBack, trace: TraceId, principal: Principal | None
    ) -> Lsn:
        """Return the LSN of the rollback's record.

        Raises: `LogUnavailable`, where the record may be on the log all the same.
        """
        try:
            appended = await self._wal.append(body, trace, principal)
        except LogUnavailable as error:
            raise LogUnavailable(
                f"{error}; whether rollback {shown_id(body.rollback_id)} is on the log "
                "is not known: ask for it, or repeat it with this rollback_id"
            ) from error
        return appended.lsn

    async def _finish(
        self, rollback_id: EventId, lsn: Lsn, wait_s: float, send: Send
    ) -> None:
        """Answer once the fold is past the record; 202 where that takes too long.

        This worker's view shows it then, and no other serves what is behind the fence.
        """
        if not await self._follower.folded(lsn.offset, wait_s):
            await self._accepted(rollback_id, lsn, send)
            return
        report = await self._past.ask(_report_of(self._past.namespace, rollback_id))
        if report is None:
            raise LogUnavailable(f"the fold passed {lsn} and left no report of it")
        await self._answer(Done(report=report, repeated=False), send)

    async def _accepted(self, rollback_id: EventId, lsn: Lsn, send: Send) -> None:
        where = ROLLBACKS_PREFIX + shown_id(rollback_id)
        headers: tuple[Header, ...] = (
            (b"location", where.encode()),
            (b"retry-after", b"1"),
        )
        await send_json(send, 202, self._running(rollback_id, lsn, None), headers)

    async def _answer(self, done: Done, send: Send) -> None:
        shown = shown_report(done.report, self._follower.partition)
        if done.repeated:
            shown["repeated"] = True
        ended = ending(done.report)
        if ended is None or done.repeated:
            await send_json(send, 200, shown)
            return
        client = ended.status < SERVER_ERROR
        error = {
            "message": done.report.verdict,
            "param": ended.field,
            "type": "invalid_request_error" if client else "server_error",
            "code": ended.code,
        }
        await send_json(send, ended.status, {"error": error, "rollback": shown})

    def _running(
        self, rollback_id: EventId, lsn: Lsn, progress: object
    ) -> dict[str, object]:
        return {
            "rollback_id": shown_id(rollback_id),
            "status": "running",
            "namespace": self._past.namespace,
            "lsn": str(lsn),
            "applied": str(Lsn(self._follower.partition, self._follower.applied)),
            "progress": progress,
        }


def _report_of(
    namespace: Namespace, rollback_id: EventId
) -> Callable[[TimeTravel], RollbackReport | None]:
    return lambda travel: travel.report(namespace, rollback_id)
