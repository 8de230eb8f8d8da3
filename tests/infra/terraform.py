"""Terraform for tests, in a copy of its folder, with its provider from a mirror."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

SOURCE: Final = Path(__file__).parents[2] / "infra" / "terraform"
EXAMPLES: Final = ("small", "production", "bring-your-own-kafka")
LIMIT_S: Final = 170

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Terraform:
    """The modules, examples and tests, below `folder`."""

    folder: Path

    @classmethod
    def copy(cls, folder: Path) -> Terraform:
        """Copy all of them. Skips the test where Terraform or a mirror is missing."""
        if shutil.which("terraform") is None:
            pytest.skip("terraform is not installed")
        if not mirror():
            pytest.skip("no mirror of Terraform's providers (TF_PLUGIN_DIR)")
        for part in ("modules", "examples", "tests"):
            shutil.copytree(SOURCE / part, folder / part, symlinks=True)
        return cls(folder)

    def example(self, name: str) -> Path:
        """Return the folder of an example."""
        return self.folder / "examples" / name

    def init(self, example: str) -> None:
        """Make an example ready, its tests too: anew after each new test file."""
        options = ("-backend=false", "-lockfile=readonly", f"-plugin-dir={mirror()}")
        done = self._run(example, "init", *options)
        assert done.returncode == 0, done.stdout + done.stderr

    def test(self, example: str, *options: str) -> Sequence[Message]:
        """Return what `terraform test` says, whether the tests passed or not."""
        done = self._run(example, "test", "-json", *options)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _run(self, example: str, *words: str) -> subprocess.CompletedProcess[str]:
        # A variable that names no file makes Terraform warn in each answer.
        environ = {
            name: value
            for name, value in os.environ.items()
            if name != "TF_CLI_CONFIG_FILE" or Path(value).exists()
        }
        return subprocess.run(
            ["terraform", f"-chdir={self.example(example)}", *words],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**environ, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"},
        )


def mirror() -> str:
    """Return where providers are on this machine, or nothing."""
    found = subprocess.run(
        [SOURCE / "mirror.sh"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def resources(messages: Sequence[Message], run: str) -> Mapping[str, Mapping[str, Any]]:
    """Return what one run of a verbose test plans, by address."""
    [plan] = [
        message["test_plan"]
        for message in messages
        if message["type"] == "test_plan" and message["@testrun"] == run
    ]
    return {
        change["address"]: change["change"]["after"]
        for change in plan["resource_changes"]
        if change["change"]["after"] is not None
    }


def errors(messages: Sequence[Message]) -> Sequence[str]:
    """Return every error, in words."""
    return [
        f"{found['summary']}: {found.get('detail', '')}"
        for message in messages
        if message["type"] == "diagnostic"
        for found in [message["diagnostic"]]
        if found["severity"] == "error"
    ]
