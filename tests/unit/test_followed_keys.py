"""The key book that a worker follows: never an older one, none before it is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from cachemind.core.access import ACCESS_NAMESPACE, Role
from cachemind.core.api_keys import ApiKey, KeyBook
from cachemind.core.state import NamespaceState
from cachemind.types import Namespace, Offset
from cachemind_services.gateway.followed_keys import LOG_NS, FollowedKeys
from cachemind_services.gateway.partition_follower import Caught


@dataclass
class Host:
    """A partition of the log, as its follower tells of it."""

    goal: Offset | None = None
    now: int = 0
    changes: int = 0
    partition: int = 0
    problem: str | None = None
    not_ready: str | None = None
    keys: FollowedKeys = field(init=False)

    def __post_init__(self) -> None:
        clock = SimpleNamespace(now_ns=lambda: self.now)
        deps = SimpleNamespace(views=[None], clock=clock)
        shared = SimpleNamespace(deps=deps, follower=lambda _: self)
        self.keys = FollowedKeys(cast(Any, shared), self.changed)

    def changed(self) -> None:
        self.changes += 1

    def known(self) -> bool:
        return self.keys.known

    def shows(self, policy: str, applied: int = 0) -> None:
        """Let a catch-up show a policy."""
        state = NamespaceState(namespace=ACCESS_NAMESPACE, policy=policy)
        caught = Caught(
            Offset(applied), {ACCESS_NAMESPACE: state}, {ACCESS_NAMESPACE: None}, ()
        )
        self.keys._follower.take(caught)


def book(revision: int, *key_ids: str) -> str:
    keys = [
        ApiKey(
            key_id=key_id,
            digest="0" * 64,
            role=Role.CACHE_READER,
            namespaces=(Namespace("shop"),),
            created_ms=0,
            not_before_ms=0,
        )
        for key_id in key_ids
    ]
    return KeyBook.of(revision, keys).render()


def test_a_newer_book_takes_the_place_of_the_one_before() -> None:
    host = Host()
    host.shows(book(1, "Firstkey"))
    host.shows(book(1, "Firstkey"))
    host.shows(book(2, "Secondky"))
    assert set(host.keys.book.keys) == {"Secondky"}
    assert host.changes == 2


def test_a_store_that_is_rebuilt_brings_no_revoked_key_back() -> None:
    host = Host()
    host.shows(book(3))
    for older in ("", book(1, "Revokedk"), book(2, "Revokedk")):
        host.shows(older)
        assert host.keys.book.revision == 3
        assert host.keys.warnings()
    host.shows(book(3))
    assert host.keys.warnings() == []
    host.shows(book(4, "Newerkey"))
    assert set(host.keys.book.keys) == {"Newerkey"}


def test_an_older_book_after_one_that_cannot_be_read_does_not_count() -> None:
    host = Host()
    host.shows(book(3, "Revokedk"))
    host.shows('{"revision":4}')
    assert host.keys.book.keys == {}
    host.shows(book(2, "Revokedk"))
    assert host.keys.book.keys == {}


def test_the_keys_are_not_known_before_the_store_is_where_the_log_was() -> None:
    host = Host(goal=Offset(7))
    assert not host.known()
    host.shows(book(1), applied=6)
    host.now = 10 * LOG_NS
    assert not host.known()
    host.shows(book(2), applied=7)
    assert host.known()
    # Once they are known a store that goes back makes them no less so.
    host.shows(book(1), applied=3)
    assert host.known()


def test_where_the_log_does_not_say_where_it_ends_what_is_here_has_to_do() -> None:
    host = Host()
    host.shows(book(1))
    host.now = LOG_NS - 1
    assert not host.known()
    host.now = LOG_NS
    assert host.known()
    # Without a store there is nothing here.
    nothing = Host()
    nothing.now = 10 * LOG_NS
    assert not nothing.known()


def test_a_worker_is_not_ready_before_the_keys_are_known() -> None:
    # A log that is empty is caught up with before anything was looked at.
    host = Host(goal=Offset(-1))
    assert host.keys.not_ready() == ["keys: they were not read yet"]
    host.shows("", applied=-1)
    assert host.keys.not_ready() == []
