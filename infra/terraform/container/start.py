"""Begins a container: puts secrets that came as variables into files, then obeys.

usage: python start.py COMMAND ARGUMENT...

ECS hands secrets over as variables; the program reads files, which no child inherits
and no `ps` shows. PROMPT_SECRET goes to the file that CACHEMIND_SECRET_FILE names,
KEYS_JSON to keys.json in the folder that CACHEMIND_LOG_DIR names. Both variables are
gone when the command begins. The folder that PROMETHEUS_MULTIPROC_DIR names is made,
for whoever of a task comes first. A command that names no program is one of
`cachemind`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("cachemind", "cache-mind", "python")
"""What a command may begin with; anything else is a command of the first."""

PLACED: Final = {
    "PROMPT_SECRET": ("CACHEMIND_SECRET_FILE", ""),
    "KEYS_JSON": ("CACHEMIND_LOG_DIR", "keys.json"),
}
"""By variable: which other one says where it goes, and the file's name in there."""

METRICS: Final = "PROMETHEUS_MULTIPROC_DIR"
EXIT_USAGE: Final = 2


def command(arguments: Sequence[str]) -> list[str]:
    """Return what to run for the arguments of the container."""
    if arguments and arguments[0] in PROGRAMS:
        return list(arguments)
    return [PROGRAMS[0], *arguments]


def place(environ: Mapping[str, str]) -> dict[str, str]:
    """Write the secrets to their files, make folders; return the variables without.

    Raises: `SystemExit` where one has no place, `OSError`.
    """
    kept = {name: value for name, value in environ.items() if name not in PLACED}
    if kept.get(METRICS):
        Path(kept[METRICS]).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in PLACED.keys() & environ.keys():
        variable, inside = PLACED[name]
        if not environ.get(variable):
            sys.stderr.write(f"{name} is set, and {variable} does not say where to\n")
            raise SystemExit(EXIT_USAGE)
        _write(Path(environ[variable], inside), environ[name])
    return kept


def _write(path: Path, text: str) -> None:
    """Replace a file whole: the containers of one task write it at the same time."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> None:
    """Become the command: its signals and its exit code are the container's."""
    environ = place(os.environ)
    argv = command(arguments)
    os.execvpe(argv[0], argv, environ)  # noqa: S606 - no shell, on purpose


if __name__ == "__main__":
    main(sys.argv[1:])
