"""How a worker follows what becomes of its data keys."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from cachemind.errors import CacheError, KeyUnavailable
from cachemind_services.gateway.payload_keys import KeyFollower


class Keys:
    """`HeldKeys` that write down what is asked of them."""

    def __init__(self) -> None:
        self.failure: CacheError | None = None
        self.gone: set[str] = set()
        self.held = {"a"}
        self.looked = 0
        self.closed = False

    def shredded(self, key_ids: Collection[str]) -> bool:
        went = bool(self.held & set(key_ids))
        self.held -= set(key_ids)
        return went

    def forget(self) -> None:
        self.held = set()

    def refresh(self) -> bool:
        self.looked += 1
        if self.failure is not None:
            raise self.failure
        went, self.gone = self.gone, set()
        self.held -= went
        return bool(went)

    def close(self) -> None:
        self.closed = True


async def until(check: object) -> None:
    assert callable(check)
    async with asyncio.timeout(20):
        while not check():
            await asyncio.sleep(0.005)


def test_without_keys_there_is_nothing_to_follow() -> None:
    async def run() -> None:
        follower = KeyFollower(None, lambda: None)
        await follower.start()
        follower.folded(("a",))
        assert follower.problem is None
        await follower.stop()

    asyncio.run(run())


def test_a_key_goes_at_once_when_the_fold_says_so_and_a_new_one_is_looked_for() -> None:
    async def run() -> None:
        keys, told = Keys(), list[int]()
        follower = KeyFollower(keys, lambda: told.append(1), check_s=600)
        await follower.start()
        looked = keys.looked
        follower.folded(())
        follower.folded(("other",))
        assert (keys.held, told) == ({"a"}, [])
        follower.folded(("a", "other"))
        assert (keys.held, told) == (set(), [1])
        await until(lambda: keys.looked > looked)
        await follower.stop()
        assert keys.closed

    asyncio.run(run())


def test_a_key_that_was_destroyed_goes_without_the_fold() -> None:
    async def run() -> None:
        keys, told = Keys(), list[int]()
        follower = KeyFollower(keys, lambda: told.append(1), check_s=0.01)
        await follower.start()
        keys.gone = {"a"}
        await until(lambda: told == [1])
        assert not keys.held
        await follower.stop()

    asyncio.run(run())


def test_keys_stay_in_use_for_a_while_when_nobody_tells_of_them() -> None:
    async def run() -> None:
        keys = Keys()
        follower = KeyFollower(keys, lambda: None, check_s=0.01, lease_s=600)
        await follower.start()
        keys.failure = KeyUnavailable("keys", "are away")
        looked = keys.looked
        await until(lambda: keys.looked > looked + 2)
        assert keys.held == {"a"}
        assert "are away" in (follower.problem or "")
        keys.failure = None
        await until(lambda: follower.problem is None)
        await follower.stop()

    asyncio.run(run())


def test_past_that_while_they_are_forgotten() -> None:
    async def run() -> None:
        keys, told = Keys(), list[int]()
        follower = KeyFollower(keys, lambda: told.append(1), check_s=0.01, lease_s=0)
        await follower.start()
        keys.failure = KeyUnavailable("keys", "are away")
        await until(lambda: not keys.held)
        await until(lambda: told)
        await follower.stop()

    asyncio.run(run())
