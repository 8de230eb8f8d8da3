"""Starts, watches, restarts and drains the processes of one host."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

logger = logging.getLogger(__name__)

FIRST_DELAY_S: Final = 0.25
LONGEST_DELAY_S: Final = 5.0
STEADY_S: Final = 10.0
"""A child that lived this long starts again with the first delay."""

STOP_TIMEOUT_S: Final = 9.0
"""For all ranks together; what is left then is killed."""

EXIT_USAGE: Final = 2
"""A child that exits so will never do better: its settings are wrong."""


async def _at_once() -> None:
    """Wait for nothing."""


def _leaves_nothing() -> None:
    """Clean up nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One process to keep alive.

    `rank` orders the stop, lowest first; children of the next start wait for
    `ready`. `fds` stay open across exec. `environ` is its whole environment, ours
    where None. `after` is called whenever it has ended. What a `silent` one prints
    is not shown; its messages are.
    """

    name: str
    argv: Sequence[str]
    rank: int
    environ: Mapping[str, str] | None = None
    fds: Sequence[int] = ()
    ready: Callable[[], Awaitable[None]] = _at_once
    after: Callable[[], None] = _leaves_nothing
    silent: bool = False


def delay_s(failures: int, lived_s: float, previous_s: float) -> float:
    """Return how long to wait before the next start.

    Doubles from `FIRST_DELAY_S` to `LONGEST_DELAY_S` with each early death; a
    child that lived `STEADY_S` begins anew. `failures` counts deaths so far.
    """
    if failures <= 1 or lived_s >= STEADY_S:
        return FIRST_DELAY_S
    return min(LONGEST_DELAY_S, previous_s * 2)


class Supervisor:
    """Keeps children alive until it is told to stop, then leaves none behind."""

    def __init__(
        self, children: Sequence[Child], stop_timeout_s: float = STOP_TIMEOUT_S
    ) -> None:
        self._children = tuple(children)
        self._stop_timeout_s = stop_timeout_s
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._exit_code = 0

    async def run(self, stop: asyncio.Event) -> int:
        """Start the children in order, watch them, and drain them once `stop` is set.

        Returns 0 after a clean stop, 1 where a child had to be killed, and
        `EXIT_USAGE` where a child said that its settings are wrong.
        """
        waiter = asyncio.create_task(stop.wait())
        waiter.add_done_callback(lambda _: self._stopping.set())
        keepers: list[asyncio.Task[None]] = []
        try:
            for child in self._children:
                if self._stopping.is_set():
                    break
                keepers.append(asyncio.create_task(self._keep(child)))
                await self._until_ready(child)
            await self._stopping.wait()
        finally:
            self._stopping.set()
            waiter.cancel()
            await self._drain()
            await asyncio.gather(*keepers)
        return self._exit_code

    async def _until_ready(self, child: Child) -> None:
        ready = asyncio.ensure_future(child.ready())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if ready.done():
            ready.result()
        else:
            ready.cancel()

    async def _keep(self, child: Child) -> None:
        failures, wait_s = 0, FIRST_DELAY_S
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._once(child)
            if self._stopping.is_set():
                return
            if code == EXIT_USAGE:
                logger.error("%s cannot run with these settings", child.name)
                self._exit_code = EXIT_USAGE
                self._stopping.set()
                return
            failures += 1
            wait_s = delay_s(failures, time.monotonic() - began, wait_s)
            logger.warning(
                "%s exited with %d, starts again in %.2f s", child.name, code, wait_s
            )
            await self._pause(wait_s)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _once(self, child: Child) -> int:
        process = await asyncio.create_subprocess_exec(
            *child.argv,
            env=os.environ if child.environ is None else child.environ,
            pass_fds=tuple(child.fds),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL if child.silent else None,
            # Ctrl-C must reach us alone: we stop the children, in their order.
            start_new_session=True,
        )
        self._running[child.name] = process
        logger.info("%s runs as process %d", child.name, process.pid)
        try:
            return await process.wait()
        finally:
            self._running.pop(child.name, None)
            child.after()

    async def _drain(self) -> None:
        deadline = time.monotonic() + self._stop_timeout_s
        for rank in sorted({child.rank for child in self._children}):
            names = [child.name for child in self._children if child.rank == rank]
            await self._stop_all(names, deadline)

    async def _stop_all(self, names: Sequence[str], deadline: float) -> None:
        for name in names:
            self._signal(name, signal.SIGTERM)
        while any(name in self._running for name in names):
            if time.monotonic() >= deadline:
                for name in names:
                    if self._signal(name, signal.SIGKILL):
                        logger.error("%s did not stop in time and was killed", name)
                        self._exit_code = self._exit_code or 1
                deadline = time.monotonic() + 1.0
            await asyncio.sleep(0.02)

    def _signal(self, name: str, number: signal.Signals) -> bool:
        process = self._running.get(name)
        if process is None or process.returncode is not None:
            return False
        process.send_signal(number)
        return True


def own_command(*arguments: str) -> list[str]:
    """Return the argv that runs our own program as a child of this process."""
    return [
        sys.executable,
        "-m",
        "cachemind_services.cli.main",
        "--parent-pid",
        str(os.getpid()),
        *arguments,
    ]


async def run_until_signalled(
    children: Sequence[Child], beside: Coroutine[None, None, None]
) -> int:
    """Run `children` until SIGTERM or SIGINT; return the exit code.

    `beside` runs meanwhile, and is cancelled when they stop.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    aside = asyncio.create_task(beside)
    stopped = asyncio.create_task(stop.wait())
    stopped.add_done_callback(lambda _: aside.cancel())
    try:
        return await Supervisor(children).run(stop)
    finally:
        aside.cancel()
        stopped.cancel()
