"""Policies of namespaces: read as the fold has them, changed by events on the log.

What is read is this host's store, where it has one, and what the log holds beyond it;
without a store the whole log. So a command sees what was acknowledged before it began,
whether or not anything has folded it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_view import RocksView
from cachemind.core.api_keys import gives_way
from cachemind.core.partitioner import partition_of
from cachemind.errors import (
    InvalidEvent,
    LogUnavailable,
    StoreMismatch,
    StoreUnavailable,
    UndecodableRecord,
)
from cachemind.events import PolicyChanged
from cachemind.ports import LogRecord
from cachemind.types import Lsn, Namespace, Offset
from cachemind_services.bootstrap.log import store_identity, store_path
from cachemind_services.bootstrap.operator_log import OperatorLog
from cachemind_services.bootstrap.tools import OpenLog, open_log
from cachemind_services.settings import Settings

TRIES = 20
"""Each lost one is another writer's success, so that many are a storm of writers."""


@dataclass(frozen=True, slots=True)
class Held:
    """A namespace's policy as of all records below `position`."""

    policy: str
    position: Offset


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change made of a policy; `lsn` None where there was nothing to change."""

    policy: str
    lsn: Lsn | None


class Policies:
    """The policy of one namespace on an open log."""

    def __init__(self, log: OpenLog, namespace: Namespace) -> None:
        self._log = log
        self._namespace = namespace
        self._key = namespace.encode()
        self._partition = partition_of(self._key, len(log.partitions))

    def read(self) -> Held:
        """Return the policy that all acknowledged events make.

        Raises: `LogUnavailable`, also where the log begins after the first events and
        no store is here; `UnknownSchema`.
        """
        held = self._stored() or self._first()
        _, end = self._log.reader.bounds(self._partition)
        return self._onward(held, end)

    def change(self, log: OperatorLog, make: Callable[[str], str]) -> Changed:
        """Return the policy after `make` has changed it, done again where it lost.

        `make` is given the policy in force and returns the next; it may be called
        more than once. Raises: as `read`, what `make` raises, `LogRejected`.
        """
        held = self.read()
        for _ in range(TRIES):
            wanted = make(held.policy)
            if wanted == held.policy:
                return Changed(wanted, None)
            lsn = log.append(PolicyChanged(policy=wanted))
            before = self._onward(held, lsn.offset)
            if gives_way(self._namespace, before.policy, wanted):
                return Changed(wanted, lsn)
            held = Held(before.policy, Offset(lsn.offset + 1))
        raise LogUnavailable(
            f"others changed the policy of {self._namespace} {TRIES} times meanwhile"
        )

    def _stored(self) -> Held | None:
        settings = self._log.settings
        view = RocksView(
            store_path(settings, self._partition),
            RocksMemory(),
            identity=store_identity(settings, self._log.identity, self._partition),
        )
        try:
            applied = view.catch_up()
            state = view.namespace(self._namespace)
        except (StoreUnavailable, StoreMismatch):
            # None here, or that of another log: the log alone says the same.
            return None
        finally:
            view.close()
        return Held(state.policy, Offset(applied + 1))

    def _first(self) -> Held:
        first, _ = self._log.reader.bounds(self._partition)
        if first > 0:
            raise LogUnavailable(
                f"the log begins at {Lsn(self._partition, first)}, so it alone does "
                f"not say what {self._namespace} is: run this where a store is, and "
                "name its folder by --data-dir"
            )
        return Held("", first)

    def _onward(self, held: Held, end: Offset) -> Held:
        policy = held.policy
        for candidate in self._changes(held.position, end):
            if gives_way(self._namespace, policy, candidate):
                policy = candidate
        return Held(policy, max(held.position, end))

    def _changes(self, start: Offset, end: Offset) -> Iterator[str]:
        for batch in self._log.reader.read(self._partition, start, end):
            for record in batch:
                # The fold takes a namespace's events under its own key only.
                if record.key == self._key:
                    yield from self._policy_in(record)

    def _policy_in(self, record: LogRecord) -> Iterator[str]:
        try:
            envelope = self._log.codec.decode(record.value or b"")
        except (UndecodableRecord, InvalidEvent):
            return  # The fold has no use for it either: it is a dead letter.
        if envelope.namespace == self._namespace and isinstance(
            envelope.body, PolicyChanged
        ):
            yield envelope.body.policy


@contextmanager
def open_policies(settings: Settings, namespace: Namespace) -> Iterator[Policies]:
    """Open the log for the policy of one namespace.

    Raises: `TopicMisconfigured`, `LogUnavailable`, `LogRejected`, `BrokerError`.
    """
    with open_log(settings) as log:
        yield Policies(log, namespace)


def read_policy(settings: Settings, namespace: Namespace) -> str:
    """Return a namespace's policy, empty where none was ever set.

    Raises: as `open_policies` and `Policies.read`.
    """
    with open_policies(settings, namespace) as policies:
        return policies.read().policy


def change_policy(
    settings: Settings, namespace: Namespace, make: Callable[[str], str]
) -> Changed:
    """Return the policy after a change, which is on the log by then.

    Raises: as `open_policies` and `Policies.change`.
    """
    with (
        open_policies(settings, namespace) as policies,
        OperatorLog(settings, namespace) as log,
    ):
        return policies.change(log, make)
