"""Bodies of chat completions in OpenAI's form, whole and as chunks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cachemind_services.demo.chat_sampling import Delta, Scored, Token

Body = dict[str, Any]


@dataclass(slots=True)
class Choice:
    """One answer, as far as it is. `tokens` counts all drawn ones."""

    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    finish: str | None = None

    def add(self, delta: Delta) -> None:
        """Take in one more piece."""
        self.text += delta.text
        self.tokens += delta.tokens
        self.finish = delta.finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What all bodies of one completion share. `created_s`: Unix seconds."""

    ident: str
    created_s: int
    model: str
    logprobs: bool

    def whole(self, choices: Sequence[Choice], prompt_tokens: int) -> Body:
        """Return the body of a JSON answer."""
        return {
            **self._head("chat.completion"),
            "choices": [self._choice(i, choice) for i, choice in enumerate(choices)],
            "usage": usage(choices, prompt_tokens),
        }

    def opening(self, index: int) -> Body:
        """Return the chunk that begins a choice with its role."""
        return self._chunk(index, {"role": "assistant", "content": ""}, [], None)

    def piece(self, index: int, delta: Delta) -> Body:
        """Return the chunk of a piece of text."""
        return self._chunk(index, {"content": delta.text}, delta.tokens, None)

    def closing(self, index: int, finish: str) -> Body:
        """Return the chunk that ends a choice."""
        return self._chunk(index, {}, [], finish)

    def final_usage(self, choices: Sequence[Choice], prompt_tokens: int) -> Body:
        """Return the chunk that `stream_options.include_usage` asks for."""
        return {
            **self._head("chat.completion.chunk"),
            "choices": [],
            "usage": usage(choices, prompt_tokens),
        }

    def _head(self, kind: str) -> Body:
        return {
            "id": self.ident,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": f"cachemind-demo-upstream-{self.model}",
        }

    def _choice(self, index: int, choice: Choice) -> Body:
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": choice.text,
                "refusal": None,
            },
            "logprobs": self._logprobs(choice.tokens),
            "finish_reason": choice.finish,
        }

    def _chunk(
        self, index: int, delta: Body, tokens: Sequence[Token], finish: str | None
    ) -> Body:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if tokens else None,
            "finish_reason": finish,
        }
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _logprobs(self, tokens: Sequence[Token]) -> Body | None:
        if not self.logprobs:
            return None
        content = [
            {**_scored(token.chosen), "top_logprobs": [_scored(s) for s in token.top]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}


def usage(choices: Sequence[Choice], prompt_tokens: int) -> Body:
    """Return the token counts."""
    made = sum(len(choice.tokens) for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": made,
        "total_tokens": prompt_tokens + made,
    }


def _scored(scored: Scored) -> Body:
    return {
        "token": scored.text.decode("utf-8", "replace"),
        "logprob": scored.logprob,
        "bytes": list(scored.text),
    }
