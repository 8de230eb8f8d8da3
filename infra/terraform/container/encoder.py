"""Brings the encoder to where the program looks for it: its ONNX file, made once.

usage: python encoder.py [--check]

Run while an image is built. With --check nothing is made; it fails where the program
would have to make the file, and loads it as the program does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from cachemind.adapters.embedder_onnx import OnnxEmbedder
from cachemind.adapters.encoder_cache import exported_model, present_model
from cachemind.adapters.encoder_files import bundled_encoder
from cachemind_services.broker.distribution import default_cache_dir

CHECK: Final = "--check"


def main(arguments: Sequence[str]) -> int:
    """Make the file, or only look; return 0 where the program starts with it."""
    files, cache_dir = bundled_encoder(), default_cache_dir()
    if CHECK not in arguments:
        sys.stdout.write(f"{exported_model(files, cache_dir)}\n")
        return 0
    model = present_model(files, cache_dir)
    if model is None:
        sys.stderr.write("the encoder has no ONNX file here: it would be made\n")
        return 1
    OnnxEmbedder(files, model)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
