"""The log of cuts as its topic has it: every leaf, from the first on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.codec.cuts import (
    decode_cut,
    decode_cuts_record,
    decode_leaf,
    decode_signed_key_event,
)
from cachemind.core.cutting import LogOfCuts
from cachemind.core.key_validity import KeyHistory, Sizes
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


@dataclass(frozen=True, slots=True)
class Told:
    """What a leaf said: the sizes under a cut, or the leaf of a key event."""

    index: int
    what: Sizes | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCut:
    """The newest cut, the root that its checkpoint must name, and that checkpoint."""

    cut: Cut
    root: Sha256
    checkpoint: str


class CutsLog:
    """Takes the records of the topic of cuts, in order, from the first one on.

    `told` is what the keys follow from: every key event, with the cut before it and
    the first one after it.
    """

    def __init__(self, log_id: LogId, verify: VerifyKeyEvent) -> None:
        self.leaves = LogOfCuts()
        self.keys = KeyHistory()
        self.last: LastCut | None = None
        self.key_events: set[bytes] = set()
        self.told: list[Told] = []
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
        index = self.leaves.size
        self.leaves.append(found.leaf)
        return self._tell_event(where, index, found.leaf, leaf)

    def resume(self, leaves: LogOfCuts, told: Sequence[Told], last: CutsRecord) -> None:
        """Go on from `last`, the record that `leaves` end with.

        Only what the keys follow from is looked at again; that the last checkpoint
        holds is for the caller to find. Raises: `AuditBroken`, `InvalidEvent`,
        `UndecodableRecord`, `UnknownSchema`.
        """
        for one in told:
            if isinstance(one.what, bytes):
                signed = decode_signed_key_event(one.what)
                self._tell_event(f"leaf {one.index}", one.index, one.what, signed)
            else:
                self._tell_cut(one.index, one.what)
        self.leaves = leaves
        cut = decode_cut(last.leaf)
        if (cut.log_id, cut.index + 1) != (self._log_id, leaves.size):
            raise AuditBroken(f"cut {cut.index}", CHAIN, "it is not the last of these")
        self.last = LastCut(cut=cut, root=leaves.root(), checkpoint=last.checkpoint)

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
        self._tell_cut(cut.index, tuple(head.size for head in cut.heads))
        self.last = LastCut(cut=cut, root=leaves.root(), checkpoint=found.checkpoint)
        leaves.signed()
        return cut

    def _tell_cut(self, index: int, sizes: Sizes) -> None:
        self.keys.add_cut(index, sizes)
        if len(self.told) > 1 and not any(
            isinstance(one.what, bytes) for one in self.told[-2:]
        ):
            self.told.pop()
        self.told.append(Told(index, sizes))

    def _tell_event(
        self, where: str, index: int, leaf: bytes, signed: SignedKeyEvent
    ) -> KeyEvent:
        self.key_events.add(leaf)
        try:
            event = self._verify(signed)
        except (InvalidEvent, UndecodableRecord, UnknownSchema) as error:
            raise AuditBroken(where, BAD_EVENT, str(error)) from error
        self.keys.add_event(index, event)
        self.told.append(Told(index, leaf))
        return event
