from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.canonical import ambiguous, canonical
from cachemind.errors import InvalidRequest

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(
    allow_nan=False, allow_infinity=False
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(1.0, b"1", id="whole-float"),
        pytest.param(-0.0, b"0", id="negative-zero"),
        pytest.param(1e16, b"10000000000000000", id="written-with-exponent"),
        pytest.param(0.2, b"0.2", id="fraction"),
        pytest.param(0.2049, b"0.2049", id="fraction-is-not-rounded"),
        pytest.param(1e-9, b"1e-9", id="small"),
        pytest.param(1e300, b"1e+300", id="past-63-bits"),
        pytest.param(True, b"true", id="true-is-not-1"),
        pytest.param("1.0", b'"1.0"', id="text-stays"),
        pytest.param(
            {"b": [2.0, {"d": 0, "c": 3.0}], "a": None},
            b'{"a":null,"b":[2,{"c":3,"d":0}]}',
            id="at-any-depth",
        ),
        pytest.param("é\n", b'"\xc3\xa9\\n"', id="utf-8"),
    ],
)
def test_canonical_form(value: object, expected: bytes) -> None:
    assert canonical(value) == expected


@given(value=json_values)
def test_the_canonical_form_means_the_same(value: object) -> None:
    assert json.loads(canonical(value)) == value


@given(value=json_values)
def test_the_canonical_form_of_the_canonical_form_is_itself(value: object) -> None:
    assert canonical(json.loads(canonical(value))) == canonical(value)


@given(pairs=st.dictionaries(st.text(), json_values), data=st.data())
def test_the_order_of_names_is_nothing(
    pairs: dict[str, object], data: st.DataObject
) -> None:
    shuffled = dict(data.draw(st.permutations(list(pairs.items()))))

    assert canonical(shuffled) == canonical(pairs)


def test_nesting_past_what_can_be_written_is_the_clients_error() -> None:
    deep: object = "x"
    for _ in range(300):
        deep = [deep]

    with pytest.raises(InvalidRequest) as caught:
        canonical(deep)
    assert caught.value.field == "body"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"a":1,"a":1}', id="twice"),
        pytest.param(b'{"a":1,"\\u0061":2}', id="twice-through-an-escape"),
        pytest.param(b'{"m":[{"c":{"x":1,"y":2,"x":3}}]}', id="deep"),
        pytest.param(b'{"seed":18446744073709551616}', id="past-64-bits"),
        pytest.param(b'{"seed":-9223372036854775809}', id="below-64-bits"),
        pytest.param(b'{"seed":' + b"9" * 5000 + b"}", id="thousands-of-digits"),
        pytest.param(b'{"seed":1.8446744073709552e19}', id="float-past-64-bits"),
        pytest.param(b'{"t":1e999}', id="float-past-all-bounds"),
        pytest.param(b'{"t":NaN}', id="nan"),
        pytest.param(b'{"t":-Infinity}', id="infinity"),
        pytest.param(b"{", id="truncated"),
        pytest.param(b"\xff", id="not-utf-8"),
        pytest.param(b"[" * 5000 + b"]" * 5000, id="too-deep"),
    ],
)
def test_a_body_that_readers_may_understand_differently_is_ambiguous(
    body: bytes,
) -> None:
    assert ambiguous(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":{"x":1},"b":{"x":1}}',
        b'[{"a":1},{"a":1}]',
        b'{"seed":18446744073709551615,"t":0.2,"u":1e3}',
        b'{"a":"\\"a\\":1,\\"a\\":2"}',
    ],
)
def test_a_body_with_one_reading_is_not_ambiguous(body: bytes) -> None:
    assert not ambiguous(body)


@given(value=json_values.filter(lambda value: b"e+" not in canonical(value)))
def test_what_a_writer_makes_of_a_value_is_not_ambiguous(value: object) -> None:
    assert not ambiguous(json.dumps(value).encode())


@given(body=st.binary())
def test_any_bytes_are_judged_without_an_error(body: bytes) -> None:
    ambiguous(body)
