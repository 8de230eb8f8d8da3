"""The log of cuts as its topic has it: every leaf, from the first on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachemind.codec.cuts import decode_cuts_record, decode_leaf
from cachemind.core.cutting import LogOfCuts
from cachemind.core.key_validity import KeyHistory
from cachemind.errors import (
    AuditBroken,
    InvalidEvent,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.receipts import (
    Cut,
    CutsRecord,
    KeyEvent,
    LogId,
    SignedKeyEvent,
)
from cachemind.types import Sha256

FOREIGN: Final = "not-a-leaf"
CHAIN: Final = "broken-chain"
OTHER_LOG: Final = "other-log"
BAD_EVENT: Final = "key-event-does-not-hold"

VerifyKeyEvent = Callable[[SignedKeyEvent], KeyEvent]
"""Returns what a signed key event says. Raises: `InvalidEvent` where it does not hold,
`UndecodableRecord`, `UnknownSchema`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCut:
    """The newest cut, the root that its checkpoint must name, and that checkpoint."""

    cut: Cut
    root: Sha256
    checkpoint: str


class CutsLog:
    """Takes the records of the topic of cuts, in order, from the first one on."""

    def __init__(self, log_id: LogId, verify: VerifyKeyEvent) -> None:
        self.leaves = LogOfCuts()
        self.keys = KeyHistory()
        self.last: LastCut | None = None
        self.key_events: set[bytes] = set()
        self._log_id = log_id
        self._verify = verify

    def take(self, value: bytes, where: str) -> Cut | KeyEvent:
        """Return what the leaf in the next record says; `where` is for errors.

        Raises: `AuditBroken` where it does not follow on, or is a key event that does
        not hold; it then has its place among the leaves and no other effect.
        """
        try:
            found = decode_cuts_record(value)
            leaf = decode_leaf(found.leaf)
        except (UndecodableRecord, UnknownSchema) as error:
            raise AuditBroken(where, FOREIGN, str(error)) from error
        if isinstance(leaf, Cut):
            return self._take_cut(where, found, leaf)
        return self._take_event(where, found.leaf, leaf)

    def _take_cut(self, where: str, found: CutsRecord, cut: Cut) -> Cut:
        leaves = self.leaves
        if cut.log_id != self._log_id:
            raise AuditBroken(
                where, OTHER_LOG, f"expected {self._log_id}, found {cut.log_id}"
            )
        if (cut.index, cut.previous) != (leaves.size, leaves.previous):
            raise AuditBroken(
                where, CHAIN, f"expected leaf {leaves.size}, found {cut.index}"
            )
        leaves.append(found.leaf)
        self.keys.add_cut(cut.index, tuple(head.size for head in cut.heads))
        self.last = LastCut(cut=cut, root=leaves.root(), checkpoint=found.checkpoint)
        leaves.signed()
        return cut

    def _take_event(self, where: str, leaf: bytes, signed: SignedKeyEvent) -> KeyEvent:
        index = self.leaves.size
        self.leaves.append(leaf)
        self.key_events.add(leaf)
        try:
            event = self._verify(signed)
        except (InvalidEvent, UndecodableRecord, UnknownSchema) as error:
            raise AuditBroken(where, BAD_EVENT, str(error)) from error
        self.keys.add_event(index, event)
        return event
