"""Why a broker died, read from what it left in its logs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final


class Cause(Enum):
    """Causes that a user can do something about."""

    PORT_TAKEN = "port taken"
    NO_SPACE = "no space left on the device"
    OUT_OF_MEMORY = "out of memory"
    WRONG_CLUSTER = "wrong cluster id"
    UNKNOWN = "unknown"


_MARKS: Final = (
    (Cause.NO_SPACE, "No space left on device"),
    (Cause.PORT_TAKEN, "Address already in use"),
    (Cause.WRONG_CLUSTER, "InconsistentClusterId"),
    (Cause.WRONG_CLUSTER, "Invalid cluster.id"),
    (Cause.OUT_OF_MEMORY, "OutOfMemoryError"),
)
_BIND_FAILED: Final = re.compile(r"failed to bind to \S+?:(\d+)")
_SERIOUS: Final = re.compile(r"\b(ERROR|FATAL)\b|Exception|Error:|Unrecognized")
_LINES: Final = 4


def cause_of_death(lines: Sequence[str]) -> Cause:
    """Return the first known cause that the log lines mention."""
    text = "\n".join(lines)
    return next((cause for cause, mark in _MARKS if mark in text), Cause.UNKNOWN)


def taken_port(lines: Sequence[str]) -> int | None:
    """Return the port that the broker could not listen on, if it says so."""
    found = _BIND_FAILED.search("\n".join(lines))
    return int(found.group(1)) if found else None


def last_words(lines: Sequence[str]) -> str:
    """Return the last telling lines, or the very last line."""
    telling = [line for line in lines if _SERIOUS.search(line)] or lines[-1:]
    return " | ".join(line.strip() for line in telling[-_LINES:] if line.strip())
