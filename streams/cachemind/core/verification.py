"""Does the recorded digest of a namespace fit its entries?"""

from __future__ import annotations

from collections.abc import Iterable

from cachemind.core.digest import digest_of, to_hex
from cachemind.core.entry_bytes import encode
from cachemind.core.state import Entry, NamespaceState
from cachemind.errors import DigestMismatch


def digest_mismatch(
    state: NamespaceState, entries: Iterable[Entry]
) -> DigestMismatch | None:
    """Return what differs between `state` and all its `entries`; None where equal.

    The entries are read once and not kept.
    """
    computed = digest_of((entry.exact_key, encode(entry)) for entry in entries)
    if computed == state.digest:
        return None
    return DigestMismatch(state.namespace, to_hex(state.digest), to_hex(computed))
