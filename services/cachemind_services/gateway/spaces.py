"""The namespaces that one worker serves."""

from __future__ import annotations

import asyncio

from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.shared import Shared

LEAST_S = 1.0
"""For the log to answer at the end, whatever else took its time."""


class Spaces:
    """Opens namespaces, and closes them all in the end."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._shared = Shared(deps)
        self._open: list[Parts] = []

    async def start(self) -> Parts:
        """Return the pieces of the settings' namespace, running."""
        parts = Parts(self._shared, self._deps)
        self._open.append(parts)
        await parts.start()
        self._shared.start()
        return parts

    def send_away(self) -> None:
        """Let nobody wait for a receipt any longer."""
        if self._shared.receipts is not None:
            self._shared.receipts.send_away()

    async def close(self) -> None:
        """Drain, flush and close."""
        loop, shared, opened = asyncio.get_running_loop(), self._shared, self._open
        drain_s = self._deps.settings.drain_s
        until = loop.time() + drain_s
        await asyncio.gather(*(parts.land(drain_s) for parts in opened))
        if shared.receipts is not None:
            await shared.receipts.close()
        left_s = max(until - loop.time(), LEAST_S)
        await asyncio.gather(*(parts.flush(left_s) for parts in opened))
        await shared.stop_log(left_s)
        await asyncio.gather(*(parts.close() for parts in opened))
        await shared.close()
