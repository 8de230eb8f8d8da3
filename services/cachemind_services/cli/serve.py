"""`cachemind serve` and `cachemind gateway`: supervised processes of one host."""

from __future__ import annotations

import argparse
import asyncio
import http.client
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

from cachemind_services.cli.options import GATEWAY, SERVICE, add_settings, settings_from
from cachemind_services.host import Plan, plan_gateway, plan_serve
from cachemind_services.process import end_on_sigterm
from cachemind_services.settings import Settings
from cachemind_services.supervisor import run_until_signalled

POLL_S: Final = 0.2
Planner = Callable[[Settings, ExitStack], Plan]


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the two parsers."""
    every = commands.add_parser(
        "serve", help="run everything: Kafka unless one is named, fold and gateway"
    )
    add_settings(every, SERVICE)
    every.set_defaults(run=run_serve)
    gateway = commands.add_parser("gateway", help="run the gateway workers alone")
    add_settings(gateway, GATEWAY)
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
        print(f"starting in front of {plan.settings.upstream}", flush=True)
        return asyncio.run(run_until_signalled(plan.children, _tell_when_ready(plan)))


async def _tell_when_ready(plan: Plan) -> None:
    """Say under which URLs it serves, once it does."""
    while True:
        if await asyncio.to_thread(answers, plan.urls[0] + "/readyz"):
            break
        await asyncio.sleep(POLL_S)
    for url in plan.urls:
        print(f"ready: {url}/v1", flush=True)


def answers(url: str) -> bool:
    """Return whether `url` answers 200."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=POLL_S * 10)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
