"""Word pieces: what the encoder reads, and where it cannot tell two texts apart."""

from __future__ import annotations

from typing import Final

from tokenizers import Tokenizer

from cachemind.adapters.encoder_files import EncoderFiles
from cachemind.errors import EmbeddingUnavailable

_CHARS_A_PIECE: Final = 64
"""Longest text tried, per piece of the window, so that a huge one costs nothing."""

_UNKNOWN: Final = "[UNK]"


class WordPieces:
    """The encoder's own tokenizer, without truncation and padding."""

    def __init__(self, files: EncoderFiles) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(files.tokenizer))
        except Exception as error:  # all that it raises
            raise EmbeddingUnavailable(f"tokenizer is not usable: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._window = files.window
        self._unknown = self._tokenizer.token_to_id(_UNKNOWN)
        self._marks = self._tokenizer.num_special_tokens_to_add(is_pair=False)

    def ids(self, text: str) -> list[int] | None:
        """Return the ids of `text`, begin and end marks included.

        None where a vector would not tell `text` from another one: it is past the
        window, has no word piece, or has characters outside of the vocabulary
        (every such word becomes the same piece), or is not well-formed Unicode.
        """
        if len(text) > _CHARS_A_PIECE * self._window or _has_surrogates(text):
            return None
        found: list[int] = self._tokenizer.encode(text).ids
        if not self._marks < len(found) <= self._window or self._unknown in found:
            return None
        return found


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
