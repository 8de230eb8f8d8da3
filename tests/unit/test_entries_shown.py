"""What `put` and `invalidate` print for people."""

from __future__ import annotations

from typing import Any

import pytest

from cachemind_services.cli.entries import invalidated_line, stored_line


def test_what_was_stored_is_a_sentence() -> None:
    stored = {"key": "ab" * 32, "lsn": "1@7", "snapshot_id": "x", "ttl_ms": 90_500}
    assert stored_line(stored) == f"stored for 90.5 s at key {'ab' * 32} (LSN 1@7)"


@pytest.mark.parametrize(
    ("done", "told"),
    [
        ({"folded": True, "removed": 2}, "invalidated 2 entries (LSN 1@7)"),
        ({"folded": True, "removed": 1}, "invalidated 1 entry (LSN 1@7)"),
        (
            {"folded": True, "removed": 0},
            "no entry matched: nothing was invalidated (LSN 1@7)",
        ),
        (
            {"folded": True, "removed": None},
            "invalidated; how many entries is not known (LSN 1@7)",
        ),
        (
            {"folded": False, "removed": None},
            "invalidated; not folded yet, so how many entries is not known (LSN 1@7)",
        ),
    ],
)
def test_how_many_entries_were_invalidated_is_a_sentence(
    done: dict[str, Any], told: str
) -> None:
    assert invalidated_line({"lsn": "1@7", **done}) == told
