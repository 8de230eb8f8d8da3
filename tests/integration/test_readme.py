"""What README shows is run, and what it prints is compared."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import parser
from tests.integration.rollback_host import Shop
from tests.integration.serving import run_cli, serving
from tests.upstreams import ScriptedUpstream, served

README = Path(__file__).parents[2] / "README.md"
PORT = "http://127.0.0.1:8080"
KAFKA = "127.0.0.1:9092"
VERSION = '"to_version": 127'


def blocks(language: str) -> list[str]:
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_help_text_is_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert parser().format_help() in blocks("text")


def test_the_first_screen_names_demo_and_test() -> None:
    screen = "\n".join(README.read_text(encoding="utf-8").splitlines()[:24])
    assert "make demo" in screen
    assert "make test" in screen


@pytest.mark.parametrize("block", blocks("console"))
def test_each_command_that_is_shown_exists(block: str) -> None:
    shown = re.findall(r"^\$ cachemind ([\w-]+)", block, re.MULTILINE)
    targets = re.findall(r"^\$ make ([\w-]+)", block, re.MULTILINE)
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    commands = parser().format_help()
    assert all(re.search(rf"^    {name}\b", commands, re.MULTILINE) for name in shown)
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in targets)


@pytest.mark.broker
@pytest.mark.model
def test_the_applications_ten_lines_hit_the_second_time(tmp_path: Path) -> None:
    code = blocks("python")[0]
    assert PORT in code
    with (
        served(ScriptedUpstream()) as url,
        serving(url, tmp_path, "--encoder", "off") as host,
    ):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code.replace(PORT, host.url), {})  # noqa: S102  # README's own words
        first, second = printed.getvalue().splitlines()
        assert first.startswith("miss ")
        assert second.startswith("hit_exact ")
        assert first.removeprefix("miss ") == second.removeprefix("hit_exact ")
        done = run_cli("doctor", "--rebuild", f"--data-dir={tmp_path}")
        assert done.returncode == 0, done.stdout


@pytest.mark.broker
def test_a_command_from_a_client_without_our_library_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = blocks("python")[1]
    assert all(text in code for text in (KAFKA, VERSION))
    monkeypatch.chdir(README.parent)
    with (
        served(ScriptedUpstream()) as url,
        serving(url, tmp_path, "--encoder", "off") as host,
        Shop(host.url) as shop,
    ):
        for number in range(3):
            shop.put(f"question {number}", "answer")
        shop.settle(3)
        servers = EmbeddedBroker(tmp_path / "broker").status().bootstrap_servers
        assert servers is not None
        printed = io.StringIO()
        mine = code.replace(KAFKA, servers).replace(VERSION, '"to_version": 2')
        with contextlib.redirect_stdout(printed):
            exec(mine, {})  # noqa: S102  # README's own words
        answer = printed.getvalue()
        assert "'status': 'committed'" in answer
        assert "'new_version': 4" in answer
        shop.settle(4)


@pytest.mark.broker
def test_the_client_library_does_what_is_shown(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("python") if "cachemind.client" in block)
    assert PORT in code
    with (
        served(ScriptedUpstream()) as url,
        serving(url, tmp_path, "--encoder", "off") as host,
    ):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code.replace(PORT, host.url), {})  # noqa: S102  # README's own words
        first, second, judged, invalidated, rehearsed = printed.getvalue().splitlines()
        assert first.startswith("miss ")
        assert second == "hit_exact " + first.removeprefix("miss ")
        assert re.fullmatch(r"\d@\d+", judged)
        assert re.fullmatch(r"\d@\d+", invalidated)
        assert rehearsed.startswith("dry_run ")
