"""Which folder `cachemind broker` takes for the one that is named."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cachemind_services.broker import commands
from cachemind_services.cli.main import main


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the folders that an action got, which then does nothing."""
    folders: list[Path] = []

    def run(arguments: argparse.Namespace) -> int:
        folders.append(arguments.data_dir)
        return 0

    monkeypatch.setattr(commands, "run", run)
    return folders


@pytest.mark.parametrize("action", ["status", "start", "stop", "run"])
def test_the_data_folder_of_serve_leads_to_its_broker(
    action: str, tmp_path: Path, taken: list[Path]
) -> None:
    (tmp_path / "broker").mkdir()
    main(["broker", action, "--data-dir", str(tmp_path)])
    main(["broker", action, "--data-dir", str(tmp_path / "broker")])
    assert taken == [tmp_path / "broker"] * 2


def test_a_folder_that_is_not_there_yet_is_the_brokers_own(
    tmp_path: Path, taken: list[Path]
) -> None:
    main(["broker", "start", "--data-dir", str(tmp_path / "new")])
    assert taken == [tmp_path / "new"]


def test_without_one_it_is_that_of_the_settings(
    tmp_path: Path, taken: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHEMIND_DATA_DIR", str(tmp_path))
    main(["broker", "status"])
    assert taken == [tmp_path / "broker"]
