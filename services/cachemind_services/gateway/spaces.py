"""The namespaces that one worker serves: opened when first asked for."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from cachemind.core.access import is_reserved
from cachemind.core.payloads import PLAIN, Payloads
from cachemind.errors import CacheError
from cachemind.ports.data_keys import HeldKeys
from cachemind.types import Namespace
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.shared import Shared

_LOG: Final = logging.getLogger("cachemind.gateway")
LEAST_S: Final = 1.0
"""For the log to answer at the end, whatever else took its time."""


Reasons = Callable[[], list[str]]


class TooManyOpen(CacheError):
    """More namespaces are in use at once than a worker takes."""


class Spaces:
    """Opens namespaces, lets go of those that nobody uses, closes all in the end."""

    def __init__(self, shared: Shared, deps: GatewayDeps) -> None:
        self._deps = deps
        self._shared = shared
        self._open: OrderedDict[Namespace, Parts] = OrderedDict()
        self._others: list[tuple[Reasons, Reasons]] = []
        self._opening: dict[Namespace, asyncio.Task[Parts]] = {}

    def parts(self) -> list[Parts]:
        """Return what is open."""
        return list(self._open.values())

    def find(self, namespace: Namespace) -> Parts | None:
        """Return the pieces of a namespace that is open, None where it is not."""
        parts = self._open.get(namespace)
        if parts is not None:
            self._open.move_to_end(namespace)
        return parts

    async def open(self, namespace: Namespace) -> Parts:
        """Return the pieces of a namespace, running.

        Raises: `TooManyOpen`, and what its payloads cannot be opened for.
        """
        while (parts := self.find(namespace)) is None:
            task = self._opening.get(namespace)
            if task is None:
                task = asyncio.create_task(self._started(namespace))
                self._opening[namespace] = task
                task.add_done_callback(lambda _: self._opening.pop(namespace, None))
            # Who asked first may go away; the others still wait. Once it is open it
            # may be closed again before this goes on.
            await asyncio.shield(task)
        return parts

    def also(self, not_ready: Reasons, warnings: Reasons) -> None:
        """Ask somebody else as well whether this worker should get traffic."""
        self._others.append((not_ready, warnings))

    def not_ready(self) -> list[str]:
        """Return why this worker should get no traffic yet; empty once it should."""
        asked = [parts.not_ready for parts in self.parts()]
        asked += [not_ready for not_ready, _ in self._others]
        return _without_repeats(reason for ask in asked for reason in ask())

    def warnings(self) -> list[str]:
        """Return what is wrong although requests are answered, maybe uncached."""
        asked = [parts.warnings for parts in self.parts()]
        asked += [warnings for _, warnings in self._others]
        return _without_repeats(reason for ask in asked for reason in ask())

    async def close(self) -> None:
        """Drain, flush and close."""
        loop, shared = asyncio.get_running_loop(), self._shared
        for task in list(self._opening.values()):
            await asyncio.wait({task})
        opened, drain_s = self.parts(), self._deps.settings.drain_s
        until = loop.time() + drain_s
        await asyncio.gather(*(parts.land(drain_s) for parts in opened))
        if shared.receipts is not None:
            await shared.receipts.close()
        left_s = max(until - loop.time(), LEAST_S)
        await asyncio.gather(*(parts.flush(left_s) for parts in opened))
        await shared.stop_log(left_s)
        await asyncio.gather(*(parts.close() for parts in opened))
        unused = self._deps.payload_keys
        if self._deps.access is not None and unused is not None:
            await asyncio.to_thread(unused.close)  # each namespace had its own
        await shared.close()

    async def _started(self, namespace: Namespace) -> Parts:
        await self._make_room()
        parts = Parts(self._shared, await self._deps_of(namespace))
        await parts.start()
        self._open[namespace] = parts
        return parts

    async def _make_room(self) -> None:
        """Close the namespace that was not used for longest, where there are too many.

        Raises: `TooManyOpen`.
        """
        most = self._deps.settings.most_open
        while len(self._open) + len(self._opening) > most:
            idle = next((parts for parts in self._open.values() if parts.idle), None)
            if idle is None:
                raise TooManyOpen("too many namespaces are in use at once")
            del self._open[idle.namespace]
            await idle.flush(LEAST_S)
            await idle.close()
            self._shared.gone(idle.namespace)

    async def _deps_of(self, namespace: Namespace) -> GatewayDeps:
        deps = self._deps
        if deps.access is None and namespace == deps.settings.namespace:
            return deps
        policy, payloads_of = deps.settings.policy, deps.payloads_of
        if is_reserved(namespace):
            # It has no entries, so there is nothing to serve or to seal.
            policy, payloads_of = replace(policy, enabled=False), None
        settings = replace(deps.settings, namespace=namespace, policy=policy)
        payloads: Payloads = PLAIN
        keys: HeldKeys | None = None
        if payloads_of is not None:
            payloads, keys = await asyncio.to_thread(payloads_of, namespace)
        return replace(deps, settings=settings, payloads=payloads, payload_keys=keys)


def _without_repeats(reasons: Iterable[str]) -> list[str]:
    """Return each reason once: namespaces of one partition have the same."""
    return list(dict.fromkeys(reasons))
