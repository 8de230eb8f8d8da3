from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.cache_control import (
    NO_CONTROLS,
    Controls,
    Effective,
    Mode,
    parse_controls,
    tighten,
)
from cachemind.core.policy import Policy
from cachemind.errors import InvalidEvent, InvalidRequest


def parse(**headers: str) -> Controls:
    return parse_controls(
        [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in headers.items()
        ]
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("", Controls(), id="empty"),
        pytest.param("no-store", Controls(no_store=True), id="no-store"),
        pytest.param("no-cache", Controls(no_cache=True), id="no-cache"),
        pytest.param("NO-CACHE", Controls(no_cache=True), id="case-is-nothing"),
        pytest.param("only-if-cached", Controls(only_if_cached=True), id="only-cached"),
        pytest.param("max-age=60", Controls(max_age_ms=60_000), id="max-age"),
        pytest.param('max-age="60"', Controls(max_age_ms=60_000), id="quoted"),
        pytest.param("max-age=0", Controls(max_age_ms=0), id="max-age-zero"),
        pytest.param(
            "max-age=60, max-age=5", Controls(max_age_ms=5000), id="strictest"
        ),
        pytest.param(
            "max-age=" + "9" * 30, Controls(max_age_ms=2**31 * 1000), id="largest-delta"
        ),
        pytest.param(
            "max-age=00000000000000007", Controls(max_age_ms=7000), id="leading-zeros"
        ),
        pytest.param(
            " no-store ,\tno-cache,, max-age=1 ,",
            Controls(no_store=True, no_cache=True, max_age_ms=1000),
            id="white-space-and-empty-members",
        ),
        pytest.param("no-transform, x=1, y", Controls(), id="unknown-are-ignored"),
        pytest.param(
            'x="a, no-store, \\"b"', Controls(), id="a-quoted-comma-separates-nothing"
        ),
        pytest.param(
            "no-cache=foo", Controls(no_cache=True), id="superfluous-argument"
        ),
    ],
)
def test_cache_control(value: str, expected: Controls) -> None:
    assert parse(cache_control=value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "max-age",
        "max-age=",
        "max-age=-1",
        "max-age=1.5",
        "max-age=soon",
        "max-age=60s",
        "max-age=1 no-store",
        "no store",
        "=1",
        'x="open',
        "no-store;max-age=1",
        "max-age=60, max-age=x",
    ],
)
def test_a_malformed_cache_control_is_the_clients_error(value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(cache_control=value)
    assert (caught.value.field, caught.value.status) == ("cache-control", 400)


def test_several_cache_control_lines_are_one_list() -> None:
    lines = [(b"cache-control", b"no-store"), (b"cache-control", b"max-age=1")]

    assert parse_controls(lines) == Controls(no_store=True, max_age_ms=1000)


def test_other_headers_say_nothing() -> None:
    assert parse(accept="*/*", x_cachemind="1", authorization="x") is NO_CONTROLS


@pytest.mark.parametrize(
    ("value", "expected"), [("0.95", 0.95), ("1", 1.0), ("1.0", 1.0), (".5", 0.5)]
)
def test_threshold(value: str, expected: float) -> None:
    assert parse(x_cachemind_threshold=value) == Controls(threshold=expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("90", 90_000),
        ("90s", 90_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
    ],
)
def test_ttl(value: str, expected: int) -> None:
    assert parse(x_cachemind_ttl=value) == Controls(ttl_ms=expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("on", Mode.ON), ("exact", Mode.EXACT), ("off", Mode.OFF), ("Exact", Mode.EXACT)],
)
def test_mode(value: str, expected: Mode) -> None:
    assert parse(x_cachemind_mode=value) == Controls(mode=expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(
            ["x-cachemind-threshold"],
            [
                "",
                "0",
                "0.0",
                "1.01",
                "2",
                "-0.5",
                "nan",
                "inf",
                "1e-1",
                "0,9",
                "92%",
                ".",
            ],
        ),
        *product(
            ["x-cachemind-ttl"],
            ["", "0", "0s", "-1", "1.5", "5 m", "5M", "5w", "1h30m", "٣", "9" * 11],
        ),
        *product(["x-cachemind-mode"], ["", "semantic", "on,off", "1"]),
    ],
)
def test_a_malformed_control_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_controls([(name.encode(), value.encode())])
    assert caught.value.field == name


def test_a_control_given_twice_is_refused() -> None:
    lines = [(b"x-cachemind-mode", b"off"), (b"x-cachemind-mode", b"on")]

    with pytest.raises(InvalidRequest, match="more than once"):
        parse_controls(lines)


@given(value=st.binary(max_size=40))
def test_any_header_bytes_are_controls_or_the_clients_error(value: bytes) -> None:
    for name in (b"cache-control", b"x-cachemind-threshold", b"x-cachemind-ttl"):
        try:
            parse_controls([(name, value)])
        except InvalidRequest as error:
            refused = error.field
        else:
            refused = name.decode()
        assert refused == name.decode()


# ---- what holds after policy ---------------------------------------------------------

POLICY = Policy(threshold=0.92, default_ttl_ms=1000, max_ttl_ms=5000)


@pytest.mark.parametrize(
    ("controls", "lookup", "semantic", "store"),
    [
        pytest.param(Controls(), True, True, True, id="nothing-asked"),
        pytest.param(Controls(no_store=True), True, True, False, id="no-store"),
        pytest.param(Controls(no_cache=True), False, False, True, id="no-cache"),
        pytest.param(Controls(mode=Mode.EXACT), True, False, True, id="exact"),
        pytest.param(Controls(mode=Mode.OFF), False, False, False, id="off"),
    ],
)
def test_what_a_request_may_do(
    controls: Controls, lookup: bool, semantic: bool, store: bool
) -> None:
    holds = tighten(POLICY, controls)

    assert (holds.lookup, holds.semantic, holds.store) == (lookup, semantic, store)
    assert holds.bypass == (controls.mode is Mode.OFF)


@pytest.mark.parametrize(("asked", "holds"), [(0.5, 0.92), (0.92, 0.92), (0.97, 0.97)])
def test_a_threshold_is_only_ever_raised(asked: float, holds: float) -> None:
    assert tighten(POLICY, Controls(threshold=asked)).threshold == holds


@pytest.mark.parametrize(("asked", "holds"), [(1, 1), (5000, 5000), (5001, 5000)])
def test_a_ttl_is_only_ever_shortened(asked: int, holds: int) -> None:
    assert tighten(POLICY, Controls(ttl_ms=asked)).requested_ttl_ms == holds


def test_a_disabled_namespace_bypasses_whatever_is_asked() -> None:
    holds = tighten(Policy(enabled=False), Controls(mode=Mode.ON))

    assert (holds.bypass, holds.lookup, holds.store) == (True, False, False)


def test_a_namespace_without_meaning_is_exact_whatever_is_asked() -> None:
    assert not tighten(Policy(semantic=False), Controls(mode=Mode.ON)).semantic


any_controls = st.builds(
    Controls,
    no_store=st.booleans(),
    no_cache=st.booleans(),
    only_if_cached=st.booleans(),
    max_age_ms=st.none() | st.integers(0, 10**9),
    threshold=st.none() | st.floats(0, 1, exclude_min=True),
    ttl_ms=st.none() | st.integers(1, 10**12),
    mode=st.sampled_from(Mode),
)
policies = st.builds(
    Policy,
    enabled=st.booleans(),
    semantic=st.booleans(),
    threshold=st.floats(0, 1, exclude_min=True),
    max_ttl_ms=st.integers(1, 10**12),
)


@given(policy=policies, controls=any_controls)
def test_no_control_gives_more_than_policy_allows(
    policy: Policy, controls: Controls
) -> None:
    allowed, holds = tighten(policy, NO_CONTROLS), tighten(policy, controls)

    def grants(effective: Effective) -> tuple[bool, ...]:
        return (effective.lookup, effective.semantic, effective.store)

    assert all(map(lambda now, most: now <= most, grants(holds), grants(allowed)))
    assert holds.threshold >= allowed.threshold
    assert (holds.requested_ttl_ms or 0) <= holds.ttl_limit_ms == policy.max_ttl_ms


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1, float("nan"), float("inf")])
def test_a_policy_without_a_sound_threshold_cannot_be_made(threshold: float) -> None:
    with pytest.raises(InvalidEvent, match="threshold"):
        Policy(threshold=threshold)


def test_a_policy_with_an_empty_limit_cannot_be_made() -> None:
    with pytest.raises(InvalidEvent, match="max_entry_bytes"):
        Policy(max_entry_bytes=0)
