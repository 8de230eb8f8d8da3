"""Gives up the history that nothing kept leads back to, a little behind each commit.

On the fold's thread, like the thinning of checkpoints: no rollback is being folded
meanwhile, and a checkpoint that somebody holds is not removed and so still counts. What
was kept when a round began bounds it; later rounds go further.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cachemind.core.checkpoint import CheckpointManifest
from cachemind.core.horizon import first_needed
from cachemind.core.snapshots import SnapshotNamespace
from cachemind.errors import LogError
from cachemind.ports import HistoryStore
from cachemind.types import Namespace, Offset, Version

log = logging.getLogger(__name__)

ROWS: Final = 1_000
"""Versions given up behind one commit: a few milliseconds."""

ASKED: Final = 20
"""What looking at a namespace counts as: it is a few reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgettingDeps:
    """`oldest` is the oldest kept checkpoint, `log_begins` the log's first offset."""

    store: HistoryStore
    oldest: Callable[[], CheckpointManifest | None]
    log_begins: Callable[[], Offset]
    rows: int = ROWS


class Forgetting:
    """Of one partition."""

    def __init__(self, deps: ForgettingDeps) -> None:
        self._deps = deps
        self._work: Iterator[int] | None = None

    def begin(self) -> None:
        """Look what may go, unless a former round is not over. After a thinning.

        Raises: `StoreError`.
        """
        if self._work is not None:
            return
        try:
            begins = self._deps.log_begins()
        except LogError as error:
            log.warning("history is kept: where the log begins is not known: %s", error)
            return
        oldest = self._deps.oldest() if begins > 0 else None
        if oldest is not None:
            self._work = self._round(oldest, begins)

    def go_on(self) -> None:
        """Do a bounded part of what is to be done. Raises: `StoreError`."""
        left = self._deps.rows
        while left > 0 and self._work is not None:
            done = next(self._work, None)
            if done is None:
                self._work = None
            else:
                left -= done

    def _round(self, oldest: CheckpointManifest, begins: Offset) -> Iterator[int]:
        """Do one step after the other; yield how much each was, at most `rows`."""
        horizons: dict[Namespace, Version] = {}
        for kept in oldest.held.namespaces:
            yield ASKED
            yield from self._requests(kept.namespace)
            horizon = self._horizon(kept, begins)
            if horizon > 0:
                horizons[kept.namespace] = horizon
                yield from self._versions(kept.namespace, horizon)
        yield from self._reports(horizons)

    def _requests(self, namespace: Namespace) -> Iterator[int]:
        store, most = self._deps.store, self._deps.rows
        while gone := store.forget_requests(namespace, most):
            yield gone

    def _versions(self, namespace: Namespace, horizon: Version) -> Iterator[int]:
        store, most = self._deps.store, self._deps.rows
        while gone := store.forget_versions(namespace, horizon, most):
            yield gone

    def _reports(self, horizons: dict[Namespace, Version]) -> Iterator[int]:
        store, most = self._deps.store, self._deps.rows
        after: bytes | None = b""
        while horizons and after is not None:
            after, seen = store.forget_reports(horizons, after, most)
            yield seen

    def _horizon(self, kept: SnapshotNamespace, begins: Offset) -> Version:
        """Return the first version to keep; 0 where the log still holds all of it."""
        store, namespace = self._deps.store, kept.namespace
        if store.horizon(namespace) == 0:
            first = store.versions(namespace, Version(1), Version(1))
            if not first or begins <= first[0].offset:
                return Version(0)
        return first_needed(store.history(namespace), kept.version)
