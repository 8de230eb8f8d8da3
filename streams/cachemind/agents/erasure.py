"""Erases a namespace: its data keys are shredded, what they sealed is gone for good.

1. An `Invalidated` of all entries goes on the log: nothing is served that was there,
   and the stores drop it.
2. A `KeyShredded` for each living data key goes on the log. From there on no gateway
   uses the key, wherever a copy of it may still be.
3. Each wrapped key is replaced by a stone.

The stones come last: cut off anywhere before, the next run finds living keys and does
all of it again, which changes nothing that was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cachemind.errors import KeyRefused
from cachemind.events import Invalidated, KeyShredded, SelectorKind
from cachemind.ports.data_keys import DataKeyStore
from cachemind.types import Lsn, Namespace

Append = Callable[[Invalidated | KeyShredded], Lsn]
"""Returns where the event is on the log, durable. Raises: `LogError`."""

Failpoint = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shredded:
    """A key that is gone, and where the log says so."""

    key_id: str
    lsn: Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What an erasure did. `before` are the keys that were gone already."""

    namespace: Namespace
    invalidated: Lsn | None
    shredded: Sequence[Shredded]
    before: Sequence[str]


def _pass(_: str) -> None:
    """Go on."""


def erase(
    store: DataKeyStore,
    namespace: Namespace,
    append: Append,
    now_ns: Callable[[], int],
    reason: str,
    failpoint: Failpoint = _pass,
) -> Erasure:
    """Return what was done; safe to repeat. `failpoint` is told of each step.

    Raises: `KeyRefused` where the namespace never had a data key: then its payloads
    are in the clear, and nothing can erase them; `KeyUnavailable`, `LogError`.
    """
    found = store.keys(namespace)
    if not found:
        raise KeyRefused(namespace, "has no data keys here: nothing of it is encrypted")
    living = [key for key in found if key.lives]
    before = [key.key_id for key in found if not key.lives]
    invalidated: Lsn | None = None
    if living:
        failpoint("before-invalidated")
        everything = Invalidated(kind=SelectorKind.ALL, value="", reason=reason)
        invalidated = append(everything)
        failpoint("invalidated")
    shredded = []
    for key in living:
        event = KeyShredded(key_id=key.key_id, reason=reason)
        shredded.append(Shredded(key_id=key.key_id, lsn=append(event)))
        failpoint("shredded")
    for key in living:
        store.destroy(key.destroyed(now_ns()))
        failpoint("destroyed")
    return Erasure(
        namespace=namespace, invalidated=invalidated, shredded=shredded, before=before
    )
