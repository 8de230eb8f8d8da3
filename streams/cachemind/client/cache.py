"""`CacheMind`: the cache from an application, by calls that block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from cachemind.client import http_calls as calls
from cachemind.client.arguments import (
    DEFAULT_TIMEOUT_S,
    Messages,
    RollbackGoal,
    Selector,
    base_of,
    completion_of,
    goal_of,
    key_of,
    request_of,
    selector_of,
    trace_of,
)
from cachemind.client.http_calls import Credentials
from cachemind.client.receipts import Pages
from cachemind.client.repeating import Patience
from cachemind.client.request_ids import new_request_id
from cachemind.client.results import Answer, Control, PutResult, Receipts
from cachemind.client.sync_http import Stream, SyncHttp
from cachemind.core.commands import RollbackDone
from cachemind.events import Verdict
from cachemind.types import Lsn

DEFAULT: Final = Control()


class CacheMind:
    """A gateway, asked from any thread. Close it, or use it as a context manager.

    Each call raises `CallFailed`: by its type one knows what may help. `timeout_s` is
    for all attempts of a call together.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        namespace: str | None = None,
        upstream_key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience | None = None,
    ) -> None:
        """Ask nobody yet.

        `key` is the API key of the cache, `namespace` the one of its several that is
        meant; `upstream_key` is handed on to the model server as a bearer token.
        Raises: `NotValid`.
        """
        credentials = Credentials(key=key, namespace=namespace, upstream=upstream_key)
        self._url = base_of(url)
        self._timeout_s = timeout_s
        self._http = SyncHttp(self._url, credentials.fields(), patience or Patience())

    def __repr__(self) -> str:
        return f"CacheMind({self._url!r})"

    def __enter__(self) -> CacheMind:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def complete(
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
        return self._http.ask(calls.complete(request, control), self._limit(timeout_s))

    def stream(
        self,
        model: str,
        messages: Messages,
        *,
        control: Control = DEFAULT,
        timeout_s: float | None = None,
        **parameters: Any,
    ) -> Stream:
        """Return the completion in parts, as they come; close it when done.

        `timeout_s` is the longest wait for the first part, and between two.
        """
        request = request_of(model, messages, parameters)
        return self._http.stream(calls.stream(request, control), self._limit(timeout_s))

    def lookup(
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
        return self._http.ask(calls.lookup(request, control), self._limit(timeout_s))

    def put(
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
        ask = calls.put(request, completion_of(model, answer), ttl_s, tags)
        return self._http.ask(ask, self._limit(timeout_s))

    def invalidate(
        self, selector: Selector, *, reason: str = "", timeout_s: float | None = None
    ) -> Lsn:
        """Serve the selected entries no more; return where that is on the log."""
        ask = calls.invalidate(*selector_of(selector), reason)
        return self._http.ask(ask, self._limit(timeout_s))

    def rollback(
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
        limit_s = self._limit(timeout_s)
        query = calls.rollback_query(goal_of(goal), expected_head, reason, dry=dry_run)
        ask = calls.rollback(query, new_request_id(), calls.patient_s(limit_s))
        return self._http.ask(ask, limit_s)

    def feedback(
        self, key: str, trace_id: str, *, right: bool, timeout_s: float | None = None
    ) -> Lsn:
        """Say whether a served hit was right: `key` and `trace_id` of its `Answer`.

        Made again only where it was certainly not counted.
        """
        verdict = Verdict.RIGHT if right else Verdict.WRONG
        ask = calls.feedback(key_of(key), trace_of(trace_id), verdict)
        return self._http.ask(ask, self._limit(timeout_s))

    def receipt(
        self, trace_id: str, *, wait_s: float = 0.0, timeout_s: float | None = None
    ) -> Receipts | None:
        """Return the receipts of a trace with their proofs, None where none is signed.

        `wait_s` is how long to wait for that.
        """
        pages = Pages(trace_of(trace_id), wait_s)
        while (ask := pages.next()) is not None:
            pages.take(self._http.ask(ask, self._limit(timeout_s)))
        return pages.receipts()

    def _limit(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s
