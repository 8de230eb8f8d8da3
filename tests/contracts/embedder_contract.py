"""What every `Embedder` promises. Subclass it and give a fixture `embedder`."""

from __future__ import annotations

import numpy as np
import pytest

from cachemind.ports import Embedder

FLOAT16_NORM_SLACK = 2e-3
TEXTS = (
    "What is the capital of France?",
    "a",
    "Überprüfe bitte die Größe.",
    "def f(x):\n    return x ** 2\t# squares",
)


def cosine(one: bytes | None, other: bytes | None) -> float:
    assert one is not None
    assert other is not None
    return float(_vector(one) @ _vector(other))


def _vector(embedded: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.frombuffer(embedded, dtype="<f2").astype(np.float64)


class EmbedderContract:
    """One test a promise of the port."""

    @pytest.mark.parametrize("text", TEXTS)
    def test_a_vector_has_two_bytes_a_dimension_and_unit_length(
        self, embedder: Embedder, text: str
    ) -> None:
        embedded = embedder.embed(text)
        assert embedded is not None
        assert len(embedded) == 2 * embedder.dimensions
        length = float(np.linalg.norm(_vector(embedded)))
        assert length == pytest.approx(1.0, abs=FLOAT16_NORM_SLACK)

    @pytest.mark.parametrize("text", TEXTS)
    def test_the_same_text_gets_the_same_bytes_whatever_came_between(
        self, embedder: Embedder, text: str
    ) -> None:
        before = embedder.embed(text)
        embedder.embed("something else, and longer than the text before it")
        assert embedder.embed(text) == before

    def test_different_texts_get_different_vectors(self, embedder: Embedder) -> None:
        assert len({embedder.embed(text) for text in TEXTS}) == len(TEXTS)

    def test_a_reworded_text_is_nearer_than_another_one(
        self, embedder: Embedder
    ) -> None:
        asked = embedder.embed("How do I reverse a list in Python?")
        reworded = embedder.embed("How can I reverse a list in Python?")
        other = embedder.embed("Which mushrooms grow under old oak trees?")
        assert cosine(asked, reworded) > 0.8 > cosine(asked, other)

    def test_past_the_window_there_is_no_vector(self, embedder: Embedder) -> None:
        assert embedder.embed(" ".join(["word"] * 254)) is not None
        assert embedder.embed(" ".join(["word"] * 257)) is None

    def test_a_huge_text_has_no_vector(self, embedder: Embedder) -> None:
        assert embedder.embed("word " * 1_000_000) is None

    @pytest.mark.parametrize("text", ["", " ", "\n\t"])
    def test_nothing_to_read_has_no_vector(self, embedder: Embedder, text: str) -> None:
        assert embedder.embed(text) is None

    def test_the_encoder_id_stays(self, embedder: Embedder) -> None:
        before = embedder.encoder_id
        embedder.embed("a text")
        assert embedder.encoder_id == before != ""
