"""Data keys at hand: made once, found by all, forgotten once shredded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cachemind.adapters.memory_data_keys import MemoryDataKeys
from cachemind.agents.erasure import erase
from cachemind.errors import (
    KeyRefused,
    KeyUnavailable,
    LogUnavailable,
    PayloadUnreadable,
)
from cachemind.events import Invalidated, KeyShredded
from cachemind.types import Lsn, Namespace, Offset, Partition
from tests.payload_hosts import SHOP, KeyHost


@pytest.fixture
def store() -> MemoryDataKeys:
    return MemoryDataKeys()


def test_the_first_host_makes_a_key_and_the_others_find_it(
    store: MemoryDataKeys,
) -> None:
    hosts = [KeyHost(store) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda host: host.keys.refresh(), hosts))
    assert len(store.keys(SHOP)) == 1
    raws = [host.seal() for host in hosts]
    assert all(host.opens(raw) for host in hosts for raw in raws)


def test_who_only_reads_makes_no_key(store: MemoryDataKeys) -> None:
    reader = KeyHost(store, makes=False)
    assert not reader.keys.refresh()
    assert list(store.keys(SHOP)) == []
    assert reader.cipher.current is None
    writer = KeyHost(store)
    writer.keys.refresh()
    reader.keys.refresh()
    assert reader.opens(writer.seal())


def test_namespaces_have_keys_of_their_own(store: MemoryDataKeys) -> None:
    shop, bank = KeyHost(store), KeyHost(store, namespace=Namespace("bank"))
    shop.keys.refresh()
    bank.keys.refresh()
    assert not bank.opens(shop.seal())


def test_another_wrapper_gets_a_key_of_its_own_and_no_host_makes_two(
    store: MemoryDataKeys,
) -> None:
    one, two = KeyHost(store, "one"), KeyHost(store, "two")
    for _ in range(3):
        one.keys.refresh()
        two.keys.refresh()
    assert [key.wrapper_id for key in store.keys(SHOP)] == ["memory:one", "memory:two"]
    assert one.opens(one.seal())
    assert two.opens(two.seal())
    assert not one.opens(two.seal())


def test_a_shredded_key_is_forgotten_at_once_and_a_new_one_is_made(
    store: MemoryDataKeys,
) -> None:
    host = KeyHost(store)
    host.keys.refresh()
    raw, old = host.seal(), store.keys(SHOP)[0]
    assert host.keys.shredded((old.key_id,))
    assert not host.opens(raw)
    with pytest.raises(PayloadUnreadable):
        host.seal()
    # The wrapped key is still there: the log's word counts.
    host.keys.refresh()
    assert not host.opens(raw)
    assert host.opens(host.seal())
    assert host.cipher.current == store.keys(SHOP)[1].key_id
    assert not host.keys.shredded((old.key_id,))


def test_a_destroyed_key_is_forgotten_without_the_logs_word(
    store: MemoryDataKeys,
) -> None:
    host = KeyHost(store)
    host.keys.refresh()
    raw = host.seal()
    store.destroy(store.keys(SHOP)[0].destroyed(1))
    assert host.keys.refresh()
    assert not host.opens(raw)
    assert host.opens(host.seal())


def test_a_key_shredded_while_it_is_fetched_does_not_come_back(
    store: MemoryDataKeys,
) -> None:
    KeyHost(store).keys.refresh()
    [key] = store.keys(SHOP)
    host = KeyHost(store, makes=False)
    unwrap = host.wrapper.unwrap

    def slow(wrapped: bytes, context: bytes) -> bytes:
        host.keys.shredded((key.key_id,))
        return unwrap(wrapped, context)

    host.wrapper.unwrap = slow  # type: ignore[method-assign]  # comes in between
    host.keys.refresh()
    assert not host.cipher.key_ids


def test_keys_stay_at_hand_while_the_store_is_away(store: MemoryDataKeys) -> None:
    host = KeyHost(store)
    host.keys.refresh()
    raw = host.seal()
    store.failure = KeyUnavailable("keys", "are away")
    with pytest.raises(KeyUnavailable):
        host.keys.refresh()
    assert host.opens(raw)
    host.keys.forget()
    assert not host.opens(raw)
    store.failure = None
    host.keys.refresh()
    assert host.opens(raw)


def test_a_key_under_anothers_id_is_refused(
    store: MemoryDataKeys, caplog: pytest.LogCaptureFixture
) -> None:
    host = KeyHost(store)
    host.keys.refresh()
    [key] = store.keys(SHOP)
    forged = replace(key, key_id=key.key_id[:-1] + "x")
    store.destroy(forged)  # puts it there, whatever it is
    late = KeyHost(store, makes=False)
    for _ in range(2):
        late.keys.refresh()
    assert not late.cipher.key_ids
    assert caplog.text.count("cannot be used here") == 1


# ---- erasing -------------------------------------------------------------------------


class Log:
    """Takes events and numbers them."""

    def __init__(self) -> None:
        self.events: list[Invalidated | KeyShredded] = []
        self.away = False

    def append(self, event: Invalidated | KeyShredded) -> Lsn:
        if self.away:
            raise LogUnavailable("the log is away")
        self.events.append(event)
        return Lsn(Partition(1), Offset(len(self.events)))


def erased(store: MemoryDataKeys, log: Log, failpoint: Callable[[str], None]) -> object:
    return erase(store, SHOP, log.append, lambda: 7, "asked", failpoint)


class Cut(Exception):
    """The process ends here."""


@pytest.mark.parametrize("keys", [1, 2])
def test_cut_off_anywhere_an_erasure_is_done_by_the_next_run(keys: int) -> None:
    for cut in range(1 + 1 + 2 * keys + 1):
        store, log, steps = MemoryDataKeys(), Log(), 0
        for wrapper in ("one", "two")[:keys]:
            KeyHost(store, wrapper).keys.refresh()
        ids = [key.key_id for key in store.keys(SHOP)]

        def step(_: str, cut: int = cut) -> None:
            nonlocal steps
            steps += 1
            if steps == cut + 1:
                raise Cut

        try:
            erased(store, log, step)
        except Cut:
            pass
        else:
            assert steps == cut
        erased(store, log, lambda _: None)
        assert not any(key.lives for key in store.keys(SHOP))
        shredded = [e.key_id for e in log.events if isinstance(e, KeyShredded)]
        assert set(shredded) == set(ids)
        assert isinstance(log.events[0], Invalidated)


def test_no_key_is_destroyed_that_the_log_does_not_call_shredded(
    store: MemoryDataKeys,
) -> None:
    KeyHost(store).keys.refresh()
    log = Log()
    log.away = True
    with pytest.raises(LogUnavailable):
        erased(store, log, lambda _: None)
    assert store.keys(SHOP)[0].lives


def test_erasing_again_changes_nothing_and_says_so(store: MemoryDataKeys) -> None:
    KeyHost(store).keys.refresh()
    [key] = store.keys(SHOP)
    log = Log()
    done = erase(store, SHOP, log.append, lambda: 7, "asked")
    assert [each.key_id for each in done.shredded] == [key.key_id]
    assert (done.invalidated, done.before) == (Lsn(Partition(1), Offset(1)), [])
    again = erase(store, SHOP, log.append, lambda: 8, "asked")
    assert (list(again.shredded), again.before) == ([], [key.key_id])
    assert again.invalidated is None
    assert len(log.events) == 2
    assert store.keys(SHOP)[0].destroyed_at_ns == 7


def test_what_was_never_encrypted_cannot_be_erased(store: MemoryDataKeys) -> None:
    with pytest.raises(KeyRefused, match="nothing of it is encrypted"):
        erased(store, Log(), lambda _: None)
