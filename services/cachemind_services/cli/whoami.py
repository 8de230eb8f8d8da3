"""`cachemind whoami`: who the gateway takes this caller for, and what that may do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from cachemind_services.cli.http import add_client, call


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser("whoami", help="show whom a gateway takes you for")
    add_client(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the principal, its role, its namespaces and the rights in them."""
    found = call(arguments, "GET", "/v1/cachemind/whoami").expect(200).json()
    print(json.dumps(found) if arguments.json else render(found))
    return 0


def render(found: Mapping[str, Any]) -> str:
    """Return one line a member; lists in one line."""
    width = max(map(len, found), default=0)
    return "\n".join(
        f"{name:<{width}}  {_text(value)}" for name, value in found.items()
    )


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
