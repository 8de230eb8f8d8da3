from __future__ import annotations

from pathlib import Path

import pytest

from cachemind.errors import InvalidSetting
from cachemind_services.bootstrap.first_keys import make_first_keys
from cachemind_services.settings import load


def test_keys_for_production_are_made_on_purpose(tmp_path: Path) -> None:
    flags = {
        "log_dir": str(tmp_path),
        "production": "true",
        "bootstrap.servers": "127.0.0.1:1",
    }
    settings = load({}, flags=flags)
    with pytest.raises(InvalidSetting, match="audit keys init"):
        make_first_keys(settings)
    assert list(tmp_path.iterdir()) == []


def test_keys_that_are_pinned_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("whatever is pinned")
    assert make_first_keys(load({}, flags={"log_dir": str(tmp_path)})) is None
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]
