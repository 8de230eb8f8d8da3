"""`cachemind dlq`: records that could not be folded or answered, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from cachemind.core.commands import DEADLINE, Command
from cachemind.errors import (
    CacheError,
    InvalidEvent,
    InvalidRequest,
    LogRejected,
    LogUnavailable,
)
from cachemind.events import Envelope
from cachemind.types import Lsn
from cachemind_services.cli.dlq_shown import before, line, page, printable, row, whole
from cachemind_services.cli.options import add_settings, settings_from
from cachemind_services.cli.tail import count

if TYPE_CHECKING:
    from cachemind_services.bootstrap.dlq import Buried, DeadLetterBox, Replaying

EXIT_REFUSED: Final = 1
_FLAGS: Final = (
    "data_dir",
    "topic_prefix",
    "partitions",
    "production",
    "schema_registry_url",
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    dlq = commands.add_parser("dlq", help="records that nobody could fold or answer")
    actions = dlq.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="one line each, the oldest first")
    listing.add_argument(
        "--waiting", action="store_true", help="only what was not replayed"
    )
    listing.add_argument("--last", type=count, metavar="N", help="only the newest N")
    listing.set_defaults(run=run_list)
    show = actions.add_parser("show", help="one record: what it says, and its bytes")
    show.add_argument("id", metavar="ID", help="as `list` prints it: 0@17, or 17")
    show.add_argument(
        "--bodies", action="store_true", help="show bytes, headers, prompts too"
    )
    show.set_defaults(run=run_show)
    replay = actions.add_parser(
        "replay", help="put records back on their topic, each once"
    )
    replay.add_argument("ids", metavar="ID", nargs="*", help="0@17, or 17")
    replay.add_argument("--all", action="store_true", help="all that are chosen below")
    replay.add_argument(
        "--without-deadline",
        action="store_true",
        help="let commands be done whose deadline has passed",
    )
    replay.add_argument("--dry-run", action="store_true", help="only say which")
    replay.add_argument("--yes", action="store_true", help="do not ask")
    replay.add_argument("--failpoint", default="", help=argparse.SUPPRESS)
    replay.set_defaults(run=run_replay)
    for parser in (listing, replay):
        parser.add_argument("--topic", help="only those of this topic")
        parser.add_argument("--reason", help="only those with this, such as no_reply")
    for parser in (listing, show, replay):
        parser.add_argument("--json", action="store_true", help="print JSON")
        add_settings(parser, _FLAGS)


def run_list(arguments: argparse.Namespace) -> int:
    """Print each dead letter on a line."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.dlq import open_dead_letters

    with open_dead_letters(settings_from(arguments)) as box:
        found: Iterable[Buried] = (
            each
            for each in _chosen(box, arguments)
            if not (arguments.waiting and each.replayed is not None)
        )
        if arguments.last is not None:
            found = deque(found, arguments.last)
        for each in found:
            shown = row(each)
            print(json.dumps(shown) if arguments.json else line(shown))
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print one dead letter, without what people wrote unless that is asked for."""
    from cachemind_services.bootstrap.dlq import open_dead_letters

    at = _id(arguments.id)
    with open_dead_letters(settings_from(arguments)) as box:
        found = box.one(at)
        shown = whole(found, _content(box, found), bodies=arguments.bodies)
    print(json.dumps(shown) if arguments.json else page(shown))
    return 0


def run_replay(arguments: argparse.Namespace) -> int:
    """Put dead letters back where they came from.

    Exit 1 where one was refused, or the question was not agreed to.
    """
    from cachemind_services.bootstrap.dlq import open_dead_letters, open_replaying

    if bool(arguments.ids) == arguments.all:
        raise InvalidRequest("ID", "name records, or give --all")
    if arguments.ids and (arguments.topic or arguments.reason):
        raise InvalidRequest("ID", "--topic and --reason choose among --all")
    ids = [_id(each) for each in arguments.ids]
    settings = settings_from(arguments)
    if arguments.dry_run:
        with open_dead_letters(settings) as box:
            for found in _named(box, ids, arguments):
                if found.letter is not None and found.replayed is None:
                    shown = row(found)
                    print(json.dumps(shown) if arguments.json else line(shown))
        return 0
    if arguments.all and not arguments.yes and not _agreed():
        print(
            "cachemind: nothing was replayed: nobody said yes, as --yes does",
            file=sys.stderr,
        )
        return EXIT_REFUSED
    with open_replaying(settings, arguments.failpoint) as desk:
        chosen = _named(desk.box, ids, arguments)
        done = [_replayed(desk, each, arguments) for each in chosen]
    return 0 if all(done) else EXIT_REFUSED


def _replayed(desk: Replaying, found: Buried, arguments: argparse.Namespace) -> bool:
    """Return whether the record is on its topic again, now or from before."""
    note = desk.done_before(found)
    if note is not None:
        print(before(found, note), file=sys.stderr)
        return True
    try:
        without = (DEADLINE,) if arguments.without_deadline else ()
        source, now = desk.replay(found, without)
    except (InvalidRequest, LogRejected) as error:
        print(printable(f"cachemind: {found.at}: refused: {error}"), file=sys.stderr)
        return False
    except LogUnavailable as error:
        raise LogUnavailable(
            f"{found.at}: {error}; replay it again: it will not be there twice"
        ) from error
    shown = {
        "id": str(found.at),
        "topic": source.topic,
        "lsn": str(source.lsn),
        "now_at": str(now),
    }
    told = f"{found.at}  {source.topic} {source.lsn} -> {now}"
    print(json.dumps(shown) if arguments.json else printable(told), flush=True)
    return True


def _named(
    box: DeadLetterBox, ids: Iterable[Lsn], arguments: argparse.Namespace
) -> Iterator[Buried]:
    if arguments.all:
        yield from (each for each in _chosen(box, arguments) if each.letter is not None)
    for at in ids:
        yield box.one(at)


def _chosen(box: DeadLetterBox, arguments: argparse.Namespace) -> Iterator[Buried]:
    for found in box.letters():
        letter = found.letter
        topic = None if letter is None else letter.source.topic
        reason = None if letter is None else letter.reason
        if arguments.topic in (None, topic) and arguments.reason in (None, reason):
            yield found


def _content(box: DeadLetterBox, found: Buried) -> Envelope | Command | str:
    if found.letter is None:
        return found.problem
    try:
        return box.content(found.letter)
    except CacheError as error:
        return str(error)


def _id(written: str) -> Lsn:
    """Return which record is meant. Raises: `InvalidRequest`."""
    try:
        return Lsn.parse(written if "@" in written else f"0@{written}")
    except InvalidEvent as error:
        raise InvalidRequest("ID", error.problem) from error


def _agreed() -> bool:
    """Return whether somebody at the terminal says yes."""
    if not sys.stdin.isatty():
        return False
    print("replay every one of them? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
