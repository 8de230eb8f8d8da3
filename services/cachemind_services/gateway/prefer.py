"""The `Prefer` field of a request: how long the caller wants to wait.

Source: RFC 7240 sections 4.1 and 4.3.
"""

from __future__ import annotations


def preferred_wait_s(
    prefer: bytes | None, default_s: float, most_s: float
) -> float | None:
    """Return for how long to wait; None where the caller does not say.

    `default_s` is for a `wait` without a number, and none is above `most_s`. A number
    that is none is passed over, as a preference is no condition.
    """
    if prefer is None:
        return None
    for preference in prefer.decode("latin-1").split(","):
        name, given, value = preference.partition(";")[0].strip().partition("=")
        name, value = name.strip().lower(), value.strip().strip('"')
        if name == "respond-async":
            return 0.0
        if name == "wait" and not given:
            return default_s
        if name == "wait" and value.isascii() and value.isdigit():
            return min(float(value[:9]), most_s)
    return None
