"""What `replay`, `snapshot` and `wal` understand and print."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from cachemind.core.delta import EntryChange
from cachemind.events import Body
from cachemind.types import Offset, Partition, Version
from cachemind_services.cli.describe import describe, line
from cachemind_services.cli.main import main, parser
from cachemind_services.cli.replay_shown import bar, change_line, change_row
from cachemind_services.cli.snapshot import render
from tests.fold_cases import envelope, key, lsn, read, reads, stored
from tests.vectors.make_state import ENTRY

ZERO = Partition(0)


def parsed(*words: str) -> argparse.Namespace:
    return parser().parse_args(words)


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--to-version", "7", "--data-dir", "/d", "query", "p", "--model=m"),
        ("replay", "query", "p", "--model=m", "--to-version", "7", "--data-dir", "/d"),
        ("replay", "--to-version", "7", "query", "p", "--model=m", "--data-dir", "/d"),
    ],
    ids=["before", "after", "both"],
)
def test_the_point_and_settings_may_stand_on_either_side(words: tuple[str]) -> None:
    found = parsed(*words)
    assert (found.to_version, found.data_dir, found.action) == (7, "/d", "query")
    assert (found.prompt, found.model) == ("p", "m")


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--to-version", "1", "--to-lsn", "0@1"),
        ("replay", "--to-version", "-1"),
        ("replay", "export", "--format", "csv"),
        ("snapshot",),
        ("snapshot", "create", "--retention-days", "1.5"),
        ("wal",),
    ],
)
def test_wrong_usage_ends_with_2(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    assert "usage: cachemind" in capsys.readouterr().err


def test_a_snapshots_name_is_checked_before_anybody_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["snapshot", "create", "--name", "../x", "--data-dir", "/none"]) == 2
    assert "--name" in capsys.readouterr().err


def test_a_replay_is_forgotten_by_name(tmp_path: Path) -> None:
    note = '{"name": "%s", "at_ns": 7, "ends": {"0": 3}}'
    for name in ("a", "b"):
        folder = tmp_path / "replays" / name
        folder.mkdir(parents=True)
        (folder / "replay.json").write_text(note % name)
    words = ["--replay", "a", "--data-dir", str(tmp_path)]
    assert main(["replay", "forget", *words]) == 0
    assert [path.name for path in (tmp_path / "replays").iterdir()] == ["b"]
    assert main(["replay", "forget", *words]) == 2


@pytest.mark.parametrize(
    ("began", "at", "end", "shown"),
    [
        (0, 0, 10, "[" + "." * 30 + "]   0%  0 of 10"),
        (0, 5, 10, "[" + "#" * 15 + "." * 15 + "]  50%  5 of 10"),
        (100, 110, 110, "[" + "#" * 30 + "] 100%  110 of 110"),
        (10, 10, 10, "0%  10 of 10"),
        (0, 12, 10, "100%  12 of 10"),
    ],
)
def test_a_bar_says_how_much_is_done(began: int, at: int, end: int, shown: str) -> None:
    assert shown in bar(ZERO, Offset(began), Offset(at), Offset(end))


def test_a_change_shows_each_field_old_and_new() -> None:
    after = replace(ENTRY, version=Version(9), response=b"poison", tags=("a", "b"))
    told = change_row(EntryChange(ENTRY.exact_key, ENTRY, after), bodies=True)
    assert told["change"] == "changed"
    assert told["fields"]["version"] == [ENTRY.version, 9]
    assert told["fields"]["response"] == [ENTRY.response.decode(), "poison"]
    assert told["fields"]["tags"][1] == ["a", "b"]
    lines = change_line(told).splitlines()
    assert lines[0] == f"~ {ENTRY.exact_key.hex()}"
    assert f"    version: {ENTRY.version} -> 9" in lines


def test_what_people_wrote_is_named_where_it_differs_and_not_shown() -> None:
    after = replace(
        ENTRY, version=Version(9), prompt="a secret", response=b"poison", embedding=None
    )
    told = change_row(EntryChange(ENTRY.exact_key, ENTRY, after), bodies=False)
    assert told["fields"] == {"version": [ENTRY.version, 9]}
    assert told["hidden"] == ["prompt", "embedding", "response"]
    for word in ("a secret", "poison", str(ENTRY.prompt), ENTRY.response.decode()):
        assert word not in change_line(told)
    assert change_line(told).splitlines()[-1] == (
        "    prompt, embedding, response: differ, see --bodies"
    )


@pytest.mark.parametrize("word", ["added", "removed"])
def test_an_entry_that_came_or_went_is_one_line(word: str) -> None:
    sides = (None, ENTRY) if word == "added" else (ENTRY, None)
    told = change_row(EntryChange(ENTRY.exact_key, *sides), bodies=True)
    assert told["change"] == word
    mark = "+" if word == "added" else "-"
    assert change_line(told).startswith(f"{mark} {ENTRY.exact_key.hex()}  ver")
    assert change_line(told).endswith(repr(ENTRY.prompt))
    hidden = change_row(EntryChange(ENTRY.exact_key, *sides), bodies=False)
    assert "prompt" not in hidden
    assert str(ENTRY.prompt) not in change_line(hidden)


def test_a_key_that_no_header_can_hold_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["get", "p", "--model", "m", "--api-key", "sk-\n1"]) == 2
    assert "--api-key" in capsys.readouterr().err


@pytest.mark.parametrize(
    "body", [stored("a"), reads(read("a"))], ids=["stored", "reads"]
)
def test_the_line_of_an_event_has_the_key_that_other_commands_take(body: Body) -> None:
    shown = describe(envelope(body), lsn(0), bodies=False)
    assert f"key={key('a').hex()}" in line(shown)


def test_the_line_of_an_event_shortens_other_hashes() -> None:
    event = stored("a")
    shown = describe(envelope(event), lsn(0), bodies=False)
    assert event.context_key.hex()[:16] in line(shown)
    assert event.context_key.hex() not in line(shown)


def test_a_snapshot_is_one_line_of_what_matters() -> None:
    row = {
        "name": "v1.2.0",
        "created_at_ns": 1_700_000_000 * 10**9,
        "expires_at_ns": 0,
        "size_bytes": 3 * 2**20,
        "lsns": ["0@19"],
        "published": True,
    }
    assert render(row) == (
        "name=v1.2.0  created=2023-11-14T22:13:20Z  expires=never  "
        'size=3.0MiB  lsns=["0@19"]  published=True'
    )
