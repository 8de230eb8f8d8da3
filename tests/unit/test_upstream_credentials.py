"""The file of credentials for upstream: what is taken, what is refused and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachemind.errors import InvalidSetting
from cachemind_services.bootstrap.upstream_credentials import (
    read_upstream_credentials,
)
from cachemind_services.settings import load

SECRET = "sk-very-secret"
GOOD = f'[shop]\nAuthorization = "Bearer {SECRET}"\nx-plan = "gold"\n'


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "upstream.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_fields_come_by_namespace_in_lower_case(tmp_path: Path) -> None:
    held = (b"authorization", f"Bearer {SECRET}".encode())
    found = read_upstream_credentials(written(tmp_path, GOOD))
    assert found == {"shop": (held, (b"x-plan", b"gold"))}
    assert read_upstream_credentials(None) == {}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidSetting, match="chmod 600"):
        read_upstream_credentials(written(tmp_path, GOOD, mode))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no toml " + SECRET, "is not TOML"),
        ('authorization = "x"', "must be a table"),
        ("[shop]\n", "must be a table"),
        ('[Shop]\nauthorization = "x"', "Shop"),
        ('[shop]\nhost = "x"', "host is not a credential"),
        ('[shop]\nX-CacheMind-Key = "x"', "x-cachemind-key is not a credential"),
        ('[shop]\n"a b" = "x"', "is not a token"),
        ('[shop]\na = "x"\nA = "y"', "a is there twice"),
        (f'[shop]\nauthorization = "{SECRET}\\r\\nevil: 1"', "one line"),
        (f'[shop]\nauthorization = "{SECRET} "', "one line"),
        ("[shop]\nauthorization = 7", "one line"),
    ],
)
def test_what_is_wrong_is_named_and_never_repeated(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(InvalidSetting, match=told) as refused:
        read_upstream_credentials(written(tmp_path, text))
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(refused.value.__cause__)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"gone\.toml"):
        read_upstream_credentials(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [("UPSTREAM_CREDENTIALS", "f"), ("KEY_REQUESTS_PER_S", "1"), ("KEY_STREAMS", "1")],
)
def test_what_is_of_keys_needs_keys(name: str, value: str) -> None:
    environ = {f"CACHEMIND_{name}": value}
    with pytest.raises(InvalidSetting, match="CACHEMIND_AUTH") as refused:
        load(environ)
    assert f"CACHEMIND_{name}" in str(refused.value)
    load({**environ, "CACHEMIND_AUTH": "true"})
