"""Run by wheel_check.py inside the clean environment, from an application's folder.

1. The application's own packages win, whatever CacheMind brought.
2. CacheMind is the installed one, not a source tree.
3. Every module of it imports with its declared dependencies only: a package that is
   not in the closure of `Requires-Dist` (without extras) cannot be imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGES: Final = ("cachemind", "cachemind_services", "cachemind_schemas")


def plain(name: str) -> str:
    """Return a distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    """Return the distributions that a plain install of the wheel brings.

    Extras that a dependency asks for are followed by name alone.
    """
    found: set[str] = set()
    ahead = ["cachemind"]
    while ahead:
        name = plain(ahead.pop())
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform
        found.add(name)
        own = name == "cachemind"
        wanted = [r for r in requires if not (own and re.search(r";.*extra", r))]
        ahead += [re.match(r"[\w.-]+", r)[0] for r in wanted]  # type: ignore[index]
    return found


class Undeclared:
    """A finder that refuses top-level packages of undeclared distributions."""

    def __init__(self) -> None:
        allowed = declared()
        self._refused = {
            module
            for module, owners in importlib.metadata.packages_distributions().items()
            if not allowed & {plain(owner) for owner in owners}
        }

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Refuse, or leave it to the finders after this one."""
        del path, target
        if fullname.partition(".")[0] in self._refused:
            raise ModuleNotFoundError(f"{fullname} is not a declared dependency")
        return None


def main(application: Sequence[str]) -> None:
    """Run the three checks."""
    sys.path.insert(0, str(Path.cwd()))
    sys.meta_path.insert(0, Undeclared())
    count = 0
    for package in PACKAGES:
        top = importlib.import_module(package)
        for found in pkgutil.walk_packages(top.__path__, f"{package}."):
            module = importlib.import_module(found.name)
            if not str(module.__file__).startswith(sys.prefix):
                raise SystemExit(f"{found.name} came from {module.__file__}")
            count += 1
    for name in application:
        if importlib.import_module(name).owner != f"application {name}":
            raise SystemExit(f"the application's {name} is hidden")
    sys.stdout.write(f"imported {count} modules with declared dependencies only\n")


if __name__ == "__main__":
    main(sys.argv[1:])
