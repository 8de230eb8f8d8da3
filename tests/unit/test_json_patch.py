from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.json_patch import PatchRefused, diff, patched, same

names = st.sampled_from(["a", "b", "", "a/b", "m~n", "~1", "0"])
leaves = st.none() | st.booleans() | st.integers(0, 1) | st.floats(0, 1) | st.text("xy")
documents = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        # RFC 6902 appendix A.1, A.3, A.5; RFC 6901 section 3 for the escapes.
        pytest.param(
            {"foo": "bar"},
            {"baz": "qux", "foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux"}],
            id="add-a-member",
        ),
        pytest.param(
            {"baz": "qux", "foo": "bar"},
            {"foo": "bar"},
            [{"op": "remove", "path": "/baz"}],
            id="remove-a-member",
        ),
        pytest.param(
            {"baz": "qux", "foo": "bar"},
            {"baz": "boo", "foo": "bar"},
            [{"op": "replace", "path": "/baz", "value": "boo"}],
            id="replace-a-value",
        ),
        pytest.param(
            {"a": {"b": 1}},
            {"a": {"b": 2}},
            [{"op": "replace", "path": "/a/b", "value": 2}],
            id="inside",
        ),
        pytest.param(
            {},
            {"a/b~c": 1},
            [{"op": "add", "path": "/a~1b~0c", "value": 1}],
            id="escapes",
        ),
        pytest.param(
            {"a": [1, 2]},
            {"a": [1]},
            [{"op": "replace", "path": "/a", "value": [1]}],
            id="an-array-whole",
        ),
        pytest.param(
            {"a": 1},
            {"a": True},
            [{"op": "replace", "path": "/a", "value": True}],
            id="one-is-not-true",
        ),
        pytest.param(
            1, {}, [{"op": "replace", "path": "", "value": {}}], id="the-whole"
        ),
        pytest.param({"a": 1}, {"a": 1}, [], id="nothing"),
    ],
)
def test_the_patch_between_two_documents(
    before: Any, after: Any, patch: list[dict[str, Any]]
) -> None:
    assert list(diff(before, after)) == patch
    assert same(patched(before, patch), after)


@given(before=documents, after=documents)
def test_the_patch_makes_one_of_the_other_and_leaves_the_first_alone(
    before: Any, after: Any
) -> None:
    patch = diff(before, after)
    kept = repr(before)
    assert same(patched(before, patch), after)
    assert repr(before) == kept
    assert (not patch) == same(before, after)


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        pytest.param({}, {"op": "remove", "path": "/a"}, id="remove-what-is-not"),
        pytest.param(
            {}, {"op": "replace", "path": "/a", "value": 1}, id="replace-what-is-not"
        ),
        pytest.param({}, {"op": "add", "path": "/a/b", "value": 1}, id="no-parent"),
        pytest.param(
            {"a": 1}, {"op": "add", "path": "/a/b", "value": 1}, id="not-an-object"
        ),
        pytest.param(
            {"a": 1}, {"op": "test", "path": "/a", "value": True}, id="test-fails"
        ),
        pytest.param({}, {"op": "move", "path": "/a", "value": 1}, id="unknown"),
        pytest.param({}, {"op": "remove", "path": ""}, id="remove-the-whole"),
        pytest.param({}, {"op": "add", "path": "/a"}, id="no-value"),
        pytest.param({}, {"op": "add", "value": 1}, id="no-path"),
        pytest.param({}, {"op": "add", "path": "a", "value": 1}, id="no-slash"),
        pytest.param({}, {"op": "add", "path": "/~2", "value": 1}, id="bad-escape"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(
    document: Any, operation: dict[str, Any]
) -> None:
    with pytest.raises(PatchRefused):
        patched(document, [operation])


def test_a_test_that_holds_changes_nothing() -> None:
    document: dict[str, Any] = {"a": {"b": [1, None]}}
    assert (
        patched(document, [{"op": "test", "path": "/a", "value": {"b": [1, None]}}])
        == document
    )
