"""`CacheMind`: the cache from an application, by calls that block."""

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
from cachemind.client.http_calls import Credentials, patient_s
from cachemind.client.links import sync_link
from cachemind.client.receipts import Pages
from cachemind.client.repeating import Patience
from cachemind.client.results import Answer, Control, PutResult, Receipts
from cachemind.client.sync_stream import Stream
from cachemind.core.commands import RollbackDone
from cachemind.types import Lsn

DEFAULT: Final = Control()


class CacheMind:
    """The cache, asked from any thread. Close it, or use it as a context manager.

    By `http://HOST:PORT` a gateway is asked, by `kafka://HOST:PORT,...` whoever answers
    the commands on the topic of requests; with `?role=ROLE` on that of a grant.

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
        kafka: Kafka | None = None,
    ) -> None:
        """Ask nobody yet.

        `key` is the API key of the cache, `namespace` the one of its several that is
        meant; `upstream_key` is handed on to the model server as a bearer token. Over
        Kafka a namespace is needed, and `kafka` says who asks.
        Raises: `NotValid`.
        """
        who = Credentials(key=key, namespace=namespace, upstream=upstream_key)
        self._link = sync_link(url, who, kafka or Kafka(), patience or Patience())
        self._url = url
        self._timeout_s = limit_of(timeout_s)

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
        self._link.close()

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
        Over HTTP it is made again only where upstream was surely not asked, over Kafka
        under the same id, so that upstream is asked once.
        """
        request = request_of(model, messages, parameters)
        return self._link.ask(asking.complete(request, control), self._limit(timeout_s))

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

        `timeout_s` is the longest wait for the first part, and between two. Over Kafka
        all parts come at once.
        """
        request = request_of(model, messages, parameters)
        return self._link.stream(request, control, self._limit(timeout_s))

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
        return self._link.ask(asking.lookup(request, control), self._limit(timeout_s))

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
        asked = asking.put(request, model, answer, ttl_s, tags)
        return self._link.ask(asked, self._limit(timeout_s))

    def invalidate(
        self, selector: Selector, *, reason: str = "", timeout_s: float | None = None
    ) -> Lsn:
        """Serve the selected entries no more; return where that is on the log."""
        asked = asking.invalidate(selector, reason)
        return self._link.ask(asked, self._limit(timeout_s))

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
        asked = asking.rollback(goal, expected_head, reason, dry_run=dry_run)
        return self._link.ask(asked, self._limit(timeout_s))

    def feedback(
        self, key: str, trace_id: str, *, right: bool, timeout_s: float | None = None
    ) -> Lsn:
        """Say whether a served hit was right: `key` and `trace_id` of its `Answer`."""
        asked = asking.feedback(key, trace_id, right=right)
        return self._link.ask(asked, self._limit(timeout_s))

    def receipt(
        self, trace_id: str, *, wait_s: float = 0.0, timeout_s: float | None = None
    ) -> Receipts | None:
        """Return the receipts of a trace with their proofs, None where none is signed.

        `wait_s` is how long to wait for that, within what the call may take.
        """
        limit_s = self._limit(timeout_s)
        pages = Pages(trace_of(trace_id), min(wait_s, patient_s(limit_s)))
        self._link.receipts(pages, limit_s)
        return pages.receipts()

    def _limit(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else limit_of(timeout_s)
