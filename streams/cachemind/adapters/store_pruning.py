"""Which rows of a namespace's history go, over any ordered map of bytes.

The state, its digest and what the fold will do are not touched: no fold reads the row
of a version that nothing kept leads to, and that a rollback's record was met stays
known when its report goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cachemind.adapters import store_rows
from cachemind.adapters.store_reading import RowRequests, Rows, read_horizon
from cachemind.adapters.store_rows import Row
from cachemind.core import history_bytes
from cachemind.core.packing import pack_u64
from cachemind.core.rollback_report import RollbackReport
from cachemind.types import EventId, Namespace, Version

FORGOTTEN: Final = b""
"""In place of a report: that rollback was met, how it ended is not kept."""


def version_rows(
    rows: Rows, namespace: Namespace, below: Version, limit: int
) -> tuple[Sequence[Row], int]:
    """Return the oldest `limit` versions below `below` to delete, and their number."""
    first = max(read_horizon(rows, namespace), 1)
    end = min(below, first + limit)
    if end <= first:
        return (), 0
    gone: list[Row] = []
    for version in range(first, end):
        gone.append((store_rows.version_key(namespace, version), None))
        gone.append((store_rows.touched_key(namespace, version), None))
    gone.append((store_rows.in_namespace(store_rows.HORIZON, namespace), pack_u64(end)))
    return gone, end - first


def request_rows(rows: Rows, namespace: Namespace, limit: int) -> Sequence[Row]:
    """Return up to `limit` requests to delete, of generations not remembered."""
    head = RowRequests(rows, namespace).head()
    first = store_rows.generation_prefix(namespace, 0)
    end = store_rows.generation_prefix(namespace, head.first)
    return [(key, None) for key, _ in islice(rows.scan(first, end), limit)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRows:
    """What to write, how many reports were looked at, and where to go on; None: end."""

    rows: Sequence[Row]
    seen: int
    after: bytes | None


def report_rows(
    rows: Rows, horizons: Mapping[Namespace, Version], after: bytes, limit: int
) -> ReportRows:
    """Return how to forget the reports past `horizons`, of `limit` from `after` on."""
    gone: list[Row] = []
    seen, last = 0, after
    first = after + b"\0" if after else store_rows.REPORT
    for key, raw in rows.scan(first, store_rows.after(store_rows.REPORT)):
        if seen == limit:
            return ReportRows(rows=gone, seen=seen, after=last)
        seen, last = seen + 1, key
        if raw == FORGOTTEN:
            continue
        report = history_bytes.decode_report(_id_in(key), raw)
        if _version_of(report) < horizons.get(report.namespace, 0):
            gone.append((key, FORGOTTEN))
    return ReportRows(rows=gone, seen=seen, after=None)


def _version_of(report: RollbackReport) -> Version:
    return report.from_version if report.new_version is None else report.new_version


def _id_in(key: bytes) -> EventId:
    start = len(store_rows.REPORT)
    return EventId(key[start : start + store_rows.ROLLBACK_ID_BYTES])
