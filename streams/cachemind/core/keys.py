"""The keys of a request: what must be equal, and what may be compared by meaning.

The context key is hashed from a chain h_i = H(h_(i-1), canonical(message_i)) over
every turn before the last, so that one changed word anywhere is another context.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cachemind.core.canonical import canonical
from cachemind.core.normalise import normalise
from cachemind.core.request import ChatRequest
from cachemind.core.tagged_hash import tagged_hash
from cachemind.types import ContextKey, EncoderId, ExactKey, Namespace, Sha256

TURN_DOMAIN: Final = b"cachemind/turn/v1"
CONTEXT_DOMAIN: Final = b"cachemind/context/v1"
EXACT_DOMAIN: Final = b"cachemind/exact/v1"
PROMPT_DOMAIN: Final = b"cachemind/prompt/v1"

CHAIN_START: Final = tagged_hash(TURN_DOMAIN)
"""h_0: the chain over no turns."""

_PLAIN_FIELDS: Final = 2
_PLAIN_SHAPE: Final = b'{"role":"user"}'
_WHOLE_MESSAGE: Final = b"message"
_TEXT: Final = b"text"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKeys:
    """The keys of one request.

    `prompt` is the normalised last user turn, None where nothing may be compared
    by meaning. `parameters` is canonical JSON of the request's parameters.
    """

    context_key: ContextKey
    exact_key: ExactKey
    prompt: str | None
    parameters: str
    request: ChatRequest

    @property
    def request_hash(self) -> Sha256:
        """Return SHA-256 of the canonical request; worked out anew at each call.

        The canonical request is the body without stream and stream_options.
        """
        request = self.request
        body = {
            **request.parameters,
            "model": request.model,
            "messages": request.messages,
        }
        return Sha256(sha256(canonical(body)).digest())


def derive_keys(
    request: ChatRequest, namespace: Namespace, tenant: bytes, encoder_id: EncoderId
) -> RequestKeys:
    """Return the keys of `request` as `tenant` of `namespace` sees them.

    `tenant` tells callers apart who must never share answers (an HMAC of their
    credential); empty where the policy lets them share.
    Raises: `InvalidRequest` where the body is nested too deeply.
    """
    parameters = canonical(request.parameters)
    turn = request.messages[-1]
    texts = tuple(map(normalise, request.user_texts))
    context = tagged_hash(
        CONTEXT_DOMAIN,
        namespace.encode(),
        tenant,
        request.model.encode(),
        parameters,
        encoder_id.encode(),
        _chain(request),
        _shape(turn) if texts else _WHOLE_MESSAGE,
    )
    last = [text.encode() for text in texts] if texts else [canonical(turn)]
    return RequestKeys(
        context_key=ContextKey(context),
        exact_key=ExactKey(
            tagged_hash(EXACT_DOMAIN, context, _TEXT if texts else b"", *last)
        ),
        prompt="\n".join(texts) if request.last_user_text is not None else None,
        parameters=parameters.decode(),
        request=request,
    )


def prompt_text(request: ChatRequest) -> str:
    """Return the last turn exactly as it came: its text, else its canonical JSON."""
    text = request.last_user_text
    return canonical(request.messages[-1]).decode() if text is None else text


def prompt_hash(key: bytes, text: str) -> Sha256:
    """Return HMAC-SHA256 of `text` under the namespace's `key`.

    A bare hash of a short prompt could be guessed by hashing guesses.
    """
    return Sha256(hmac.digest(key, PROMPT_DOMAIN + b"\0" + text.encode(), "sha256"))


def _chain(request: ChatRequest) -> Sha256:
    link = CHAIN_START
    for message in request.messages[:-1]:
        link = tagged_hash(TURN_DOMAIN, link, canonical(message))
    return link


def _shape(turn: Mapping[str, object]) -> bytes:
    """Return the last user turn without its texts: names, part kinds, extra fields."""
    content = turn["content"]
    if isinstance(content, str):
        if len(turn) == _PLAIN_FIELDS:
            return _PLAIN_SHAPE
        return canonical({name: turn[name] for name in turn if name != "content"})
    if not isinstance(content, list):
        raise TypeError("a turn with texts has string or list content")
    return canonical({**turn, "content": [_textless(part) for part in content]})


def _textless(part: Mapping[str, object]) -> dict[str, object]:
    return {name: part[name] for name in part if name != "text"}
