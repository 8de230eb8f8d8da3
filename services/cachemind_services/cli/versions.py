"""`cachemind versions`: the timeline of a namespace."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from cachemind.errors import InvalidRequest
from cachemind_services.cli.describe import moment
from cachemind_services.cli.http import add_client, call

Row = Mapping[str, Any]

LIVE: Final = "●"
VOID: Final = "○"
BAR: Final = "│"
BRANCH: Final = "├─╮"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "versions", help="show a namespace's timeline, rollbacks and voided versions"
    )
    parser.add_argument("--namespace", help="the gateway's own by default")
    parser.add_argument("--first", type=int, help="oldest version to show")
    parser.add_argument("--last", type=int, help="newest version to show")
    add_client(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the newest versions, newest first."""
    target = "/v1/versions" + query_of(arguments, ("namespace", "first", "last"))
    found = call(arguments, "GET", target).expect(200).json()
    if arguments.json:
        print(json.dumps(found))
    else:
        print("\n".join(render(found)))
    return 0


def query_of(arguments: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the flags that were given as a query string."""
    given = {
        name: value
        for name in names
        if (value := getattr(arguments, name, None)) not in (None, False)
    }
    shown = {name: 1 if value is True else value for name, value in given.items()}
    return "?" + urlencode(shown) if shown else ""


def render(found: Mapping[str, Any]) -> list[str]:
    """Return the timeline, newest version first.

    The line of the head's lineage is drawn full, voided versions beside it.
    """
    rows: Sequence[Row] = found["versions"]
    lines = [_title(found)]
    if found["quarantine"] is not None:
        lines.append(f"QUARANTINED, nothing is served: {found['quarantine']}")
    if not rows:
        return [*lines, "no version in this range"]
    widths = {
        name: max(len(str(row[name])) for row in rows)
        for name in ("version", "kind", "principal", "entries")
    }
    for row in reversed(rows):
        lines.append(_line(row, widths))
        if row["target"] is not None and not row["voided"]:
            lines.append(_branch(row))
    return lines


def _title(found: Mapping[str, Any]) -> str:
    voided = ", ".join(
        f"{first}" if first == last else f"{first}-{last}"
        for first, last in found["voided"]
    )
    return (
        f"{found['namespace']}: version {found['head']}, timeline {found['timeline']}"
        + (f", voided {voided}" if voided else "")
    )


def _line(row: Row, widths: Mapping[str, int]) -> str:
    graph = f"{BAR} {VOID}" if row["voided"] else f"{LIVE}  "
    what = row["kind"].replace("_", " ")
    if row["target"] is not None:
        what += f" to {row['target']}"
    words = [
        graph,
        f"{row['version']:>{widths['version']}}",
        moment(row["occurred_at_ns"]),
        f"{row['principal']:<{widths['principal']}}",
        f"{row['entries']:>{widths['entries']}} entries",
        what,
    ]
    if row["voided"]:
        words.append("[voided]")
    if row["reason"]:
        words.append(f'"{row["reason"]}"')
    if row["rollback_id"] is not None:
        words.append(row["rollback_id"])
    return "  ".join(words)


def _branch(row: Row) -> str:
    """Return the line below a rollback: what it voided leaves to the right."""
    left, first = int(row["version"]) - 1, int(row["target"]) + 1
    if first > left:
        return BAR
    span = f"{left}" if first == left else f"{first} to {left}"
    return f"{BRANCH}  from {row['target']} again, without {span}"


def require_version(name: str, value: int) -> int:
    """Return a version. Raises: `InvalidRequest` naming the argument."""
    if value < 0:
        raise InvalidRequest(name, "must be 0 or more")
    return value
