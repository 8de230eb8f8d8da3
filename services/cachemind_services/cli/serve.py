"""`cachemind serve` and `cachemind gateway`: supervised processes of one host."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from contextlib import ExitStack

from cachemind_services.cli.options import SERVICE, add_settings, settings_from
from cachemind_services.host import Plan, plan_gateway, plan_serve
from cachemind_services.process import end_on_sigterm
from cachemind_services.settings import Settings
from cachemind_services.supervisor import run_until_signalled

Planner = Callable[[Settings, ExitStack], Plan]


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the two parsers."""
    every = commands.add_parser(
        "serve", help="run everything: Kafka unless one is named, fold and gateway"
    )
    add_settings(every, SERVICE)
    every.set_defaults(run=run_serve)
    gateway = commands.add_parser("gateway", help="run the gateway workers alone")
    add_settings(gateway, SERVICE)
    gateway.set_defaults(run=run_gateway)


def run_serve(arguments: argparse.Namespace) -> int:
    """Run broker (where embedded), materializer and gateway until told to stop."""
    return _run(arguments, plan_serve)


def run_gateway(arguments: argparse.Namespace) -> int:
    """Run the gateway workers until told to stop."""
    return _run(arguments, plan_gateway)


def _run(arguments: argparse.Namespace, planner: Planner) -> int:
    end_on_sigterm()
    with ExitStack() as open_sockets:
        plan = planner(settings_from(arguments), open_sockets)
        for url in plan.urls:
            print(f"serving {url}/v1 in front of {plan.settings.upstream}")
        sys.stdout.flush()
        return asyncio.run(run_until_signalled(plan.children))
