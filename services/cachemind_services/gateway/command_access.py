"""Who may ask for what by a command: as over HTTP, by the same code."""

from __future__ import annotations

from collections.abc import Sequence

from cachemind.core.commands import Problem, ProblemCode
from cachemind.errors import Forbidden
from cachemind.ports.commands import Asked
from cachemind_services.gateway.admitted import admitted_as, tell_admitted
from cachemind_services.gateway.http_io import Header, Scope
from cachemind_services.gateway.in_process import post
from cachemind_services.gateway.limits import Limits, Meter
from cachemind_services.gateway.parts import Parts
from cachemind_services.gateway.refusals import Refusals, access_log
from cachemind_services.gateway.shared import Shared


class CommandRefusals:
    """Says on the log who was refused, during one tenure."""

    def __init__(self, shared: Shared) -> None:
        self._refusals = Refusals(shared.deps.clock, shared.deps.metrics)
        self._log = access_log(shared)

    def tell(self, parts: Parts | None, asked: Asked, error: Forbidden) -> Problem:
        """Return what the caller is told; without `parts` he has none of them."""
        if asked.caller is not None:
            wal = self._log if parts is None else parts.wal
            self._refusals.tell(wal, asked.trace, error, asked.caller.principal)
        code = ProblemCode.FORBIDDEN
        return Problem(code=code, field=error.right, message=str(error))

    async def flush(self, timeout_s: float) -> None:
        """Wait until what was told is on the log, at most `timeout_s`."""
        await self._log.flush(timeout_s)


def scope_of(path: str, asked: Asked, fields: Sequence[Header]) -> Scope:
    """Return the scope that the gateway would have of a command and its caller."""
    scope = post(path, fields)
    if asked.caller is not None:
        # Without limits: those of keys are counted by each gateway.
        meter = Meter(Limits(), 0)
        namespace = asked.command.namespace
        tell_admitted(scope, admitted_as(asked.caller, namespace, meter))
    return scope


def is_stranger(asked: Asked) -> bool:
    """Return whether the caller has nothing in the namespace: it is not opened then."""
    caller = asked.caller
    return caller is not None and asked.command.namespace not in caller.namespaces
