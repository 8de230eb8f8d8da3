"""`cachemind demo`, and the demo upstream that it starts."""

from __future__ import annotations

import argparse

from cachemind_services.demo import upstream_command


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the two parsers."""
    demo = commands.add_parser("demo", help="show everything on this machine")
    demo.add_argument("--exit", action="store_true", help="stop when it is shown")
    demo.set_defaults(run=run_demo)
    upstream = commands.add_parser(
        "demo-upstream", help="a small real chat model behind an OpenAI-like server"
    )
    upstream_command.configure(upstream)
    upstream.set_defaults(run=upstream_command.run)


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demonstration. Exit 1 where anything was not as it should be."""
    # Imported here: only this command needs the OpenAI client.
    from cachemind_services.demo.show import show

    return show(stop_after=arguments.exit)
