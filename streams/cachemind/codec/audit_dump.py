"""A dump of the audit topics as text: a JSON object a line, a line a record.

    {"topic": "cachemind.audit", "partition": 3, "value": "<base64>"}
    {"topic": "cachemind.audit.cuts", "partition": 0, "value": "<base64>"}
    {"topic": "cachemind.wal", "partition": 3, "offset": 12345, "value": "<base64>"}

Records of one partition are in the order in which they are on the topic; partitions
may be mixed. What a topic is, the end of its name says. `offset` is needed for the WAL
only, which may be left out; other members mean nothing. A record without a value has
`null`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from cachemind.errors import UndecodableRecord
from cachemind.types import Offset, Partition


class DumpTopic(StrEnum):
    """What a topic holds, by the end of its name."""

    RECEIPTS = ".audit"
    CUTS = ".audit.cuts"
    WAL = ".wal"


@dataclass(frozen=True, slots=True)
class DumpRecord:
    """One record of a dump; `offset` is -1 where the line has none."""

    topic: DumpTopic
    partition: Partition
    offset: Offset
    value: bytes | None


def read_dump(lines: Iterable[bytes]) -> Iterator[DumpRecord]:
    """Yield the records of a dump; empty lines are passed over.

    Raises: `UndecodableRecord` naming the line that is none.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _record(number, line)


def _record(number: int, line: bytes) -> DumpRecord:
    try:
        found = orjson.loads(line)
        encoded = found["value"]
        return DumpRecord(
            topic=_topic(found["topic"]),
            partition=Partition(_whole(found["partition"])),
            offset=Offset(_whole(found.get("offset", -1))),
            value=None if encoded is None else base64.b64decode(encoded, validate=True),
        )
    except (orjson.JSONDecodeError, binascii.Error, KeyError, TypeError) as error:
        raise UndecodableRecord(f"line {number} is no record of a dump") from error
    except ValueError as error:
        raise UndecodableRecord(f"line {number}: {error}") from error


def _topic(name: Any) -> DumpTopic:
    for topic in (DumpTopic.CUTS, DumpTopic.RECEIPTS, DumpTopic.WAL):
        if str(name).endswith(topic):
            return topic
    raise ValueError("the topic's name must end in .audit, .audit.cuts or .wal")


def _whole(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < -1:
        raise TypeError("not a whole number")
    return found
