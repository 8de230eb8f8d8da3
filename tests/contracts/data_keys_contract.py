"""What every `DataKeyStore` promises. Subclass it; fixture `store`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from cachemind.core.data_key import DataKey, key_id_of
from cachemind.ports.data_keys import DataKeyStore
from cachemind.types import Namespace

SHOP, BANK = Namespace("shop"), Namespace("bank.eu-1")


def data_key(
    generation: int = 1, namespace: Namespace = SHOP, fill: int = 7
) -> DataKey:
    return DataKey(
        namespace=namespace,
        generation=generation,
        key_id=key_id_of(generation, bytes([fill]) * 32),
        wrapper_id="memory:test",
        wrapped=bytes([fill]) * 60,
        created_at_ns=5,
    )


class DataKeysContract:
    """One test a promise of the port."""

    def test_nothing_is_there_at_first(self, store: DataKeyStore) -> None:
        assert list(store.keys(SHOP)) == []

    def test_what_was_created_comes_back_the_oldest_first(
        self, store: DataKeyStore
    ) -> None:
        keys = [data_key(generation) for generation in (2, 11, 1)]
        assert all(store.create(key) for key in keys)
        assert [key.generation for key in store.keys(SHOP)] == [1, 2, 11]
        assert data_key(11) in store.keys(SHOP)

    def test_a_generation_is_created_once(self, store: DataKeyStore) -> None:
        assert store.create(data_key(fill=1))
        assert not store.create(data_key(fill=2))
        assert list(store.keys(SHOP)) == [data_key(fill=1)]

    def test_of_many_that_create_one_wins(self, store: DataKeyStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda n: store.create(data_key(fill=n)), range(8)))
        assert won.count(True) == 1
        assert list(store.keys(SHOP)) == [data_key(fill=won.index(True))]

    def test_namespaces_are_apart(self, store: DataKeyStore) -> None:
        assert store.create(data_key())
        assert store.create(data_key(namespace=BANK))
        assert list(store.keys(BANK)) == [data_key(namespace=BANK)]
        assert list(store.keys(Namespace("sho"))) == []
        assert list(store.keys(Namespace("shop.eu"))) == []

    def test_a_destroyed_key_is_a_stone_and_its_generation_stays_taken(
        self, store: DataKeyStore
    ) -> None:
        key = data_key()
        store.create(key)
        for _ in range(2):
            store.destroy(key.destroyed(9))
            assert list(store.keys(SHOP)) == [key.destroyed(9)]
        assert not store.create(data_key(fill=3))
        assert not store.keys(SHOP)[0].lives
