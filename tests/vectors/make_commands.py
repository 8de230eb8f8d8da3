"""Writes commands.json: every kind of command and of reply, and its bytes.

Run it from the repository's root: `python -m tests.vectors.make_commands`. The values
are fixed, so it writes the same file each time. Bytes are given as hex.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from cachemind.codec.commands import encode_command, encode_reply
from cachemind.core.cache_commands import (
    Answered,
    CacheAnswer,
    CacheCommand,
    Complete,
    FindReceipt,
    Invalidate,
    Logged,
    Lookup,
    Put,
    PutDone,
    ReceiptFound,
)
from cachemind.core.commands import (
    Command,
    Problem,
    ProblemCode,
    Reply,
    Rollback,
    RollbackDone,
    RollbackState,
)
from cachemind.events import Feedback, Outcome, SelectorKind, Verdict
from cachemind.types import (
    EventId,
    ExactKey,
    Lsn,
    Namespace,
    Offset,
    Partition,
    Sha256,
    TraceId,
    Version,
)
from cachemind_schemas.loader import released_of

TARGET: Final = Path(__file__).with_name("commands.json")
_ID: Final = EventId(bytes(range(1, 17)))
_TRACE: Final = TraceId(bytes(range(17, 33)))
_KEY: Final = ExactKey(bytes(range(32)))
_SPACE: Final = Namespace("tenant-a")
_CHAT: Final = b'{"model":"m","messages":[{"role":"user","content":"Why?"}]}'

COMMANDS: Final[dict[str, Rollback | CacheCommand]] = {
    "rollback": Rollback(to_version=Version(127), expected_head=130, reason="poison"),
    "lookup": Lookup(request=_CHAT, cache_control="max-age=60", threshold=0.97),
    "complete": Complete(request=_CHAT, mode="exact", ttl_s=600),
    "put": Put(request=_CHAT, response=b"{}", ttl_s=60, tags=("a", "b")),
    "invalidate": Invalidate(kind=SelectorKind.TAG, value="a", reason="wrong"),
    "feedback": Feedback(
        matched_key=_KEY, served_trace_id=_TRACE, verdict=Verdict.WRONG
    ),
    "find_receipt": FindReceipt(trace_id=_TRACE, after=31, wait_ms=1000),
}
REPLIES: Final[dict[str, Problem | RollbackDone | CacheAnswer]] = {
    "problem": Problem(
        code=ProblemCode.NOT_OFFERED, field="path", message="no receipts are kept here"
    ),
    "rollback_done": RollbackDone(
        status=RollbackState.COMMITTED,
        rollback_id=_ID,
        from_version=130,
        to_version=Version(127),
        new_version=Version(131),
        restored=1,
        removed=2,
        changed=3,
        replayed=4,
        digest=Sha256(bytes(range(32))),
        verdict="valid",
        duration_ms=30,
    ),
    "answered": Answered(
        outcome=Outcome.HIT_SEMANTIC,
        reason="",
        key=_KEY,
        similarity=0.98,
        status=200,
        stored=False,
        message=b"{}",
    ),
    "put_done": PutDone(key=_KEY, snapshot_id="ab" * 16, ttl_ms=60_000),
    "logged": Logged(),
    "receipt_found": ReceiptFound(
        document=b'{"trace_id":"%b","receipts":[],"next_after":null}'
        % _TRACE.hex().encode()
    ),
}


def command(body: Rollback | CacheCommand) -> Command:
    """Return a command that asks for `body`."""
    return Command(request_id=_ID, namespace=_SPACE, body=body)


def reply(body: Problem | RollbackDone | CacheAnswer) -> Reply:
    """Return a reply that says `body`."""
    return Reply(
        request_id=_ID,
        namespace=_SPACE,
        trace_id=_TRACE,
        lsn=Lsn(Partition(3), Offset(12)),
        body=body,
        version=131,
    )


def document() -> str:
    """Return the text of the file."""
    found = {
        "commands": {
            "schema": released_of("commands")[-1].version,
            **{
                name: encode_command(command(body)).hex()
                for name, body in COMMANDS.items()
            },
        },
        "replies": {
            "schema": released_of("replies")[-1].version,
            **{name: encode_reply(reply(body)).hex() for name, body in REPLIES.items()},
        },
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), "utf-8")
