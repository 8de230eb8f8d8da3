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
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES: Final = ("cachemind", "cachemind_services", "cachemind_schemas")
OF_AN_EXTRA: Final = frozenset(
    {
        "cachemind_schemas.compat",
        "cachemind_schemas.release",
        *(
            f"cachemind.adapters.{name}"
            for name in (
                *("audit_bucket", "key_kms", "kms_calls", "wrap_kms"),
                *("key_pkcs11", "pkcs11_object", "wrap_pkcs11"),
            )
        ),
    }
)
"""Modules that need an extra: `dev`, `aws`, `pkcs11`. Nothing else imports them when
it is loaded itself."""


def declared() -> set[str]:
    """Return the distributions that a plain install of the wheel brings."""
    seen: set[tuple[str, str]] = set()
    ahead = [("cachemind", "")]
    while ahead:
        name, extra = ahead.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in importlib.metadata.requires(name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                ahead += [
                    (canonicalize_name(wanted.name), each)
                    for each in ("", *wanted.extras)
                ]
    return {name for name, _ in seen}


class DeclaredOnly:
    """Python's own path finder, blind to packages of undeclared distributions."""

    def __init__(self) -> None:
        allowed = declared()
        self._hidden = {
            module
            for module, owners in importlib.metadata.packages_distributions().items()
            if not allowed & {canonicalize_name(owner) for owner in owners}
        }

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return what the path finder finds, None for hidden packages."""
        if fullname.partition(".")[0] in self._hidden:
            return None
        return PathFinder.find_spec(fullname, path, target)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context
    ) -> Iterable[importlib.metadata.Distribution]:
        """Return the installed distributions."""
        return PathFinder.find_distributions(context)


def modules(package: str) -> list[str]:
    """Return the names of a package's modules, those of an extra left out."""
    top = importlib.import_module(package)
    found = [each.name for each in pkgutil.walk_packages(top.__path__, f"{package}.")]
    return [package, *(name for name in found if name not in OF_AN_EXTRA)]


def main(application: Sequence[str]) -> None:
    """Run the three checks."""
    sys.path.insert(0, str(Path.cwd()))
    blind = DeclaredOnly()
    sys.meta_path[:] = [
        blind if finder is PathFinder else finder for finder in sys.meta_path
    ]
    names = [found for package in PACKAGES for found in modules(package)]
    for name in names:
        module = importlib.import_module(name)
        if not str(module.__file__).startswith(sys.prefix):
            raise SystemExit(f"{name} came from {module.__file__}")
    for name in application:
        if importlib.import_module(name).owner != f"application {name}":
            raise SystemExit(f"the application's {name} is hidden")
    sys.stdout.write(f"imported {len(names)} modules with declared dependencies only\n")


if __name__ == "__main__":
    main(sys.argv[1:])
