"""`/v1/cachemind/*`: look at a namespace, store by hand, invalidate, judge a hit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from cachemind.core import entry_bytes
from cachemind.core.access import Right, local
from cachemind.core.admission import Admitted
from cachemind.core.canonical import canonical
from cachemind.core.completion import JsonObject
from cachemind.core.digest import to_hex
from cachemind.core.keys import RequestKeys
from cachemind.core.payloads import inspected
from cachemind.core.state import Entry
from cachemind.errors import (
    InvalidEvent,
    InvalidRequest,
    LogError,
    LogRejected,
    LogUnavailable,
    PayloadUnreadable,
    StoreError,
)
from cachemind.events import (
    Evidence,
    Feedback,
    Invalidated,
    SelectorKind,
    Stored,
    Verdict,
)
from cachemind.types import HASH_BYTES, ID_BYTES, EventId, ExactKey, Lsn, TraceId
from cachemind_services.gateway.admin_fields import (
    HEX,
    completion_of,
    finish_reason,
    hex_of,
    object_body,
    tags_of,
    text_of,
    ttl_ms_of,
)
from cachemind_services.gateway.admission import AdmissionDesk
from cachemind_services.gateway.admitted import (
    principal_in,
    require_in,
    require_tags,
)
from cachemind_services.gateway.call import Call
from cachemind_services.gateway.deps import GatewayDeps
from cachemind_services.gateway.entries import Entries
from cachemind_services.gateway.follower import Follower
from cachemind_services.gateway.http_io import (
    ClientGone,
    Receive,
    Scope,
    Send,
    read_body,
    send_error,
    send_invalid,
    send_json,
)
from cachemind_services.gateway.once import Once
from cachemind_services.gateway.policy_api import PolicyApi
from cachemind_services.gateway.rules import Rules
from cachemind_services.gateway.understanding import Understanding
from cachemind_services.gateway.versions_api import VersionsApi, answered
from cachemind_services.gateway.whoami import send_whoami
from cachemind_services.gateway.writes import Writes

PREFIX: Final = "/v1/cachemind/"
FOLD_WAIT_S: Final = 2.0
_BY_HAND: Final = Evidence(
    rule="put",
    upstream_status=0,
    streamed=False,
    entropy_nats=None,
    confidence_ratio=None,
)
_RETRY_AFTER: Final = ((b"retry-after", b"1"),)
_UNREADABLE: Final = (
    "prefix cannot be used: the prompts of this namespace are encrypted, and what "
    "folds the log has no key; use key, tag, model, chunk, age or all"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An entry that was stored by hand, and where its event is."""

    lsn: Lsn
    key: ExactKey
    snapshot_id: str
    ttl_ms: int


class Admin:
    """The gateway's own API. It acts in the gateway's namespace only.

    What is put is stored for the caller's own credential, exactly as if upstream
    had answered it.
    """

    def __init__(
        self,
        deps: GatewayDeps,
        understanding: Understanding,
        entries: Entries,
        writes: Writes,
        desk: AdmissionDesk,
        follower: Follower,
        versions: VersionsApi,
        rules: Rules,
        policies: PolicyApi,
        once: Once,
    ) -> None:
        self._once = once
        self._rules = rules
        self._policies = policies
        self._deps = deps
        self._understanding = understanding
        self._entries = entries
        self._writes = writes
        self._desk = desk
        self._follower = follower
        self._versions = versions

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._route(scope, receive, send)
        except InvalidRequest as error:
            await send_invalid(send, error)
        except LogRejected as error:
            await send_error(send, 413, str(error), code="log_rejected")
        except LogError as error:
            await send_error(
                send, 503, str(error), code="wal_unavailable", headers=_RETRY_AFTER
            )
        except PayloadUnreadable as error:
            await send_error(
                send, 503, str(error), code="no_data_key", headers=_RETRY_AFTER
            )
        except ClientGone:
            return

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(PREFIX)
        method = scope["method"]
        if (method, path) == ("GET", "stats"):
            await send_json(send, 200, self._stats())
        elif (method, path) == ("POST", "entries"):
            await self._put(scope, receive, send)
        elif (method, path) == ("POST", "invalidate"):
            await self._invalidate(scope, receive, send)
        elif (method, path) == ("POST", "feedback"):
            lsn = await self.feedback(scope, await self._fields(receive))
            await send_json(send, 201, {"lsn": str(lsn)})
        elif path == "policy" and method in ("GET", "PUT"):
            await self._policy(scope, receive, send)
        elif (method, path) == ("GET", "whoami"):
            namespace = self._deps.settings.namespace
            await send_whoami(local(namespace), namespace, send)
        elif method == "GET" and path.startswith("entries/"):
            await self._entry(path.removeprefix("entries/"), scope, send)
        else:
            await send_error(send, 404, "no such call", code="not_found")

    async def _policy(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await send_json(send, 200, self._policies.shown())
            return
        fields, principal = await self._fields(receive), principal_in(scope)
        trace = self._understanding.trace(scope).trace_id
        lsn = await self._policies.change(fields, trace, principal)
        await self._send_folded(lsn, send)

    async def _send_folded(self, lsn: Lsn, send: Send) -> None:
        folded = await self._follower.folded(lsn.offset, FOLD_WAIT_S)
        status = 200 if folded else 202
        await send_json(send, status, {"lsn": str(lsn), "folded": folded})

    def _stats(self) -> Mapping[str, object]:
        state, follower = self._follower.state, self._follower
        return {
            "namespace": state.namespace,
            "version": state.version,
            "timeline": state.timeline,
            "digest": to_hex(state.digest),
            "entries": state.entries,
            "entry_bytes": state.entry_bytes,
            "applied": str(Lsn(follower.partition, follower.applied)),
            "counts": state.counts,
        }

    async def _entry(self, text: str, scope: Scope, send: Send) -> None:
        if len(text) != 2 * HASH_BYTES or not HEX.issuperset(text):
            raise InvalidRequest("key", "must be 64 lower-case hex characters")
        key = ExactKey(bytes.fromhex(text))
        if scope.get("query_string"):
            await answered(send, lambda: self._versions.entry(key, scope, send))
            return
        raw = self._entries.raw(key)
        if raw is None:
            await send_error(send, 404, "there is no entry at this key", param="key")
        else:
            entry = inspected(self._deps.payloads, entry_bytes.decode(raw))
            await send_json(send, 200, shown(entry))

    async def _put(self, scope: Scope, receive: Receive, send: Send) -> None:
        placed = await self.put(scope, await self._fields(receive))
        await send_json(
            send,
            201,
            {
                "key": placed.key.hex(),
                "lsn": str(placed.lsn),
                "snapshot_id": placed.snapshot_id,
                "ttl_ms": placed.ttl_ms,
            },
        )

    async def put(self, scope: Scope, fields: JsonObject) -> Placed:
        """Store an answer.

        Raises: `InvalidRequest`, `Forbidden`, `LogError`, `PayloadUnreadable`.
        """
        tags = tags_of(fields)
        require_tags(scope, Right.STORE, tags)
        call = self._understanding.call(
            time.perf_counter(), scope, object_body(fields, "request")
        )
        completion = completion_of(fields, call)
        keys = call.keys
        if keys is None:
            raise InvalidRequest("request", "is too large to be stored")
        response, decision = self._decided(scope, fields, completion)
        life = orjson.dumps([fields.get("ttl_s"), tags])
        asked = self._once.named(scope, b"put", keys.exact_key, response, life)
        stored: Stored | None = None

        async def append(event_id: EventId | None) -> Lsn:
            nonlocal stored
            stored = await self._stored(call, keys, decision, response, tags)
            trace = call.trace.trace_id
            return await self._writes.store(stored, trace, call.principal, event_id)

        done = await self._once.do(asked, append)
        told = done.first or stored
        assert told is not None  # noqa: S101 - without a first one it was appended
        return Placed(
            lsn=done.lsn,
            key=keys.exact_key,
            snapshot_id=told.snapshot_id,
            ttl_ms=told.ttl_ms,
        )

    def _decided(
        self, scope: Scope, fields: JsonObject, completion: JsonObject
    ) -> tuple[bytes, Admitted]:
        """Return the answer's bytes, and how long it may be served."""
        response, policy = canonical(completion), self._rules.policy
        if len(response) > policy.max_entry_bytes:
            raise InvalidRequest(
                "response", f"is larger than {policy.max_entry_bytes} bytes", status=413
            )
        ttl_ms = ttl_ms_of(fields, policy.default_ttl_ms, policy.max_ttl_ms)
        if ttl_ms > policy.default_ttl_ms:
            require_in(scope, Right.TTL_OVERRIDE, self._deps.settings.namespace)
        return response, Admitted(
            ttl_ms=ttl_ms,
            evidence=_BY_HAND,
            finish_reason=finish_reason(completion),
        )

    async def _stored(
        self,
        call: Call,
        keys: RequestKeys,
        decision: Admitted,
        response: bytes,
        tags: tuple[str, ...],
    ) -> Stored:
        if self._desk.full():
            raise InvalidRequest("namespace", "is full", status=413)
        vector = await self._desk.vector(keys.prompt)
        stored = self._desk.event(call, keys, decision, response, vector, tags)
        await self._past_the_fence()
        return stored

    async def _past_the_fence(self) -> None:
        """Wait until a rollback shows here: the fold would drop what knows it not.

        Raises: `LogUnavailable`.
        """
        if not await self._follower.folded(self._entries.fence(), FOLD_WAIT_S):
            raise LogUnavailable("a rollback is under way; try again later")

    async def _invalidate(self, scope: Scope, receive: Receive, send: Send) -> None:
        lsn = await self.invalidate(scope, await self._fields(receive))
        folded = await self._follower.folded(lsn.offset, FOLD_WAIT_S)
        removed: int | None = None
        if folded:
            with suppress(StoreError):  # it is done all the same
                removed = self._entries.removed_at(lsn.offset)
        answer = {"lsn": str(lsn), "folded": folded, "removed": removed}
        await send_json(send, 200 if folded else 202, answer)

    async def invalidate(self, scope: Scope, fields: JsonObject) -> Lsn:
        """Return the LSN of an invalidation, in effect here from now on.

        Raises: `InvalidRequest`, `Forbidden`, `LogError`.
        """
        kind = text_of(fields, "kind")
        if kind not in list(SelectorKind):
            raise InvalidRequest("kind", "must be one of " + ", ".join(SelectorKind))
        if kind == SelectorKind.PREFIX and self._deps.payloads.encrypted:
            raise InvalidRequest("kind", _UNREADABLE, status=422)
        try:
            event = Invalidated(
                kind=SelectorKind(kind),
                value=text_of(fields, "value", ""),
                reason=text_of(fields, "reason", ""),
            )
        except InvalidEvent as error:
            raise InvalidRequest(error.field, error.problem) from error
        # By tag only what has a prefix is surely all that is reached.
        tagged = (event.value,) if event.kind is SelectorKind.TAG else ()
        require_tags(scope, Right.INVALIDATE, tagged)
        trace = self._understanding.trace(scope).trace_id
        content = (event.kind, event.value, event.reason)
        asked = self._once.named(scope, b"invalidate", *(t.encode() for t in content))
        done = await self._once.do(
            asked,
            partial(self._writes.invalidate, event, trace, principal_in(scope)),
        )
        return done.lsn

    async def feedback(self, scope: Scope, fields: JsonObject) -> Lsn:
        """Return the LSN of what somebody says of a hit that was served.

        Raises: `InvalidRequest`, `Forbidden`, `LogError`.
        """
        verdict = text_of(fields, "verdict")
        if verdict not in list(Verdict):
            raise InvalidRequest("verdict", "must be one of " + ", ".join(Verdict))
        event = Feedback(
            matched_key=ExactKey(hex_of(fields, "key", HASH_BYTES)),
            served_trace_id=TraceId(hex_of(fields, "trace_id", ID_BYTES)),
            verdict=Verdict(verdict),
        )
        content = (event.matched_key, event.served_trace_id, verdict.encode())
        asked = self._once.named(scope, b"feedback", *content)

        async def append(event_id: EventId | None) -> Lsn:
            await self._past_the_fence()
            raw = self._entries.raw(event.matched_key)
            tags = () if raw is None else entry_bytes.decode(raw).tags
            require_tags(scope, Right.FEEDBACK, tags)
            trace, who = self._understanding.trace(scope).trace_id, principal_in(scope)
            return await self._writes.feedback(event, trace, who, event_id)

        return (await self._once.do(asked, append)).lsn

    async def _fields(self, receive: Receive) -> JsonObject:
        body = await read_body(receive, self._deps.settings.max_body_bytes)
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest("body", "is not JSON") from error
        if not isinstance(fields, dict):
            raise InvalidRequest("body", "must be an object")
        return fields


def shown(entry: Entry) -> dict[str, object]:
    """Return an entry as JSON shows it: hashes in hex, the response parsed."""
    return {
        "key": entry.exact_key.hex(),
        "context_key": entry.context_key.hex(),
        "version": entry.version,
        "timeline": entry.timeline,
        "offset": entry.offset,
        "stored_at_ns": entry.stored_at_ns,
        "expires_at_ns": entry.expires_at_ns,
        "pinned": entry.pinned,
        "right": entry.right,
        "wrong": entry.wrong,
        "model": entry.model,
        "parameters": orjson.Fragment(entry.parameters),
        "finish_reason": entry.finish_reason,
        "tags": entry.tags,
        "snapshot_id": entry.snapshot_id,
        "semantic_key": entry.semantic_key,
        "encoder_id": entry.encoder_id,
        "prompt": entry.prompt,
        "prompt_hash": entry.prompt_hash.hex(),
        "request_hash": entry.request_hash.hex(),
        "response_hash": entry.response_hash.hex(),
        "response": orjson.Fragment(entry.response),
    }
