from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from cachemind.adapters.embedder_onnx import OnnxEmbedder
from cachemind.adapters.encoder_cache import exported_model, open_embedder
from cachemind.adapters.encoder_files import (
    EncoderFiles,
    bundled_encoder,
    encoder_files,
)
from cachemind.adapters.memory_embedder import MemoryEmbedder
from cachemind.errors import EmbeddingUnavailable
from cachemind.ports import Embedder
from tests.contracts.embedder_contract import EmbedderContract, cosine

THRESHOLD = 0.92


@pytest.fixture(scope="session")
def encoder_cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoder-cache")


@pytest.fixture(scope="session")
def onnx_embedder(encoder_cache_dir: Path) -> Embedder:
    embedder = open_embedder(encoder_cache_dir)
    assert isinstance(embedder, OnnxEmbedder)
    return embedder


@pytest.fixture(scope="session")
def torch_embedder() -> Embedder:
    from cachemind.adapters.embedder_sentence_transformers import (
        SentenceTransformersEmbedder,
    )

    return SentenceTransformersEmbedder(bundled_encoder())


class TestMemoryEmbedder(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return MemoryEmbedder()


class RealEncoder(EmbedderContract):
    @pytest.mark.parametrize(
        "reworded",
        ["Why does the sky look blue?", "What makes the sky blue?"],
    )
    def test_canary_a_paraphrase_is_above_the_threshold(
        self, embedder: Embedder, reworded: str
    ) -> None:
        asked = embedder.embed("Why is the sky blue?")
        assert cosine(asked, embedder.embed(reworded)) >= THRESHOLD

    @pytest.mark.parametrize(
        "other",
        ["Why is the sea blue?", "Why is the sky dark at night?", "What is a sky?"],
    )
    def test_canary_a_neighbour_is_below_the_threshold(
        self, embedder: Embedder, other: str
    ) -> None:
        asked = embedder.embed("Why is the sky blue?")
        assert cosine(asked, embedder.embed(other)) < THRESHOLD

    def test_the_window_ends_at_256_word_pieces_with_both_marks(
        self, embedder: Embedder
    ) -> None:
        assert embedder.embed(" ".join(["word"] * 254)) is not None
        assert embedder.embed(" ".join(["word"] * 255)) is None
        # Two pieces a word: pieces count, not words.
        assert embedder.embed(" ".join(["unfolds"] * 128)) is None

    @pytest.mark.parametrize("text", ["I am \U0001f600", "x" * 101, "\ud800"])
    def test_what_the_vocabulary_cannot_tell_apart_has_no_vector(
        self, embedder: Embedder, text: str
    ) -> None:
        assert embedder.embed(text) is None


@pytest.mark.model
class TestOnnxEmbedder(RealEncoder):
    @pytest.fixture
    def embedder(self, onnx_embedder: Embedder) -> Embedder:
        return onnx_embedder


@pytest.mark.model
class TestSentenceTransformersEmbedder(RealEncoder):
    @pytest.fixture
    def embedder(self, torch_embedder: Embedder) -> Embedder:
        return torch_embedder


@pytest.mark.model
@pytest.mark.parametrize(
    "text",
    [
        "How do I convert 12.5 km/h to m/s?",
        "Wie spät ist es in Zürich?",
        " ".join(["unfold"] * 100),
    ],
)
def test_both_implementations_give_the_same_vectors_under_the_same_id(
    onnx_embedder: Embedder, torch_embedder: Embedder, text: str
) -> None:
    one, other = onnx_embedder.embed(text), torch_embedder.embed(text)
    assert cosine(one, other) >= 0.999  # float16 lengths are not exactly one
    assert one is not None
    assert other is not None
    steps = np.frombuffer(one, "<f2") - np.frombuffer(other, "<f2")
    assert np.abs(steps).max() <= 2.0**-12
    assert onnx_embedder.encoder_id == torch_embedder.encoder_id


@pytest.mark.model
def test_a_warm_open_imports_no_torch(encoder_cache_dir: Path) -> None:
    open_embedder(encoder_cache_dir)
    script = (
        "import sys, pathlib\n"
        "from cachemind.adapters.encoder_cache import open_embedder\n"
        "print(type(open_embedder(pathlib.Path(sys.argv[1]))).__name__)\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'transformers' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(encoder_cache_dir)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "OnnxEmbedder\n"), done.stderr


@pytest.mark.model
def test_a_damaged_export_is_made_again(encoder_cache_dir: Path) -> None:
    files = bundled_encoder()
    model = exported_model(files, encoder_cache_dir)
    whole = model.read_bytes()
    model.write_bytes(whole[:-4096] + bytes(4096))
    again = exported_model(files, encoder_cache_dir)
    assert not again.read_bytes().endswith(bytes(4096))
    assert OnnxEmbedder(files, again).encoder_id == files.encoder_id


# ---- the folder --------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A copy of the encoder's folder whose weights are a few bytes."""
    folder = tmp_path / "encoder"
    original = bundled_encoder().folder
    shutil.copytree(
        original, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.md")
    )
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.safetensors", b"other weights"),
        ("tokenizer.json", b"{}"),
        ("config.json", b"{}"),
        ("sentence_bert_config.json", b'{"max_seq_length": 128}'),
    ],
)
def test_the_encoder_id_changes_with_all_that_vectors_depend_on(
    small: Path, name: str, change: bytes
) -> None:
    before = encoder_files(small).encoder_id
    (small / name).write_bytes(change)
    assert encoder_files(small).encoder_id != before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "1_Pooling/config.json",
            {"pooling_mode_cls_token": True, "word_embedding_dimension": 384},
        ),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True}),
        ("modules.json", [{"type": "sentence_transformers.models.Transformer"}]),
        ("sentence_bert_config.json", {}),
    ],
)
def test_a_folder_with_other_pooling_or_parts_missing_is_refused(
    small: Path, name: str, content: object
) -> None:
    (small / name).write_text(json.dumps(content))
    with pytest.raises(EmbeddingUnavailable):
        encoder_files(small)


def test_a_folder_without_weights_is_refused(small: Path) -> None:
    (small / "model.safetensors").unlink()
    with pytest.raises(EmbeddingUnavailable):
        encoder_files(small)


# ---- export: refusal, fall-back, lock -----------------------------------------------


@pytest.fixture
def files(small: Path) -> EncoderFiles:
    return encoder_files(small)


@pytest.fixture
def exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An exporter with behaviour: a script that logs its runs and does as told."""
    script, runs = tmp_path / "exporter", tmp_path / "runs"
    runs.write_text("")
    monkeypatch.setattr(sys, "executable", str(script))
    return script, runs


def _write(script: Path, runs: Path, *, then: str) -> None:
    script.write_text(f'#!/bin/sh\necho run >> "{runs}"\n{then}\n')
    script.chmod(0o755)


MAKE = 'printf model > "$4"'


def test_an_export_is_made_once_and_kept(
    files: EncoderFiles, exporter: tuple[Path, Path], tmp_path: Path
) -> None:
    script, runs = exporter
    _write(script, runs, then=MAKE)
    models = {exported_model(files, tmp_path / "cache") for _ in range(3)}
    assert [model.read_bytes() for model in models] == [b"model"]
    assert runs.read_text() == "run\n"


def test_concurrent_openers_export_once(
    files: EncoderFiles, exporter: tuple[Path, Path], tmp_path: Path
) -> None:
    script, runs = exporter
    _write(script, runs, then=f"sleep 0.2; {MAKE}")
    threads = [
        threading.Thread(target=exported_model, args=(files, tmp_path / "cache"))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert runs.read_text() == "run\n"


def test_other_vectors_are_refused_and_not_tried_again(
    files: EncoderFiles, exporter: tuple[Path, Path], tmp_path: Path
) -> None:
    script, runs = exporter
    _write(script, runs, then=f"{MAKE}; echo 'cosine 0.9' >&2; exit 3")
    for _ in range(2):
        with pytest.raises(EmbeddingUnavailable):
            exported_model(files, tmp_path / "cache")
    assert runs.read_text() == "run\n"
    assert not list((tmp_path / "cache").rglob("model.onnx"))


def test_a_broken_export_is_tried_again(
    files: EncoderFiles, exporter: tuple[Path, Path], tmp_path: Path
) -> None:
    script, runs = exporter
    _write(script, runs, then="exit 1")
    with pytest.raises(EmbeddingUnavailable):
        exported_model(files, tmp_path / "cache")
    _write(script, runs, then=MAKE)
    assert exported_model(files, tmp_path / "cache").read_bytes() == b"model"


def test_an_export_in_a_folder_that_cannot_be_written_is_used(
    files: EncoderFiles, exporter: tuple[Path, Path], tmp_path: Path
) -> None:
    script, runs = exporter
    _write(script, runs, then=MAKE)
    model = exported_model(files, tmp_path / "cache")
    # Root may write anywhere but to a file that is a folder.
    (model.parent / "lock").unlink()
    (model.parent / "lock").mkdir()
    assert exported_model(files, tmp_path / "cache") == model
    assert runs.read_text() == "run\n"


@pytest.mark.model
def test_without_an_export_the_reference_serves_and_the_log_says_so(
    exporter: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script, runs = exporter
    _write(script, runs, then="echo 'no room' >&2; exit 1")
    with caplog.at_level(logging.WARNING):
        embedder = open_embedder(tmp_path / "cache")
    assert type(embedder).__name__ == "SentenceTransformersEmbedder"
    assert "no room" in caplog.text


@pytest.mark.model
def test_the_check_refuses_a_model_with_other_vectors() -> None:
    from cachemind.adapters import onnx_export

    with pytest.raises(onnx_export.VectorsDiffer):
        onnx_export.check(_Mirrored(), MemoryEmbedder())
    onnx_export.check(MemoryEmbedder(), MemoryEmbedder())


class _Mirrored(MemoryEmbedder):
    """Gives the vector of the reversed text."""

    def embed(self, text: str) -> bytes | None:
        return super().embed(text[::-1])


def test_the_runtime_writes_nothing_about_the_machine(tmp_path: Path) -> None:
    code = (
        "from cachemind.adapters.embedder_onnx import OnnxEmbedder\n"
        "from cachemind.adapters.encoder_cache import exported_model\n"
        "from cachemind.adapters.encoder_files import bundled_encoder\n"
        "from cachemind_services.broker.distribution import default_cache_dir\n"
        "import os, sys\n"
        "files = bundled_encoder()\n"
        "model = exported_model(files, default_cache_dir())\n"
        f"os.environ['HOME'] = {str(tmp_path)!r}\n"
        "os.environ.pop('XDG_CACHE_HOME', None)\n"
        "assert 'onnxruntime' not in sys.modules\n"
        "OnnxEmbedder(files, model)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(tmp_path.rglob("*")) == []
