"""`cachemind audit`: the signed log of what was served, an action a module."""

from __future__ import annotations

import argparse
from typing import Final, Protocol, cast

from cachemind_services.cli import (
    audit_export,
    audit_keys,
    audit_sealed,
    audit_show,
    audit_verify,
    audit_witness,
)


class Action(Protocol):
    """What the module of an action offers."""

    def add_to(
        self, actions: argparse._SubParsersAction[argparse.ArgumentParser]
    ) -> None:
        """Add one or more parsers, each with its `run` as a default."""
        ...


_ACTIONS: Final[tuple[object, ...]] = (
    audit_verify,
    audit_show,
    audit_export,
    audit_keys,
    audit_sealed,
    audit_witness,
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    audit = commands.add_parser("audit", help="verify what was signed, manage keys")
    actions = audit.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action in _ACTIONS:
        cast(Action, action).add_to(actions)
