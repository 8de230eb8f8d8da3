from __future__ import annotations

import logging
import os
import resource
import signal
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachemind.adapters.sealed_file import (
    SealedFolder,
    create_seal_key,
    read_seal_keys,
    verify_folder,
)
from cachemind.core.sealing import HEAD_BYTES, SealKey, SealOutcome, seal_key
from cachemind.errors import (
    AuditBroken,
    KeyRefused,
    StoreLocked,
    StoreUnavailable,
)

OLD, NEW = seal_key(bytes(32)), seal_key(bytes(range(32)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sealed"


def append(
    folder: Path,
    *batches: Sequence[bytes],
    keys: Sequence[SealKey] = (NEW,),
    max_bytes: int = 2**20,
) -> None:
    with closing(SealedFolder(folder, keys, max_bytes=max_bytes)) as out:
        for batch in batches:
            out.append_all(batch)


def bodies(folder: Path, keys: Sequence[SealKey] = (NEW,)) -> list[bytes]:
    with closing(SealedFolder(folder, keys)) as out:
        return list(out.bodies())


def outcomes(folder: Path, keys: Sequence[SealKey] = (NEW,)) -> set[SealOutcome]:
    return {one.report.outcome for one in verify_folder(folder, keys)}


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seal"))


def test_what_was_appended_is_there_over_many_openings(folder: Path) -> None:
    append(folder, [b"a", b"b"], [])
    append(folder, [b"c"])
    assert bodies(folder) == [b"a", b"b", b"c"]
    assert outcomes(folder) == {SealOutcome.OK}
    [file] = files(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_each_record_has_its_number(folder: Path) -> None:
    with closing(SealedFolder(folder, [NEW])) as out:
        assert out.append_all([b"a", b"b"]) == 0
        assert out.append_all([b"c"]) == 2
        assert out.next_seq == 3


def test_files_are_of_a_size_and_chained(folder: Path) -> None:
    append(folder, *([b"%03d" % n] for n in range(50)), max_bytes=500)
    assert len(files(folder)) > 5
    assert bodies(folder) == [b"%03d" % n for n in range(50)]
    assert outcomes(folder) == {SealOutcome.OK}
    files(folder)[2].unlink()
    assert [
        one.report.problem
        for one in verify_folder(folder, [NEW])
        if one.report.outcome is SealOutcome.TAMPERED
    ] == ["begins with record 27, expected 18"]


def test_a_file_of_another_folder_does_not_fit_in(folder: Path, tmp_path: Path) -> None:
    for place, word in ((folder, b"a"), (tmp_path / "other", b"b")):
        append(place, *([word] for _ in range(20)), max_bytes=500)
    mine, theirs = files(folder), files(tmp_path / "other")
    mine[1].write_bytes(theirs[1].read_bytes())
    found = {one.name: one.report for one in verify_folder(folder, [NEW])}
    assert found[mine[1].name].problem == "does not go on where the file before ended"
    assert found[mine[2].name].outcome is SealOutcome.TAMPERED


def test_a_key_is_exchanged_for_another_one(folder: Path) -> None:
    append(folder, [b"a"], keys=[OLD])
    append(folder, [b"b"], keys=[OLD, NEW])
    assert bodies(folder, [OLD, NEW]) == [b"a", b"b"]
    assert outcomes(folder, [OLD, NEW]) == {SealOutcome.OK}
    assert outcomes(folder, [NEW]) == {SealOutcome.UNVERIFIABLE}


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_torn_tail_is_kept_aside_and_what_is_whole_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    append(folder, [b"a" * 40], [b"b" * 40])
    [file] = files(folder)
    content = file.read_bytes()
    size = data.draw(st.integers(0, len(content)))
    file.write_bytes(content[:size])
    whole = max(size - HEAD_BYTES, 0) // 92
    append(folder, [b"c"])
    assert bodies(folder) == [*[b"a" * 40, b"b" * 40][:whole], b"c"]
    assert outcomes(folder) == {SealOutcome.OK}
    kept = b"".join(path.read_bytes() for path in folder.glob("*.torn-*"))
    good = 0 if size < HEAD_BYTES else HEAD_BYTES + whole * 92
    assert kept == content[good:size]


def test_a_torn_tail_is_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(folder, [b"a", b"b"])
    [file] = files(folder)
    file.write_bytes(file.read_bytes()[:-5])
    with caplog.at_level(logging.WARNING):
        append(folder)
    assert "ended with 48 bytes of a record that is not whole" in caplog.text


def test_a_tail_of_zeros_is_torn_too(folder: Path) -> None:
    """What a file system leaves when the power goes."""
    append(folder, [b"a"])
    [file] = files(folder)
    with file.open("ab") as out:
        out.write(bytes(5000))
    append(folder, [b"b"])
    assert bodies(folder) == [b"a", b"b"]


def test_a_crash_while_a_file_is_begun_is_gone_on_from(folder: Path) -> None:
    append(folder, *([b"a"] for _ in range(8)), max_bytes=300)
    last = files(folder)[-1]
    last.write_bytes(last.read_bytes()[:10])
    append(folder, [b"b"])
    found = bodies(folder)
    assert found[-1] == b"b"
    assert set(found[:-1]) == {b"a"}
    assert outcomes(folder) == {SealOutcome.OK}


def test_a_changed_file_is_not_gone_on_with(folder: Path) -> None:
    append(folder, [b"a", b"b"])
    [file] = files(folder)
    content = bytearray(file.read_bytes())
    content[HEAD_BYTES + 20] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(AuditBroken, match="tampered"):
        SealedFolder(folder, [NEW])
    assert file.read_bytes() == bytes(content)
    assert outcomes(folder) == {SealOutcome.TAMPERED}


def test_one_process_at_a_time(folder: Path) -> None:
    with closing(SealedFolder(folder, [NEW])), pytest.raises(StoreLocked):
        SealedFolder(folder, [NEW])
    append(folder, [b"a"])


def test_without_a_key_nothing_is_sealed(folder: Path) -> None:
    with pytest.raises(KeyRefused):
        SealedFolder(folder, [])


def test_a_full_disk_is_said_and_what_was_written_is_gone_on_with(
    folder: Path,
) -> None:
    append(folder, [b"a"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with closing(SealedFolder(folder, [NEW])) as out:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
            with pytest.raises(StoreUnavailable, match="File too large"):
                out.append_all([b"b" * 500])
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            with pytest.raises(StoreUnavailable, match="open it anew"):
                out.append_all([b"c"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    append(folder, [b"d"])
    assert bodies(folder) == [b"a", b"d"]


def test_keys_are_made_and_read_the_newest_last(tmp_path: Path) -> None:
    made = [create_seal_key(tmp_path / "keys") for _ in range(3)]
    for age, key in enumerate(made):
        path = tmp_path / "keys" / f"seal-{key.key_id.hex()}.key"
        os.utime(path, ns=(age, age))
    assert list(read_seal_keys(tmp_path / "keys")) == made


def test_a_key_file_that_holds_another_key_is_refused(tmp_path: Path) -> None:
    one, two = (create_seal_key(tmp_path) for _ in range(2))
    paths = [tmp_path / f"seal-{key.key_id.hex()}.key" for key in (one, two)]
    paths[0].write_bytes(paths[1].read_bytes())
    with pytest.raises(KeyRefused, match="holds the key"):
        read_seal_keys(tmp_path)
    paths[0].write_bytes(b"xx")
    with pytest.raises(KeyRefused, match="64 hex"):
        read_seal_keys(tmp_path)
