"""What every store's copy promises. Subclass it and give a fixture `site`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cachemind.core.fold import apply
from cachemind.core.state import Entry, NamespaceState, Step
from cachemind.ports import ShadowStore, StoreWriter
from cachemind.types import ExactKey, Namespace, Offset
from tests.contracts.store_contract import OTHER, Site, put
from tests.fold_cases import NS, NoEntries, envelope, key, lsn, stored


def go_on(failpoint: str) -> None:
    """Do not die here."""


def made(word: str) -> Entry:
    """Return the entry that `stored(word)` makes."""
    state = NamespaceState(namespace=NS)
    step = apply(state, NoEntries(), envelope(stored(word), word), lsn(9))
    entry = step.entries[key(word)]
    assert entry is not None
    return entry


def placed(store: StoreWriter, *words: str) -> Step:
    """Return a step whose entries at `words` are in a copy already."""
    step = apply(store.namespace(NS), NoEntries(), envelope(stored("z"), "z"), lsn(2))
    return replace(step, entries={}, placed=[key(word) for word in words])


def changed(store: StoreWriter) -> tuple[ShadowStore, Mapping[ExactKey, Entry | None]]:
    """Return a copy of a store with p and q, in which p is gone and r is new."""
    put(store, 0, envelope(stored("p"), "e1"), envelope(stored("q"), "e2"))
    put(store, 2, envelope(stored("x"), "e3", namespace=OTHER))
    copy = store.shadow(go_on)
    entries = {key("p"): None, key("r"): made("r")}
    copy.put(NS, entries, {key("p"): made("p").context_key})
    return copy, entries


def words_of(store: StoreWriter, name: Namespace = NS) -> list[str]:
    return sorted(entry.prompt or "" for entry in store.reader(name).entries())


class ShadowContract:
    """One test a promise of the port."""

    def test_what_is_put_into_a_copy_is_not_in_the_store(self, site: Site) -> None:
        store = site.store()
        copy, _ = changed(store)
        view = site.view(store)
        assert view.catch_up() == store.applied() == 2
        assert words_of(store) == ["p", "q"]
        assert view.raw_entry(NS, key("r")) is None
        assert copy.totals(NS)[1] == 2
        copy.discard()
        assert words_of(store) == ["p", "q"]
        put(store, 3, envelope(stored("s"), "e4"))
        assert words_of(store) == ["p", "q", "s"]

    def test_a_commit_puts_all_of_the_copy_in_the_stores_place(
        self, site: Site
    ) -> None:
        store = site.store()
        copy, entries = changed(store)
        view = site.view(store)
        view.catch_up()
        store.fence(NS, Offset(3))
        totals = copy.totals(NS)
        step = placed(store, "p", "r")
        copy.commit(Offset(3), {NS: [step]})
        assert store.applied() == 3
        assert words_of(store) == ["q", "r"]
        assert words_of(store, OTHER) == ["x"]
        assert view.changed()
        assert view.fenced_at(NS) == 3
        assert view.catch_up() == 3
        assert view.fenced_at(NS) == 3
        assert view.raw_entry(NS, key("p")) is None
        vectors = view.context(NS, made("r").context_key)
        assert [row.exact_key for row in vectors] == sorted([key("q"), key("r")])
        assert list(view.reader(NS).entries()) == list(store.reader(NS).entries())
        assert store.namespace(NS) == step.state
        assert totals == store.shadow(go_on).totals(NS)
        assert step.version_row is not None
        version = step.version_row.version
        assert store.versions(NS, version, version) == [step.version_row]
        assert list(entries) == [key("p"), key("r")]

    def test_who_follows_the_journal_has_to_start_over(self, site: Site) -> None:
        store = site.store()
        copy, _ = changed(store)
        view = site.view(store)
        view.catch_up()
        copy.commit(Offset(3), {NS: [placed(store, "p", "r")]})
        view.catch_up()
        assert view.changes_since(Offset(2)) is None
        assert view.changes_since(Offset(3)) == []
        put(store, 4, envelope(stored("s"), "e5"))
        view.catch_up()
        told = view.changes_since(Offset(3))
        assert told is not None
        assert [line.exact_key for line in told] == [key("s")]

    def test_a_second_copy_ends_the_first(self, site: Site) -> None:
        store = site.store()
        changed(store)
        again = store.shadow(go_on)
        assert again.totals(NS)[1] == 2
        again.commit(Offset(3), {NS: [placed(store)]})
        assert words_of(store) == ["p", "q"]
