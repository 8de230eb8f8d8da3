"""What among a request's headers is a credential, and who that is."""

from __future__ import annotations

import pytest

from cachemind.core.access import Caller, Role
from cachemind.core.api_keys import ApiKey, KeyBook, key_text, secret_digest
from cachemind.core.credentials import (
    Presented,
    authenticate,
    authenticated,
    presented,
)
from cachemind.types import Namespace, Principal

SECRET = "s" * 43
KEY = key_text("Abcdefg2", SECRET)
TOKEN = "aaaa.bbbb.cccc"
BOOK = KeyBook.of(
    1,
    [
        ApiKey(
            key_id="Abcdefg2",
            digest=secret_digest(SECRET),
            role=Role.CACHE_READER,
            namespaces=(Namespace("shop"),),
            created_ms=0,
            not_before_ms=0,
        )
    ],
)
SOMEBODY = Caller(
    principal=Principal("oidc:issuer/sub"),
    role=Role.AUDITOR,
    namespaces=frozenset({Namespace("shop")}),
)


class Issuer:
    """Knows a token once it has been asked to learn it `after` times."""

    def __init__(self, after: int = 0) -> None:
        self.asked = 0
        self._after = after

    def verify(self, token: str, now_ns: int) -> Caller | None:
        return SOMEBODY if token == TOKEN and self.asked >= self._after else None

    async def learn(self, token: str, now_ns: int) -> bool:
        self.asked += 1
        return True

    async def close(self) -> None:
        """Nothing is under way."""


def headers(*lines: str) -> list[tuple[bytes, bytes]]:
    pairs = (line.split(": ", 1) for line in lines)
    return [(name.encode(), value.encode("latin-1")) for name, value in pairs]


def key(*, in_authorization: bool) -> Presented:
    return Presented(text=KEY, is_key=True, in_authorization=in_authorization)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param(
            [f"x-cachemind-key: {KEY}"], key(in_authorization=False), id="own-header"
        ),
        pytest.param(
            [f"x-cachemind-key: {KEY}", "authorization: Bearer sk-upstream"],
            key(in_authorization=False),
            id="upstream's-own-beside-it",
        ),
        pytest.param(
            [f"authorization: Bearer {KEY}"], key(in_authorization=True), id="bearer"
        ),
        pytest.param(
            [f"authorization: bEARER  {KEY}"], key(in_authorization=True), id="case"
        ),
        pytest.param(["authorization: Bearer sk-upstream"], None, id="upstream's"),
        pytest.param([f"authorization: Basic {KEY}"], None, id="other-scheme"),
        pytest.param([f"authorization: {KEY}"], None, id="no-scheme"),
        pytest.param(
            [f"authorization: Bearer {TOKEN}"],
            Presented(text=TOKEN, is_key=False, in_authorization=True),
            id="token",
        ),
        pytest.param(["authorization: Bearer a..c"], None, id="empty-part"),
        pytest.param(["authorization: Bearer a.b.c.d"], None, id="four-parts"),
        pytest.param(
            ["authorization: Bearer " + "a" * 20_000 + ".b.c"], None, id="huge"
        ),
        pytest.param(
            [f"x-cachemind-key: {KEY}", f"x-cachemind-key: {KEY}"], None, id="twice"
        ),
        pytest.param(
            [f"authorization: Bearer {KEY}", "authorization: Bearer sk"],
            None,
            id="two-authorizations",
        ),
        pytest.param(
            [f"x-cachemind-key: {KEY}", f"authorization: Bearer {KEY}"],
            None,
            id="ours-in-both",
        ),
        pytest.param(["x-cachemind-key: \xe9"], None, id="not-ascii"),
    ],
)
def test_a_request_presents_one_credential_or_none(
    lines: list[str], expected: Presented | None
) -> None:
    assert presented(headers(*lines)) == expected


def test_a_key_and_a_token_are_who_they_are_for() -> None:
    found = authenticate(headers(f"x-cachemind-key: {KEY}"), BOOK, Issuer(), 0)
    assert found is not None
    assert found.principal == "key:Abcdefg2"
    bearer = headers(f"authorization: Bearer {TOKEN}")
    assert authenticate(bearer, BOOK, Issuer(), 0) == SOMEBODY


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["x-cachemind-key: " + key_text("Abcdefg2", "t" * 43)],
        # A token in the header of keys would pass a check that looks at texts alone.
        [f"x-cachemind-key: {TOKEN}"],
        ["authorization: Bearer x.y.z"],
    ],
)
async def test_what_does_not_count_is_nobody(lines: list[str]) -> None:
    assert authenticate(headers(*lines), BOOK, Issuer(), 0) is None
    assert await authenticated(headers(*lines), BOOK, Issuer(), 0) is None


async def test_without_an_issuer_no_token_counts() -> None:
    bearer = headers(f"authorization: Bearer {TOKEN}")
    assert authenticate(bearer, BOOK, None, 0) is None
    assert await authenticated(bearer, BOOK, None, 0) is None


async def test_the_issuer_is_asked_where_a_token_does_not_count_yet() -> None:
    issuer = Issuer(after=1)
    bearer = headers(f"authorization: Bearer {TOKEN}")
    assert authenticate(bearer, BOOK, issuer, 0) is None
    assert await authenticated(bearer, BOOK, issuer, 0) == SOMEBODY
    assert issuer.asked == 1


async def test_the_issuer_is_never_asked_for_a_key() -> None:
    issuer = Issuer()
    await authenticated(headers("x-cachemind-key: cmk_x"), BOOK, issuer, 0)
    await authenticated(headers(f"x-cachemind-key: {KEY}"), BOOK, issuer, 0)
    assert issuer.asked == 0
