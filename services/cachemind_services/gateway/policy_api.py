"""A namespace's policy over HTTP: shown, and set by an event."""

from __future__ import annotations

from cachemind.core.completion import JsonObject
from cachemind.core.policy_text import render_policy, shown_policy
from cachemind.errors import InvalidEvent, InvalidRequest
from cachemind.events import PolicyChanged
from cachemind.types import Lsn, Principal, TraceId
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.rules import Rules
from cachemind_services.gateway.wal_session import WalSession


class PolicyApi:
    """Shows and sets the policy of one namespace."""

    def __init__(self, rules: Rules, wal: WalSession, follower: Follower) -> None:
        self._rules = rules
        self._wal = wal
        self._follower = follower

    def shown(self) -> dict[str, object]:
        """Return the policy in force, member by member, and what the log has of it."""
        state = self._follower.state
        return {
            "namespace": state.namespace,
            "version": state.version,
            "policy": shown_policy(self._rules.policy),
            "on_log": state.policy,
            "problem": self._rules.problem,
        }

    async def change(
        self, fields: JsonObject, trace: TraceId, principal: Principal | None
    ) -> Lsn:
        """Return the LSN of a policy; what it leaves out is as the settings have it.

        Raises: `InvalidRequest`, `LogError`.
        """
        try:
            policy = render_policy(fields)
        except InvalidEvent as error:
            raise InvalidRequest(error.field, error.problem) from error
        changed = PolicyChanged(policy=policy)
        return (await self._wal.append(changed, trace, principal)).lsn
