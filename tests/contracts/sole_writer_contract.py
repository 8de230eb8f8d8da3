"""What every `SoleWriter` promises. Subclass it and give a fixture `place`."""

from __future__ import annotations

from typing import Protocol

import pytest

from cachemind.errors import CacheError, LogTakenOver, LogUnavailable
from cachemind.ports.audit import SoleWriter
from cachemind.types import Partition

ONE = Partition(1)


class WritingPlace(Protocol):
    """The second partition of a topic, and writers of it."""

    def writer(self) -> SoleWriter:
        """Return one more writer of the partition."""
        ...

    def committed(self) -> list[bytes | None]:
        """Return what readers of the partition see."""
        ...


class Objection(CacheError):
    """What a caller has against a commit."""


def _agree() -> None: ...


def _object() -> None:
    raise Objection


def append(writer: SoleWriter, *values: bytes) -> list[int]:
    lsns = writer.append_all([(b"any key", value, ()) for value in values], _agree)
    assert {lsn.partition for lsn in lsns} == {ONE}
    return [lsn.offset for lsn in lsns]


class SoleWriterContract:
    """One test a promise of the port."""

    def test_it_appends_to_its_partition_whatever_the_key(
        self, place: WritingPlace
    ) -> None:
        writer = place.writer()
        writer.take_over()
        first, second = append(writer, b"a", b"b")
        assert second == first + 1
        # The mark of the commit takes an offset, and nothing else does.
        assert append(writer, b"c") == [second + 2]
        assert place.committed() == [b"a", b"b", b"c"]

    def test_it_appends_nothing_before_it_took_over(self, place: WritingPlace) -> None:
        writer = place.writer()
        with pytest.raises(LogUnavailable, match="has not taken over"):
            append(writer, b"a")
        assert place.committed() == []

    def test_an_objection_takes_all_away_and_it_must_take_over_again(
        self, place: WritingPlace
    ) -> None:
        writer = place.writer()
        writer.take_over()
        with pytest.raises(Objection):
            writer.append_all([(b"", b"a", ()), (b"", b"b", ())], _object)
        with pytest.raises(LogUnavailable, match="has not taken over"):
            append(writer, b"c")
        writer.take_over()
        append(writer, b"d")
        assert place.committed() == [b"d"]

    def test_an_older_one_is_ended_even_in_the_middle(
        self, place: WritingPlace
    ) -> None:
        older, newer = place.writer(), place.writer()
        older.take_over()
        append(older, b"a")
        with pytest.raises(LogTakenOver):
            older.append_all([(b"", b"late", ())], newer.take_over)
        assert place.committed() == [b"a"]
        append(newer, b"b")
        with pytest.raises(LogUnavailable):
            append(older, b"later")
        assert place.committed() == [b"a", b"b"]
