"""`cachemind audit export`: the audit log as text that any language can read."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cachemind_services.bootstrap.audit_dump import (
    DumpedRecord,
    dumped_from_files,
    dumped_from_topics,
)
from cachemind_services.cli.options import AUDIT_LOG, add_settings, settings_from


def add_to(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = actions.add_parser(
        "export",
        help="write the audit topics, or sealed files, as JSON lines: topic, "
        "partition, offset and the value's exact bytes in base64",
    )
    parser.add_argument(
        "--files", type=Path, metavar="DIR", help="sealed files in place of the topics"
    )
    parser.add_argument(
        "--with-wal", action="store_true", help="the records that are signed as well"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: print")
    add_settings(parser, AUDIT_LOG)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write every record; say how many."""
    settings = settings_from(arguments)
    if arguments.files is not None:
        records = dumped_from_files(settings, arguments.files)
    else:
        records = dumped_from_topics(settings, wal=arguments.with_wal)
    with _opened(arguments.out) as out:
        count = _write(records, out)
    print(f"{count} records", file=sys.stderr)
    return 0


def _write(records: Iterable[DumpedRecord], out: IO[str]) -> int:
    count = 0
    for record in records:
        out.write(line_of(record))
        count += 1
    return count


def line_of(record: DumpedRecord) -> str:
    """Return a record as its line of JSON."""
    place = {} if record.offset is None else {"offset": record.offset}
    value = record.value
    encoded = None if value is None else base64.b64encode(value).decode()
    fields = {"topic": record.topic, "partition": record.partition, **place}
    return json.dumps({**fields, "value": encoded}) + "\n"


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    with path.open("x", encoding="ascii") as file:
        yield file
