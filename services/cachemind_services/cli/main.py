"""`cachemind`: one program, a subcommand a module.

Results go to standard output, messages to standard error. Exit 0: done or
verified; 1: failed; 2: wrong usage or settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

from cachemind import __version__
from cachemind.errors import (
    CacheError,
    InvalidRequest,
    InvalidSetting,
    TopicMisconfigured,
)
from cachemind_services.cli import (
    audit,
    brokers,
    demos,
    diff,
    dlq,
    doctor,
    entries,
    erase,
    grants,
    keys,
    logs,
    policy,
    replay,
    roles,
    rollback,
    serve,
    snapshot,
    stats,
    tail,
    versions,
    wal,
    whoami,
)
from cachemind_services.process import stop_with_parent

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
"""What a shell reports for Ctrl-C."""


_OF_THE_PROGRAM: Final = ("-h", "--help", "--version")


class Command(Protocol):
    """What a subcommand's module offers."""

    def add_to(
        self, commands: argparse._SubParsersAction[argparse.ArgumentParser]
    ) -> None:
        """Add one or more parsers, each with its `run` as a default."""
        ...


_COMMANDS: Final = (
    serve,
    roles,
    brokers,
    entries,
    versions,
    diff,
    rollback,
    snapshot,
    replay,
    keys,
    grants,
    policy,
    whoami,
    erase,
    wal,
    dlq,
    audit,
    stats,
    tail,
    doctor,
    demos,
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole program."""
    top = argparse.ArgumentParser(
        prog="cachemind",
        description="A semantic cache for LLM responses, with Kafka as its log.",
    )
    top.add_argument("--version", action="version", version=f"cachemind {__version__}")
    top.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        cast(Command, command).add_to(commands)
    return top


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    arguments = parser().parse_args(argv)
    logs.configure()
    try:
        if arguments.parent_pid is not None:
            stop_with_parent(arguments.parent_pid)
        return cast(int, arguments.run(arguments))
    except CacheError as error:
        print(f"cachemind: {error}", file=sys.stderr)
        return exit_code(error)
    except OSError as error:
        # A folder or a file that was named: which one is in the error's own words.
        print(f"cachemind: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def exit_code(error: CacheError) -> int:
    """Return `EXIT_USAGE` where trying again cannot help, else `EXIT_FAILED`.

    A supervisor stops at the first and tries again after the second.
    """
    hopeless = isinstance(error, InvalidSetting | InvalidRequest | TopicMisconfigured)
    return EXIT_USAGE if hopeless else EXIT_FAILED


def entry() -> None:
    """Run the program for the console script `cachemind`."""
    sys.exit(main(sys.argv[1:]))


def entry_serving() -> None:
    """Run the program for the console script `cache-mind`."""
    sys.exit(main(serving(sys.argv[1:])))


def serving(argv: Sequence[str]) -> list[str]:
    """Return the arguments with `serve` before them where no command is named."""
    named = argv and (not argv[0].startswith("-") or argv[0] in _OF_THE_PROGRAM)
    return list(argv) if named else ["serve", *argv]


if __name__ == "__main__":
    entry()
