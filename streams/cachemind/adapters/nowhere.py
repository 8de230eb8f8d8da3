"""A log that keeps nothing and a model server that is not there.

For readers that must leave no trace and reach nobody, such as a gateway as of then.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager

from cachemind.errors import UpstreamUnavailable
from cachemind.ports import Headers, UpstreamRequest, UpstreamResponse
from cachemind.types import Lsn, Offset, Partition

NO_LSN = Lsn(Partition(0), Offset(0))


class NoLog:
    """A `LogWriter` that takes every record and keeps none."""

    def append(self, key: bytes, value: bytes, headers: Headers) -> Future[Lsn]:
        """Return a future that is done; its LSN means nothing."""
        del key, value, headers
        done: Future[Lsn] = Future()
        done.set_result(NO_LSN)
        return done

    def close(self, timeout_s: float) -> int:
        """Return 0: nothing is ever given up."""
        del timeout_s
        return 0


class NoUpstream:
    """An `Upstream` that answers nothing."""

    def send(self, request: UpstreamRequest) -> _Nobody:
        """Return a context manager that raises `UpstreamUnavailable`, always."""
        del request
        return _Nobody()

    async def close(self) -> None:
        """Do nothing."""


class _Nobody(AbstractAsyncContextManager[UpstreamResponse]):
    async def __aenter__(self) -> UpstreamResponse:
        raise UpstreamUnavailable("a gateway as of then asks nobody", status=504)

    async def __aexit__(self, *raised: object) -> None:
        """Let everything through."""


class FixedClock:
    """A `Clock` that stands."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Return the time that it was given."""
        return self._now_ns
