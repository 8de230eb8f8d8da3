"""SmolLM2-135M-Instruct on the CPU. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.utils import logging as transformers_logging

from cachemind_services.demo.chat_sampling import Sampling, Scored, Token
from cachemind_services.demo.chat_weights import ModelUnavailable


class ChatModel:
    """One model; one generation at a time, from one thread at a time."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        torch.set_num_threads(threads)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # theirs
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True
            )
            self._model: Any = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=torch.float32, local_files_only=True
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelUnavailable(f"model does not load: {error}") from error
        self._model.train(mode=False)
        self._ends = self._end_tokens()

    def _end_tokens(self) -> frozenset[int]:
        named = self._model.generation_config.eos_token_id
        ends = named if isinstance(named, list) else [named]
        return frozenset([*ends, *self._tokenizer.all_special_ids])

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation under the model's chat template."""
        text = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=False
        )
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def generate(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Token]:
        """Yield tokens until the model ends its turn; the caller ends it earlier."""
        draw = torch.Generator()
        if sampling.seed is None:
            draw.seed()
        else:
            draw.manual_seed(sampling.seed)
        ahead, past = torch.tensor([list(prompt)]), None
        while True:
            # Not around the loop: inference mode is a thread's, and a generator
            # may go on in another one.
            with torch.inference_mode():
                out = self._model(ahead, past_key_values=past, use_cache=True)
                logits = out.logits[0, -1]
                drawn = _draw(logits, sampling, draw)
                token = self._token(logits, drawn, sampling.top_logprobs)
            if drawn in self._ends:
                return
            yield token
            ahead, past = torch.tensor([[drawn]]), out.past_key_values

    def _token(self, logits: torch.Tensor, drawn: int, alternatives: int) -> Token:
        scores = torch.log_softmax(logits, dim=-1)
        best = torch.topk(scores, alternatives)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Token(
            Scored(self._bytes(drawn), float(scores[drawn])),
            tuple(Scored(self._bytes(index), value) for index, value in pairs),
        )

    def _bytes(self, index: int) -> bytes:
        written: str = self._tokenizer.convert_ids_to_tokens(index)
        if index in self._ends:
            return written.encode()
        return bytes(_byte_of()[character] for character in written)


def _draw(logits: torch.Tensor, sampling: Sampling, draw: torch.Generator) -> int:
    if sampling.temperature == 0.0:
        return int(logits.argmax())
    chances = torch.softmax(logits / sampling.temperature, dim=-1)
    ordered, order = torch.sort(chances, descending=True)
    # Nucleus: a token stays where those before it are short of top_p.
    before = torch.cumsum(ordered, dim=-1) - ordered
    ordered[before >= sampling.top_p] = 0.0
    return int(order[torch.multinomial(ordered, 1, generator=draw)])


@cache
def _byte_of() -> dict[str, int]:
    """Return the inverse of the printable alphabet of byte-level BPE."""
    printable = bytes_to_unicode()  # type: ignore[no-untyped-call] # theirs
    return {character: byte for byte, character in printable.items()}
