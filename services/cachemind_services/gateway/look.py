"""Looking a request up: the exact key first, then prompts of the same meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cachemind.core import entry_bytes
from cachemind.core.entry_bytes import Served
from cachemind.core.judge import Candidate, judge
from cachemind.core.keys import RequestKeys
from cachemind.errors import PayloadUnreadable
from cachemind.events import Outcome
from cachemind.types import ExactKey, Offset
from cachemind_services.gateway.call import Call
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.entries import Entries
from cachemind_services.gateway.semantic import SemanticTier
from cachemind_services.gateway.vector_index import Near

NEVER_FENCED: Final = Offset(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a look-up ended. `served` is the entry on a hit.

    `vector` is the prompt's where it was worked out; `similarity` that of the
    entry, or of the closest candidate on a miss. `fence` is the namespace's when the
    entry was read.
    """

    outcome: Outcome
    reason: str = ""
    strategy: str = "exact"
    served: Served | None = None
    matched_key: ExactKey | None = None
    similarity: float | None = None
    vector: bytes | None = None
    fence: Offset = NEVER_FENCED


class Reader:
    """Finds what answers a request, within the request's own limits."""

    def __init__(
        self, deps: GatewayDeps, entries: Entries, semantic: SemanticTier | None
    ) -> None:
        self._clock = deps.clock
        self._metrics = deps.metrics
        self._payloads = deps.payloads
        self._entries = entries
        self._semantic = semantic

    def exact(self, call: Call, keys: RequestKeys) -> Look:
        """Return the hit on the exact key, or a miss with its reason."""
        if not call.effective.lookup:
            return Look(outcome=Outcome.MISS, reason="no-cache")
        key, fence = keys.exact_key, self._entries.fence()
        served = (
            self._entries.exact(key) if _is_free(call) else self._reached(call, key)
        )
        if served is None:
            return Look(outcome=Outcome.MISS)
        try:
            served = self._payloads.served(key, served)
        except PayloadUnreadable as error:
            return Look(outcome=Outcome.MISS, reason=error.reason)
        reason = self._refusal(served, call, keys)
        if reason is not None:
            return Look(outcome=Outcome.MISS, reason=reason)
        return Look(
            outcome=Outcome.HIT_EXACT,
            served=served,
            matched_key=key,
            similarity=1.0,
            fence=fence,
        )

    @property
    def fence(self) -> Offset:
        """Return the namespace's fence; a look-up with another one is void."""
        return self._entries.fence()

    async def semantic(self, call: Call, keys: RequestKeys, before: Look) -> Look:
        """Return the hit by meaning, or a miss with its reason.

        `before` is the miss on the exact key.
        """
        prompt = keys.prompt
        if self._semantic is None or not call.effective.semantic or prompt is None:
            return before
        threshold = call.effective.threshold
        found = await self._semantic.find(prompt, keys.context_key, threshold)
        if found is None:
            return Look(outcome=Outcome.MISS, reason="encoder-unavailable")
        if found.vector is None:
            return Look(outcome=Outcome.MISS, reason="past-window")
        candidates = self._candidates(call, keys, found.near)
        verdict = judge(prompt, candidates, threshold)
        closest = max((each.similarity for each in candidates), default=None)
        if verdict.accepted is None:
            if closest is not None:
                self._metrics.miss_similarity.observe(closest)
            first = verdict.reasons[0] if verdict.reasons else before.reason
            return Look(
                outcome=Outcome.MISS,
                reason=first,
                strategy="semantic",
                similarity=closest,
                vector=found.vector,
            )
        return self._hit(verdict.accepted, candidates, found.vector, call, keys)

    def _hit(
        self,
        accepted: Candidate,
        candidates: Sequence[Candidate],
        vector: bytes,
        call: Call,
        keys: RequestKeys,
    ) -> Look:
        fence = self._entries.fence()
        served = self._opened(call, accepted.key)
        # It may have gone, or changed, since it was judged.
        if served is None or self._refusal(served, call, keys) is not None:
            return Look(outcome=Outcome.MISS, reason="entry-gone", vector=vector)
        self._metrics.hit_similarity.observe(accepted.similarity)
        return Look(
            outcome=Outcome.HIT_SEMANTIC,
            strategy="semantic",
            served=served,
            matched_key=accepted.key,
            similarity=accepted.similarity,
            vector=vector,
            fence=fence,
        )

    def _candidates(
        self, call: Call, keys: RequestKeys, near: Sequence[Near]
    ) -> list[Candidate]:
        candidates: list[Candidate] = []
        for each in near:
            raw = self._entries.raw(each.key)
            if raw is None:
                continue
            try:
                if not (_is_free(call) or _reaches(call, raw)):
                    continue
                served = self._payloads.served(each.key, entry_bytes.serving(raw))
                if self._refusal(served, call, keys):
                    continue
                entry = self._payloads.entry(entry_bytes.decode(raw))
            except PayloadUnreadable:
                continue  # of a key that went since the vectors were read
            if entry.prompt is not None and entry.context_key == keys.context_key:
                candidates.append(
                    Candidate(
                        key=each.key, prompt=entry.prompt, similarity=each.similarity
                    )
                )
        return candidates

    def _reached(self, call: Call, key: ExactKey) -> Served | None:
        """Return the entry at `key` if it is inside of the caller's prefixes."""
        raw = self._entries.raw(key)
        if raw is None or not _reaches(call, raw):
            return None
        return entry_bytes.serving(raw)

    def _opened(self, call: Call, key: ExactKey) -> Served | None:
        served = (
            self._entries.exact(key) if _is_free(call) else self._reached(call, key)
        )
        try:
            return None if served is None else self._payloads.served(key, served)
        except PayloadUnreadable:
            return None

    def _refusal(self, served: Served, call: Call, keys: RequestKeys) -> str | None:
        request = keys.request
        return self._entries.refusal(
            served,
            call.effective,
            self._clock.now_ns(),
            usage=request.include_usage or not request.stream,
        )


def _is_free(call: Call) -> bool:
    """Return whether no prefix limits what the caller reaches."""
    return call.admitted is None or not call.admitted.caller.prefixes


def _reaches(call: Call, raw: bytes) -> bool:
    admitted = call.admitted
    return admitted is None or admitted.caller.reaches(entry_bytes.decode(raw).tags)
