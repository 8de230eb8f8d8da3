"""The gateway's small parts, each alone."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from dataclasses import replace
from itertools import count

import pytest

from cachemind.core.completion import JsonObject
from cachemind.core.entry_bytes import serving
from cachemind.core.keys import derive_keys
from cachemind.core.request import parse_chat
from cachemind.core.state import NamespaceState
from cachemind.events import (
    Body,
    Envelope,
    Evidence,
    Invalidated,
    SelectorKind,
    Stored,
)
from cachemind.types import (
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Principal,
    Sha256,
    Timeline,
    TraceId,
    Version,
    WriterId,
)
from cachemind_services.gateway.breaker import Breaker
from cachemind_services.gateway.entries import removed_by
from cachemind_services.gateway.flight import Flight, Head, LeftBehind
from cachemind_services.gateway.http_io import ClientGone
from cachemind_services.gateway.identity import Ids, Tenants, derived_key
from cachemind_services.gateway.known_bodies import (
    OVERHEAD_BYTES,
    KnownBodies,
    Understood,
)
from cachemind_services.gateway.overlay import Overlay
from cachemind_services.gateway.stream_capture import StreamCapture
from tests.vectors.make_state import VERSION_ROW

SHOP = Namespace("shop")
HEAD = Head(status=200, headers=(), lsn=None, reason="")
STATE = NamespaceState(namespace=SHOP)


# ---- breaker ------------------------------------------------------------------------


def test_a_breaker_lets_one_probe_at_a_time_through() -> None:
    now = [0.0]
    breaker = Breaker(failures=2, retry_s=5, now=lambda: now[0])
    breaker.failed()
    assert breaker.take()
    breaker.failed()
    assert not breaker.closed
    assert not breaker.take()
    now[0] = 5.0
    assert breaker.take()
    assert not breaker.take()
    breaker.failed()
    assert not breaker.take()
    now[0] = 10.0
    assert breaker.take()
    breaker.succeeded()
    assert [breaker.take() for _ in range(3)] == [True] * 3


def test_a_probe_that_told_nothing_may_be_repeated() -> None:
    breaker = Breaker(failures=1, retry_s=0, now=lambda: 1.0)
    breaker.failed()
    assert breaker.take()
    breaker.released()
    assert breaker.take()


# ---- ids and tenants ----------------------------------------------------------------


def test_random_bytes_are_never_handed_out_twice() -> None:
    numbers = count()

    def random(size: int) -> bytes:
        return b"".join(next(numbers).to_bytes(4, "big") for _ in range(size // 4))

    ids = Ids(random)
    drawn = [ids.draw(16) for _ in range(1_000)]
    assert len(set(drawn)) == 1_000
    assert all(len(each) == 16 for each in drawn)


def test_an_id_is_never_all_zero() -> None:
    rolls = iter([bytes(4096), b"\1" * 4096])
    ids = Ids(lambda _size: next(rolls))
    assert any(ids.span())


def test_tenants_differ_by_credential_namespace_and_secret() -> None:
    secret = bytes(range(32))
    headers: list[dict[bytes, bytes]] = [
        {},
        {b"authorization": b"Bearer a"},
        {b"authorization": b"Bearer b"},
        {b"api-key": b"Bearer a"},
        {b"authorization": b"Bearer a", b"openai-organization": b"o"},
        {b"authorization": b""},
    ]
    tenants = Tenants(secret, SHOP, shared=False)
    found = [tenants.of(each) for each in headers]
    assert len(set(found)) == len(headers)
    assert tenants.of(headers[1]) == found[1]
    other = Tenants(secret, Namespace("other"), shared=False)
    assert other.of(headers[1]) != found[1]
    rekeyed = Tenants(bytes(32), SHOP, shared=False)
    assert rekeyed.of(headers[1]) != found[1]
    assert b"Bearer" not in b"".join(found)


def test_shared_tenants_are_one() -> None:
    tenants = Tenants(bytes(32), SHOP, shared=True)
    assert tenants.of({b"authorization": b"a"}) == tenants.of({}) == b""


def test_a_derived_key_is_hkdf_expand() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    secret = bytes(range(32))
    info = b"cachemind/prompt/v1/shop"
    expected = HKDFExpand(SHA256(), 32, info).derive(secret)
    assert derived_key(secret, SHOP, b"prompt") == expected


# ---- flights ------------------------------------------------------------------------


async def test_each_listener_gets_all_pieces_at_its_own_pace() -> None:
    flight = Flight(1_000)
    early = flight.join()
    flight.begin(HEAD)
    await flight.publish(b"a")
    late = flight.join()
    await flight.publish(b"b")
    flight.end()
    for listener in (late, early):
        assert await listener.head() == HEAD
        assert [await listener.next() for _ in range(3)] == [b"a", b"b", None]
    assert not flight.joinable


async def test_an_error_reaches_a_listener_after_the_pieces_before_it() -> None:
    flight = Flight(1_000)
    listener = flight.join()
    flight.begin(HEAD)
    await flight.publish(b"a")
    flight.fail(LeftBehind("x"))
    assert await listener.next() == b"a"
    with pytest.raises(LeftBehind):
        await listener.next()


async def test_the_slowest_listener_sets_the_pace_past_the_limit() -> None:
    flight = Flight(3)
    fast, slow = flight.join(), flight.join()

    async def produce() -> None:
        for number in range(20):
            await flight.publish(b"%02d" % number)
        flight.end()

    task = asyncio.create_task(produce())
    assert [await fast.next() for _ in range(2)] == [b"00", b"01"]
    await asyncio.sleep(0)
    assert flight.piece(2) is None
    found = []
    while (piece := await slow.next()) is not None:
        found.append(piece)
        await fast.next()
    assert found == [b"%02d" % number for number in range(20)]
    assert not flight.joinable
    await task


async def test_a_listener_that_blocks_the_others_is_left_behind() -> None:
    flight = Flight(3, patience_s=0.01)
    fast, stuck = flight.join(), flight.join()

    async def read() -> bytes:
        found = b""
        while (piece := await fast.next()) is not None:
            found += piece
        return found

    reading = asyncio.create_task(read())
    for number in range(10):
        await flight.publish(b"%02d" % number)
    flight.end()
    assert await reading == b"".join(b"%02d" % number for number in range(10))
    with pytest.raises(LeftBehind):
        await stuck.next()


async def test_a_flight_that_nobody_wants_is_cancelled() -> None:
    flight = Flight(10)
    flight.task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]  # any task will do
    one, two = flight.join(), flight.join()
    one.leave()
    await asyncio.sleep(0)
    assert not flight.task.cancelled()
    two.leave()
    with pytest.raises(asyncio.CancelledError):
        await flight.task


async def test_a_complete_answer_is_stored_though_nobody_waits() -> None:
    flight = Flight(10)
    flight.task = asyncio.create_task(asyncio.sleep(0.01))
    flight.settling = True
    flight.join().leave()
    await flight.task


async def test_a_listener_that_hangs_up_stops_waiting() -> None:
    listener = Flight(10).join()
    waiting = asyncio.create_task(listener.head())
    await asyncio.sleep(0)
    listener.hang_up()
    with pytest.raises(ClientGone):
        await waiting


# ---- overlay ------------------------------------------------------------------------


def stored(number: int, *, response: bytes = b"{}", tag: str = "") -> Stored:
    def hashed(salt: int) -> bytes:
        return bytes([salt]) * 24 + number.to_bytes(8, "big")

    return Stored(
        exact_key=ExactKey(hashed(1)),
        context_key=ContextKey(hashed(2)),
        prompt_hash=Sha256(hashed(3)),
        request_hash=Sha256(hashed(4)),
        semantic_key="",
        embedding=None,
        encoder_id=EncoderId("none"),
        model="m",
        parameters="{}",
        prompt="p",
        response=response,
        response_hash=Sha256(hashed(5)),
        finish_reason="stop",
        evidence=Evidence(
            rule="r",
            upstream_status=200,
            streamed=False,
            entropy_nats=None,
            confidence_ratio=None,
        ),
        ttl_ms=1_000,
        tags=(tag,) if tag else (),
        source_chunks=(),
        snapshot_id="0" * 32,
    )


def envelope(body: Body, timeline: int = 0) -> Envelope:
    return Envelope(
        event_id=EventId(bytes(16)),
        namespace=SHOP,
        trace_id=TraceId(b"\1" * 16),
        principal=Principal("p"),
        occurred_at_ns=1_000,
        writer=WriterId("w"),
        writer_seq=1,
        timeline=Timeline(timeline),
        op_hash=Sha256(bytes(32)),
        body=body,
    )


def at(offset: int) -> Lsn:
    return Lsn(Partition(0), Offset(offset))


def test_an_own_entry_is_shown_until_the_store_has_it() -> None:
    overlay, one = Overlay(10_000), stored(1)
    overlay.add(envelope(one), at(5), STATE)
    raw = overlay.raw_entry(one.exact_key)
    assert raw is not None
    assert serving(raw).response == one.response
    overlay.prune(Offset(4))
    assert overlay.raw_entry(one.exact_key) is not None
    overlay.prune(Offset(5))
    assert overlay.raw_entry(one.exact_key) is None
    assert overlay.held_bytes == 0


def test_an_entry_of_an_older_timeline_is_not_shown() -> None:
    overlay, one = Overlay(10_000), stored(1)
    newer = NamespaceState(namespace=SHOP, timeline=Timeline(7))
    overlay.add(envelope(one), at(5), newer)
    assert overlay.raw_entry(one.exact_key) is None


def test_an_invalidation_hides_what_came_before_it_only() -> None:
    overlay = Overlay(10_000)
    before, other, after = stored(1, tag="a"), stored(2), stored(3, tag="a")
    overlay.add(envelope(before), at(5), STATE)
    overlay.add(envelope(other), at(6), STATE)
    raw = overlay.raw_entry(before.exact_key)
    assert raw is not None
    gone = Invalidated(kind=SelectorKind.TAG, value="a", reason="")
    overlay.add(envelope(gone), at(7), STATE)
    overlay.add(envelope(after), at(8), STATE)
    assert overlay.raw_entry(before.exact_key) is None
    assert overlay.raw_entry(other.exact_key) is not None
    assert overlay.raw_entry(after.exact_key) is not None
    assert overlay.hides(raw)
    overlay.prune(Offset(7))
    assert not overlay.hides(raw)


def test_an_acknowledgement_that_comes_late_replaces_nothing_newer() -> None:
    overlay = Overlay(10_000)
    newer, older = stored(1, response=b'{"a":2}'), stored(1, response=b'{"a":1}')
    overlay.add(envelope(newer), at(6), STATE)
    overlay.add(envelope(older), at(5), STATE)
    raw = overlay.raw_entry(newer.exact_key)
    assert raw is not None
    assert serving(raw).response == b'{"a":2}'


def test_the_overlay_keeps_within_its_bytes() -> None:
    overlay = Overlay(9_000)
    for number in range(50):
        overlay.add(envelope(stored(number)), at(number), STATE)
        assert overlay.held_bytes <= 9_000
    assert overlay.raw_entry(stored(0).exact_key) is None
    assert overlay.raw_entry(stored(49).exact_key) is not None
    overlay.add(envelope(stored(99, response=b"x" * 5_000)), at(99), STATE)
    assert overlay.raw_entry(stored(99).exact_key) is None


# ---- known bodies -------------------------------------------------------------------


def test_short_known_bodies_take_the_memory_they_say() -> None:
    limit = 256 * 2**10
    known = KnownBodies(limit)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(2_000):
        message = {"role": "user", "content": f"{number}"}
        body = json.dumps({"model": "m", "messages": [message]}).encode()
        keys = derive_keys(parse_chat(body), SHOP, b"t", EncoderId("encoder"))
        known.put(b"t", body, Understood(keys, Sha256(bytes([number % 256] * 32))))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert limit / 2 < grown < 2 * limit


def test_known_bodies_keep_within_their_bytes_and_apart_by_tenant() -> None:
    known = KnownBodies(10 * (10 + OVERHEAD_BYTES))
    understood: Understood = object()  # type: ignore[assignment]  # only carried
    for number in range(50):
        known.put(b"t", b"%010d" % number, understood)
    assert known.get(b"t", b"%010d" % 49) is understood
    assert known.get(b"other", b"%010d" % 49) is None
    assert sum(known.get(b"t", b"%010d" % n) is not None for n in range(50)) == 10
    long = b"x" * (2 * OVERHEAD_BYTES)
    known.put(b"t", long, understood)
    assert known.get(b"t", long) is None


# ---- streams ------------------------------------------------------------------------

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def test_done_and_what_follows_is_held_back() -> None:
    capture = StreamCapture(1_000, usage_added=False)
    assert capture.feed(CHUNK + FINISH + USAGE) == CHUNK + FINISH + USAGE
    assert capture.feed(DONE + b": bye\n\n") == b""
    assert capture.end() == DONE + b": bye\n\n"
    assert capture.problem == ""
    usage: JsonObject = {"total_tokens": 3}
    assert capture.completion()["usage"] == usage


def test_the_usage_that_we_asked_for_is_not_passed_on() -> None:
    capture = StreamCapture(1_000, usage_added=True)
    assert capture.feed(CHUNK + FINISH + USAGE + DONE) == CHUNK + FINISH
    assert capture.completion()["usage"] == {"total_tokens": 3}


def test_an_endless_line_is_passed_on_without_being_kept() -> None:
    capture = StreamCapture(100, usage_added=False)
    sent = [b"data: " + b"x" * 60, b"y" * 60, b"z" * 60]
    assert b"".join(map(capture.feed, sent)) + capture.end() == b"".join(sent)
    assert capture.problem == "too-large"


def test_a_stream_without_an_end_is_cut() -> None:
    capture = StreamCapture(1_000, usage_added=False)
    assert capture.feed(CHUNK + b"data: {") == CHUNK
    assert capture.end() == b"data: {"
    assert capture.problem == "stream-cut"


# ---- what an invalidation removed ----------------------------------------------------


@pytest.mark.parametrize(
    ("first", "entries", "offset", "removed"),
    [
        pytest.param(1, [1, 2, 0], 12, 2, id="its-own-version"),
        pytest.param(1, [1, 2, 0, 1], 12, 2, id="others-came-after-it"),
        pytest.param(1, [1, 2], 15, 0, id="no-version-of-its-own"),
        pytest.param(1, [1, 2], 5, 0, id="before-there-was-any"),
        pytest.param(1, [], 5, 0, id="of-an-empty-namespace"),
        pytest.param(40, [7, 8], 10, None, id="first-that-is-seen"),
        pytest.param(40, [7, 8], 5, None, id="too-far-back"),
    ],
)
def test_what_an_event_removed_is_told_by_the_versions_around_it(
    first: int, entries: list[int], offset: int, removed: int | None
) -> None:
    rows = [
        replace(
            VERSION_ROW,
            version=Version(first + number),
            offset=Offset(10 + number),
            entries=held,
        )
        for number, held in enumerate(entries)
    ]
    assert removed_by(rows, Offset(offset)) == removed
