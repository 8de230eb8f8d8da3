"""The compose file, which no test can start: each service is one that can run."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types

from cachemind_services.broker.kafka_lock import committed_lock
from cachemind_services.broker.server_config import Ports, server_properties
from cachemind_services.cli.main import parser
from cachemind_services.cli.options import settings_from
from cachemind_services.demo.upstream_command import DEFAULT_PORT
from cachemind_services.host import plan_serve
from cachemind_services.settings import Settings
from infra.terraform.container import start
from tests.infra.containerfile import CONTAINER, INSIDE, ROOT, stages

Service = Mapping[str, Any]

COMPOSE: Final = yaml.safe_load((CONTAINER / "compose.yaml").read_text("utf-8"))
SERVICES: Final[Mapping[str, Service]] = COMPOSE["services"]
LAST: Final = stages((CONTAINER / "Containerfile").read_text("utf-8"))[-1]
PARSER: Final = parser()
HOME: Final = "/var/lib/cachemind"

OURS: Final = {name: one for name, one in SERVICES.items() if "build" in one}
ROLES: Final = {n: one for n, one in OURS.items() if one.get("profiles") == ["roles"]}
PROCESSES: Final = {n: one for n, one in OURS.items() if n != "upstream"}

ANSWER_NOBODY: Final = {"collector", "requests", "receipts", "signer", "sink"}
"""Roles without an address: what goes wrong ends them."""


def parsed(service: Service) -> argparse.Namespace:
    """Return the service's command as the program parses it."""
    program, *arguments = start.command(service["command"])
    assert program == "cachemind"
    return PARSER.parse_args(arguments)


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("CACHEMIND_")]:
        monkeypatch.delenv(name)
    return monkeypatch


def settings_of(service: Service, patch: pytest.MonkeyPatch) -> Settings:
    """Return what the service's process reads: image, environment, flags."""
    named = {**LAST.environment(), **service.get("environment", {})}
    for name, value in named.items():
        if name.startswith("CACHEMIND_"):
            patch.setenv(name, value)
    return settings_from(parsed(service))


# ---- what runs ----------------------------------------------------------------------


def test_there_are_two_profiles_and_what_both_need() -> None:
    profiles = {name: one.get("profiles", []) for name, one in SERVICES.items()}
    assert {name for name, one in profiles.items() if not one} == {"kafka", "upstream"}
    assert {word for one in profiles.values() for word in one} == {
        "all-in-one",
        "roles",
    }
    assert [name for name, one in profiles.items() if "all-in-one" in one] == ["serve"]


def test_the_roles_are_those_that_serve_runs(
    no_settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_settings.setenv("CACHEMIND_PORT", "0")
    no_settings.setenv("CACHEMIND_LOG_DIR", str(tmp_path / "audit"))
    no_settings.setenv("CACHEMIND_AUDIT_MODE", "true")
    arguments = parsed(SERVICES["serve"])
    arguments.data_dir = str(tmp_path)
    with ExitStack() as sockets:
        plan = plan_serve(settings_from(arguments), sockets)
    names = {child.name.removesuffix("-0") for child in plan.children}
    assert set(ROLES) == names


@pytest.mark.parametrize("name", OURS)
def test_each_command_is_one_that_the_program_parses(name: str) -> None:
    assert callable(parsed(OURS[name]).run)


@pytest.mark.parametrize("name", PROCESSES)
def test_each_variable_is_a_setting_and_has_a_sound_value(
    name: str, no_settings: pytest.MonkeyPatch
) -> None:
    settings = settings_of(PROCESSES[name], no_settings)
    assert str(settings.data_dir) == HOME
    assert settings.kafka == {"bootstrap.servers": _kafka_at()}
    assert settings.audit_mode
    assert not settings.production


@pytest.mark.parametrize("name", ["serve", "gateway"])
def test_a_gateway_is_reached_from_outside_and_asks_the_upstream(
    name: str, no_settings: pytest.MonkeyPatch
) -> None:
    settings = settings_of(SERVICES[name], no_settings)
    assert settings.host == "0.0.0.0"  # noqa: S104
    assert settings.insecure  # or it would not start: nobody is asked for a key
    assert settings.upstream == f"http://upstream:{DEFAULT_PORT}"
    assert settings.port == 8080


def test_commands_on_kafka_ask_the_same_upstream(
    no_settings: pytest.MonkeyPatch,
) -> None:
    settings = settings_of(SERVICES["requests"], no_settings)
    assert settings.upstream == f"http://upstream:{DEFAULT_PORT}"


def test_the_upstream_listens_where_the_gateway_asks() -> None:
    arguments = parsed(SERVICES["upstream"])
    assert (arguments.host, arguments.port) == ("0.0.0.0", DEFAULT_PORT)  # noqa: S104
    assert str(arguments.cache_dir) == HOME


def test_only_the_sealed_copy_and_keys_of_the_signer_are_in_a_log_folder(
    no_settings: pytest.MonkeyPatch,
) -> None:
    with_keys = {
        name
        for name, one in PROCESSES.items()
        if "CACHEMIND_LOG_DIR" in one["environment"]
    }
    assert with_keys == {"serve", "signer"}
    sink = settings_of(SERVICES["sink"], no_settings)
    assert sink.sink_folder.is_relative_to(HOME)


def test_what_reads_the_stores_is_on_the_materializers_volume() -> None:
    volumes = {name: one["volumes"] for name, one in ROLES.items()}
    beside = {"gateway", "materializer", "requests", "receipts", "collector"}
    assert {n for n, v in volumes.items() if v == volumes["materializer"]} == beside
    assert volumes["signer"] != volumes["sink"]


def test_who_shares_the_gateways_counts_comes_after_it() -> None:
    shared = {
        name
        for name, one in PROCESSES.items()
        if "PROMETHEUS_MULTIPROC_DIR" in one["environment"]
    }
    assert shared == {"materializer", "requests", "collector"}
    for name in shared:
        after = SERVICES[name]["depends_on"]["gateway"]
        assert after == {"condition": "service_healthy", "restart": True}
        metrics = SERVICES[name]["environment"]["PROMETHEUS_MULTIPROC_DIR"]
        assert metrics == f"{HOME}/metrics"


# ---- how it is kept -----------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_published_but_to_this_machine(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)
    assert SERVICES[name].get("network_mode") is None
    assert not SERVICES[name].get("privileged")


def test_one_port_is_published_whichever_profile_runs() -> None:
    ports = {name: one.get("ports", []) for name, one in SERVICES.items()}
    assert {name for name, one in ports.items() if one} == {"serve", "gateway"}
    assert ports["serve"] == ports["gateway"] == ["127.0.0.1:8080:8080"]


@pytest.mark.parametrize("name", SERVICES)
def test_each_image_is_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert image
    assert re.fullmatch(r"[\d.]+|development", tag)


def test_kafka_is_the_one_that_the_tests_run_on() -> None:
    assert (
        SERVICES["kafka"]["image"] == f"apache/kafka:{committed_lock().kafka_version}"
    )


@pytest.mark.parametrize("name", OURS)
def test_our_containers_write_to_two_places_and_have_no_rights(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]  # noqa: S108
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert "user" not in service  # the image's
    [volume] = service["volumes"]
    assert volume.partition(":")[2] == HOME


@pytest.mark.parametrize("name", OURS)
def test_all_of_ours_run_the_image_that_is_built_here(name: str) -> None:
    build = OURS[name]["build"]
    assert (CONTAINER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).resolve() == CONTAINER / "Containerfile"
    assert build["target"] == LAST.name
    known = "\n".join(one.rest for stage in _stages() for one in stage.all("ARG"))
    assert all(re.search(rf"^{name}=", known, re.MULTILINE) for name in build["args"])


def test_kafka_gets_no_rights_either() -> None:
    assert SERVICES["kafka"]["cap_drop"] == ["ALL"]
    assert SERVICES["kafka"]["security_opt"] == ["no-new-privileges:true"]


def test_every_volume_is_named_and_used() -> None:
    used = {
        volume.partition(":")[0]
        for one in SERVICES.values()
        for volume in one["volumes"]
    }
    assert used == set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", SERVICES)
def test_everybody_who_can_answer_is_asked_for_its_health(name: str) -> None:
    health = SERVICES[name]["healthcheck"]
    if name in ANSWER_NOBODY:
        assert health == {"disable": True}
        return
    assert health.keys() == {"test", "interval", "timeout", "retries", "start_period"}
    kind, program, *arguments = health["test"]
    assert kind == "CMD"
    if name in OURS:
        assert program == "python"
        assert (CONTAINER / arguments[0].removeprefix(INSIDE)).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_everybody_is_started_again_and_waits_for_what_is_healthy(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how["condition"] == "service_healthy"
        assert "test" in SERVICES[other]["healthcheck"]


@pytest.mark.parametrize("name", SERVICES)
def test_each_key_is_one_of_compose(name: str) -> None:
    assert SERVICES[name].keys() <= {
        *("build", "cap_drop", "command", "depends_on", "environment", "healthcheck"),
        *("image", "init", "ports", "profiles", "read_only", "restart"),
        *("security_opt", "stop_grace_period", "tmpfs", "volumes"),
    }
    values = SERVICES[name].get("environment", {}).values()
    assert all(isinstance(value, str) for value in values)


# ---- Kafka --------------------------------------------------------------------------


def test_kafka_keeps_and_copies_as_the_embedded_one_does() -> None:
    embedded = _embedded()
    named = _kafka()
    of_this_place = {
        *("advertised.listeners", "controller.quorum.voters", "listeners", "log.dirs"),
    }
    for name in named.keys() & embedded.keys() - of_this_place:
        assert sorted(named[name].split(",")) == sorted(embedded[name].split(",")), name
    kept = {
        name
        for name in embedded
        if re.search(r"replication|isr|insync|retention|auto\.create|rebalance", name)
    }
    assert kept <= named.keys()


def test_kafka_says_the_address_under_which_the_others_know_it() -> None:
    assert _kafka()["advertised.listeners"] == f"PLAINTEXT://{_kafka_at()}"
    assert SERVICES["kafka"]["volumes"] == [f"kafka:{_kafka()['log.dirs']}"]
    health: Sequence[str] = SERVICES["kafka"]["healthcheck"]["test"]
    assert health[-2:] == ["--bootstrap-server", _kafka_at()]


def _kafka_at() -> str:
    return "kafka:9092"


def _kafka() -> dict[str, str]:
    named = SERVICES["kafka"]["environment"]
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in named.items()
    }


def _embedded() -> dict[str, str]:
    text = server_properties(Path("/log"), Ports(broker=1, controller=2))
    return dict(line.split("=", 1) for line in text.splitlines())


def _stages() -> Sequence[Any]:
    return stages((CONTAINER / "Containerfile").read_text("utf-8"))
