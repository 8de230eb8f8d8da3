"""Which key may sign what: it follows from the key events in the log of cuts.

A key's time is told in receipts and leaves, never by a clock:

* a receipt key signs from the heads of the last cut before it was added (from the
  first receipt where there is none), and, once retired, up to the heads of the first
  cut after that;
* a log key signs cuts after the leaf that added it and before the one that retired it;
* a revoked key counts up to its last good cut: that cut, and the receipts under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from cachemind.receipts import KeyChange, KeyEvent, KeyId, KeyRole

Sizes: TypeAlias = tuple[int, ...]
"""The receipts of each partition under a cut; a partition past its end has none."""

NO_RECEIPTS: Final[Sizes] = ()
NO_CUT: Final = -1


class Verdict(StrEnum):
    """Whether a key may sign something, or why not."""

    VALID = "valid"
    UNKNOWN = "unknown-key"
    WRONG_ROLE = "key-of-other-role"
    NOT_YET = "key-not-added-yet"
    RETIRED = "key-retired"
    REVOKED = "key-revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """From where to where one key may sign. `added` and `retired` are leaves.

    `until` is not known before the first cut after `retired`, nor is `good` before
    the cut `last_good_cut`.
    """

    key_id: KeyId
    role: KeyRole
    public_key: bytes
    added: int
    since: Sizes
    retired: int | None = None
    until: Sizes | None = None
    last_good_cut: int | None = None
    good: Sizes | None = None


class KeyHistory:
    """The keys, as the leaves of the log of cuts have told of them so far.

    To be told every leaf in order. An answer about what lies between two cuts is
    final once the second has been told. A revocation speaks about the past: give
    those that will come as `revoked` (see `revocations`), else a revoked key counts
    for no receipt at all once its revocation has been told.
    """

    def __init__(self, revoked: Mapping[KeyId, int] | None = None) -> None:
        self._revoked = dict(revoked or {})
        self._good: dict[KeyId, Sizes] = {
            key: NO_RECEIPTS for key, last in self._revoked.items() if last < 0
        }
        self._tenures: dict[KeyId, Tenure] = {}
        self._ending: list[KeyId] = []
        self._sizes: Sizes = NO_RECEIPTS
        self._awaited = {last for last in self._revoked.values() if last >= 0}

    def add_cut(self, index: int, sizes: Sizes) -> None:
        """Take in the cut which is leaf `index`."""
        self._sizes = sizes
        self._reach(index)
        for key_id in self._ending:
            self._tenures[key_id] = replace(self._tenures[key_id], until=sizes)
        self._ending.clear()

    def add_event(self, index: int, event: KeyEvent) -> bool:
        """Take in the key event which is leaf `index`; return whether it changes any.

        It must have been verified. A key is added once and for all, and the root
        keys are pinned, not logged: such an event changes nothing.
        """
        # Where a last good cut is no cut, the one before it is meant.
        self._reach(index)
        known = self._tenures.get(event.key_id)
        if event.role is KeyRole.ROOT:
            return False
        if event.change is KeyChange.ADD:
            return known is None and self._add(index, event)
        if known is None or known.role is not event.role:
            return False
        if event.change is KeyChange.RETIRE:
            return known.retired is None and self._retire(index, known)
        return self._revoke(event, known)

    def receipt(self, key_id: KeyId, partition: int, seq: int) -> Verdict:
        """Return whether a key may sign a receipt."""
        tenure = self._tenures.get(key_id)
        if tenure is None:
            return Verdict.UNKNOWN
        if tenure.role is not KeyRole.RECEIPT:
            return Verdict.WRONG_ROLE
        if seq < _size(tenure.since, partition):
            return Verdict.NOT_YET
        good = self._good_of(tenure)
        if good is not None and seq >= _size(good, partition):
            return Verdict.REVOKED
        if tenure.until is not None and seq >= _size(tenure.until, partition):
            return Verdict.RETIRED
        return Verdict.VALID

    def cut(self, key_id: KeyId, index: int) -> Verdict:
        """Return whether a key may sign the checkpoint of the cut at `index`."""
        tenure = self._tenures.get(key_id)
        if tenure is None:
            return Verdict.UNKNOWN
        if tenure.role is not KeyRole.LOG:
            return Verdict.WRONG_ROLE
        if index < tenure.added:
            return Verdict.NOT_YET
        last = self._last_good(tenure)
        if last is not None and index > last:
            return Verdict.REVOKED
        if tenure.retired is not None and index > tenure.retired:
            return Verdict.RETIRED
        return Verdict.VALID

    def public_key(self, key_id: KeyId) -> bytes | None:
        """Return the key (DER, SPKI) that was added under an id."""
        tenure = self._tenures.get(key_id)
        return None if tenure is None else tenure.public_key

    def tenures(self) -> tuple[Tenure, ...]:
        """Return every key that was ever added, in that order."""
        return tuple(
            replace(
                one, last_good_cut=self._last_good(one), good=self._good.get(one.key_id)
            )
            for one in self._tenures.values()
        )

    def signers(self, role: KeyRole) -> tuple[Tenure, ...]:
        """Return the keys that may sign what comes next, the newest first."""
        return tuple(
            tenure
            for tenure in reversed(self.tenures())
            if tenure.role is role
            and tenure.retired is None
            and tenure.last_good_cut is None
        )

    def _add(self, index: int, event: KeyEvent) -> bool:
        self._tenures[event.key_id] = Tenure(
            key_id=event.key_id,
            role=event.role,
            public_key=event.public_key,
            added=index,
            since=self._sizes,
        )
        return True

    def _retire(self, index: int, known: Tenure) -> bool:
        self._tenures[known.key_id] = replace(known, retired=index)
        self._ending.append(known.key_id)
        return True

    def _revoke(self, event: KeyEvent, known: Tenure) -> bool:
        before = known.last_good_cut
        if before is not None and before <= event.last_good_cut:
            return False
        self._tenures[known.key_id] = replace(known, last_good_cut=event.last_good_cut)
        return True

    def _last_good(self, tenure: Tenure) -> int | None:
        told, foreseen = tenure.last_good_cut, self._revoked.get(tenure.key_id)
        both = [last for last in (told, foreseen) if last is not None]
        return min(both, default=None)

    def _good_of(self, tenure: Tenure) -> Sizes | None:
        """Return the receipts that a revocation leaves; None where it leaves all."""
        foreseen = self._revoked.get(tenure.key_id)
        told = tenure.last_good_cut
        if told is not None and (foreseen is None or told < foreseen):
            return NO_RECEIPTS
        return self._good.get(tenure.key_id)

    def _reach(self, index: int) -> None:
        if not self._awaited or index < min(self._awaited):
            return
        for key_id, last in self._revoked.items():
            if last in self._awaited and last <= index:
                self._good[key_id] = self._sizes
        self._awaited = {last for last in self._awaited if last > index}


def revocations(events: Iterable[KeyEvent]) -> dict[KeyId, int]:
    """Return the last good cut of every key that verified `events` revoke."""
    found: dict[KeyId, int] = {}
    for event in events:
        if event.change is KeyChange.REVOKE and event.role is not KeyRole.ROOT:
            last = found.get(event.key_id, event.last_good_cut)
            found[event.key_id] = min(last, event.last_good_cut)
    return found


def _size(sizes: Sizes, partition: int) -> int:
    return sizes[partition] if partition < len(sizes) else 0
