"""Scans this folder with checkov and holds what it finds against exceptions.toml.

usage: python scan.py CHECKOV      exit 0: as listed; 1: a finding, or a stale exception
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
LIMIT_S: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A check that a resource does not pass. `called_by`: the example, if any."""

    check: str
    name: str
    resource: str
    called_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Excepted:
    """A finding that stays, and why."""

    check: str
    resource: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return whether it is about the finding."""
        return self.check == finding.check and fnmatchcase(
            finding.resource, self.resource
        )


def main(checkov: str) -> int:
    """Print what is wrong; return the exit code."""
    listed = read_exceptions(HERE / "exceptions.toml")
    passed, found = scan(checkov)
    unlisted = [one for one in found if not any(it.covers(one) for it in listed)]
    stale = [it for it in listed if not any(it.covers(one) for one in found)]
    wrong = [
        *(
            f"{one.check} {one.resource} ({one.called_by}): {one.name}"
            for one in unlisted
        ),
        *(f"exceptions.toml: nothing has {it.check} on {it.resource}" for it in stale),
        *([] if passed else ["checkov looked at nothing"]),
    ]
    excepted = len(found) - len(unlisted)
    told = f"{passed} passed, {excepted} excepted by {len(listed)} reasons"
    sys.stdout.write("\n".join([*wrong, f"checkov: {told}, {len(wrong)} wrong", ""]))
    return int(bool(wrong))


def read_exceptions(path: Path) -> Sequence[Excepted]:
    """Return the exceptions. Raises: `TypeError` where an entry lacks a field."""
    with path.open("rb") as file:
        return [Excepted(**entry) for entry in tomllib.load(file)["exception"]]


def scan(checkov: str) -> tuple[int, Sequence[Finding]]:
    """Return how many checks were passed, and those that were not."""
    done = subprocess.run(  # noqa: S603 # the scanner that make names
        [
            checkov,
            *("--directory", str(HERE), "--framework", "terraform"),
            *("--output", "json", "--soft-fail", "--quiet", "--skip-download"),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"checkov failed:\n{done.stdout}\n{done.stderr}")
    report: Mapping[str, Any] = json.loads(done.stdout)
    failed = report["results"]["failed_checks"]
    if report["results"].get("parsing_errors"):
        raise SystemExit(f"checkov cannot read {report['results']['parsing_errors']}")
    return report["summary"]["passed"], [
        Finding(
            check=one["check_id"],
            name=one["check_name"],
            resource=one["resource"],
            called_by=str(one.get("caller_file_path") or one["file_path"]),
        )
        for one in failed
    ]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
