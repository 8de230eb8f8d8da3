from __future__ import annotations

import pytest

from cachemind_services.cli.main import serving


@pytest.mark.parametrize(
    ("given", "run"),
    [
        pytest.param([], ["serve"], id="nothing-serves"),
        pytest.param(
            ["--audit-mode", "--log-dir", "d"],
            ["serve", "--audit-mode", "--log-dir", "d"],
            id="options-are-those-of-serve",
        ),
        pytest.param(["tail", "--json"], ["tail", "--json"], id="a-command-is-run"),
        pytest.param(["--help"], ["--help"], id="help-is-the-programs"),
        pytest.param(["--version"], ["--version"], id="so-is-the-version"),
    ],
)
def test_the_second_name_serves_where_no_command_is_named(
    given: list[str], run: list[str]
) -> None:
    assert serving(given) == run
