"""The encoder under sentence-transformers and torch: the reference.

Importing this module imports torch (seconds, hundreds of MB).
"""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

from cachemind.adapters.encoder_files import EncoderFiles
from cachemind.adapters.word_pieces import WordPieces
from cachemind.errors import EmbeddingUnavailable
from cachemind.types import EncoderId


class SentenceTransformersEmbedder:
    """`Embedder` on sentence-transformers, on the CPU.

    `threads` is torch's and so the whole process's.
    """

    def __init__(self, files: EncoderFiles, *, threads: int = 1) -> None:
        self._files = files
        self._pieces = WordPieces(files)
        torch.set_num_threads(threads)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # theirs
        try:
            self._model = SentenceTransformer(
                str(files.folder), device="cpu", local_files_only=True
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise EmbeddingUnavailable(f"encoder does not load: {error}") from error
        self._model.max_seq_length = files.window

    @property
    def encoder_id(self) -> EncoderId:
        """Return a name that changes whenever the vectors do."""
        return self._files.encoder_id

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        return self._files.dimensions

    def embed(self, text: str) -> bytes | None:
        """Return the normalised float16 little-endian vector; see `Embedder`."""
        if self._pieces.ids(text) is None:
            return None
        try:
            vector = self._model.encode(
                [text], normalize_embeddings=True, show_progress_bar=False
            )[0]
        except RuntimeError as error:
            raise EmbeddingUnavailable("torch failed on a text") from error
        return bytes(vector.astype("<f2").tobytes())
