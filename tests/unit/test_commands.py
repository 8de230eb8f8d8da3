from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.codec.commands import (
    decode_command,
    decode_reply,
    encode_command,
    encode_reply,
)
from cachemind.core.cache_commands import (
    Answered,
    CacheAnswer,
    CacheCommand,
    Complete,
    FindReceipt,
    Invalidate,
    Logged,
    Lookup,
    Put,
    PutDone,
    ReceiptFound,
)
from cachemind.core.commands import (
    Command,
    Problem,
    ProblemCode,
    Reply,
    Rollback,
    RollbackDone,
    RollbackState,
    address_of,
    done_of,
    problem_of,
    wish_of,
)
from cachemind.core.rollback_goal import Done
from cachemind.core.rollback_report import (
    NO_BASE,
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.errors import (
    CacheError,
    InvalidEvent,
    InvalidRequest,
    LogUnavailable,
    RollbackRejected,
    StoreUnavailable,
    UndecodableRecord,
    UnknownSchema,
    UnknownVersion,
)
from cachemind.events import Feedback, Outcome, SelectorKind, Verdict
from cachemind.types import (
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Sha256,
    TraceId,
    Version,
)
from cachemind_schemas.loader import current_of, definitions, released_of
from tests.vectors import make_commands

ID = EventId(bytes(range(16)))
TRACE = TraceId(bytes(range(1, 17)))
SPACE = Namespace("shop")
COMMAND = Command(
    request_id=ID, namespace=SPACE, body=Rollback(to_version=Version(7), reason="x")
)
HEADERS = (
    ("reply-to", b"answers"),
    ("correlation-id", b"7"),
    ("traceparent", b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"),
)
REPORT = RollbackReport(
    rollback_id=ID,
    namespace=SPACE,
    offset=Offset(12),
    status=RollbackStatus.COMMITTED,
    from_version=Version(9),
    to_version=Version(7),
    new_version=Version(10),
    restored=1,
    removed=2,
    changed=3,
    replayed=4,
    base=NO_BASE,
    digest=5,
    strategy=Strategy.FIELD_HASH,
    verdict="valid",
    duration_ms=6,
    reason="x",
)
DONE = done_of(Done(report=REPORT, repeated=False))

versions = st.integers(0, 2**62).map(Version)
bodies = st.builds(
    Rollback,
    to_version=st.none() | versions,
    to_snapshot=st.none() | st.text(),
    to_time_ns=st.none() | st.integers(-(2**63), 2**63 - 1),
    undo=st.none() | st.binary(min_size=16, max_size=16).map(EventId),
    expected_head=st.integers(-(2**63), 2**63 - 1),
    dry_run=st.booleans(),
    reason=st.text(),
)

texts = {"cache_control": st.text(), "mode": st.text()}
cosines = st.none() | st.floats(allow_nan=False)
lifetimes = st.none() | st.integers(-(2**63), 2**63 - 1)
asked = st.one_of(
    st.builds(Lookup, request=st.binary(), threshold=cosines, **texts),
    st.builds(
        Complete, request=st.binary(), threshold=cosines, ttl_s=lifetimes, **texts
    ),
    st.builds(
        Put,
        request=st.binary(),
        response=st.binary(),
        ttl_s=lifetimes,
        tags=st.lists(st.text(), max_size=3).map(tuple),
    ),
    st.builds(
        Invalidate,
        kind=st.sampled_from(SelectorKind),
        value=st.text(),
        reason=st.text(),
    ),
    st.builds(
        Feedback,
        matched_key=st.binary(min_size=32, max_size=32).map(ExactKey),
        served_trace_id=st.just(TRACE),
        verdict=st.sampled_from(Verdict),
    ),
    st.builds(
        FindReceipt,
        trace_id=st.just(TRACE),
        after=st.integers(-(2**63), 2**63 - 1),
        wait_ms=st.integers(-(2**63), 2**63 - 1),
    ),
)
HIT = Answered(
    outcome=Outcome.HIT_EXACT,
    reason="",
    key=ExactKey(bytes(range(32))),
    similarity=1.0,
    status=200,
    stored=False,
    message=b"{}",
)


@given(body=bodies)
def test_a_command_survives_its_encoding(body: Rollback) -> None:
    command = replace(COMMAND, body=body)
    assert decode_command(encode_command(command)) == command


@given(body=asked)
def test_a_command_of_the_cache_survives_its_encoding(body: CacheCommand) -> None:
    command = replace(COMMAND, body=body)
    assert decode_command(encode_command(command)) == command


def test_a_command_of_a_client_with_the_first_schema_is_understood() -> None:
    first, current = released_of("commands")[0], current_of("commands")
    assert first.version == "0.1.0"
    plain = {"request_id": ID, "namespace": SPACE, "body": {"to_version": 7}}
    out = BytesIO(b"\xc3\x01" + first.crc64)
    out.seek(0, 2)
    parsed = fastavro.parse_schema(json.loads(first.text), named_schemas={})
    fastavro.schemaless_writer(out, parsed, plain)
    found = decode_command(out.getvalue())
    assert found.body == Rollback(to_version=Version(7))
    assert first.crc64 != current.crc64


@pytest.mark.parametrize(
    "body",
    [
        DONE,
        Problem(code=ProblemCode.WRONG_HEAD, field="expected_head", message="is 9"),
        HIT,
        replace(HIT, outcome=Outcome.MISS, key=None, similarity=None, stored=True),
        PutDone(key=ExactKey(bytes(range(32))), snapshot_id="ab" * 16, ttl_ms=7),
        Logged(),
        ReceiptFound(document=b"{}"),
    ],
    ids=["done", "problem", "hit", "miss", "put", "logged", "receipt"],
)
@pytest.mark.parametrize("lsn", [None, Lsn(Partition(3), Offset(12))])
def test_a_reply_survives_its_encoding(
    body: Problem | RollbackDone | CacheAnswer, lsn: Lsn | None
) -> None:
    reply = Reply(
        request_id=ID,
        namespace=SPACE,
        trace_id=TRACE,
        lsn=lsn,
        body=body,
        version=12,
    )
    assert decode_reply(encode_reply(reply)) == reply


def test_the_vectors_are_what_this_build_writes() -> None:
    assert make_commands.TARGET.read_text("utf-8") == make_commands.document()


def test_every_kind_of_command_and_of_reply_has_a_vector() -> None:
    kinds = {type(body).__name__ for body in make_commands.COMMANDS.values()}
    assert kinds == set(_branches("Command"))
    kinds = {type(body).__name__ for body in make_commands.REPLIES.values()}
    assert kinds == set(_branches("Reply"))


def test_a_client_with_the_former_schema_reads_what_it_knows() -> None:
    former = released_of("replies")[1]
    assert former.version == "0.2.0"
    parsed = fastavro.parse_schema(json.loads(former.text), named_schemas={})
    for name, body in make_commands.REPLIES.items():
        if name == "receipt_found":
            continue
        record = encode_reply(make_commands.reply(body))
        source = BytesIO(record[10:])
        if name == "problem":  # with a code that is newer
            with pytest.raises(IndexError):
                fastavro.schemaless_reader(source, parsed, None)
            continue
        fastavro.schemaless_reader(source, parsed, None)
        assert source.read() == b""


def _branches(root: str) -> list[str]:
    schema: Any = definitions()[f"cachemind.v1.{root}"]
    found: list[str] = next(f for f in schema["fields"] if f["name"] == "body")["type"]
    return found


def test_a_symbol_of_a_newer_build_is_refused() -> None:
    record = encode_command(replace(COMMAND, body=Invalidate(kind=SelectorKind.ALL)))
    symbols = ["unrecognised", *SelectorKind]
    at = record.index(bytes([2 * symbols.index("all")]), 30)
    unknown = record[:at] + b"\0" + record[at + 1 :]
    with pytest.raises(UnknownSchema):
        decode_command(unknown)


@given(cut=st.integers(0, len(encode_command(COMMAND)) - 1))
def test_a_cut_command_is_refused(cut: int) -> None:
    with pytest.raises(UndecodableRecord):
        decode_command(encode_command(COMMAND)[:cut])


@given(noise=st.binary(max_size=200))
def test_noise_is_refused_with_our_own_error(noise: bytes) -> None:
    for raw in (noise, encode_command(COMMAND)[:10] + noise):
        try:
            decode_command(raw)
        except (UndecodableRecord, UnknownSchema):
            continue


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request_id": EventId(bytes(16))}, "request_id"),
        ({"namespace": Namespace("Not One")}, "namespace"),
    ],
)
def test_a_command_of_nobody_is_named(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidEvent, match=field):
        replace(COMMAND, **changes)  # type: ignore[arg-type] # the point of the test


def test_headers_say_where_the_answer_goes() -> None:
    address = address_of(HEADERS)
    assert address.reply_to == "answers"
    assert address.correlation_id == b"7"
    assert address.trace_id == bytes.fromhex("ab" * 16)
    assert address_of(HEADERS[:2]).trace_id is None
    assert address.deadline_ms is None
    assert address_of((*HEADERS, ("deadline", b"1764500000000"))).deadline_ms == (
        1_764_500_000_000
    )
    assert address_of((*HEADERS, ("reply-to", b"others"))).reply_to == "others"


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        (HEADERS[1:], "reply-to"),
        ((("reply-to", b""), HEADERS[1]), "reply-to"),
        ((("reply-to", b"a b"), HEADERS[1]), "reply-to"),
        ((("reply-to", b"\xff"), HEADERS[1]), "reply-to"),
        (HEADERS[:1], "correlation-id"),
        ((HEADERS[0], ("correlation-id", b"x" * 1025)), "correlation-id"),
        ((*HEADERS, ("deadline", b"-1")), "deadline"),
        ((*HEADERS, ("deadline", b"soon")), "deadline"),
        ((*HEADERS, ("deadline", b"1" * 16)), "deadline"),
    ],
)
def test_what_no_answer_can_be_sent_by_is_named(
    headers: tuple[tuple[str, bytes], ...], name: str
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        address_of(headers)
    assert caught.value.field == name


def test_a_commands_id_is_the_rollbacks() -> None:
    wish = wish_of(COMMAND)
    assert (wish.rollback_id, wish.to_version, wish.by) == (ID, 7, "to_version")
    assert wish.one_namespace


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (Rollback(), "to_version"),
        (Rollback(to_version=Version(1), undo=ID), "undo"),
        (Rollback(to_version=Version(1), expected_head=-2), "expected_head"),
        (Rollback(to_version=Version(1), reason="x" * 201), "reason"),
    ],
)
def test_a_wish_that_makes_no_sense_is_named(body: Rollback, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        wish_of(replace(COMMAND, body=body))
    assert caught.value.field == field


def test_an_answer_has_what_the_report_has() -> None:
    assert isinstance(DONE, RollbackDone)
    assert DONE.status is RollbackState.COMMITTED
    assert (DONE.from_version, DONE.to_version, DONE.new_version) == (9, 7, 10)
    assert (DONE.restored, DONE.removed, DONE.changed, DONE.replayed) == (1, 2, 3, 4)
    assert DONE.digest == Sha256((5).to_bytes(32, "big"))


@pytest.mark.parametrize(
    ("status", "to_version", "code"),
    [
        (RollbackStatus.REFUSED, 7, ProblemCode.WRONG_HEAD),
        (RollbackStatus.REFUSED, 99, ProblemCode.UNKNOWN_VERSION),
        (RollbackStatus.QUARANTINED, 7, ProblemCode.QUARANTINED),
    ],
)
def test_a_rollback_that_did_not_hold_is_a_problem_with_its_verdict(
    status: RollbackStatus, to_version: int, code: ProblemCode
) -> None:
    report = replace(
        REPORT, status=status, to_version=Version(to_version), verdict="because"
    )
    problem = done_of(Done(report=report, repeated=False))
    assert isinstance(problem, Problem)
    assert (problem.code, problem.message) == (code, "because")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("f", "p"), ProblemCode.INVALID_REQUEST),
        (InvalidRequest("f", "p", status=404), ProblemCode.NOT_FOUND),
        (InvalidRequest("f", "p", status=409), ProblemCode.WRONG_HEAD),
        (InvalidRequest("f", "p", status=410), ProblemCode.PAST_THE_HORIZON),
        (InvalidRequest("f", "p", status=422), ProblemCode.UNKNOWN_VERSION),
        (UnknownVersion("p"), ProblemCode.UNKNOWN_VERSION),
        (LogUnavailable("p"), ProblemCode.UNAVAILABLE),
        (StoreUnavailable("p"), ProblemCode.UNAVAILABLE),
        (RollbackRejected("p"), ProblemCode.FAILED),
        (CacheError("p"), ProblemCode.FAILED),
    ],
)
def test_each_error_has_a_code(error: CacheError, code: ProblemCode) -> None:
    problem = problem_of(error)
    assert problem.code is code
    assert "p" in problem.message
