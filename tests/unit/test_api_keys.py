"""API keys: what counts, when, and that a book holds no secret."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.access import Role
from cachemind.core.api_keys import (
    KEPT_MS,
    MOST_KEYS,
    ApiKey,
    KeyBook,
    follows,
    key_id_of,
    key_text,
    secret_digest,
)
from cachemind.errors import InvalidEvent
from cachemind.types import Namespace

SHOP = Namespace("shop")
SECRET = base64.urlsafe_b64encode(bytes(range(32))).decode().rstrip("=")
OTHER = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
ID = "Abcdefg2"
NOW = 1_800_000_000_000


def ns(at_ms: int) -> int:
    return at_ms * 1_000_000


def made(key_id: str = ID, secret: str = SECRET, **changes: Any) -> ApiKey:
    fields: dict[str, Any] = {
        "key_id": key_id,
        "digest": secret_digest(secret),
        "role": Role.CACHE_WRITER,
        "namespaces": (SHOP,),
        "created_ms": NOW,
        "not_before_ms": NOW,
    }
    return ApiKey(**{**fields, **changes})


def book(*keys: ApiKey) -> KeyBook:
    return KeyBook.of(1, keys)


def test_a_key_is_who_it_was_made_for() -> None:
    found = book(made(prefixes=("public:",))).find(key_text(ID, SECRET), ns(NOW))
    assert found is not None
    assert found.principal == "key:Abcdefg2"
    assert (found.role, found.namespaces) == (Role.CACHE_WRITER, frozenset({SHOP}))
    assert (found.prefixes, found.credential_id) == (("public:",), ID)


@pytest.mark.parametrize(
    "presented",
    [
        pytest.param("", id="nothing"),
        pytest.param(f"cmk_{ID}_", id="no-secret"),
        pytest.param(key_text(ID, OTHER), id="another-secret"),
        pytest.param(key_text("Zzzzzzz2", SECRET), id="another-id"),
        pytest.param(key_text(ID, SECRET) + "=", id="padded"),
        pytest.param(key_text(ID, SECRET) + "\n", id="newline"),
        pytest.param(" " + key_text(ID, SECRET), id="space"),
        pytest.param(key_text(ID, SECRET[:-1]), id="cut"),
        pytest.param(key_text(ID.lower(), SECRET), id="other-case"),
        pytest.param(key_text(ID, secret_digest(SECRET)), id="the-digest-itself"),
        pytest.param(f"CMK_{ID}_{SECRET}", id="other-scheme"),
        # The last character has two bits that base64 does not use.
        pytest.param(key_text(ID, SECRET[:-1] + "9"), id="same-bytes-other-text"),
        pytest.param("cmk_\u0410bcdefg2_" + SECRET, id="cyrillic-look-alike"),
    ],
)
def test_what_is_not_exactly_the_key_is_nobody(presented: str) -> None:
    assert book(made()).find(presented, ns(NOW)) is None


@given(st.text(max_size=80))
def test_any_text_is_nobody_and_no_error(presented: str) -> None:
    assert book(made()).find(presented, ns(NOW)) is None


@pytest.mark.parametrize(
    ("changes", "at_ms", "counts"),
    [
        pytest.param({}, NOW - 1, False, id="before-it-begins"),
        pytest.param({}, NOW, True, id="as-it-begins"),
        pytest.param({"expires_ms": NOW + 10}, NOW + 9, True, id="until-it-expires"),
        pytest.param({"expires_ms": NOW + 10}, NOW + 10, False, id="expired"),
        pytest.param({"revoked_ms": NOW}, NOW, False, id="revoked"),
        # A revocation counts at once, whatever this host's clock says.
        pytest.param({"revoked_ms": NOW + 99}, NOW, False, id="revoked-clock-behind"),
    ],
)
def test_a_key_counts_in_its_time(
    changes: dict[str, Any], at_ms: int, *, counts: bool
) -> None:
    found = book(made(**changes)).find(key_text(ID, SECRET), ns(at_ms))
    assert (found is not None) is counts


def test_rotation_overlaps_and_then_the_old_key_ends() -> None:
    before = book(made(name="app", expires_ms=NOW + 1_000_000))
    after = before.rotated(ID, "Successr", secret_digest(OTHER), NOW + 500, 60)
    assert after.revision == before.revision + 1
    old, new = key_text(ID, SECRET), key_text("Successr", OTHER)
    assert after.find(old, ns(NOW + 559)) is not None
    assert after.find(old, ns(NOW + 560)) is None
    caller = after.find(new, ns(NOW + 500))
    assert caller is not None
    assert caller.namespaces == {SHOP}
    successor = after.keys["Successr"]
    assert (successor.name, successor.replaces) == ("app", ID)
    assert successor.expires_ms == NOW + 500 + 1_000_000


def test_a_successor_counts_as_soon_as_it_is_known_and_lives_as_long() -> None:
    before = book(made(created_ms=NOW, not_before_ms=0, expires_ms=NOW + 90))
    after = before.rotated(ID, "Successr", secret_digest(OTHER), NOW + 10, 60)
    # On a host whose clock is behind, too.
    assert after.find(key_text("Successr", OTHER), ns(NOW)) is not None
    assert after.keys["Successr"].expires_ms == NOW + 10 + 90


def test_rotation_lengthens_no_life() -> None:
    after = book(made(expires_ms=NOW + 10)).rotated(
        ID, "Successr", secret_digest(OTHER), NOW, 1_000
    )
    assert after.keys[ID].expires_ms == NOW + 10


@pytest.mark.parametrize("changes", [{"revoked_ms": NOW}, {"expires_ms": NOW}])
def test_a_key_that_counts_no_more_is_not_rotated(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent, match=ID):
        book(made(**changes)).rotated(ID, "Successr", secret_digest(OTHER), NOW, 1)


def test_a_key_with_a_successor_is_not_rotated_until_that_one_is_revoked() -> None:
    once = book(made()).rotated(ID, "Successr", secret_digest(OTHER), NOW, 9)
    with pytest.raises(InvalidEvent, match="rotate Successr"):
        once.rotated(ID, "Another2", secret_digest(OTHER), NOW + 1, 9)
    lost = once.revoked("Successr", NOW + 1)
    again = lost.rotated(ID, "Another2", secret_digest(OTHER), NOW + 2, 9)
    assert again.keys["Another2"].replaces == ID


def test_a_revoked_key_is_nobody_and_revoking_it_again_changes_nothing() -> None:
    after = book(made()).revoked(ID, NOW + 5)
    assert after.find(key_text(ID, SECRET), ns(NOW + 5)) is None
    assert after.revoked(ID, NOW + 9) is after
    with pytest.raises(InvalidEvent, match="no such key"):
        after.revoked("Zzzzzzz2", NOW)


def test_an_id_is_given_once() -> None:
    with pytest.raises(InvalidEvent, match="taken"):
        book(made()).created(made(secret=OTHER), NOW)
    with pytest.raises(InvalidEvent, match="repeat"):
        KeyBook.of(1, [made(), made()])


def test_a_key_that_ended_long_ago_leaves_the_book() -> None:
    ended = made("Endedkey", expires_ms=NOW)
    revoked = made("Revokedk", revoked_ms=NOW)
    before = book(made(), ended, revoked)
    soon = before.created(made("Newerkey"), NOW + KEPT_MS - 1)
    assert set(soon.keys) == {ID, "Endedkey", "Revokedk", "Newerkey"}
    late = before.created(made("Newerkey"), NOW + KEPT_MS)
    assert set(late.keys) == {ID, "Newerkey"}


def test_a_book_has_a_largest_size_that_fits_a_record() -> None:
    keys = [
        made(f"k{number:07d}", name="n" * 128, namespaces=(Namespace("a" * 128),))
        for number in range(MOST_KEYS)
    ]
    full = KeyBook.of(1, keys)
    assert len(full.render().encode()) < 3 * 2**20
    with pytest.raises(InvalidEvent, match="at most"):
        full.created(made("Onemore2"), NOW)


def test_a_book_that_would_not_fit_a_record_is_refused() -> None:
    wide = tuple(Namespace(f"n{number}" + "a" * 120) for number in range(64))
    keys = [made(f"k{number:07d}", namespaces=wide) for number in range(400)]
    with pytest.raises(InvalidEvent, match="bytes"):
        KeyBook.of(1, keys).created(made("Onemore2"), NOW)


def test_a_book_holds_no_secret() -> None:
    assert SECRET not in book(made()).render()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"namespaces": ()}, "namespaces", id="none"),
        pytest.param({"namespaces": ("Shop",)}, "namespace", id="no-namespace"),
        pytest.param({"namespaces": ("shop", "shop")}, "namespaces", id="twice"),
        pytest.param({"namespaces": ("cachemind.access",)}, "namespaces", id="ours"),
        pytest.param({"prefixes": ("",)}, "prefixes", id="prefix-of-everything"),
        pytest.param({"key_id": "abc"}, "key_id", id="short-id"),
        pytest.param({"digest": SECRET}, "digest", id="a-secret-for-a-digest"),
        pytest.param({"name": "a\nb"}, "name", id="unprintable"),
        pytest.param({"expires_ms": -1}, "expires_ms", id="negative"),
        pytest.param({"replaces": "x"}, "replaces", id="no-id"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused_by_its_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        made(**changes)
    assert caught.value.field == field


letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
names = st.text("abc012._-", min_size=0, max_size=8).map(lambda rest: "n" + rest)
times = st.integers(0, 2**53)
keys = st.builds(
    ApiKey,
    key_id=st.text(letters, min_size=8, max_size=8),
    digest=st.binary(min_size=32, max_size=32).map(bytes.hex),
    role=st.sampled_from(Role),
    namespaces=st.lists(names.map(Namespace), min_size=1, max_size=4, unique=True).map(
        tuple
    ),
    created_ms=times,
    not_before_ms=times,
    expires_ms=st.none() | times,
    revoked_ms=st.none() | times,
    name=st.text(max_size=20).filter(str.isprintable),
    prefixes=st.lists(st.just("public:") | st.just("fr:é"), max_size=3).map(tuple),
    replaces=st.just("") | st.text(letters, min_size=8, max_size=8),
)
books = st.builds(
    KeyBook.of,
    st.integers(0, 2**53),
    st.lists(keys, max_size=6, unique_by=lambda key: key.key_id),
)


@given(books)
def test_a_book_reads_back_as_it_was_written(found: KeyBook) -> None:
    assert KeyBook.parse(found.render()) == found


def test_a_book_is_written_as_the_document_of_the_wire_format_shows() -> None:
    path = Path(__file__).parents[2] / "schemas" / "README.md"
    shown = re.findall(r"^```json\n(.*?)\n```$", path.read_text("utf-8"), re.M | re.S)
    (text,) = (one for one in shown if '"digest"' in one)
    key = made("Abcdefg2", role=Role.CACHE_READER, created_ms=0, not_before_ms=0)
    assert KeyBook.of(1, [key]).render() == text.replace("<64 hex>", key.digest)


def test_no_policy_is_a_book_without_keys() -> None:
    assert KeyBook.parse("") == KeyBook.of(0, ())


def _changed(text: str, **changes: object) -> str:
    document = orjson.loads(text)
    document["keys"][0].update(changes)
    return orjson.dumps(document).decode()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"role": "root"}, "role"),
        ({"namespaces": "shop"}, "namespaces"),
        ({"namespaces": [1]}, "namespaces"),
        ({"created_ms": "0"}, "created_ms"),
        ({"created_ms": True}, "created_ms"),
        ({"not_before_ms": None}, "not_before_ms"),
        ({"digest": None}, "digest"),
        ({"surprise": 1}, "keys"),
    ],
)
def test_a_damaged_book_is_refused_by_its_field(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        KeyBook.parse(_changed(book(made()).render(), **changes))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", "nonsense", '{"keys":[],"revision":"1"}', '{"keys":{},"revision":1}'],
)
def test_what_is_no_book_is_refused(text: str) -> None:
    with pytest.raises(InvalidEvent):
        KeyBook.parse(text)


def _at(revision: int) -> str:
    return KeyBook.of(revision, ()).render()


@pytest.mark.parametrize(
    ("policy", "candidate", "expected"),
    [
        pytest.param("", _at(1), True, id="the-first"),
        pytest.param(_at(1), _at(2), True, id="the-next"),
        pytest.param(_at(2), _at(2), False, id="lost-a-race"),
        pytest.param(_at(2), _at(1), False, id="older"),
        pytest.param(_at(1), _at(3), False, id="skips-one"),
        pytest.param(_at(1), "{}", False, id="no-book"),
        pytest.param(_at(1), "", False, id="nothing"),
        pytest.param("", "nonsense", False, id="no-json"),
        pytest.param(_at(1), '{"revision":2,"newer":1}', True, id="of-a-later-build"),
    ],
)
def test_a_book_follows_the_one_in_force(
    policy: str, candidate: str, *, expected: bool
) -> None:
    assert follows(policy, candidate) is expected


def test_an_id_is_made_of_letters_that_are_not_alike() -> None:
    found = key_id_of(bytes([0, 255, 7, 9, 31, 100, 200, 50]))
    assert len(found) == 8
    assert not set(found) & set("0O1Il")
    assert replace(made(), key_id=found).key_id == found
