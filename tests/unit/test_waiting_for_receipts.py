from __future__ import annotations

import asyncio

import pytest

from cachemind.adapters.memory_receipts import MemoryReceiptIndex, MemoryReceiptView
from cachemind_services.gateway.receipts import Receipts


class _FailsOnce(MemoryReceiptView):
    """A view whose first look ends in what nobody foresaw."""

    def __init__(self, error: Exception) -> None:
        super().__init__(MemoryReceiptIndex(1), 1)
        self._error: Exception | None = error

    def changed(self) -> bool:
        return True

    def catch_up(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("unforeseen")]
)
def test_an_unforeseen_error_is_raised_to_who_asked_and_the_next_is_answered(
    error: Exception,
) -> None:
    async def ask() -> str | None:
        receipts = Receipts(_FailsOnce(error))
        async with asyncio.timeout(10):
            with pytest.raises(type(error)):
                await receipts.find(lambda _: "found", 0.0)
            found = await receipts.find(lambda _: "found", 0.0)
            await receipts.close()
        return found

    assert asyncio.run(ask()) == "found"
