"""Writes `state.json`, the known bytes of entries, rows and digests, beside this file.

    python -m tests.vectors.make_state [--check]

With --check nothing is written, and a difference ends with exit code 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cachemind.core import digest, entry_bytes, history_bytes, state_bytes
from cachemind.core.rollback_report import (
    NO_BASE,
    Quarantine,
    RollbackReport,
    RollbackStatus,
    Strategy,
)
from cachemind.core.state import (
    Change,
    ContextRow,
    Entry,
    Hits,
    NamespaceState,
    VersionRow,
)
from cachemind.types import (
    ContextKey,
    EncoderId,
    EventId,
    ExactKey,
    Namespace,
    Offset,
    Principal,
    Sha256,
    Timeline,
    Version,
)

PATH = Path(__file__).with_name("state.json")


def _bytes(first: int, size: int) -> bytes:
    return bytes((first + step) % 256 for step in range(size))


ENTRY = Entry(
    exact_key=ExactKey(_bytes(1, 32)),
    context_key=ContextKey(_bytes(2, 32)),
    event_id=EventId(_bytes(3, 16)),
    offset=Offset(12_345),
    version=Version(7),
    timeline=Timeline(5),
    stored_at_ns=1_700_000_000_000_000_001,
    expires_at_ns=1_700_000_060_000_000_001,
    pinned=True,
    right=3,
    wrong=1,
    prompt_hash=Sha256(_bytes(4, 32)),
    request_hash=Sha256(_bytes(5, 32)),
    response_hash=Sha256(_bytes(6, 32)),
    snapshot_id=_bytes(7, 16).hex(),
    semantic_key="c2VtYW50aWM=",
    encoder_id=EncoderId("enc-1"),
    model="modèle",
    parameters='{"temperature":0}',
    finish_reason="stop",
    tags=("", "näh"),
    source_chunks=(Sha256(_bytes(8, 32)),),
    prompt="wie groß ist das Universum?",
    embedding=b"\x00\x3c\x00\x00",
    response=b'{"choices":[]}',
)
BARE = replace(
    ENTRY,
    pinned=False,
    right=0,
    wrong=0,
    tags=(),
    source_chunks=(),
    prompt=None,
    embedding=None,
    response=b"{}",
)
STATE = NamespaceState(
    namespace=Namespace("shop"),
    version=Version(9),
    timeline=Timeline(5),
    digest=2**255 + 17,
    entries=2,
    entry_bytes=700,
    policy='{"threshold":0.92}',
    shredded_keys=("k1", "k2"),
    last_rollback=EventId(_bytes(9, 16)),
    counts={"stored": 4, "hit_exact": 2**40},
)
EMPTY_STATE = NamespaceState(namespace=Namespace("a"))
HITS = Hits(count=2**33, last_ns=(30, 20, 10))
VERSION_ROW = VersionRow(
    version=Version(9),
    offset=Offset(12_346),
    timeline=Timeline(5),
    digest=258,
    entries=2,
    event_id=EventId(_bytes(10, 16)),
    kind="stored",
    occurred_at_ns=1_700_000_000_000_000_002,
    principal=Principal("alice"),
    target=None,
    rollback_id=None,
    reason="",
)
ROLLBACK_ROW = replace(
    VERSION_ROW,
    kind="rolled_back",
    target=Version(5),
    rollback_id=EventId(_bytes(12, 16)),
    reason="vergiftet: zurück",
)
TOUCHED = (ExactKey(_bytes(1, 32)), ExactKey(_bytes(13, 32)))
REPORT = RollbackReport(
    rollback_id=EventId(_bytes(12, 16)),
    namespace=Namespace("shop"),
    offset=Offset(12_346),
    status=RollbackStatus.COMMITTED,
    from_version=Version(8),
    to_version=Version(5),
    new_version=Version(9),
    restored=1,
    removed=2,
    changed=3,
    replayed=4,
    base=Offset(12_300),
    digest=258,
    strategy=Strategy.JSON_PATCH,
    verdict="valid",
    duration_ms=12,
    reason="vergiftet: zurück",
)
REFUSED_REPORT = replace(
    REPORT,
    status=RollbackStatus.REFUSED,
    new_version=None,
    base=NO_BASE,
    strategy=Strategy.FIELD_HASH,
    verdict="expected head 7, the head is 8",
)
QUARANTINE = Quarantine(offset=Offset(12_346), reason="no base holds")
CONTEXT_ROW = ContextRow(
    exact_key=ExactKey(_bytes(1, 32)),
    embedding=b"\x00\x3c\x00\x00",
    expires_at_ns=1_700_000_060_000_000_001,
)
PREVIOUS = Offset(12_000)
CHANGES = (
    Change(
        namespace=Namespace("shop"),
        context_key=ContextKey(_bytes(2, 32)),
        exact_key=ExactKey(_bytes(1, 32)),
        present=True,
    ),
    Change(
        namespace=Namespace("a"),
        context_key=ContextKey(_bytes(2, 32)),
        exact_key=ExactKey(_bytes(11, 32)),
        present=False,
    ),
)
PAIRS = ((b"k", b"v"), (b"", b""), (b"kv", b""), (b"k", b"v2"))


def vectors() -> dict[str, dict[str, str]]:
    """Return every vector as lower-case hex."""
    rows = {
        "entry": entry_bytes.encode(ENTRY),
        "entry without prompt and vector": entry_bytes.encode(BARE),
        "namespace state": state_bytes.encode_state(STATE),
        "empty namespace state": state_bytes.encode_state(EMPTY_STATE),
        "hits": state_bytes.encode_hits(HITS),
        "version row": state_bytes.encode_version(VERSION_ROW),
        "version row of a rollback": state_bytes.encode_version(ROLLBACK_ROW),
        "touched keys": history_bytes.encode_touched(TOUCHED),
        "rollback target": history_bytes.encode_target(Version(5)),
        "rollback report": history_bytes.encode_report(REPORT),
        "refused rollback report": history_bytes.encode_report(REFUSED_REPORT),
        "quarantine": history_bytes.encode_quarantine(QUARANTINE),
        "context row": state_bytes.encode_context(CONTEXT_ROW),
        "journal row": state_bytes.encode_journal(PREVIOUS, CHANGES),
        "empty journal row": state_bytes.encode_journal(Offset(-1), ()),
    }
    digests = {
        f"{key.hex()}:{value.hex()}": digest.to_hex(digest.term(key, value))
        for key, value in PAIRS
    }
    digests["all"] = digest.to_hex(digest.digest_of(PAIRS))
    return {
        "rows": {name: raw.hex() for name, raw in rows.items()},
        "digests": digests,
    }


def document() -> str:
    """Return the file's text."""
    return json.dumps(vectors(), indent=2) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the file or, with --check, compare it."""
    if "--check" in arguments:
        return int(PATH.read_text(encoding="utf-8") != document())
    PATH.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
