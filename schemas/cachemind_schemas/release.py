"""Freezes the current schemas as released ones: `python -m ...release 0.2.0`.

Needs the `dev` extra, a checkout, and `CURRENT_VERSION` raised to the same version.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cachemind_schemas.compat import problems
from cachemind_schemas.loader import (
    AUDIT,
    AUDIT_FOLDER,
    CURRENT_VERSION,
    FAMILIES,
    Schema,
    current,
    current_audit,
    current_of,
    released,
    released_audit,
    released_of,
)

DONE = 0
INCOMPATIBLE = 1
WRONG_USAGE = 2


def main(arguments: Sequence[str], folder: Path) -> int:
    """Write VERSION.avsc into `folder` and those below it, unless one breaks."""
    if list(arguments) != [CURRENT_VERSION]:
        sys.stderr.write(f"usage: release VERSION, here {CURRENT_VERSION}\n")
        return WRONG_USAGE
    target = folder / f"{CURRENT_VERSION}.avsc"
    if target.exists():
        sys.stderr.write(f"{target.name} is released already and never changes\n")
        return WRONG_USAGE
    found = problems(current(), released())
    for family in FAMILIES:
        found += problems(current_of(family), released_of(family))
    for name in AUDIT:
        found += problems(current_audit(name), released_audit(name))
    for line in found:
        sys.stderr.write(f"{line}\n")
    if found:
        return INCOMPATIBLE
    for family in FAMILIES:
        freeze(folder / family, current_of(family))
    for name in AUDIT:
        freeze(folder / AUDIT_FOLDER / name, current_audit(name))
    freeze(folder, current())
    return DONE


def freeze(folder: Path, schema: Schema) -> None:
    """Write the schema as released into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{schema.version}.avsc").write_text(schema.text + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parent / "released"))
