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

from cachemind.errors import InvalidSetting
from cachemind_services.bootstrap.audit_dump import (
    DumpedRecord,
    dumped_from_files,
    dumped_from_topics,
    seal_topics,
)
from cachemind_services.cli.options import AUDIT_LOG, add_settings, settings_from
from cachemind_services.settings import Settings


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
    parser.add_argument(
        "--avro",
        type=Path,
        metavar="DIR",
        help="Avro files with manifests in place of text, as the sink seals them",
    )
    add_settings(parser, AUDIT_LOG)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write every record; say how many."""
    settings = settings_from(arguments)
    if arguments.avro is not None:
        return _seal(arguments, settings)
    if arguments.files is not None:
        records = dumped_from_files(settings, arguments.files)
    else:
        records = dumped_from_topics(settings, wal=arguments.with_wal)
    with _opened(arguments.out) as out:
        count = _write(records, out)
    print(f"{count} records", file=sys.stderr)
    return 0


def _seal(arguments: argparse.Namespace, settings: Settings) -> int:
    for name in ("files", "out", "with_wal"):
        if getattr(arguments, name):
            shown = "--" + name.replace("_", "-")
            raise InvalidSetting(shown, "does not go together with --avro")
    count = seal_topics(settings, arguments.avro)
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
    try:
        file = path.open("x", encoding="ascii")
    except OSError as error:
        problem = f"{path} cannot be made: {error.strerror}"
        raise InvalidSetting("--out", problem) from error
    with file:
        yield file
