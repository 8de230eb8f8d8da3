"""The commands that change something, done by what does it over HTTP."""

from __future__ import annotations

from cachemind.core.cache_commands import Invalidate, Logged, Put, PutDone
from cachemind.events import Feedback
from cachemind.ports.commands import Asked
from cachemind.types import Lsn
from cachemind_services.gateway.command_terms import put_fields
from cachemind_services.gateway.http_io import Scope
from cachemind_services.gateway.parts import Parts


async def written(
    parts: Parts, asked: Asked, scope: Scope
) -> tuple[PutDone | Logged, Lsn]:
    """Do what changes something.

    Raises: `InvalidRequest`, `Forbidden`, `LogError`.
    """
    admin, body = parts.admin, asked.command.body
    if isinstance(body, Put):
        placed = await admin.put(scope, put_fields(body))
        done = PutDone(
            key=placed.key,
            snapshot_id=placed.snapshot_id,
            ttl_ms=placed.ttl_ms,
        )
        return done, placed.lsn
    if isinstance(body, Invalidate):
        chosen = {"kind": body.kind, "value": body.value, "reason": body.reason}
        return Logged(), await admin.invalidate(scope, {**chosen})
    if isinstance(body, Feedback):
        judged = {
            "key": body.matched_key.hex(),
            "trace_id": body.served_trace_id.hex(),
            "verdict": body.verdict,
        }
        return Logged(), await admin.feedback(scope, {**judged})
    raise TypeError(f"not for this desk: {type(body).__name__}")
