"""Several things at once, until the first of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


async def first_of(leave_s: float, *work: Coroutine[None, None, None]) -> None:
    """Run all of `work` until one ends; cancel the rest, then raise its error.

    The rest has `leave_s` to end.
    """
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=leave_s)
    for task in done:
        task.result()
