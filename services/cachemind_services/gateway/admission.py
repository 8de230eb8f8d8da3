"""From a complete answer to its `Stored`."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cachemind.core.admission import Admitted, NotAdmitted, decide_admission
from cachemind.core.canonical import canonical
from cachemind.core.completion import JsonObject, check_completion
from cachemind.core.identifiers import snapshot_id
from cachemind.core.keys import RequestKeys
from cachemind.errors import InvalidRequest, MalformedCompletion, PayloadUnreadable
from cachemind.events import Stored
from cachemind.types import Sha256
from cachemind_services.gateway.call import Call, is_disputed
from cachemind_services.gateway.deps import NO_ENCODER, GatewayDeps
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.identity import Ids
from cachemind_services.gateway.rules import Rules
from cachemind_services.gateway.semantic import SemanticTier, semantic_key

_SALT_BYTES: Final = 16
VECTOR_WAIT_S: Final = 10.0
"""The vector is worked out while upstream works, which takes longer than a look-up
may wait; an entry without one is never found by meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A complete answer of upstream."""

    completion: JsonObject
    status: int
    streamed: bool


class AdmissionDesk:
    """Decides by core's rules and fills in the event."""

    def __init__(
        self,
        deps: GatewayDeps,
        ids: Ids,
        semantic: SemanticTier | None,
        rules: Rules,
        follower: Follower,
    ) -> None:
        self._rules = rules
        self._follower = follower
        self._deps = deps
        self._ids = ids
        self._semantic = semantic
        embedder = deps.embedder
        self._encoder_id = NO_ENCODER if embedder is None else embedder.encoder_id

    def stored(
        self, call: Call, keys: RequestKeys, answered: Answered, vector: bytes | None
    ) -> Stored | NotAdmitted:
        """Return the event that stores an answer, or why it is not stored."""
        try:
            check_completion(answered.completion)
            response = canonical(answered.completion)
        except (MalformedCompletion, InvalidRequest):
            return NotAdmitted("malformed")
        decision = decide_admission(
            policy=self._rules.policy,
            effective=call.effective,
            request=keys.request,
            body_ambiguous=is_disputed(call),
            upstream_status=answered.status,
            streamed=answered.streamed,
            completion=answered.completion,
            response_bytes=len(response),
        )
        if isinstance(decision, NotAdmitted):
            return decision
        if self.full():
            return NotAdmitted("namespace-full")
        try:
            return self.event(call, keys, decision, response, vector)
        except PayloadUnreadable as error:
            return NotAdmitted(error.reason)

    def full(self) -> bool:
        """Return whether the namespace has as much as its policy lets it.

        What is not folded yet is not counted, so it may end a little above.
        """
        state, policy = self._follower.state, self._rules.policy
        return (
            state.entries >= policy.max_entries
            or state.entry_bytes >= policy.max_total_bytes
        )

    async def vector(self, prompt: str | None) -> bytes | None:
        """Return the prompt's vector; None where it has none, or not in time."""
        if prompt is None or self._semantic is None:
            return None
        return await self._semantic.vector(prompt, VECTOR_WAIT_S)

    def event(
        self,
        call: Call,
        keys: RequestKeys,
        decision: Admitted,
        response: bytes,
        vector: bytes | None,
        tags: tuple[str, ...] = (),
    ) -> Stored:
        """Return the `Stored` of an admitted response, canonical already.

        It is sealed where the namespace is encrypted.
        Raises: `PayloadUnreadable` where no key is at hand for that.
        """
        request_hash = keys.request_hash
        now_ns = self._deps.clock.now_ns()
        stored = Stored(
            exact_key=keys.exact_key,
            context_key=keys.context_key,
            prompt_hash=call.prompt_hash,
            request_hash=request_hash,
            semantic_key="" if vector is None else semantic_key(vector),
            embedding=vector,
            encoder_id=self._encoder_id,
            model=keys.request.model,
            parameters=keys.parameters,
            prompt=keys.prompt,
            response=response,
            response_hash=Sha256(sha256(response).digest()),
            finish_reason=decision.finish_reason,
            evidence=decision.evidence,
            ttl_ms=decision.ttl_ms,
            tags=tags,
            source_chunks=(),
            snapshot_id=snapshot_id(self._ids.draw(_SALT_BYTES), now_ns, request_hash),
        )
        return self._deps.payloads.stored(stored)
