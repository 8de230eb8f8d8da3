"""What module `service` says to the program, and of it, is what the program knows."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from cachemind_services.cli.main import parser
from cachemind_services.settings import KAFKA_PREFIX, PREFIX, Settings, load

MODULES: Final = Path(__file__).parents[2] / "infra" / "terraform" / "modules"
SERVICE: Final = MODULES / "service"
LOCALS: Final = (SERVICE / "locals.tf").read_text()
TASKS: Final = (SERVICE / "tasks.tf").read_text()
VARIABLES: Final = (SERVICE / "variables.tf").read_text()
SET: Final = sorted(set(re.findall(rf"\b({PREFIX}[A-Z0-9_]+)\b *=", LOCALS)))
REFUSED: Final = re.findall(r'regex\("(\^\([^"]*\)\$)", name\)', VARIABLES)
SETTINGS: Final = {item.name: item for item in fields(Settings)}


def refused(name: str) -> bool:
    return any(re.search(pattern, name) for pattern in REFUSED)


def of_kafka(name: str) -> str:
    return name.removeprefix(PREFIX).lower()


@pytest.mark.parametrize("variable", SET)
def test_what_is_set_is_a_setting_of_the_program(variable: str) -> None:
    if variable.startswith(KAFKA_PREFIX):
        assert load({variable: "x", f"{KAFKA_PREFIX}BOOTSTRAP_SERVERS": "b:9092"}).kafka
    else:
        assert variable.removeprefix(PREFIX).lower() in SETTINGS


@pytest.mark.parametrize("variable", SET)
def test_what_the_module_sets_is_not_changed_by_its_variable_settings(
    variable: str,
) -> None:
    assert refused(of_kafka(variable))


@pytest.mark.parametrize(
    "name", [name for name, item in SETTINGS.items() if item.metadata.get("secret")]
)
def test_no_secret_is_given_in_a_plain_variable(name: str) -> None:
    assert refused(name)


@pytest.mark.parametrize(
    "name",
    [
        "kafka_bootstrap_servers",
        "kafka_enable_ssl_certificate_verification",
        "kafka_sasl_password",
        "kafka_security_protocol",
        "kafka_ssl_endpoint_identification_algorithm",
        "kafka_ssl_ca_location",
    ],
)
def test_how_kafka_is_reached_is_not_changed(name: str) -> None:
    assert refused(name)


@pytest.mark.parametrize(
    "name", ["auth", "ttl_s", "similarity_threshold", "key_streams", "sink_file_s"]
)
def test_other_settings_are_the_operators(name: str) -> None:
    assert name in SETTINGS
    assert not refused(name)


def test_every_process_is_a_command_of_the_program() -> None:
    commands = re.findall(r'\["cachemind", "([a-z]+)"\]', LOCALS)
    beside = {"gateway", "materializer", "requests", "receipts", "collector"}
    assert beside < set(commands)
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([command, "--help"])
        assert ended.value.code == 0


def test_alarms_and_scaling_are_on_metrics_that_the_program_has() -> None:
    files = (MODULES / "observability" / "main.tf", SERVICE / "main.tf")
    wanted = {
        name
        for path in files
        for name in re.findall(r'"(cachemind_\w+)"', path.read_text())
    }
    assert len(wanted) > len(files)
    source = Path(__file__).parents[2] / "services" / "cachemind_services"
    named = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'"(cachemind_\w+)"', path.read_text())
    }
    # A counter's name ends in _total where it is read.
    assert {name.removesuffix("_total") for name in wanted} <= named


def test_every_script_is_in_the_image() -> None:
    scripts = set(re.findall(r'"/opt/cachemind/([a-z_]+\.py)"', LOCALS))
    scripts |= set(re.findall(r'"/opt/cachemind/([a-z_]+\.py)"', TASKS))
    assert {"alive.py", "apply_topics.py"} < scripts
    found = {path.name for path in (MODULES.parent / "container").glob("*.py")}
    assert scripts <= found
