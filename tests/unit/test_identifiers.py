from __future__ import annotations

import uuid
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.identifiers import (
    SpanId,
    TraceContext,
    format_traceparent,
    parse_trace_context,
    parse_traceparent,
    snapshot_id,
    uuid7,
)
from cachemind.types import Sha256, TraceId

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"


def test_uuid7_makes_the_example_of_rfc_9562() -> None:
    made = uuid7(0x017F22E279B0 * 1_000_000, bytes.fromhex("0cc318c4dc0c0c07398f"))

    assert uuid.UUID(bytes=made) == uuid.UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")


@given(
    now_ns=st.integers(0, (1 << 48) * 1_000_000 - 1),
    random=st.binary(min_size=10, max_size=10),
)
def test_a_uuid7_has_version_variant_and_time(now_ns: int, random: bytes) -> None:
    made = uuid.UUID(bytes=uuid7(now_ns, random))

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == now_ns // 1_000_000


@given(random=st.binary(min_size=10, max_size=10), bit=st.integers(0, 79))
def test_74_random_bits_reach_the_uuid7(random: bytes, bit: int) -> None:
    flipped = (int.from_bytes(random, "big") ^ 1 << bit).to_bytes(10, "big")
    lost = set(range(76, 80)) | {62, 63}

    assert (uuid7(0, random) == uuid7(0, flipped)) == (bit in lost)


@pytest.mark.parametrize(
    ("now_ns", "random"),
    [
        (-1, bytes(10)),
        ((1 << 48) * 1_000_000, bytes(10)),
        (0, bytes(9)),
        (0, bytes(11)),
    ],
)
def test_uuid7_refuses_what_does_not_fit(now_ns: int, random: bytes) -> None:
    with pytest.raises(ValueError, match="must be"):
        uuid7(now_ns, random)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(VALID, id="version-00"),
        pytest.param(f"00-{TRACE}-{SPAN}-00", id="not-sampled"),
        pytest.param(f"00-{TRACE}-{SPAN}-ff", id="unknown-flags"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01", id="future-version"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01-what-comes", id="future-version-longer"),
        pytest.param(f"01-{TRACE}-{SPAN}-01-", id="future-version-ends-in-dash"),
    ],
)
def test_a_valid_traceparent_gives_its_trace_id(header: str) -> None:
    assert parse_traceparent(header) == bytes.fromhex(TRACE)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("", id="empty"),
        pytest.param(f"ff-{TRACE}-{SPAN}-01", id="version-ff"),
        pytest.param(f"0-{TRACE}-{SPAN}-01", id="short-version"),
        pytest.param(f".0-{TRACE}-{SPAN}-01", id="version-not-hex"),
        pytest.param(f"00-{'0' * 32}-{SPAN}-01", id="all-zero-trace"),
        pytest.param(f"00-{TRACE}-{'0' * 16}-01", id="all-zero-span"),
        pytest.param(VALID.upper(), id="upper-case"),
        pytest.param(f"00-{TRACE[1:]}-{SPAN}-01", id="short-trace"),
        pytest.param(f"00-{TRACE}0-{SPAN}-01", id="long-trace"),
        pytest.param(f"00-{TRACE}-{SPAN[1:]}-01", id="short-span"),
        pytest.param(f"00-{TRACE}-{SPAN}-1", id="short-flags"),
        pytest.param(f"00-{TRACE}-{SPAN}", id="no-flags"),
        pytest.param(f"{VALID}-extra", id="version-00-longer"),
        pytest.param(f"{VALID}-", id="version-00-ends-in-dash"),
        pytest.param(f"{VALID}\n", id="line-feed"),
        pytest.param(f" {VALID}", id="leading-space"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01.what", id="future-version-without-dash"),
        pytest.param(f"cc-{TRACE}-{SPAN}-011", id="future-version-long-flags"),
        pytest.param(VALID.replace("-", "_"), id="other-separators"),
        pytest.param(f"00-{chr(0x660) * 31}1-{SPAN}-01", id="digits-of-another-script"),
    ],
)
def test_an_invalid_traceparent_is_none(header: str) -> None:
    assert parse_traceparent(header) is None


def test_the_sampled_flag_is_bit_0() -> None:
    sampled = [
        parse_trace_context(f"00-{TRACE}-{SPAN}-{flags:02x}") for flags in range(4)
    ]

    assert [context is not None and context.sampled for context in sampled] == [
        False,
        True,
        False,
        True,
    ]


ids = st.binary(min_size=16, max_size=16).filter(any).map(TraceId)
spans = st.binary(min_size=8, max_size=8).filter(any).map(SpanId)


@given(trace=ids, span=spans, sampled=st.booleans())
def test_what_is_formatted_parses_to_itself(
    trace: TraceId, span: SpanId, sampled: bool
) -> None:
    header = format_traceparent(trace, span, sampled=sampled)

    assert parse_trace_context(header) == TraceContext(trace, span, sampled)


@given(header=st.text(max_size=80))
def test_any_text_is_parsed_without_an_error(header: str) -> None:
    parse_traceparent(header)


@pytest.mark.parametrize(
    ("trace", "span"),
    [
        (bytes(16), b"12345678"),
        (b"1" * 16, bytes(8)),
        (b"1" * 15, b"12345678"),
        (b"1" * 16, b"1234567"),
    ],
)
def test_an_id_that_receivers_would_drop_is_never_sent(
    trace: bytes, span: bytes
) -> None:
    with pytest.raises(ValueError, match="must be"):
        format_traceparent(TraceId(trace), span)


def test_a_snapshot_id_is_half_of_the_hash_over_salt_time_and_request() -> None:
    request_hash = Sha256(bytes(range(32)))
    expected = sha256(b"salt" + (5).to_bytes(8, "big") + request_hash).hexdigest()

    assert snapshot_id(b"salt", 5, request_hash) == expected[:32]
