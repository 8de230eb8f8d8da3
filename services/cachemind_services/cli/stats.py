"""`cachemind stats`: what a namespace holds and how its look-ups went."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from cachemind_services.cli.http import add_client, call


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser("stats", help="count entries and look-ups")
    add_client(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the namespace's counts."""
    found = call(arguments, "GET", "/v1/cachemind/stats").expect(200).json()
    print(json.dumps(found) if arguments.json else render(found))
    return 0


def render(found: Mapping[str, Any]) -> str:
    """Return one line a figure, the counts of events last."""
    counts = found.get("counts", {})
    rows = [(name, value) for name, value in found.items() if name != "counts"]
    rows += [(f"events {name}", value) for name, value in sorted(counts.items())]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
