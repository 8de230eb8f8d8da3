"""Freezes the current schemas as released ones: `python -m ...release 0.2.0`.

Needs the `dev` extra, a checkout, and `CURRENT_VERSION` raised to the same version.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cachemind_schemas.compat import problems
from cachemind_schemas.loader import (
    CURRENT_VERSION,
    MANIFESTS_FOLDER,
    current,
    current_manifest,
    released,
    released_manifests,
)

DONE = 0
INCOMPATIBLE = 1
WRONG_USAGE = 2


def main(arguments: Sequence[str], folder: Path) -> int:
    """Write VERSION.avsc into `folder` and its `manifests`, unless one breaks."""
    if list(arguments) != [CURRENT_VERSION]:
        sys.stderr.write(f"usage: release VERSION, here {CURRENT_VERSION}\n")
        return WRONG_USAGE
    target = folder / f"{CURRENT_VERSION}.avsc"
    if target.exists():
        sys.stderr.write(f"{target.name} is released already and never changes\n")
        return WRONG_USAGE
    found = problems(current(), released())
    found += problems(current_manifest(), released_manifests())
    for line in found:
        sys.stderr.write(f"{line}\n")
    if found:
        return INCOMPATIBLE
    manifests = folder / MANIFESTS_FOLDER
    manifests.mkdir(exist_ok=True)
    (manifests / target.name).write_text(current_manifest().text + "\n", "utf-8")
    target.write_text(current().text + "\n", encoding="utf-8")
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parent / "released"))
