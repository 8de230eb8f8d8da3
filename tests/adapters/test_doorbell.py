from __future__ import annotations

from pathlib import Path

import pytest

from cachemind.adapters.doorbell import NAME, Doorbell
from cachemind.errors import StoreUnavailable
from cachemind.types import Namespace, Offset


def test_a_reader_sees_what_the_owner_rang_last(tmp_path: Path) -> None:
    owner = Doorbell(tmp_path, owner=True)
    reader = Doorbell(tmp_path, owner=False)
    assert reader.read() == 0
    owner.ring(Offset(2**40))
    assert reader.read() == 2**40 + 1
    owner.ring(Offset(-1))
    assert reader.read() == 0
    reader.close()
    owner.close()


def test_a_fence_is_of_its_namespace_and_never_moves_back(tmp_path: Path) -> None:
    owner = Doorbell(tmp_path, owner=True)
    reader = Doorbell(tmp_path, owner=False)
    assert reader.fenced_at(Namespace("shop")) == -1
    owner.fence(Namespace("shop"), Offset(0))
    assert reader.fenced_at(Namespace("shop")) == 0
    owner.fence(Namespace("shop"), Offset(2**40))
    owner.fence(Namespace("shop"), Offset(5))
    assert reader.fenced_at(Namespace("shop")) == 2**40
    assert reader.fenced_at(Namespace("other")) == -1
    assert reader.read() == 0
    owner.close()
    again = Doorbell(tmp_path, owner=True)
    assert again.fenced_at(Namespace("shop")) == 2**40
    again.close()
    reader.close()


def test_an_owner_that_comes_back_rings_the_same_bell(tmp_path: Path) -> None:
    Doorbell(tmp_path, owner=True).close()
    reader = Doorbell(tmp_path, owner=False)
    again = Doorbell(tmp_path, owner=True)
    again.ring(Offset(6))
    assert reader.read() == 7
    assert not reader.moved()
    again.close()
    reader.close()


def test_a_reader_notices_a_bell_that_was_replaced_or_removed(tmp_path: Path) -> None:
    Doorbell(tmp_path, owner=True).close()
    reader = Doorbell(tmp_path, owner=False)
    assert not reader.moved()
    (tmp_path / NAME).unlink()
    assert reader.moved()
    Doorbell(tmp_path, owner=True).close()
    assert reader.moved()
    reader.close()


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_a_missing_or_short_bell_is_unavailable(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    with pytest.raises(StoreUnavailable, match=NAME):
        Doorbell(tmp_path, owner=False)
