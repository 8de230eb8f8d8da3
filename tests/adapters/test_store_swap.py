from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cachemind.adapters.store_swap import (
    forget_before,
    is_empty,
    link_files,
    replace_store,
    settle,
)
from cachemind.errors import SnapshotRefused, StoreUnavailable


def fill_with(text: str) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "CURRENT").write_text(text)

    return fill


def shown(path: Path) -> str:
    return (path / "CURRENT").read_text()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store" / "3"
    replace_store(path, fill_with("first"))
    return path


def names(path: Path) -> set[str]:
    return {found.name for found in path.parent.iterdir()}


def test_the_former_store_is_kept_until_told(store: Path) -> None:
    replace_store(store, fill_with("second"))
    assert shown(store) == "second"
    assert shown(store.with_name("3.before")) == "first"
    forget_before(store)
    assert names(store) == {"3"}


def test_a_fill_that_fails_changes_nothing(store: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "CURRENT").write_text("half")
        raise SnapshotRefused("v1", "is damaged")

    with pytest.raises(SnapshotRefused):
        replace_store(store, fail)
    settle(store)
    assert shown(store) == "first"
    replace_store(store, fill_with("second"))
    assert shown(store) == "second"


@pytest.mark.parametrize("cut", ["before-both-renames", "between-them"])
def test_a_replacement_that_was_cut_off_is_finished(store: Path, cut: str) -> None:
    new = store.with_name("3.new")
    new.mkdir()
    (new / "CURRENT").write_text("second")
    if cut == "between-them":
        store.rename(store.with_name("3.before"))
    settle(store)
    assert shown(store) == "second"
    assert shown(store.with_name("3.before")) == "first"
    assert names(store) == {"3", "3.before"}


def test_a_full_disk_is_our_own_error(store: Path) -> None:
    def fail(folder: Path) -> None:
        del folder
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreUnavailable, match="No space left"):
        replace_store(store, fail)
    assert shown(store) == "first"


def test_there_is_no_store_without_its_pointer(store: Path, tmp_path: Path) -> None:
    assert not is_empty(store)
    assert is_empty(tmp_path)


def test_only_what_never_changes_is_shared(tmp_path: Path) -> None:
    source, target = tmp_path / "one", tmp_path / "two"
    for folder in (source, target):
        folder.mkdir()
    files = ["000001.sst", "MANIFEST-1", "CURRENT", "000002.log", "cachemind.doorbell"]
    for name in files:
        (source / name).write_text(name)
    link_files(source, files, target)
    assert {path.name for path in target.iterdir()} == set(files[:-1])
    shared = [n for n in files[:-1] if (source / n).samefile(target / n)]
    assert shared == ["000001.sst"]
