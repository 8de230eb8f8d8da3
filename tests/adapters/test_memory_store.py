from __future__ import annotations

import pytest
from hypothesis import given

from cachemind.adapters.memory_store import MemoryStore
from cachemind.events import Envelope
from cachemind.ports import StoreInspector, StoreWriter
from tests.contracts.shadow_contract import ShadowContract
from tests.contracts.store_contract import (
    CUTS,
    FEW,
    StoreContract,
    require_fold_in_any_batching,
    require_journal_to_tell_all,
)
from tests.unit.fold_strategies import logs


class MemorySite:
    def store(self, journal_changes: int = 1000) -> StoreWriter:
        return MemoryStore(journal_changes=journal_changes)

    def view(self, store: StoreWriter) -> StoreInspector:
        assert isinstance(store, MemoryStore)
        return store.view()


@pytest.fixture
def site() -> MemorySite:
    return MemorySite()


class TestMemoryStore(StoreContract):
    """The port's promises."""


class TestMemoryShadow(ShadowContract):
    """The port's promises."""


@FEW
@given(log=logs(), cuts=CUTS)
def test_a_store_holds_the_fold_of_its_log_however_it_was_batched(
    site: MemorySite, log: list[Envelope], cuts: list[int]
) -> None:
    require_fold_in_any_batching(site, log, cuts)


@FEW
@given(log=logs(), cuts=CUTS)
def test_who_follows_the_journal_knows_which_entries_there_are(
    site: MemorySite, log: list[Envelope], cuts: list[int]
) -> None:
    require_journal_to_tell_all(site, log, cuts)
