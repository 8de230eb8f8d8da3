"""A second verifier, in Go and with its standard library alone, says the same.

It shares no line with ours: it was written from schemas/README.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cachemind.core.audit_findings import Outcome
from tests.audit_checks import outcome
from tests.audit_dump import Dump, DumpMaker, lines_of
from tests.unit.test_audit_attacks import (
    begun,
    resigned,
    with_a_key_that_nobody_added,
    with_a_log_key,
    with_a_receipt_key_on_the_cut,
    with_a_retired_key,
    with_a_retired_log_key,
    with_a_revoked_key,
    with_a_revoked_log_key,
)
from tests.unit.test_audit_mutations import doubled, flipped, swapped, without
from tests.vectors.make_audit_dump import DUMP, KEYS, build

SOURCES = Path(__file__).parents[1] / "go_verifier"
BYTE_STEP = 71
ATTACKS: list[Callable[[DumpMaker], None]] = [
    with_a_key_that_nobody_added,
    with_a_log_key,
    with_a_receipt_key_on_the_cut,
    with_a_retired_key,
    with_a_retired_log_key,
    with_a_revoked_key,
    with_a_revoked_log_key,
]

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="needs go to build it"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("go") / "verifier"
    subprocess.run(
        ["go", "build", "-buildvcs=false", "-o", program, "."], cwd=SOURCES, check=True
    )
    return program


def verdicts(verifier: Path, paths: Sequence[Path]) -> list[bool]:
    """Return for each dump whether the other verifier finds nothing wrong."""
    done = subprocess.run(
        [verifier, KEYS, *paths], capture_output=True, text=True, timeout=600
    )
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) is None for line in done.stdout.splitlines()]


def changes(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the records with one deleted, doubled, swapped, or a byte changed."""
    for at, value in enumerate(values):
        yield without(values, at)
        yield doubled(values, at)
        if at + 1 < len(values):
            yield swapped(values, at)
        for byte in range(at % BYTE_STEP, len(value), BYTE_STEP):
            yield (*values[:at], flipped(value, byte, 0x01), *values[at + 1 :])


def damaged() -> Iterator[Dump]:
    dump = build()
    for partition, values in enumerate(dump.receipts):
        yield dump.with_receipts(partition, ())
        for changed in changes(values):
            yield dump.with_receipts(partition, changed)
    for changed in changes(dump.cuts):
        yield dump.with_cuts(changed)


def attacked() -> Iterator[Dump]:
    yield begun().dump()
    yield resigned()
    for attack in ATTACKS:
        made = begun()
        attack(made)
        made.cut()
        yield made.dump()


def test_it_verifies_the_golden_dump(verifier: Path) -> None:
    assert verdicts(verifier, [DUMP]) == [True]


def test_it_agrees_on_every_damaged_and_attacked_log(
    verifier: Path, tmp_path: Path
) -> None:
    dumps = [*damaged(), *attacked()]
    paths = []
    for number, dump in enumerate(dumps):
        path = tmp_path / f"{number}.jsonl"
        audit_only = Dump(receipts=dump.receipts, cuts=dump.cuts, wal=())
        path.write_text("".join(lines_of(audit_only)), encoding="utf-8")
        paths.append(path)
    ours = [outcome(dump) is Outcome.OK for dump in dumps]
    theirs = verdicts(verifier, paths)
    assert len(theirs) == len(ours)
    pairs = enumerate(zip(ours, theirs, strict=True))
    assert [number for number, (one, other) in pairs if one != other] == []
    assert 2 < ours.count(True) < len(ours) / 10
