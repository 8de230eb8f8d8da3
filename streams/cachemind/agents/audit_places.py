"""Where signing goes on, as the receipts say; asked without taking anything over."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from cachemind.agents.audit_reading import last_records, receipt_of
from cachemind.errors import AuditBroken
from cachemind.ports import LogReader
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)


def next_to_sign(
    wal: LogReader, audit: LogReader, partitions: Iterable[Partition]
) -> Mapping[Partition, Offset]:
    """Return the WAL offset that the next receipt of each partition is about.

    Leaves out a partition that holds something else than receipts: its signer will
    say so. Raises: `LogUnavailable`.
    """
    found: dict[Partition, Offset] = {}
    for partition in partitions:
        records, _, _ = last_records(audit, partition)
        try:
            if records:
                last = receipt_of(records[-1]).place.source.offset
                found[partition] = Offset(last + 1)
            else:
                found[partition], _ = wal.bounds(partition)
        except AuditBroken as error:
            log.warning("%s", error)
    return found
