"""The examples as text: what one is tried with (test_refusals.py) holds for others."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.infra.terraform import EXAMPLES, SOURCE

SIZES: Final = {"instance_type", "disk_gib", "partitions", "gateway", "worker"}

MODULES: Final = {
    folder.name: "".join(path.read_text("utf-8") for path in folder.glob("*.tf"))
    for folder in (SOURCE / "modules").iterdir()
}


def text(example: str, file: str) -> str:
    return (SOURCE / "examples" / example / file).read_text("utf-8")


def test_they_are_all_there_are() -> None:
    assert {path.name for path in (SOURCE / "examples").iterdir()} == set(EXAMPLES)


def test_small_and_production_differ_in_sizes_alone() -> None:
    for file in ("variables.tf", "outputs.tf", "versions.tf", "tests/terraform.tfvars"):
        assert text("small", file) == text("production", file)
    small, production = (
        [line.strip() for line in text(name, "main.tf").splitlines()][1:]
        for name in ("small", "production")
    )
    differing = set(small) ^ set(production)
    assert {re.split(r"\s*=", line)[0] for line in differing} == SIZES


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_variable_is_described_typed_and_handed_on(example: str) -> None:
    declared = re.findall(
        r'^variable "(\w+)" \{\n(.*?)^\}',
        text(example, "variables.tf"),
        re.MULTILINE | re.DOTALL,
    )
    assert len(declared) > 20
    used = text(example, "main.tf") + text(example, "versions.tf")
    for name, body in declared:
        assert re.search(r"^  type +=", body, re.MULTILINE), name
        assert re.search(r'^  description += "', body, re.MULTILINE), name
        assert re.search(rf"\bvar\.{name}\b", used), name


@pytest.mark.parametrize("module", sorted(MODULES))
def test_each_variable_and_output_of_a_module_is_described(module: str) -> None:
    blocks = re.findall(
        r'^(variable|output) "(\w+)" \{\n(.*?)^\}',
        MODULES[module],
        re.MULTILINE | re.DOTALL,
    )
    for kind, name, body in blocks:
        assert re.search(r'^  description += "', body, re.MULTILINE), name
        assert kind == "output" or re.search(r"^  type +=", body, re.MULTILINE), name
