"""`cachemind wal`: how far the log may be deleted, and deleting it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

from cachemind.core.hosts import Host
from cachemind.core.wal_floor import Floor, refusal
from cachemind.errors import InvalidEvent, InvalidRequest
from cachemind.types import Lsn, Offset, Partition
from cachemind_services.cli.options import LOG, add_settings, settings_from

EXIT_REFUSED = 1
_FLAGS = (*LOG, "partitions", "production", "snapshot_url", "host_silence_h")
_NS_PER_HOUR = 3_600 * 1_000_000_000


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    wal = commands.add_parser("wal", help="how far the log may be deleted")
    actions = wal.add_subparsers(dest="action", metavar="ACTION", required=True)
    advise = actions.add_parser(
        "advise", help="say what no retained snapshot or checkpoint needs"
    )
    advise.set_defaults(run=run_advise)
    truncate = actions.add_parser("truncate", help="delete it; there is no way back")
    truncate.add_argument(
        "--before",
        metavar="PARTITION@OFFSET",
        action="append",
        help="delete below this offset; default: all that is advised",
    )
    truncate.add_argument("--yes", action="store_true", help="do not ask")
    truncate.set_defaults(run=run_truncate)
    for parser in (advise, truncate):
        parser.add_argument("--json", action="store_true", help="print JSON")
        add_settings(parser, _FLAGS)


def run_advise(arguments: argparse.Namespace) -> int:
    """Print, for each partition, below which offset it may be deleted."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.truncation import advice

    found = advice(settings_from(arguments))
    for floor in found.floors:
        print(json.dumps(_row(floor)) if arguments.json else advice_line(floor))
    _tell_of(found.silent)
    return 0


def run_truncate(arguments: argparse.Namespace) -> int:
    """Delete records below the advised offsets, or below those given.

    Exit 1 where that is refused, or not agreed to.
    """
    from cachemind_services.bootstrap.truncation import advice, truncate

    settings = settings_from(arguments)
    found = advice(settings)
    _tell_of(found.silent)
    floors = {floor.partition: floor for floor in found.floors}
    wanted = _wanted(arguments, floors)
    for partition, before in wanted.items():
        why = refusal(floors[partition], before)
        if why is not None:
            print(f"cachemind: refused: {why}", file=sys.stderr)
            return EXIT_REFUSED
    if not wanted:
        print("nothing may be deleted", file=sys.stderr)
        return 0
    places = " ".join(f"{p}@{before}" for p, before in sorted(wanted.items()))
    if not arguments.yes and not _agreed(f"delete every record below {places}?"):
        print(
            "cachemind: nothing was deleted: nobody said yes, as --yes does",
            file=sys.stderr,
        )
        return EXIT_REFUSED
    for partition, first in sorted(truncate(settings, wanted).items()):
        print(json.dumps({"partition": partition, "first": first}))
    return 0


def _wanted(
    arguments: argparse.Namespace, floors: Mapping[Partition, Floor]
) -> Mapping[Partition, Offset]:
    """Return below which offsets to delete. Raises: `InvalidRequest`."""
    if not arguments.before:
        return {p: floor.floor for p, floor in floors.items() if floor.deletable}
    wanted = {lsn.partition: lsn.offset for lsn in map(_lsn, arguments.before)}
    for partition in wanted:
        if partition not in floors:
            raise InvalidRequest("--before", f"there is no partition {partition}")
    return wanted


def _tell_of(silent: Sequence[Host]) -> None:
    """Say which hosts were not waited for."""
    for host in silent:
        hours = host.silent_ns // _NS_PER_HOUR
        print(
            f"cachemind: host {host.shown} has been silent for {hours} h: what it "
            "keeps is not counted",
            file=sys.stderr,
        )


def _agreed(question: str) -> bool:
    """Return whether somebody at the terminal says yes."""
    if not sys.stdin.isatty():
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _lsn(text: str) -> Lsn:
    try:
        return Lsn.parse(text)
    except InvalidEvent as error:
        raise InvalidRequest("--before", error.problem) from error


def _row(floor: Floor) -> dict[str, object]:
    return {
        "partition": floor.partition,
        "first": floor.first,
        "floor": floor.floor,
        "end": floor.end,
        "deletable": floor.deletable,
        "reason": floor.reason,
    }


def advice_line(floor: Floor) -> str:
    """Return what is advised for one partition, as a sentence."""
    head = f"partition {floor.partition}: "
    if floor.first == floor.end:
        return f"{head}is empty"
    head += f"holds offsets {floor.first} to {floor.end - 1}; "
    count = floor.deletable
    if not count:
        return f"{head}none may be deleted: {floor.reason}"
    what = f"the {count} offsets" if count > 1 else "the one offset"
    return f"{head}{what} below {floor.floor} may be deleted: {floor.reason}"
