"""What a verifier is told of sealed files that somebody changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest

from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.core.audit_files import FileName, manifest_name
from cachemind.core.audit_manifest import FileManifest, hash_of
from cachemind.types import Sha256
from tests.sealed_cases import RECEIPTS
from tests.sink_bench import HERE, SinkBench, pump

Files = dict[str, bytes]
FIRST, SECOND, THIRD = (str(FileName(at, at + 2)) for at in (0, 3, 6))


@pytest.fixture
def bench() -> SinkBench:
    made = SinkBench()
    stream = made.resumed()
    for _ in range(3):
        made.sign(3)
        pump(stream)
        stream.seal()
    assert made.sealed() == made.written
    return made


def flipped(name: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        content = bytearray(files[name])
        content[-20] ^= 1
        files[name] = bytes(content)

    return change


def cut(name: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        files[name] = files[name][:-1]

    return change


def removed(*names: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        for name in names:
            del files[name]

    return change


def resealed(files: Files) -> None:
    """Change the second file and make its manifest fit: the third's does not."""
    content = files[SECOND].replace(b"gateway-0", b"gateway-1")
    manifest = FileManifest.decode(files[manifest_name(3)])
    digest = Sha256(sha256(content).digest())
    files[SECOND] = content
    files[manifest_name(3)] = replace(
        manifest, file=replace(manifest.file, sha256=digest)
    ).encode()


def renamed(files: Files) -> None:
    files[manifest_name(3)] = files[manifest_name(0)]


@pytest.mark.parametrize(
    ("change", "name", "problem"),
    [
        pytest.param(flipped(SECOND), SECOND, "another SHA-256", id="changed"),
        pytest.param(cut(SECOND), SECOND, "its manifest says", id="cut"),
        pytest.param(removed(SECOND), SECOND, "is missing", id="file-missing"),
        pytest.param(
            removed(SECOND, manifest_name(3)),
            manifest_name(6),
            "but 3 should come next",
            id="file-and-manifest-missing",
        ),
        pytest.param(
            removed(manifest_name(3)),
            manifest_name(6),
            "but 3 should come next",
            id="manifest-missing",
        ),
        pytest.param(
            removed(FIRST, manifest_name(0)),
            manifest_name(3),
            "but 0 should come next",
            id="begin-missing",
        ),
        pytest.param(
            flipped(manifest_name(3)), manifest_name(3), "manifest", id="manifest-cut"
        ),
        pytest.param(resealed, manifest_name(6), "another manifest", id="resealed"),
        pytest.param(renamed, manifest_name(3), "another file's", id="copied-manifest"),
    ],
)
def test_the_damaged_or_missing_file_is_named(
    bench: SinkBench, change: Callable[[Files], None], name: str, problem: str
) -> None:
    change(bench.files.files[RECEIPTS])
    reader = AuditFilesReader(bench.target)
    list(reader.receipts(HERE))
    found = [one for one in reader.problems if one.name == f"receipts/0/{name}"]
    assert any(problem in one.problem for one in found), reader.problems


def test_what_can_still_be_read_of_a_damaged_file_is_read(bench: SinkBench) -> None:
    flipped(SECOND)(bench.files.files[RECEIPTS])
    values = list(AuditFilesReader(bench.target).receipts(HERE))
    assert values[:3] == bench.written[:3]
    assert values[-3:] == bench.written[-3:]


def test_a_cut_tail_cannot_be_seen_from_the_files_alone(bench: SinkBench) -> None:
    removed(THIRD, manifest_name(6))(bench.files.files[RECEIPTS])
    reader = AuditFilesReader(bench.target)
    assert list(reader.receipts(HERE)) == bench.written[:6]
    assert reader.problems == ()


def test_a_problem_is_told_once_however_often_it_is_read(bench: SinkBench) -> None:
    removed(SECOND)(bench.files.files[RECEIPTS])
    reader = AuditFilesReader(bench.target)
    for _ in range(2):
        list(reader.receipts(HERE))
    assert len(reader.problems) == 1


def test_the_chain_of_manifests_is_by_their_hashes(bench: SinkBench) -> None:
    first, second, third = bench.manifests()
    assert second.previous == hash_of(first.encode())
    assert third.previous == hash_of(second.encode())
