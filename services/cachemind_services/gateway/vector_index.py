"""Vectors of the stored prompts, one context at a time: a copy of what stores hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cachemind.core import entry_bytes
from cachemind.core.payloads import PLAIN, Payloads
from cachemind.core.similarity import nearest, unit_rows
from cachemind.errors import PayloadUnreadable
from cachemind.ports import Change, StoreView
from cachemind.types import ContextKey, ExactKey, Namespace


@dataclass(frozen=True, slots=True)
class Near:
    """A stored vector close to a prompt's; whether it may be served is open."""

    key: ExactKey
    similarity: float


@dataclass(slots=True)
class Rows:
    """The vectors of one context."""

    keys: list[ExactKey] = field(default_factory=list)
    vectors: list[bytes] = field(default_factory=list)
    places: dict[ExactKey, int] = field(default_factory=dict)
    matrix: NDArray[np.float32] | None = None

    def put(self, key: ExactKey, vector: bytes) -> None:
        """Add a vector, or replace the one that `key` had."""
        place = self.places.get(key)
        if place is None:
            self.places[key] = len(self.keys)
            self.keys.append(key)
            self.vectors.append(vector)
        elif self.vectors[place] == vector:
            return
        else:
            self.vectors[place] = vector
        self.matrix = None

    def drop(self, key: ExactKey) -> None:
        """Remove a vector."""
        place = self.places.pop(key, None)
        if place is None:
            return
        last_key, last_vector = self.keys.pop(), self.vectors.pop()
        if last_key != key:
            self.keys[place], self.vectors[place] = last_key, last_vector
            self.places[last_key] = place
        self.matrix = None

    def rows(self, dimensions: int) -> NDArray[np.float32]:
        """Return the vectors as rows of length 1."""
        if self.matrix is None:
            self.matrix = unit_rows(self.vectors, dimensions)
        return self.matrix


class HeldContexts:
    """Least recently used contexts in memory, of all namespaces of a worker.

    Use it from one thread.
    """

    def __init__(self, limit_rows: int) -> None:
        self._limit_rows = limit_rows
        self._held: OrderedDict[tuple[Namespace, ContextKey], Rows] = OrderedDict()

    def get(self, namespace: Namespace, context: ContextKey) -> Rows | None:
        """Return the rows of a context, None where they are not held."""
        return self._held.get((namespace, context))

    def used(self, namespace: Namespace, context: ContextKey) -> None:
        """Keep a context longer than those that were not used since."""
        self._held.move_to_end((namespace, context))

    def hold(self, namespace: Namespace, context: ContextKey, rows: Rows) -> None:
        """Hold the rows of a context."""
        self._held[namespace, context] = rows
        self.trim()

    def forget(self, namespace: Namespace) -> None:
        """Let go of every context of a namespace."""
        for place in [place for place in self._held if place[0] == namespace]:
            del self._held[place]

    def trim(self) -> None:
        """Let go of the least recently used ones above the limit."""
        held = sum(len(rows.keys) + 1 for rows in self._held.values())
        while held > self._limit_rows and len(self._held) > 1:
            _, gone = self._held.popitem(last=False)
            held -= len(gone.keys) + 1


class VectorIndex:
    """The contexts of one namespace. A hint: entries are looked up anew.

    Use it from the thread of its `HeldContexts`.
    """

    def __init__(
        self,
        view: StoreView,
        namespace: Namespace,
        dimensions: int,
        held: HeldContexts,
        payloads: Payloads = PLAIN,
    ) -> None:
        """Read vectors from `view`; those that `payloads` do not open are absent."""
        self._payloads = payloads
        self._view = view
        self._namespace = namespace
        self._dimensions = dimensions
        self._held = held

    def near(
        self, context: ContextKey, vector: bytes, floor: float, k: int
    ) -> list[Near]:
        """Return at most `k` keys of `context` with cosine >= `floor`, closest first.

        Raises: `StoreError`.
        """
        rows = self._load(context)
        matrix = rows.rows(self._dimensions)
        return [
            Near(rows.keys[each.row], each.similarity)
            for each in nearest(vector, matrix, threshold=floor, k=k)
        ]

    def put(self, context: ContextKey, key: ExactKey, vector: bytes) -> None:
        """Add a stored vector that the store may not show yet."""
        rows = self._held.get(self._namespace, context)
        opened = self._opened(key, vector)
        if rows is not None and opened is not None:
            rows.put(key, opened)
            self._held.trim()

    def refresh(self, changes: Sequence[Change] | None) -> None:
        """Take in what the fold changed; all of it anew where that is unknown.

        Raises: `StoreError`.
        """
        if changes is None:
            self._held.forget(self._namespace)
            return
        for change in changes:
            rows = self._held.get(self._namespace, change.context_key)
            if rows is None or change.namespace != self._namespace:
                continue
            vector = self._vector(change) if change.present else None
            if vector is None:
                rows.drop(change.exact_key)
            else:
                rows.put(change.exact_key, vector)
        self._held.trim()

    def _vector(self, change: Change) -> bytes | None:
        raw = self._view.raw_entry(self._namespace, change.exact_key)
        stored = None if raw is None else entry_bytes.decode(raw).embedding
        return None if stored is None else self._opened(change.exact_key, stored)

    def _opened(self, key: ExactKey, stored: bytes) -> bytes | None:
        try:
            return self._payloads.vector(key, stored)
        except PayloadUnreadable:
            return None

    def _load(self, context: ContextKey) -> Rows:
        rows = self._held.get(self._namespace, context)
        if rows is not None:
            self._held.used(self._namespace, context)
            return rows
        rows = Rows()
        for row in self._view.context(self._namespace, context):
            vector = self._opened(row.exact_key, row.embedding)
            if vector is not None:
                rows.put(row.exact_key, vector)
        self._held.hold(self._namespace, context, rows)
        return rows
