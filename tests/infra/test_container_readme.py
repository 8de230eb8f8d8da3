"""What infra/terraform/README.md shows is held against what it speaks of."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import botocore.session  # type: ignore[import-untyped]  # ships no types
import pytest
from botocore import xform_name

from cachemind_services.cli.main import parser
from cachemind_services.settings import load
from tests.infra.containerfile import CONTAINER, INSIDE, ROOT, stages

INFRA: Final = ROOT / "infra" / "terraform"
TEXT: Final = (INFRA / "README.md").read_text("utf-8")
MODULES: Final = INFRA / "modules"
EXAMPLES: Final = INFRA / "examples"
PARSER: Final = parser()

SERVICES: Final[Mapping[str, str]] = {
    "elasticloadbalancing": "elbv2",
    "application-autoscaling": "application-autoscaling",
}
"""Where IAM names a service otherwise than its API is named."""

S3: Final = frozenset(
    f"s3:{action}"
    for action in (
        *("CreateBucket", "DeleteBucket", "ListBucket"),
        *("GetLifecycleConfiguration", "PutLifecycleConfiguration"),
        *("GetBucketLogging", "PutBucketLogging"),
        *("GetBucketObjectLockConfiguration", "PutBucketObjectLockConfiguration"),
        *("GetBucketOwnershipControls", "PutBucketOwnershipControls"),
        *("DeleteBucketPolicy", "GetBucketPolicy", "PutBucketPolicy"),
        *("GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock"),
        *("GetEncryptionConfiguration", "PutEncryptionConfiguration"),
        *("GetBucketVersioning", "PutBucketVersioning"),
    )
)
"""Source: AWS, Service Authorization Reference: S3 names these otherwise than calls."""


def shown(*begin: str) -> list[list[str]]:
    """Return each command of the console blocks that begins so, as words."""
    blocks = re.findall(r"^ *```console\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
    lines = [
        line.strip().removeprefix("$ ")
        for block in blocks
        for line in block.splitlines()
        if line.strip().startswith("$ ")
    ]
    words = [shlex.split(_without_substitution(line)) for line in lines]
    return [command for command in words if command[: len(begin)] == list(begin)]


@cache
def api(service: str) -> Any:
    """Return what AWS's API of `service` has, by botocore's own description."""
    return botocore.session.get_session().get_service_model(service)


def _after(command: list[str], flag: str) -> list[str]:
    return [command[n + 1] for n, word in enumerate(command) if word == flag]


def _without_substitution(line: str) -> str:
    return re.sub(r"\$\([^)]*\)", "x", line)


def as_id(command: list[str]) -> str:
    return " ".join(command)[:60]


# ---- commands -----------------------------------------------------------------------


@pytest.mark.parametrize("command", shown("cachemind"), ids=as_id)
def test_each_command_of_the_program_is_one_that_it_parses(command: list[str]) -> None:
    assert callable(PARSER.parse_args(command[1:]).run)


def test_the_commands_that_the_issue_asks_for_are_shown() -> None:
    assert len(shown("cachemind")) >= 12
    for begin in (
        *(("audit", "keys", "init"), ("audit", "keys", "rotate")),
        *(("snapshot", "create"), ("snapshot", "restore"), ("audit", "verify")),
    ):
        assert shown("cachemind", *begin), begin


def test_every_variable_is_a_setting_and_its_value_is_sound() -> None:
    exported = dict(
        word.partition("=")[::2]
        for command in shown("export")
        for word in command[1:]
        if word.startswith("CACHEMIND_")
    )
    assert len(exported) >= 9
    settings = load(exported)
    assert settings.production
    assert settings.kafka.keys() == {
        *("bootstrap.servers", "sasl.mechanism", "sasl.password", "sasl.username"),
        "security.protocol",
    }
    partitions = (EXAMPLES / "production" / "main.tf").read_text("utf-8")
    assert re.search(rf"\bpartitions\s*= {settings.partitions}\b", partitions)


@pytest.mark.parametrize("command", shown("aws"), ids=as_id)
def test_each_call_of_aws_is_one_with_these_parameters(command: list[str]) -> None:
    service, operation, *rest = command[1:]
    model = api(service)
    [name] = [
        one
        for one in model.operation_names
        if xform_name(one).replace("_", "-") == operation
    ]
    members = {
        xform_name(member).replace("_", "-")
        for member in model.operation_model(name).input_shape.members
    }
    flags = {word[2:].partition("=")[0] for word in rest if word.startswith("--")}
    assert flags - {"cli-input-json"} <= members


def test_what_is_handed_to_run_task_is_in_its_words() -> None:
    outputs = (MODULES / "service" / "outputs.tf").read_text("utf-8")
    block = outputs.partition('output "topics_task" {')[2].partition("\n}\n")[0]
    value = block.partition("value = {")[2]
    asked = api("ecs").operation_model("RunTask").input_shape
    network = asked.members["networkConfiguration"].members["awsvpcConfiguration"]
    known = {*asked.members, "awsvpcConfiguration", *network.members}
    named = re.findall(r"^ *(\w+) += ", value, re.MULTILINE)
    assert len(named) == 9
    assert set(named) <= known
    assert set(asked.required_members) <= set(named)
    assert {*re.findall(r"terraform output -json (\w+)", TEXT)} == {"topics_task"}
    for example in EXAMPLES.iterdir():
        text = (example / "outputs.tf").read_text("utf-8")
        assert re.search(r'"topics_task" {[^}]*= module.service.topics_task\n}', text)


def test_who_makes_topics_in_a_cluster_that_is_there_is_given_what_acls_say() -> None:
    rules = json.loads((MODULES / "topics" / "acls.json").read_text("utf-8"))
    shown_to = shown("kafka-acls.sh")
    assert [
        {
            re.sub(r"(?<!^)(?=[A-Z])", "_", word).lower()
            for word in _after(it, "--operation")
        }
        for it in shown_to
    ] == [set(rule["operations"]) for rule in rules["topics"]]
    cluster, topics = shown_to
    assert "--cluster" in cluster
    assert _after(topics, "--topic") == ["cachemind."]
    assert _after(topics, "--resource-pattern-type") == ["prefixed"]


@pytest.mark.parametrize("command", shown("terraform"), ids=as_id)
def test_each_variable_and_address_of_terraform_exists(command: list[str]) -> None:
    verb, *rest = command[1:]
    assert verb in ("apply", "destroy", "init", "providers", "state")
    declared = (EXAMPLES / "production" / "variables.tf").read_text("utf-8")
    for name in re.findall(r"-var (\w+)=", " ".join(rest)):
        assert f'variable "{name}"' in declared
    for name in re.findall(r"\bmodule\.(\w+)", " ".join(rest)):
        used = (EXAMPLES / "production" / "main.tf").read_text("utf-8")
        assert f'module "{name}"' in used


@pytest.mark.parametrize("command", shown("docker"), ids=as_id)
def test_each_file_profile_and_argument_of_docker_exists(command: list[str]) -> None:
    words = iter(command)
    arguments = "\n".join(
        one.rest
        for stage in stages((CONTAINER / "Containerfile").read_text("utf-8"))
        for one in stage.all("ARG")
    )
    compose = (CONTAINER / "compose.yaml").read_text("utf-8")
    for word in words:
        if word == "--file":
            assert (ROOT / next(words)).is_file()
        elif word == "--profile":
            assert f"profiles: [{next(words)}]" in compose
        elif word == "--build-arg":
            name = next(words).partition("=")[0]
            assert re.search(rf"^{name}=", arguments, re.MULTILINE)


def test_the_image_alone_is_run_with_a_command_of_the_program() -> None:
    [run] = shown("docker", "run")
    assert "--read-only" in run
    last = len(run) - run[::-1].index("--env")
    at = run.index("cachemind", last)
    assert callable(PARSER.parse_args(run[at + 1 :]).run)
    environ = dict(run[n + 1].split("=") for n, w in enumerate(run) if w == "--env")
    settings = load(environ)
    assert settings.host == "0.0.0.0"  # noqa: S104
    assert settings.insecure  # or it would not start: nobody is asked for a key
    assert "127.0.0.1:8080:8080" in run


# ---- permissions --------------------------------------------------------------------


def permissions() -> dict[str, list[str]]:
    """Return the actions that README lists, by resource type."""
    rows = re.findall(r"^\| `(aws_\w+)` \| (.+) \|$", TEXT, re.MULTILINE)
    return {name: re.findall(r"`([^`]+)`", actions) for name, actions in rows}


def resources() -> Iterator[str]:
    """Yield the type of every resource of the modules."""
    for path in MODULES.rglob("*.tf"):
        text = path.read_text("utf-8")
        yield from re.findall(r'^resource "(aws_\w+)"', text, re.MULTILINE)


def test_permissions_are_listed_for_what_the_modules_make_and_nothing_else() -> None:
    assert permissions().keys() == set(resources())


@pytest.mark.parametrize("resource", permissions())
def test_each_permission_is_one_of_aws(resource: str) -> None:
    actions = permissions()[resource]
    assert actions
    for action in actions:
        service, _, name = action.partition(":")
        if service == "s3":
            assert action in S3
        elif action != "iam:PassRole":  # a permission without a call
            assert name in api(SERVICES.get(service, service)).operation_names, action


# ---- words --------------------------------------------------------------------------


def test_every_module_and_example_is_described() -> None:
    modules = {path.name for path in MODULES.iterdir() if path.is_dir()}
    described = set(re.findall(r"`(\w+)`", TEXT))
    assert modules <= described
    for example in (path for path in EXAMPLES.iterdir() if path.is_dir()):
        assert f"examples/{example.name}" in TEXT


def test_what_refuses_to_be_destroyed_is_what_the_modules_protect() -> None:
    protected = {found for path in MODULES.rglob("*.tf") for found in _protected(path)}
    assert protected == {
        *("aws_msk_cluster.this", "aws_s3_bucket.audit"),
        *("aws_s3_bucket.data_keys", "aws_s3_bucket.snapshots"),
    }
    assert "Four things refuse to be destroyed" in TEXT


def test_what_has_not_been_run_is_said_first() -> None:
    assert "**What has not been run.**" in "\n".join(TEXT.splitlines()[:12])


def test_each_path_that_is_named_exists() -> None:
    named = re.findall(r"\b(infra/terraform/[\w./-]+\w)", TEXT)
    assert named
    for path in {*named}:
        assert (ROOT / path).exists(), path


def test_each_script_of_the_image_that_is_named_exists() -> None:
    named = re.findall(rf"{INSIDE}([\w.]+)", TEXT)
    assert named
    assert all((CONTAINER / name).is_file() for name in named)


def test_no_console_block_holds_a_machines_own_path_or_a_secret() -> None:
    assert str(Path.home()) not in TEXT
    assert os.fspath(ROOT) not in TEXT
    assert not re.search(r"\b[0-9a-f]{64}\b", TEXT)


def _protected(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    for kind, name, body in re.findall(
        r'^resource "(\w+)" "(\w+)" \{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL
    ):
        if re.search(r"prevent_destroy\s*= true", body):
            yield f"{kind}.{name}"
