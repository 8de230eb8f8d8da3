"""What every `AuditTarget` promises. Subclass it and give a fixture `target`."""

from __future__ import annotations

import pytest

from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.core.audit_files import AuditStream, FileName
from cachemind.errors import AuditFileDamaged, AuditFileTaken, AuditScratchLost
from cachemind.ports.audit_files import AuditTarget
from cachemind.types import Partition
from tests.sealed_cases import CUTS, RECEIPTS

NAME = str(FileName(0, 9))
BIG = bytes(range(256)) * 4096


class AuditTargetContract:
    """One test a promise of the port."""

    def test_nothing_is_there_before_something_is_sealed(
        self, target: AuditTarget
    ) -> None:
        assert target.streams() == ([], []) or target.streams() == ([], ())
        assert target.names(RECEIPTS) == {}
        with pytest.raises(AuditFileDamaged, match=r"receipts/0/.*is missing"):
            target.read(RECEIPTS, NAME)

    def test_what_is_sealed_comes_back_byte_for_byte(self, target: AuditTarget) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(b"head")
        scratch.append(BIG)
        scratch.seal(NAME)
        assert target.read(RECEIPTS, NAME) == b"head" + BIG
        assert target.names(RECEIPTS) == {NAME: len(BIG) + 4}
        assert target.names(CUTS) == {}

    def test_what_is_being_written_is_not_seen(self, target: AuditTarget) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(BIG)
        assert target.names(RECEIPTS) == {}
        scratch.discard()
        assert target.names(RECEIPTS) == {}

    def test_sealing_twice_changes_nothing(self, target: AuditTarget) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(b"one")
        scratch.seal(NAME)
        scratch.seal(NAME)
        assert target.read(RECEIPTS, NAME) == b"one"

    def test_the_same_bytes_under_the_same_name_are_the_same_file(
        self, target: AuditTarget
    ) -> None:
        for _ in range(2):
            scratch = target.begin(RECEIPTS)
            scratch.append(b"one")
            scratch.seal(NAME)
        assert target.names(RECEIPTS) == {NAME: 3}

    def test_a_sealed_file_is_never_replaced(self, target: AuditTarget) -> None:
        first, second = target.begin(RECEIPTS), target.begin(RECEIPTS)
        first.append(b"one")
        second.append(b"two")
        first.seal(NAME)
        with pytest.raises(AuditFileTaken) as taken:
            second.seal(NAME)
        second.discard()
        assert taken.value.name == f"receipts/0/{NAME}"
        assert target.read(RECEIPTS, NAME) == b"one"

    def test_a_discarded_file_cannot_be_sealed(self, target: AuditTarget) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(b"one")
        scratch.discard()
        scratch.discard()
        with pytest.raises(AuditScratchLost):
            scratch.append(b"two")
        with pytest.raises(AuditScratchLost):
            scratch.seal(NAME)
        assert target.names(RECEIPTS) == {}

    def test_discarding_a_sealed_file_leaves_it(self, target: AuditTarget) -> None:
        scratch = target.begin(RECEIPTS)
        scratch.append(b"one")
        scratch.seal(NAME)
        scratch.discard()
        assert target.read(RECEIPTS, NAME) == b"one"

    def test_the_streams_with_files_are_known(self, target: AuditTarget) -> None:
        for stream in (AuditStream(Partition(10)), CUTS, AuditStream(Partition(2))):
            scratch = target.begin(stream)
            scratch.append(b"one")
            scratch.seal(NAME)
        found, foreign = target.streams()
        assert {one.folder for one in found} == {"cuts", "receipts/10", "receipts/2"}
        assert not foreign
        assert AuditFilesReader(target).partitions() == [2, 10]

    def test_many_files_are_all_listed(self, target: AuditTarget) -> None:
        names = [str(FileName(number, number)) for number in range(30)]
        for name in names:
            scratch = target.begin(CUTS)
            scratch.append(name.encode())
            scratch.seal(name)
        assert sorted(target.names(CUTS)) == names
