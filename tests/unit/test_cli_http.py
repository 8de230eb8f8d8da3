"""What the command line makes of a gateway's refusals."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from cachemind.core.access import NAMESPACE_HEADER
from cachemind.errors import CacheError, InvalidSetting
from cachemind_services.cli.http import Answer, _credential, add_client, call
from cachemind_services.cli.options import settings_from


def refused(status: int, **error: str) -> Answer:
    return Answer(status=status, headers={}, body=json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        pytest.param(
            401,
            {"message": "a key is needed", "param": ""},
            "401: a key is needed (--key-file, CACHEMIND_ACCESS_KEY)",
            id="who-asks",
        ),
        pytest.param(
            400,
            {"message": "name one of a, b", "param": "X-CacheMind-Namespace"},
            "400: name one of a, b (--in-namespace)",
            id="which-namespace",
        ),
        pytest.param(422, {"message": "no"}, "422: no", id="else"),
        pytest.param(500, {}, "500: no reason given", id="no-reason"),
    ],
)
def test_a_refusal_names_the_flag_that_mends_it(
    status: int, error: dict[str, str], said: str
) -> None:
    with pytest.raises(CacheError) as found:
        refused(status, **error).expect(200)
    assert str(found.value) == said


def test_a_key_file_without_a_key_is_not_asked_with(tmp_path: Path) -> None:
    empty = tmp_path / "empty.key"
    empty.write_text("\n")
    parser = argparse.ArgumentParser()
    add_client(parser)
    arguments = parser.parse_args(["--key-file", str(empty)])
    with pytest.raises(InvalidSetting, match=r"--key-file: .*empty.key is empty"):
        call(arguments, "GET", "/v1/cachemind/whoami")


def test_a_namespace_is_asked_for_without_a_key_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CACHEMIND_ACCESS_KEY", raising=False)
    parser = argparse.ArgumentParser()
    add_client(parser)
    arguments = parser.parse_args(["--in-namespace", "shop"])
    fields = _credential(arguments, settings_from(arguments))
    assert fields == {NAMESPACE_HEADER: "shop"}
