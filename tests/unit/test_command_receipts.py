"""Receipts asked for by a command: what HTTP answers, in bounded time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import pytest

from cachemind.adapters.memory_receipts import MemoryReceiptIndex, MemoryReceiptView
from cachemind.codec.evidence import read_evidence
from cachemind.core.cache_commands import FindReceipt, ReceiptFound
from cachemind.core.commands import Problem, ProblemCode
from cachemind.types import Namespace, TraceId
from cachemind_services.gateway import receipts_api
from cachemind_services.gateway.command_receipts import receipt_found
from cachemind_services.gateway.receipts import Receipts
from cachemind_services.gateway.receipts_api import ReceiptsApi
from tests.receipt_log import ReceiptLog, trace

SHOP, BANK = Namespace("shop"), Namespace("bank")
ONE = trace(1)


@dataclass
class Desk:
    """An index of receipts, and who answers from it."""

    log: ReceiptLog
    index: MemoryReceiptIndex
    receipts: Receipts

    def sign(self, *traces: TraceId, cut: bool = True, namespace: str = SHOP) -> None:
        self.log.sign(0, traces, namespace)
        assert self.index.add_receipts(self.log.records[0][-1:])
        if cut:
            self.log.cut()
            self.index.add_cuts(self.log.cuts[-1:])

    def ask(
        self, namespace: Namespace = SHOP, /, **fields: Any
    ) -> Awaitable[ReceiptFound | Problem]:
        api = ReceiptsApi(self.receipts, namespace)
        return receipt_found(api, FindReceipt(trace_id=ONE, **fields))

    async def page(self, **fields: Any) -> dict[str, Any]:
        found = await self.ask(**fields)
        assert isinstance(found, ReceiptFound), found
        document: dict[str, Any] = json.loads(found.document)
        return document


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    index = MemoryReceiptIndex(1)
    receipts = Receipts(index.view())
    yield Desk(ReceiptLog(1), index, receipts)
    await receipts.close()


def problem(found: ReceiptFound | Problem) -> Problem:
    assert isinstance(found, Problem), found
    return found


async def test_a_receipt_comes_with_what_proves_it(desk: Desk) -> None:
    desk.sign(trace(7))
    desk.sign(ONE)
    page = await desk.page()
    assert (page["trace_id"], page["next_after"]) == (ONE.hex(), None)
    (found,) = page["receipts"]
    assert read_evidence(found).receipt == desk.log.receipts[0][1]


async def test_until_a_cut_covers_it_there_is_none(desk: Desk) -> None:
    desk.sign(ONE, cut=False)
    assert problem(await desk.ask()).code is ProblemCode.NOT_FOUND
    assert problem(await desk.ask()).field == "trace_id"


async def test_it_is_waited_for(desk: Desk) -> None:
    waiting = asyncio.ensure_future(desk.page(wait_ms=1000))
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.sign(ONE)
    assert len((await waiting)["receipts"]) == 1


async def test_another_namespaces_trace_is_not_found(desk: Desk) -> None:
    desk.sign(ONE)
    found = problem(await desk.ask(BANK))
    unknown = problem(await desk.ask(after=5))
    assert found == unknown
    assert found.code is ProblemCode.NOT_FOUND


async def test_pages_follow_each_other_and_are_bounded_in_bytes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        desk.sign(ONE)
    size = len((await desk.page())["receipts"][0]["receipt_bytes"])
    monkeypatch.setattr(receipts_api, "PAGE_BYTES", size)
    seqs, after = list[int](), -1
    for left in range(4, -1, -1):
        page = await desk.page(after=after)
        seqs += [one["seq"] for one in page["receipts"]]
        assert (page["next_after"] is None) == (left == 0)
        after = page["next_after"]
    assert seqs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"wait_ms": -1}, "wait_ms"),
        ({"wait_ms": 1001}, "wait_ms"),
        ({"after": -2}, "after"),
        ({"after": 2**63 - 1}, "after"),
    ],
)
async def test_what_makes_no_sense_names_the_field(
    desk: Desk, fields: dict[str, Any], name: str
) -> None:
    found = problem(await desk.ask(**fields))
    assert (found.code, found.field) == (ProblemCode.INVALID_REQUEST, name)


async def test_where_no_receipts_are_kept_that_is_said() -> None:
    found = problem(
        await receipt_found(ReceiptsApi(None, SHOP), FindReceipt(trace_id=ONE))
    )
    assert found.code is ProblemCode.NOT_OFFERED
    assert "audit mode is off" in found.message


@pytest.mark.parametrize("error", [OSError(5, "I/O"), ValueError("broken")])
async def test_an_index_that_cannot_be_read_is_a_problem(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(_: MemoryReceiptView) -> None:
        raise error

    monkeypatch.setattr(MemoryReceiptView, "catch_up", fails)
    monkeypatch.setattr(MemoryReceiptView, "changed", lambda _: True)
    assert problem(await desk.ask()).code is ProblemCode.FAILED
