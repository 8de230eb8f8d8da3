"""`cachemind broker ...`: the embedded Kafka by itself."""

from __future__ import annotations

import argparse
import os

from cachemind_services.broker import commands as broker_commands
from cachemind_services.settings import load


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser, whose data folder is the one that `serve` uses."""
    parser = commands.add_parser("broker", help="the embedded Kafka by itself")
    broker_commands.configure(parser, data_dir=load(os.environ).broker_dir)
    parser.set_defaults(run=broker_commands.run)
