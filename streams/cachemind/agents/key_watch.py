"""Which key signs receipts: what the log of cuts says of the keys that are held here.

1. The newest one that was added and neither retired nor revoked, of those held.
2. While no receipt key was ever added, the first one held: the event that adds it is
   itself a record that needs a receipt.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from cachemind.agents.cuts_log import CutsLog, VerifyKeyEvent
from cachemind.agents.cuts_resume import CUTS_PARTITION as CUTS_PARTITION
from cachemind.agents.cuts_resume import begun, keep
from cachemind.core.receipt_chain import receipt_signing_input
from cachemind.errors import (
    AuditBroken,
    KeyRefused,
    LogError,
    LogRejected,
)
from cachemind.ports import (
    LogFollower,
    LogReader,
    LogRecord,
    SignatureCheck,
    SigningKey,
)
from cachemind.ports.audit import HeldKeys, HostMemory
from cachemind.receipts import KeyEvent, KeyRole, LogId, SignedReceipt
from cachemind.types import Offset, Partition

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
KEPT_EVERY: Final = 1000
"""Leaves between two times that what is known is kept: the most that is read anew."""


class FollowedLog(LogReader, LogFollower, Protocol):
    """A log that is read by position and then followed."""


class KeyWatch:
    """Follows the topic of cuts. `receipt_key` may be asked by any thread."""

    def __init__(
        self,
        log_id: LogId,
        cuts: FollowedLog,
        verify: VerifyKeyEvent,
        check: SignatureCheck,
        held: HeldKeys,
        memory: HostMemory,
    ) -> None:
        self._cuts = cuts
        self._log_id = log_id
        self._verify = verify
        self._memory = memory
        self._kept = 0
        self._check = check
        self._held = held
        self._log = CutsLog(log_id, verify)
        self._next = Offset(0)
        self._lock = threading.Lock()
        self._key: SigningKey | None = None

    def catch_up(self) -> None:
        """Read all that is on the topic now. Raises: `LogUnavailable`."""
        if self._next == 0:
            self._log, self._next = begun(
                self._log_id, self._cuts, self._memory, self._verify, self._check
            )
            self._kept = self._log.leaves.size
        _, end = self._cuts.bounds(CUTS_PARTITION)
        for batch in self._cuts.read(CUTS_PARTITION, self._next, end):
            for record in batch:
                self._take(record)

    def follow(self, should_stop: Callable[[], bool]) -> None:
        """Go on reading until told to stop; an outage is waited out.

        Raises: `LogRejected`.
        """
        while not should_stop():
            try:
                starts = {CUTS_PARTITION: self._next}
                for batch in self._cuts.follow(starts, should_stop):
                    for record in batch:
                        self._take(record)
            except LogRejected:
                raise
            except LogError as error:
                log.warning("the topic of cuts is not followed: %s", error)
                time.sleep(RETRY_S)

    def receipt_key(self) -> SigningKey:
        """Return the key that signs the next receipt.

        Raises: `KeyRefused` where none of those that may is held; `KeyUnavailable`.
        """
        key = self._key
        if key is None:
            with self._lock:
                key = self._key = self._chosen()
            log.info("receipts are signed by key %s", key.key_id)
        return key

    def vouches(self, read: SignedReceipt) -> bool:
        """Return whether the signature holds, as far as its key is known."""
        key_id = read.signature.key_id
        with self._lock:
            public_key = self._log.keys.public_key(key_id)
        if public_key is None:
            held = self._held.find(KeyRole.RECEIPT, key_id)
            public_key = None if held is None else held.public_key
        if public_key is None:
            return True
        message = receipt_signing_input(read.receipt)
        return self._check.ecdsa(public_key, message, read.signature.value)

    def receipts_under_cut(self, partition: Partition) -> int:
        """Return how many receipts of a partition the last cut covers."""
        with self._lock:
            last = self._log.last
        heads = () if last is None else last.cut.heads
        return heads[partition].size if partition < len(heads) else 0

    def _take(self, record: LogRecord) -> None:
        self._next = Offset(record.lsn.offset + 1)
        with self._lock:
            try:
                found = self._log.take(
                    record.value or b"", f"cuts offset {record.lsn.offset}"
                )
            except AuditBroken as error:
                # Not ours to judge: nothing that does not hold has any effect here.
                log.critical("%s", error)
                return
            if isinstance(found, KeyEvent):
                self._key = None
            elif self._log.leaves.size - self._kept >= KEPT_EVERY:
                self._kept = self._log.leaves.size
                keep(self._log, record.lsn.offset, self._memory)

    def _chosen(self) -> SigningKey:
        may_sign = self._log.keys.signers(KeyRole.RECEIPT)
        for tenure in may_sign:
            key = self._held.find(KeyRole.RECEIPT, tenure.key_id)
            if key is not None:
                return key
        if self._ever_added():
            ids = ", ".join(tenure.key_id for tenure in may_sign) or "none"
            raise KeyRefused(
                "for receipts", f"may sign: {ids}; none of them is held by this process"
            )
        first = self._held.first(KeyRole.RECEIPT)
        if first is None:
            raise KeyRefused("for receipts", "none is held by this process")
        return first

    def _ever_added(self) -> bool:
        return any(one.role is KeyRole.RECEIPT for one in self._log.keys.tenures())
