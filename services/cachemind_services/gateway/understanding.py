"""From a request's bytes to its keys and to what its controls allow."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Final

from cachemind.core.cache_control import (
    CACHE_CONTROL,
    MODE,
    THRESHOLD,
    TTL,
    parse_controls,
    tighten,
)
from cachemind.core.identifiers import TraceContext
from cachemind.core.keys import derive_keys, prompt_hash, prompt_text
from cachemind.core.request import parse_chat
from cachemind_services.gateway.admitted import admitted_in
from cachemind_services.gateway.call import Call, trace_of
from cachemind_services.gateway.deps import NO_ENCODER, GatewayDeps
from cachemind_services.gateway.http_io import Scope
from cachemind_services.gateway.identity import Ids, Tenants, derived_key
from cachemind_services.gateway.known_bodies import KnownBodies, Understood
from cachemind_services.gateway.prefer import preferred_wait_s
from cachemind_services.gateway.rules import Rules
from cachemind_services.gateway.signatures import DEFAULT_WAIT_S, MOST_WAIT_S

_CONTROLS: Final = frozenset(
    name.encode() for name in (CACHE_CONTROL, MODE, THRESHOLD, TTL)
)


class Understanding:
    """Works requests out for one namespace, under its policy and its secret."""

    def __init__(
        self, deps: GatewayDeps, ids: Ids, rules: Rules, known: KnownBodies
    ) -> None:
        """`known` may be shared by several namespaces."""
        self._settings = settings = deps.settings
        self._ids = ids
        self._rules = rules
        self._principal = settings.principal
        self._prompt_key = derived_key(settings.secret, settings.namespace, b"prompt")
        self._tenants = Tenants(
            settings.secret,
            settings.namespace,
            shared=rules.policy.share_across_credentials,
            guessable=not deps.payloads.encrypted,
        )
        embedder = deps.embedder
        self._encoder_id = NO_ENCODER if embedder is None else embedder.encoder_id
        self._known = known
        # A tenant is of one namespace, but for that of all.
        self._all = b"all of " + settings.namespace.encode()

    def call(self, started: float, scope: Scope, body: bytes) -> Call:
        """Return the request with its keys and what its controls allow.

        Raises: `InvalidRequest` naming the field.
        """
        headers = dict(scope["headers"])
        effective = self._rules.effective
        if not _CONTROLS.isdisjoint(headers):
            controls = parse_controls(scope["headers"])
            effective = tighten(self._rules.policy, controls)
        admitted, principal, may_store = admitted_in(scope), self._principal, True
        if admitted is not None:
            principal = admitted.caller.principal
            may_store = admitted.may_store
            effective = effective if may_store else replace(effective, store=False)
        if len(body) > self._settings.max_cacheable_bytes or _encoded(headers):
            keys, text = None, sha256(body).hexdigest()
            hashed = prompt_hash(self._prompt_key, text)
        else:
            query: bytes = scope.get("query_string", b"")
            understood = self._understand(self._tenants.of(headers, query), body)
            keys, hashed = understood.keys, understood.prompt_hash
        return Call(
            started=started,
            scope=scope,
            body=body,
            trace=trace_of(headers, self._ids),
            keys=keys,
            effective=effective,
            prompt_hash=hashed,
            principal=principal,
            admitted=admitted,
            may_store=may_store,
            wait_s=_wait_s(headers),
        )

    def other(self, started: float, scope: Scope, body: bytes) -> Call:
        """Return a request that is not for the cache, hashed by its bytes alone."""
        text = sha256(body).hexdigest()
        headers, admitted = dict(scope["headers"]), admitted_in(scope)
        return Call(
            started=started,
            scope=scope,
            body=body,
            trace=trace_of(headers, self._ids),
            keys=None,
            effective=self._rules.effective,
            prompt_hash=prompt_hash(self._prompt_key, text),
            principal=self._principal
            if admitted is None
            else admitted.caller.principal,
            admitted=admitted,
            wait_s=_wait_s(headers),
        )

    def _understand(self, tenant: bytes, body: bytes) -> Understood:
        known_as = tenant or self._all
        understood = self._known.get(known_as, body)
        if understood is not None:
            return understood
        request = parse_chat(body)
        keys = derive_keys(request, self._settings.namespace, tenant, self._encoder_id)
        hashed = prompt_hash(self._prompt_key, prompt_text(request))
        understood = Understood(keys, hashed)
        self._known.put(known_as, body, understood)
        return understood

    def follow(self) -> None:
        """Take in that the policy has changed."""
        self._tenants.shared = self._rules.policy.share_across_credentials

    def trace(self, scope: Scope) -> TraceContext:
        """Return the trace of a request, the caller's or a new one."""
        return trace_of(dict(scope["headers"]), self._ids)


def _wait_s(headers: dict[bytes, bytes]) -> float | None:
    wait_s = preferred_wait_s(headers.get(b"prefer"), DEFAULT_WAIT_S, MOST_WAIT_S)
    return wait_s or None


def _encoded(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-encoding", b"identity") != b"identity"
