"""`cachemind tail`: follow the WAL, decoded."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cachemind.core.payloads import PLAIN, Payloads, inspected_event
from cachemind.errors import InvalidEvent, UndecodableRecord, UnknownSchema
from cachemind.events import Envelope, Stored
from cachemind.ports import LogReader, LogRecord
from cachemind.types import Offset, Partition
from cachemind_services.cli.describe import describe, line
from cachemind_services.cli.options import LOG, add_settings, settings_from


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser("tail", help="follow the WAL, decoded")
    parser.add_argument(
        "--last", type=count, default=10, help="records a partition (default: 10)"
    )
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument(
        "--no-follow", action="store_true", help="stop at the end of the log"
    )
    parser.add_argument(
        "--bodies", action="store_true", help="show prompts, responses, vectors too"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_settings(parser, (*LOG, "partitions", "payload_key", "data_keys_url"))
    parser.set_defaults(run=run)


def count(text: str) -> int:
    """Return a whole number from 0 up. Raises: `ArgumentTypeError`."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError("must be a whole number, 0 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Print events, oldest first within a partition, until interrupted."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.payloads import read_payloads
    from cachemind_services.bootstrap.tools import open_log

    settings = settings_from(arguments)
    payloads = read_payloads(settings) if arguments.bodies else PLAIN
    with open_log(settings) as log:
        bounds = {number: log.reader.bounds(number) for number in log.partitions}
        starts = {
            number: first if arguments.from_beginning else _back(first, end, arguments)
            for number, (first, end) in bounds.items()
        }
        ends = {number: end for number, (_, end) in bounds.items()}
        batches: Iterable[Iterable[LogRecord]]
        if arguments.no_follow:
            batches = _until(log.reader, starts, ends)
        else:
            batches = log.follower.follow(starts, lambda: False)
        try:
            for batch in batches:
                for record in batch:
                    shown = _shown(record, log.codec.decode, arguments, payloads)
                    if shown is not None:
                        print(shown)
                sys.stdout.flush()
        except KeyboardInterrupt:
            return 0  # how one ends following
    return 0


def _back(first: Offset, end: Offset, arguments: argparse.Namespace) -> Offset:
    return Offset(max(first, end - arguments.last))


def _until(
    reader: LogReader,
    starts: Mapping[Partition, Offset],
    ends: Mapping[Partition, Offset],
) -> Iterable[Iterable[LogRecord]]:
    for number, start in starts.items():
        yield from reader.read(number, start, ends[number])


def _shown(
    record: LogRecord,
    decode: Callable[[bytes], Envelope],
    arguments: argparse.Namespace,
    payloads: Payloads,
) -> str | None:
    """Return the record as it is printed; None for one of no namespace asked for."""
    try:
        envelope = decode(record.value or b"")
    except (UndecodableRecord, UnknownSchema, InvalidEvent) as error:
        shown = {"lsn": str(record.lsn), "kind": "?", "error": str(error)}
        return json.dumps(shown) if arguments.json else f"{record.lsn:<10} {error}"
    if arguments.namespace not in (None, envelope.namespace):
        return None
    if isinstance(envelope.body, Stored):
        envelope = replace(envelope, body=inspected_event(payloads, envelope.body))
    described = describe(envelope, record.lsn, bodies=arguments.bodies)
    if arguments.json:
        return json.dumps(described, ensure_ascii=False)
    return line(described)
