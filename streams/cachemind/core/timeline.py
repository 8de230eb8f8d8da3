"""Which versions make up a version's state, where rollbacks have branched off.

A rollback at version r to target t makes state(r) = state(t). Every other version
continues the one before it. So each version has one parent, and the versions on
the way back to 0 are its *lineage*; all others are *voided* as seen from it.

Nothing is ever deleted: going back to a voided version is an undo.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from cachemind.errors import UnknownVersion
from cachemind.types import EMPTY, Timeline, Version


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Versions `first` to `last`, both included."""

    first: Version
    last: Version

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, order=True)
class Branch:
    """The rollback that made version `at` continue from version `target`."""

    at: Version
    target: Version


@dataclass(frozen=True, slots=True)
class History:
    """The rollbacks of one namespace, oldest first, and its newest version."""

    branches: tuple[Branch, ...]
    head: Version

    def __post_init__(self) -> None:
        previous = EMPTY
        for branch in self.branches:
            if not previous < branch.at <= self.head:
                raise ValueError("branches must be in order and not above the head")
            if not EMPTY <= branch.target < branch.at:
                raise ValueError("a rollback's target is below the rollback")
            previous = branch.at

    @classmethod
    def empty(cls) -> Self:
        """Return the history of a namespace without events."""
        return cls((), EMPTY)

    def event(self) -> History:
        """Return the history after one more ordinary version."""
        return History(self.branches, Version(self.head + 1))

    def rolled_back(self, target: Version) -> History:
        """Return the history after a rollback to `target`.

        Raises: `UnknownVersion`.
        """
        self._check(target)
        at = Version(self.head + 1)
        return History((*self.branches, Branch(at, target)), at)

    def parent(self, version: Version) -> Version:
        """Return the version whose state `version` was built on.

        Raises: `UnknownVersion`, also for 0, which has no parent.
        """
        self._check(version)
        if version == EMPTY:
            raise UnknownVersion("version 0 has no parent")
        branch = self._branch_of(version)
        if branch is not None and branch.at == version:
            return branch.target
        return Version(version - 1)

    def timeline(self, version: Version) -> Timeline:
        """Return the timeline of `version`: the rollback it came after, or 0."""
        self._check(version)
        branch = self._branch_of(version)
        return Timeline(0 if branch is None else branch.at)

    def lineage(self, version: Version) -> tuple[Span, ...]:
        """Return the versions that `version`'s state consists of, oldest first.

        Version 0 is in every lineage and in no span. Costs one step a branch.
        """
        return tuple(reversed(list(self._spans_back(version))))

    def is_voided(self, version: Version, seen_from: Version | None = None) -> bool:
        """Return whether `version` is off the lineage of `seen_from` (the head)."""
        self._check(version)
        if version == EMPTY:
            return False
        start = self.head if seen_from is None else seen_from
        return not any(version in span for span in self._spans_back(start))

    def voided(self, seen_from: Version | None = None) -> tuple[Span, ...]:
        """Return the spans below `seen_from` (the head) that are off its lineage."""
        start = self.head if seen_from is None else seen_from
        gaps, next_first = [], 1
        for span in self.lineage(start):
            if next_first < span.first:
                gaps.append(Span(Version(next_first), Version(span.first - 1)))
            next_first = span.last + 1
        return tuple(gaps)

    def common_ancestor(self, one: Version, other: Version) -> Version:
        """Return the newest version on both lineages; 0 where none is."""
        spans = list(self._spans_back(other))
        for span in self._spans_back(one):
            shared = [min(span.last, o.last) for o in spans if _overlap(span, o)]
            if shared:
                return max(shared)
        return EMPTY

    def tip_before(self, rollback: Version) -> Version:
        """Return the version that `rollback` left: the target of its undo.

        Raises: `UnknownVersion` where `rollback` is not one.
        """
        branch = self._branch_of(rollback)
        if branch is None or branch.at != rollback:
            raise UnknownVersion(f"version {rollback} is not a rollback")
        return Version(rollback - 1)

    def path(self, ancestor: Version, version: Version) -> tuple[Span, ...]:
        """Return the spans that lead from `ancestor` (left out) to `version`.

        Raises: `UnknownVersion` where `ancestor` is not on the lineage.
        """
        if ancestor != EMPTY and self.is_voided(ancestor, version):
            raise UnknownVersion(
                f"version {ancestor} is not on the lineage of {version}"
            )
        spans = []
        for span in self.lineage(version):
            first = Version(max(span.first, ancestor + 1))
            if first <= span.last:
                spans.append(Span(first, span.last))
        return tuple(spans)

    def _spans_back(self, version: Version) -> Iterator[Span]:
        self._check(version)
        while version > EMPTY:
            branch = self._branch_of(version)
            if branch is None:
                yield Span(Version(1), version)
                return
            yield Span(branch.at, version)
            version = branch.target

    def _branch_of(self, version: Version) -> Branch | None:
        index = bisect_right(self.branches, version, key=lambda branch: branch.at)
        return self.branches[index - 1] if index else None

    def _check(self, version: Version) -> None:
        if not EMPTY <= version <= self.head:
            raise UnknownVersion(f"version {version} is not in 0 to {self.head}")


def _overlap(one: Span, other: Span) -> bool:
    return one.first <= other.last and other.first <= one.last
