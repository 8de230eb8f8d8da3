"""Export the encoder to ONNX, and refuse the file unless its vectors are the same.

Run as a process of its own (`python -m cachemind.adapters.onnx_export FOLDER TARGET`),
so that whoever needs the file never imports torch. Exits 0 when TARGET was made and
checked, 3 when its vectors differ, 2 on wrong usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from transformers import AutoModel

from cachemind.adapters.embedder_onnx import INPUTS, OUTPUT, OnnxEmbedder
from cachemind.adapters.embedder_sentence_transformers import (
    SentenceTransformersEmbedder,
)
from cachemind.adapters.encoder_files import EncoderFiles, encoder_files
from cachemind.errors import EmbeddingUnavailable
from cachemind.ports import Embedder

DIFFERS: Final = 3
"""Exit code for an export that was refused; an uncaught error exits 1."""

LEAST_COSINE: Final = 0.99999
MOST_STEP: Final = 2.0**-12
"""Largest difference of one float16 value: two steps of a value near 0.2."""

PROBES: Final = (
    "a",
    "What is the capital of France?",
    "WHAT IS THE CAPITAL OF FRANCE?!",
    "How do I reverse a list in Python?",
    "def f(x):\n    return [y ** 2 for y in x if y % 3 == 0]",
    "Überprüfe bitte die Größe des Kindle-Geräts vom 3. März 2024.",
    "¿Cuánto cuesta el billete de Málaga a Sevilla?",
    "Convert 12.75 km/h into m/s; round to 3 digits.",
    "The patient must not take more than 4 tablets in 24 hours.",
    '{"role": "user", "content": [1, 2, 3]}',
    " ".join(["Every replica folds the same log and reaches the same state."] * 8),
    " ".join(["word"] * 254),
)


class VectorsDiffer(EmbeddingUnavailable):
    """The exported model does not give the reference's vectors."""

    def __init__(self, cosine: float, step: float) -> None:
        super().__init__(
            f"exported encoder differs: cosine {cosine:.7f} (at least {LEAST_COSINE}), "
            f"largest step {step:.2e} (at most {MOST_STEP:.2e})"
        )
        self.cosine = cosine
        self.step = step


class _Encoder(torch.nn.Module):
    """Network, mean pooling and unit length as one module."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.network = AutoModel.from_pretrained(str(folder), local_files_only=True)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        hidden = self.network(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, p=2.0, dim=1)


def export(files: EncoderFiles, target: Path) -> None:
    """Write the encoder to `target` as one ONNX file."""
    # Two tensors: one passed twice would be exported as a single input.
    example = (
        torch.ones(1, 8, dtype=torch.long),
        torch.ones(1, 8, dtype=torch.long),
    )
    length = torch.export.Dim("pieces", min=2, max=files.window)
    program = torch.onnx.export(
        _Encoder(files.folder).eval(),
        example,
        input_names=INPUTS,
        output_names=[OUTPUT],
        dynamic_shapes={name: {1: length} for name in INPUTS},
        dynamo=True,
        external_data=False,
    )
    if program is None:
        raise EmbeddingUnavailable("the ONNX exporter gave no model")
    program.save(target)


def check(found: Embedder, reference: Embedder) -> None:
    """Compare the two on the probes. Raises: `VectorsDiffer`."""
    cosines, steps = [], []
    for probe in PROBES:
        one, other = _vector(found, probe), _vector(reference, probe)
        length = np.linalg.norm(one) * np.linalg.norm(other)
        cosines.append(float(one @ other / length))
        steps.append(float(np.abs(one - other).max()))
    if not (min(cosines) >= LEAST_COSINE and max(steps) <= MOST_STEP):
        raise VectorsDiffer(min(cosines), max(steps))


def _vector(
    embedder: Embedder, text: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    embedded = embedder.embed(text)
    if embedded is None:
        raise EmbeddingUnavailable("a probe has no vector")
    return np.frombuffer(embedded, dtype="<f2").astype(np.float64)


def main(argv: Sequence[str]) -> int:
    """Export and check; see the module."""
    if len(argv) != 2:
        sys.stderr.write("usage: onnx_export FOLDER TARGET\n")
        return 2
    files, target = encoder_files(Path(argv[0])), Path(argv[1])
    export(files, target)
    try:
        check(OnnxEmbedder(files, target), SentenceTransformersEmbedder(files))
    except VectorsDiffer as error:
        sys.stderr.write(f"{error}\n")
        return DIFFERS
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
