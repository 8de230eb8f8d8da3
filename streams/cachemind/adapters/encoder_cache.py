"""Opens the encoder: the exported one from the cache folder, else the reference.

The export takes some ten seconds, once a machine; later starts import no torch.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cachemind.adapters.embedder_onnx import OnnxEmbedder
from cachemind.adapters.encoder_files import (
    EncoderFiles,
    bundled_encoder,
    installed_versions,
)
from cachemind.errors import EmbeddingUnavailable
from cachemind.ports import Embedder

EXPORT_TIMEOUT_S: Final = 600.0
_DIFFERS: Final = 3
"""`onnx_export.DIFFERS`; importing it here would import torch."""

_MODEL: Final = "model.onnx"
_SHA256: Final = "model.sha256"

_log = logging.getLogger(__name__)


def open_embedder(cache_dir: Path, *, threads: int = 1) -> Embedder:
    """Return the bundled encoder, under ONNX Runtime where that is the same.

    The first call on a machine exports and checks (some ten seconds); concurrent
    ones wait for it. Where that fails, says so in the log and returns the slower
    reference. Raises: `EmbeddingUnavailable` where that does not load either.
    """
    files = bundled_encoder()
    try:
        return OnnxEmbedder(files, exported_model(files, cache_dir), threads=threads)
    except (EmbeddingUnavailable, OSError) as error:
        _log.warning("encoder runs under torch, slower: %s", error)
    from cachemind.adapters.embedder_sentence_transformers import (
        SentenceTransformersEmbedder,
    )

    return SentenceTransformersEmbedder(files, threads=threads)


def exported_model(files: EncoderFiles, cache_dir: Path) -> Path:
    """Return the checked ONNX file of `files`, made now where there is none.

    Raises: `EmbeddingUnavailable` where the export fails or was refused, `OSError`
    where the cache folder cannot be used.
    """
    # Before the lock: in a container's image it is there, and nothing can be written.
    present = present_model(files, cache_dir)
    if present is not None:
        return present
    folder = _folder(files, cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        if (folder / "refused").exists():
            raise EmbeddingUnavailable(
                f"its export was refused before: see {folder / 'refused'}"
            )
        if not _is_whole(folder):
            _log.info("exporting the encoder to ONNX, once")
            _export(files, folder)
        return folder / _MODEL


def present_model(files: EncoderFiles, cache_dir: Path) -> Path | None:
    """Return the checked ONNX file of `files`, None where it is still to be made.

    Writes nothing. Raises: `OSError` where the cache folder cannot be read.
    """
    folder = _folder(files, cache_dir)
    return folder / _MODEL if _is_whole(folder) else None


def _folder(files: EncoderFiles, cache_dir: Path) -> Path:
    return cache_dir / "encoder" / _key(files)


def _key(files: EncoderFiles) -> str:
    """Return the cache key: the encoder, and whatever else could move its vectors."""
    versions = installed_versions("onnxruntime", "onnxscript", "torch", "transformers")
    return hashlib.sha256(f"{files.sha256},{versions}".encode()).hexdigest()[:32]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The kernel drops the lock when its holder dies, however it dies.
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _is_whole(folder: Path) -> bool:
    try:
        return (folder / _SHA256).read_text() == _digest(folder / _MODEL)
    except FileNotFoundError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _export(files: EncoderFiles, folder: Path) -> None:
    fresh = folder / "fresh.onnx"
    fresh.unlink(missing_ok=True)
    _run_export(files, fresh, folder / "refused")
    # The digest goes last: without it the model does not count.
    (folder / _SHA256).unlink(missing_ok=True)
    fresh.replace(folder / _MODEL)
    written = folder / f"{_SHA256}.fresh"
    written.write_text(_digest(folder / _MODEL))
    written.replace(folder / _SHA256)


def _run_export(files: EncoderFiles, target: Path, refused: Path) -> None:
    command = [
        sys.executable, "-m", "cachemind.adapters.onnx_export",
        str(files.folder), str(target),
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - our own module and our own paths
            command,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=EXPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EmbeddingUnavailable("its export took too long") from error
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines()
    problem = lines[-1] if lines else f"exit code {done.returncode}"
    if done.returncode == _DIFFERS:
        refused.write_text(f"{problem}\n")
    raise EmbeddingUnavailable(f"its export failed: {problem}")
