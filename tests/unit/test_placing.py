"""When a rollback goes into one commit and when into a copy of the store."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cachemind.adapters.memory_store import MemoryShadow, MemoryStore
from cachemind.agents.placing import Placing
from cachemind.core.digest import digest_of
from cachemind.core.entry_bytes import encode
from cachemind.core.state import Entry, NamespaceState
from cachemind.errors import RollbackRejected
from cachemind.types import ContextKey, ExactKey, Namespace
from tests.contracts.shadow_contract import made
from tests.fold_cases import NS, key

MADE = {key(word): made(word) for word in "abc"}
AFTER = NamespaceState(
    namespace=NS,
    digest=digest_of((at, encode(entry)) for at, entry in MADE.items()),
    entries=3,
)


def filled(store: MemoryStore, one_write_bytes: int) -> tuple[Placing, list[str]]:
    """Return where three entries went, one at a time, and what steps that took."""
    steps: list[str] = []
    placing = Placing(store, NS, one_write_bytes, steps.append)
    for at, entry in MADE.items():
        placing.add({at: entry}, {})
    return placing, steps


def test_what_fits_into_one_write_is_held_for_it() -> None:
    placing, steps = filled(MemoryStore(), 1 << 20)
    placing.complete(AFTER)
    assert placing.shadow is None
    assert placing.entries == MADE
    assert placing.placed == []
    assert steps == []


@pytest.mark.parametrize("one_write_bytes", [0, 3_000, 6_000])
def test_what_does_not_is_in_a_copy_and_not_held(one_write_bytes: int) -> None:
    placing, steps = filled(MemoryStore(), one_write_bytes)
    placing.complete(AFTER)
    assert placing.shadow is not None
    assert placing.shadow.totals(NS) == (AFTER.digest, 3)
    assert placing.entries == {}
    assert placing.left == {}
    assert placing.placed == list(MADE)
    assert steps[0] == "shadow.begun"
    assert steps[-1] == "shadow.validated"


def test_what_only_goes_away_counts_too() -> None:
    placing = Placing(MemoryStore(), NS, 5_000, lambda name: None)
    placing.add(dict.fromkeys(MADE), {})
    assert placing.shadow is None
    placing.add({key(f"gone {number}"): None for number in range(10)}, {})
    assert placing.shadow is not None


def test_a_copy_that_lost_something_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = MemoryShadow.put

    def losing(
        self: MemoryShadow,
        namespace: Namespace,
        entries: Mapping[ExactKey, Entry | None],
        left: Mapping[ExactKey, ContextKey],
    ) -> None:
        if key("b") not in entries:
            whole(self, namespace, entries, left)

    monkeypatch.setattr(MemoryShadow, "put", losing)
    placing, _ = filled(MemoryStore(), 0)
    with pytest.raises(RollbackRejected, match="in the store's copy: digest"):
        placing.complete(AFTER)
