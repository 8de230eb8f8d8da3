"""`AsyncCacheMind`: the cache from an application, by calls to await."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from cachemind.client import asking
from cachemind.client.arguments import (
    DEFAULT_TIMEOUT_S,
    Kafka,
    Messages,
    RollbackGoal,
    Selector,
    limit_of,
    request_of,
    trace_of,
)
from cachemind.client.async_stream import AsyncStream
from cachemind.client.http_calls import Credentials, patient_s
from cachemind.client.links import async_link
from cachemind.client.receipts import Pages
from cachemind.client.repeating import Patience
from cachemind.client.results import Answer, Control, PutResult, Receipts
from cachemind.core.commands import RollbackDone
from cachemind.types import Lsn

DEFAULT: Final = Control()


class AsyncCacheMind:
    """`CacheMind` for one event loop; see there for what each call does."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        namespace: str | None = None,
        upstream_key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience | None = None,
        kafka: Kafka | None = None,
    ) -> None:
        """Ask nobody yet.

        `key` is the API key of the cache, `namespace` the one of its several that is
        meant; `upstream_key` is handed on to the model server as a bearer token.
        Raises: `NotValid`.
        """
        who = Credentials(key=key, namespace=namespace, upstream=upstream_key)
        self._link = async_link(url, who, kafka or Kafka(), patience or Patience())
        self._url = url
        self._timeout_s = limit_of(timeout_s)

    def __repr__(self) -> str:
        return f"AsyncCacheMind({self._url!r})"

    async def __aenter__(self) -> AsyncCacheMind:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._link.close()

    async def complete(
        self,
        model: str,
        messages: Messages,
        *,
        control: Control = DEFAULT,
        timeout_s: float | None = None,
        **parameters: Any,
    ) -> Answer:
        """Return the completion: the cached one, else upstream's.

        `parameters` are further fields of the request (`temperature`, `tools`, ...).
        Made again only where upstream was not asked.
        """
        request = request_of(model, messages, parameters)
        return await self._link.ask(
            asking.complete(request, control), self._limit(timeout_s)
        )

    async def stream(
        self,
        model: str,
        messages: Messages,
        *,
        control: Control = DEFAULT,
        timeout_s: float | None = None,
        **parameters: Any,
    ) -> AsyncStream:
        """Return the completion in parts, as they come; close it when done.

        `timeout_s` is the longest wait for the first part, and between two.
        """
        request = request_of(model, messages, parameters)
        return await self._link.stream(request, control, self._limit(timeout_s))

    async def lookup(
        self,
        model: str,
        messages: Messages,
        *,
        control: Control = DEFAULT,
        timeout_s: float | None = None,
        **parameters: Any,
    ) -> Answer | None:
        """Return the cached completion, None where there is none; asks no upstream."""
        request = request_of(model, messages, parameters)
        return await self._link.ask(
            asking.lookup(request, control), self._limit(timeout_s)
        )

    async def put(
        self,
        model: str,
        messages: Messages,
        answer: str | Mapping[str, Any],
        *,
        ttl_s: int | None = None,
        tags: Sequence[str] = (),
        timeout_s: float | None = None,
        **parameters: Any,
    ) -> PutResult:
        """Store `answer`, a text or a whole `chat.completion`, for a request."""
        request = request_of(model, messages, parameters)
        asked = asking.put(request, model, answer, ttl_s, tags)
        return await self._link.ask(asked, self._limit(timeout_s))

    async def invalidate(
        self, selector: Selector, *, reason: str = "", timeout_s: float | None = None
    ) -> Lsn:
        """Serve the selected entries no more; return where that is on the log."""
        asked = asking.invalidate(selector, reason)
        return await self._link.ask(asked, self._limit(timeout_s))

    async def rollback(
        self,
        goal: RollbackGoal,
        *,
        expected_head: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        timeout_s: float | None = None,
    ) -> RollbackDone:
        """Take the namespace back, once however often the call is made again.

        Its `status` is `running` where it did not end within `timeout_s`.
        """
        asked = asking.rollback(goal, expected_head, reason, dry_run=dry_run)
        return await self._link.ask(asked, self._limit(timeout_s))

    async def feedback(
        self, key: str, trace_id: str, *, right: bool, timeout_s: float | None = None
    ) -> Lsn:
        """Say whether a served hit was right: `key` and `trace_id` of its `Answer`.

        Made again only where it was certainly not counted.
        """
        asked = asking.feedback(key, trace_id, right=right)
        return await self._link.ask(asked, self._limit(timeout_s))

    async def receipt(
        self, trace_id: str, *, wait_s: float = 0.0, timeout_s: float | None = None
    ) -> Receipts | None:
        """Return the receipts of a trace with their proofs, None where none is signed.

        `wait_s` is how long to wait for that, within what the call may take.
        """
        limit_s = self._limit(timeout_s)
        pages = Pages(trace_of(trace_id), min(wait_s, patient_s(limit_s)))
        await self._link.receipts(pages, limit_s)
        return pages.receipts()

    def _limit(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else limit_of(timeout_s)
