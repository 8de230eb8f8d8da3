"""Puts the leaves of the log of cuts in their order, and verifies each.

Cuts say their place; a key event has the place between the cuts around it, which the
next cut confirms by the leaf that it names as the one before. So key events wait for
that cut. In the order in which a leaf passes them: it decodes (1), a key event is
signed by root and by itself (2), a cut's checkpoint is of its size and log (4), it has
its place (3), the checkpoint has the tree's root and a log key's signature (4).

What a broken leaf says is not believed: it leaves a hole of one place, whose leaf is
what the next cut names as the one before. Past larger holes no root can be computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cachemind.core.audit_findings import (
    Finding,
    Place,
    Reason,
    Step,
    note,
    tampered,
    unverifiable,
)
from cachemind.core.audit_keys import key_event_in
from cachemind.core.audit_means import Means, undecodable
from cachemind.core.audit_notes import (
    CutNote,
    checkpoint_of,
    checkpoint_problem,
)
from cachemind.core.key_validity import KeyHistory
from cachemind.core.merkle import Frontier, leaf_hash
from cachemind.errors import UndecodableRecord, UnknownSchema
from cachemind.receipts import NO_LEAF, Cut, KeyEvent, KeyId, SignedKeyEvent
from cachemind.types import Sha256

LOOK_AHEAD: Final = 64
"""How many records further a leaf that is out of order is looked for."""

REMEMBERED: Final = 4_096
"""How many leaves back a replayed cut can be told from one in two versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCut:
    """A cut that has its place, and the tree of leaves that ends with it.

    `root` is None where leaves before it are missing.
    """

    cut: Cut
    checkpoint: CutNote
    root: Sha256 | None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class _CutLeaf:
    hash: Sha256
    cut: Cut
    checkpoint: CutNote


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventLeaf:
    hash: Sha256
    event: KeyEvent


_Leaf: TypeAlias = _CutLeaf | _EventLeaf


class LogOfCuts:
    """The log of cuts: read once, in order, with a bounded memory."""

    def __init__(
        self,
        values: Iterator[bytes],
        means: Means,
        revoked: Mapping[KeyId, int] | None = None,
    ) -> None:
        self.keys = KeyHistory(revoked)
        self.size = 0
        self._values = values
        self._means = means
        self._pending: deque[_Leaf] = deque()
        self._trailing: list[_EventLeaf] = []
        self._recent: dict[Sha256, int] = {}
        self._newest: Sha256 | None = None
        self._last: Sha256 | None = NO_LEAF
        self._tree = Frontier()
        self._whole = True
        self._holes = 0
        self._doubted = False

    def leaves(self) -> Iterator[Finding | SettledCut]:
        """Yield every cut as it has its place, and what is found on the way."""
        while True:
            found = self._take()
            if found is None:
                break
            if isinstance(found, Finding):
                self._holes += 1
                yield found
            else:
                yield from self._place(found)
        if self._trailing:
            yield self._uncovered()
            for leaf in self._trailing:
                yield from self._tell(leaf)

    # ---- reading ---------------------------------------------------------------------

    def _take(self) -> _Leaf | Finding | None:
        if self._pending:
            return self._pending.popleft()
        value = next(self._values, None)
        return None if value is None else self._read(value)

    def _read(self, value: bytes) -> _Leaf | Finding:
        decoder = self._means.decoder
        place = Place(index=self.size + len(self._trailing) + self._holes)
        try:
            record = decoder.cuts_record(value)
            leaf = decoder.leaf(record.leaf)
            hashed = leaf_hash(record.leaf)
            if isinstance(leaf, SignedKeyEvent):
                event = key_event_in(leaf, record.checkpoint, self._means, place)
                if isinstance(event, Finding):
                    return event
                return _EventLeaf(hash=hashed, event=event)
        except (UndecodableRecord, UnknownSchema) as error:
            return undecodable(error, place)
        place = Place(index=leaf.index, at_ns=leaf.at_ns)
        checkpoint = checkpoint_of(record.checkpoint, leaf, self._means, place)
        if isinstance(checkpoint, Finding):
            return checkpoint
        return _CutLeaf(hash=hashed, cut=leaf, checkpoint=checkpoint)

    def _look_ahead(self, wanted: Sha256) -> tuple[_Leaf | None, list[Finding]]:
        """Return the leaf `wanted` if it is among the next ones, taken out."""
        for leaf in self._pending:
            if leaf.hash == wanted:
                self._pending.remove(leaf)
                return leaf, []
        broken: list[Finding] = []
        while len(self._pending) + len(broken) < LOOK_AHEAD:
            value = next(self._values, None)
            if value is None:
                break
            found = self._read(value)
            if isinstance(found, Finding):
                broken.append(found)
            elif found.hash == wanted:
                return found, broken
            else:
                self._pending.append(found)
        return None, broken

    # ---- its place -------------------------------------------------------------------

    def _place(self, leaf: _Leaf) -> Iterator[Finding | SettledCut]:
        if leaf.hash in self._recent:
            yield self._again(leaf)
            return
        if isinstance(leaf, _EventLeaf):
            self._trailing.append(leaf)
            self._remember(leaf, self.size + len(self._trailing) - 1)
            return
        cut, top = leaf.cut, self.size + len(self._trailing)
        if cut.index < self.size:
            yield self._other(cut)
            return
        if cut.index > top + self._holes:
            early, broken = self._look_ahead(cut.previous)
            yield from broken
            if early is not None:
                yield self._reordered(cut, "a leaf before it comes after it")
                self._pending.appendleft(leaf)
                yield from self._place(early)
                return
            self._holes += len(broken)
            yield self._missing(cut, top)
        yield from self._settle(leaf)

    def _settle(self, leaf: _CutLeaf) -> Iterator[Finding | SettledCut]:
        """Give the key events that come before a cut, and the cut, their places."""
        cut = leaf.cut
        room = cut.index - self.size
        ready, late = self._trailing[:room], self._trailing[room:]
        self._trailing = []
        if self._whole and room == len(ready) and not late:
            ordered = self._ordered(ready, leaf)
            if ordered is not ready:
                yield self._reordered(cut, "key events before it are out of order")
            ready = ordered
        for one in ready:
            yield from self._tell(one)
        self._skip(room - len(ready), cut)
        if self._last is not None and cut.previous != self._last:
            text = "it names another leaf as the one before than is there"
            yield tampered(Step.CUTS, Reason.CUT_CHAIN, text, _at(cut))
        if late:
            yield self._reordered(cut, "key events after it come before it")
        yield from self._check(leaf)
        self._trailing = late

    def _ordered(self, ready: list[_EventLeaf], cut: _CutLeaf) -> list[_EventLeaf]:
        """Return the order of key events that leads to the checkpoint's root.

        As it is where that fits, or where no two neighbours swapped would fit.
        """
        for order in [ready, *_swapped(ready)]:
            tree = self._tree.copy()
            tree.extend(leaf.hash for leaf in order)
            tree.append(cut.hash)
            if tree.root() == cut.checkpoint.root:
                return order
        return ready

    def _skip(self, places: int, cut: Cut) -> None:
        """Leave out the places just before `cut` whose leaves are not there."""
        self._holes = 0
        if places <= 0:
            return
        if places == 1 and self._whole and cut.previous != self._last:
            self._tree.append(cut.previous)
        else:
            self._whole = False
        self.size += places
        self._last = None

    def _check(self, leaf: _CutLeaf) -> Iterator[Finding | SettledCut]:
        """Compare a cut, which has its place, with its checkpoint."""
        cut, checkpoint = leaf.cut, leaf.checkpoint
        tree = self._tree.copy()
        tree.append(leaf.hash)
        place = _at(cut)
        if self._whole and tree.root() != checkpoint.root:
            text = "the leaves up to it have another root than its checkpoint says"
            yield tampered(Step.CHECKPOINTS, Reason.CHECKPOINT_ROOT, text, place)
            if not self._doubted:
                self._doubted, self._holes = True, self._holes + 1
                self._remember(leaf, cut.index)
                return
            self._whole = False
        self._doubted = False
        problem = checkpoint_problem(checkpoint, cut.index, self.keys, self._means)
        if problem is not None:
            reason, text = problem
            yield tampered(Step.CHECKPOINTS, reason, text, place)
        self._tree, self.size, self._last = tree, cut.index + 1, leaf.hash
        self._remember(leaf, cut.index)
        self.keys.add_cut(cut.index, tuple(head.size for head in cut.heads))
        root = tree.root() if self._whole else None
        yield SettledCut(cut=cut, checkpoint=checkpoint, root=root, place=place)

    def _tell(self, leaf: _EventLeaf) -> Iterator[Finding]:
        """Give a key event its place, and tell the keys of it."""
        event = leaf.event
        if not self.keys.add_event(self.size, event):
            text = f"to {event.change} the {event.role} key {event.key_id} changes none"
            place = Place(index=self.size, at_ns=event.at_ns)
            yield note(Step.KEYS, Reason.KEY_EVENT_WITHOUT_EFFECT, text, place)
        self._tree.append(leaf.hash)
        self.size, self._last = self.size + 1, leaf.hash

    def _remember(self, leaf: _Leaf, index: int) -> None:
        self._newest = leaf.hash
        self._recent[leaf.hash] = index
        if len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]

    # ---- findings --------------------------------------------------------------------

    def _again(self, leaf: _Leaf) -> Finding:
        index = self._recent[leaf.hash]
        place = Place(
            index=index,
            at_ns=leaf.cut.at_ns if isinstance(leaf, _CutLeaf) else leaf.event.at_ns,
        )
        if leaf.hash == self._newest:
            return tampered(Step.CUTS, Reason.CUT_DUPLICATE, "it is there twice", place)
        text = f"it is there again after leaf {self.size + len(self._trailing) - 1}"
        return tampered(Step.CUTS, Reason.CUT_REPLAYED, text, place)

    def _other(self, cut: Cut) -> Finding:
        if cut.index < self.size - REMEMBERED:
            text = f"it is there again after leaf {self.size - 1}, or another like it"
            return tampered(Step.CUTS, Reason.CUT_REPLAYED, text, _at(cut))
        text = "there are two leaves of this index that differ"
        return tampered(Step.CUTS, Reason.CUT_FORK, text, _at(cut))

    def _reordered(self, cut: Cut, text: str) -> Finding:
        return tampered(Step.CUTS, Reason.CUTS_REORDERED, text, _at(cut))

    def _missing(self, cut: Cut, top: int) -> Finding:
        text = f"{cut.index - top} leaves missing before it"
        return tampered(Step.CUTS, Reason.CUT_MISSING, text, _at(cut))

    def _uncovered(self) -> Finding:
        text = f"{len(self._trailing)} key events are after the last cut"
        place = Place(index=self.size)
        return note(Step.LIMITS, Reason.NOT_COVERED_YET, text, place)


def roots_unknown(place: Place) -> Finding:
    """Return the finding that from `place` on no root of leaves can be computed."""
    text = "leaves before it are missing: from here on the tree cannot be recomputed"
    return unverifiable(Step.CHECKPOINTS, Reason.CHECKPOINT_ROOT_UNKNOWN, text, place)


def _swapped(leaves: Sequence[_EventLeaf]) -> Iterator[list[_EventLeaf]]:
    for at in range(len(leaves) - 1):
        order = list(leaves)
        order[at], order[at + 1] = order[at + 1], order[at]
        yield order


def _at(cut: Cut) -> Place:
    return Place(index=cut.index, at_ns=cut.at_ns)
