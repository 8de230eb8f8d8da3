"""What a container runs besides the program: its beginning, its health, its encoder."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cachemind_services.control import ControlServer, Fields
from infra.terraform.container import alive, encoder, start
from tests.infra.containerfile import CONTAINER

PROMPT_SECRET = "ab" * 32


# ---- start --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "argv"),
    [
        pytest.param([], ["cachemind"], id="nothing"),
        pytest.param(["--help"], ["cachemind", "--help"], id="flag"),
        pytest.param(["serve"], ["cachemind", "serve"], id="command-alone"),
        pytest.param(["cachemind", "sink"], ["cachemind", "sink"], id="with-program"),
        pytest.param(["python", "x.py"], ["python", "x.py"], id="script"),
        pytest.param(["sh"], ["cachemind", "sh"], id="no-shell"),
    ],
)
def test_what_a_container_runs(arguments: list[str], argv: list[str]) -> None:
    assert start.command(arguments) == argv


def test_secrets_go_to_files_of_their_owner_and_out_of_the_environment(
    tmp_path: Path,
) -> None:
    secret, log_dir = tmp_path / "home" / "prompt-secret", tmp_path / "home" / "audit"
    kept = start.place(
        {
            "PROMPT_SECRET": PROMPT_SECRET,
            "KEYS_JSON": '{"roots": []}',
            "CACHEMIND_SECRET_FILE": str(secret),
            "CACHEMIND_LOG_DIR": str(log_dir),
            "PATH": "/bin",
        }
    )
    assert kept.keys() == {"CACHEMIND_SECRET_FILE", "CACHEMIND_LOG_DIR", "PATH"}
    assert secret.read_text() == PROMPT_SECRET
    assert (log_dir / "keys.json").read_text() == '{"roots": []}'
    for path in (secret, log_dir / "keys.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [one.name for one in path.parent.glob(".*")] == []


def test_a_secret_is_replaced_whole_when_a_task_starts_again(tmp_path: Path) -> None:
    place = {"CACHEMIND_SECRET_FILE": str(tmp_path / "secret")}
    start.place({"PROMPT_SECRET": "old", **place})
    before = (tmp_path / "secret").stat().st_ino
    start.place({"PROMPT_SECRET": "new", **place})
    assert (tmp_path / "secret").read_text() == "new"
    assert (tmp_path / "secret").stat().st_ino != before


def test_a_secret_without_a_place_stops_the_start_and_is_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        start.place({"PROMPT_SECRET": PROMPT_SECRET})
    said = capsys.readouterr().err
    assert caught.value.code == start.EXIT_USAGE
    assert "CACHEMIND_SECRET_FILE" in said
    assert PROMPT_SECRET not in said


def test_a_container_becomes_its_command(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    show = "import os; print(os.getpid(), 'PROMPT_SECRET' in os.environ)"
    begun = subprocess.Popen(
        [sys.executable, CONTAINER / "start.py", "python", "-c", show],
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PROMPT_SECRET": PROMPT_SECRET,
            "CACHEMIND_SECRET_FILE": str(secret),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    printed, _ = begun.communicate(timeout=30)
    assert printed.split() == [str(begun.pid), "False"]
    assert secret.read_text() == PROMPT_SECRET


# ---- health -------------------------------------------------------------------------


@contextmanager
def http_server(status: int) -> Iterator[int]:
    """Serve `/healthz` with `status`, all else with 404; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()


def test_a_gateway_that_answers_is_alive() -> None:
    with http_server(200) as port:
        assert alive.problem([], {"CACHEMIND_PORT": str(port)}) == ""
        assert alive.problem([f"http://127.0.0.1:{port}/healthz"], {}) == ""


@pytest.mark.parametrize("status", [503, 404])
def test_a_gateway_that_answers_otherwise_is_not(status: int) -> None:
    with http_server(status) as port:
        assert str(status) in alive.problem([], {"CACHEMIND_PORT": str(port)})


def test_a_gateway_that_does_not_answer_is_not() -> None:
    with http_server(200) as port:
        pass
    assert "refused" in alive.problem([], {"CACHEMIND_PORT": str(port)})


async def test_a_materializer_is_asked_over_its_socket(tmp_path: Path) -> None:
    async def status(fields: Fields) -> Fields:
        del fields
        return {"ready": False}

    environ = {"CACHEMIND_DATA_DIR": str(tmp_path)}
    assert "no materializer" in alive.problem(["materializer"], environ)
    async with ControlServer(tmp_path, {"status": status}):
        # Not ready is alive: it folds what a long log holds.
        asked = asyncio.to_thread(alive.problem, ["materializer"], environ)
        assert await asked == ""


def test_the_exit_code_says_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with http_server(200) as port:
        monkeypatch.setenv("CACHEMIND_PORT", str(port))
        assert alive.main([]) == 0
    assert alive.main([]) == 1
    assert "refused" in capsys.readouterr().err


# ---- encoder ------------------------------------------------------------------------


@pytest.mark.model
def test_the_encoder_is_made_where_the_program_looks_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert encoder.main([]) == 0
    model = Path(capsys.readouterr().out.strip())
    assert model.name == "model.onnx"
    assert model.is_file()
    assert encoder.main([encoder.CHECK]) == 0


def test_an_image_without_the_encoders_file_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert encoder.main([encoder.CHECK]) == 1
    assert "no ONNX file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
