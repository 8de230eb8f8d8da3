"""`GET /v1/versions`, `/v1/diff` and entries as of a version."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from cachemind.core.delta import ChangeKind, Delta
from cachemind.core.payloads import PLAIN, Payloads, inspected
from cachemind.core.rollback_goal import (
    CODES,
    FORBIDDEN,
    NEVER_WAS,
    require_known,
    require_reached,
)
from cachemind.core.state import Entry
from cachemind.core.timeline import History
from cachemind.errors import (
    CacheError,
    InvalidRequest,
    LogError,
    RollbackRejected,
    StoreError,
    UnknownVersion,
)
from cachemind.types import ExactKey, Namespace, Partition, Version
from cachemind_services.gateway.http_io import Header, Scope, Send, send_error
from cachemind_services.gateway.http_io import send_json as _send_json
from cachemind_services.gateway.query import Query
from cachemind_services.gateway.shown import (
    shown_changes,
    shown_entry,
    shown_history,
    shown_versions,
)
from cachemind_services.gateway.time_travel import TimeTravel, TimeTraveller, TooBusy

VERSIONS_PATH: Final = "/v1/versions"
DIFF_PATH: Final = "/v1/diff"
_BY_DEFAULT: Final = 100
_MOST: Final = 10_000
_LOG: Final = logging.getLogger("cachemind.gateway")
_RETRY: Final[tuple[Header, ...]] = ((b"retry-after", b"1"),)


class VersionsApi:
    """Shows the past of the gateway's namespace. It changes nothing."""

    def __init__(
        self, past: TimeTraveller, partition: Partition, payloads: Payloads = PLAIN
    ) -> None:
        self._past = past
        self._payloads = payloads
        self._partition = partition

    async def versions(self, scope: Scope, send: Send) -> None:
        """Answer with history rows, by default the newest 100."""
        query = Query(scope, frozenset({"namespace", "first", "last"}))
        namespace = own(query, self._past.namespace)
        first, last = query.whole("first"), query.whole("last")

        def look(travel: TimeTravel) -> dict[str, object]:
            history = travel.history(namespace)
            start, end = _window(history, first, last)
            rows = travel.versions(namespace, start, end)
            quarantine = travel.quarantine(namespace)
            return {
                "namespace": namespace,
                **shown_history(history),
                "quarantine": None if quarantine is None else quarantine.reason,
                "versions": shown_versions(rows, history, self._partition),
            }

        await _send_json(send, 200, await self._past.ask(look))

    async def diff(self, scope: Scope, send: Send) -> None:
        """Answer with what leads from one version's entries to another's."""
        known = frozenset({"namespace", "from", "to", "limit", "bodies"})
        query = Query(scope, known)
        namespace = own(query, self._past.namespace)
        one, other = Version(query.required("from")), Version(query.required("to"))
        limit = limit_of(query)

        def look(travel: TimeTravel) -> Delta:
            history = travel.history(namespace)
            require_known(history, one, "from")
            require_known(history, other, "to")
            for field, version in (("from", one), ("to", other)):
                require_reached(travel, namespace, version, field)
            return travel.difference(namespace, one, other)

        delta = await self._past.ask(look)
        answer = {
            "namespace": namespace,
            "from": one,
            "to": other,
            "restored": delta.count(ChangeKind.RESTORED),
            "removed": delta.count(ChangeKind.REMOVED),
            "changed": delta.count(ChangeKind.CHANGED),
            **shown_changes(
                delta,
                limit=limit,
                bodies=query.flag("bodies"),
                payloads=self._payloads,
            ),
        }
        await _send_json(send, 200, answer)

    async def entry(self, key: ExactKey, scope: Scope, send: Send) -> None:
        """Answer with the entry at `key` as of a version."""
        query = Query(scope, frozenset({"as_of", "namespace"}))
        namespace = own(query, self._past.namespace)
        version = Version(query.required("as_of"))

        def look(travel: TimeTravel) -> Entry | None:
            require_known(travel.history(namespace), version, "as_of")
            require_reached(travel, namespace, version, "as_of")
            return travel.entry_at(namespace, version, key)

        entry = await self._past.ask(look)
        if entry is None:
            message = f"there was no entry at this key as of version {version}"
            await send_error(send, 404, message, param="key", code="not_found")
            return
        shown = shown_entry(inspected(self._payloads, entry))
        await _send_json(send, 200, {"as_of": version, "key": key.hex(), **shown})


def own(query: Query, namespace: Namespace) -> Namespace:
    """Return the namespace that is served here.

    Raises: `InvalidRequest` with 403 where the query names another one.
    """
    asked = query.text("namespace", namespace)
    if asked != namespace:
        raise InvalidRequest(
            "namespace", "is not served by this gateway", status=FORBIDDEN
        )
    return namespace


def limit_of(query: Query) -> int:
    """Return how many changed entries to show."""
    limit = query.whole("limit", most=_MOST)
    return _BY_DEFAULT if limit is None else limit


async def answered(send: Send, work: Callable[[], Awaitable[None]]) -> None:
    """Do `work`; send what goes wrong as an error that names the parameter."""
    try:
        await work()
    except InvalidRequest as error:
        code = CODES.get(error.status)
        await send_error(send, error.status, str(error), param=error.field, code=code)
    except UnknownVersion as error:
        await send_error(send, NEVER_WAS, str(error), code=CODES[NEVER_WAS])
    except RollbackRejected as error:
        _LOG.error("%s", error)
        await send_error(send, 500, str(error), code="past_not_valid")
    except TooBusy as error:
        await send_error(send, 503, str(error), code="busy", headers=_RETRY)
    except LogError as error:
        await send_error(send, 503, str(error), code="wal_unavailable", headers=_RETRY)
    except StoreError as error:
        await send_error(
            send, 503, str(error), code="store_unavailable", headers=_RETRY
        )
    except CacheError as error:
        _LOG.exception("a question about the past failed")
        await send_error(send, 500, str(error), code="failed")


def _window(
    history: History, first: int | None, last: int | None
) -> tuple[Version, Version]:
    """Return the versions to show. Raises: `InvalidRequest`."""
    end = history.head if last is None else min(last, history.head)
    start = max(1, end - _BY_DEFAULT + 1) if first is None else first
    if last is not None and first is not None and first > last:
        raise InvalidRequest("first", "is above last")
    if end - start >= _MOST:
        raise InvalidRequest("first", f"and last must not span more than {_MOST}")
    return Version(start), Version(end)
