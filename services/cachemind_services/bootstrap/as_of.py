"""Which point of the log an operator means: a version, an LSN or a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cachemind.core.partitioner import partition_of
from cachemind.errors import (
    InvalidEvent,
    InvalidRequest,
    OffsetOutOfRange,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Namespace, Offset, Partition, Version
from cachemind_services.bootstrap.tools import OpenLog, open_inspectors

NS_PER_MS = 1_000_000
MS_PER_S = 1_000
_LOOK_BACK = 1_000
"""Offsets below an LSN among which there is a record: control records are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """A point of the log.

    `ends` has the offset after the last record of each partition that is concerned.
    `at_ns` is the moment that it stands for, nanoseconds since the Unix epoch (UTC):
    what had expired by then is not servable. `name` tells it from others, also as a
    folder.
    """

    name: str
    ends: Mapping[Partition, Offset]
    at_ns: int


def as_of_version(log: OpenLog, namespace: Namespace, version: Version) -> AsOf:
    """Return the point at which `namespace` had just come to `version`.

    Raises: `InvalidRequest` for a version that it never had, or whose record this
    host's history does not know; `StoreError`.
    """
    partition = partition_of(namespace.encode(), len(log.partitions))
    name = f"{namespace}-v{version}"
    with open_inspectors(log.settings, log.identity) as views:
        view = views[partition]
        view.catch_up()
        head = view.namespace(namespace).version
        if not 0 <= version <= head:
            raise InvalidRequest(
                "--to-version", f"{namespace} has the versions 0 to {head}", status=422
            )
        if version == 0:
            return AsOf(name=name, ends={partition: Offset(0)}, at_ns=0)
        rows = view.versions(namespace, version, version)
    if not rows:
        raise InvalidRequest("--to-version", "is past the horizon", status=410)
    return AsOf(
        name=name,
        ends={partition: Offset(rows[0].offset + 1)},
        at_ns=rows[0].occurred_at_ns,
    )


def as_of_lsn(log: OpenLog, text: str) -> AsOf:
    """Return the point just after the record at an LSN such as `3@12345`.

    Raises: `InvalidRequest` where the log has no such place; `LogUnavailable`.
    """
    try:
        lsn = Lsn.parse(text)
    except InvalidEvent as error:
        raise InvalidRequest("--to-lsn", error.problem) from error
    if lsn.partition not in log.partitions:
        raise InvalidRequest("--to-lsn", f"there is no partition {lsn.partition}")
    first, end = log.reader.bounds(lsn.partition)
    if not first <= lsn.offset < end:
        known = f"the log holds {lsn.partition}@{first} to @{end - 1}"
        raise InvalidRequest("--to-lsn", known, status=422)
    return AsOf(
        name=f"lsn-{lsn}",
        ends={lsn.partition: Offset(lsn.offset + 1)},
        at_ns=_time_ns(log, lsn),
    )


def as_of_time(log: OpenLog, text: str) -> AsOf:
    """Return the point after all records up to a time, ISO 8601, UTC by default.

    By the log's timestamps: a record is among them if it and all before it are.
    Raises: `InvalidRequest`, `LogUnavailable`.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        problem = "takes ISO 8601, for example 2026-01-31T12:00:00Z"
        raise InvalidRequest("--to-time", problem) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    time_ms = int(moment.timestamp() * MS_PER_S)
    return AsOf(
        name=f"time-{moment.astimezone(UTC):%Y%m%dT%H%M%S.%f}Z",
        ends={p: log.times.first_after(p, time_ms) for p in log.partitions},
        at_ns=time_ms * NS_PER_MS,
    )


def _time_ns(log: OpenLog, lsn: Lsn) -> int:
    """Return the event time of the last record up to `lsn`.

    Raises: `InvalidRequest`, `LogUnavailable`.
    """
    first = log.reader.bounds(lsn.partition)[0]
    start = Offset(max(first, lsn.offset - _LOOK_BACK))
    newest: LogRecord | None = None
    try:
        for batch in log.reader.read(lsn.partition, start, Offset(lsn.offset + 1)):
            newest = batch[-1]
    except OffsetOutOfRange as error:
        raise InvalidRequest("--to-lsn", str(error), status=410) from error
    if newest is None:
        raise InvalidRequest("--to-lsn", "no record is at or close below it")
    return _event_time_ns(log, newest)


def _event_time_ns(log: OpenLog, record: LogRecord) -> int:
    """Return when the event happened; when it was appended, if it is no event."""
    try:
        return log.codec.decode(record.value or b"").occurred_at_ns
    except (UndecodableRecord, UnknownSchema, InvalidEvent):
        return record.timestamp_ms * NS_PER_MS
