"""`cachemind broker ...`: the embedded Kafka by itself."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from cachemind_services.broker import commands as broker_commands
from cachemind_services.settings import Settings, load

UNNAMED: Final = Path("DATA_DIR/broker")
"""Stands in `--help` for what the settings say."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser, whose data folder is the one that `serve` uses."""
    parser = commands.add_parser("broker", help="the embedded Kafka by itself")
    broker_commands.configure(parser, data_dir=UNNAMED)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run one action on the named folder, or on the one of the settings.

    Raises: `InvalidSetting`.
    """
    named = getattr(arguments, "data_dir", None)
    if named == UNNAMED:
        arguments.data_dir = load(os.environ).broker_dir
    elif named is not None:
        arguments.data_dir = _folder(named)
    return broker_commands.run(arguments)


def _folder(named: Path) -> Path:
    """Return the broker's own folder, also where the data folder of `serve` is named.

    Everywhere else `--data-dir` means that one; without this `status` would call its
    broker stopped, and `start` put a second one beside it.
    """
    inner = Settings(data_dir=named).broker_dir
    return inner if inner.is_dir() else named
