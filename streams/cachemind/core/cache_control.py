"""What a request's headers ask of the cache, and how far policy lets them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachemind.core.policy import MS_PER_DAY, MS_PER_HOUR, MS_PER_S, Policy
from cachemind.errors import InvalidRequest

CACHE_CONTROL: Final = "cache-control"
THRESHOLD: Final = "x-cachemind-threshold"
TTL: Final = "x-cachemind-ttl"
MODE: Final = "x-cachemind-mode"

_PARSED: Final = frozenset(
    name.encode() for name in (CACHE_CONTROL, THRESHOLD, TTL, MODE)
)
_LARGEST_DELTA_S: Final = 2**31
_UNIT_MS: Final = {
    "": MS_PER_S,
    "s": MS_PER_S,
    "m": 60 * MS_PER_S,
    "h": MS_PER_HOUR,
    "d": MS_PER_DAY,
}
DURATION: Final = "must be whole seconds above 0, or a number with s, m, h or d"
_TTL: Final = re.compile(r"([0-9]{1,10})([smhd]?)", re.ASCII)
_COSINE: Final = re.compile(r"(?:0|1)?(?:\.[0-9]{1,17})?|1", re.ASCII)
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 (RFC 9110's word)
_DIRECTIVE: Final = re.compile(
    rf"[ \t]*(?:({_TOKEN})(?:=(?:({_TOKEN})|\"((?:[^\"\\]|\\.)*)\"))?)?[ \t]*(?:,|\Z)"
)


class Mode(StrEnum):
    """How much of the cache a request wants."""

    ON = "on"
    EXACT = "exact"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """A request's own wishes; the defaults wish for nothing.

    Units: `max_age_ms` and `ttl_ms` are durations in milliseconds.
    """

    no_store: bool = False
    no_cache: bool = False
    only_if_cached: bool = False
    max_age_ms: int | None = None
    threshold: float | None = None
    ttl_ms: int | None = None
    mode: Mode = Mode.ON


NO_CONTROLS: Final = Controls()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """What holds for one request after policy and controls.

    `bypass` means neither look up nor store. A hit older than `max_age_ms` is a
    miss. An entry lives at most `ttl_limit_ms`; `requested_ttl_ms` is the caller's
    own, already within it. `only_if_cached` means 504 in place of a miss.
    """

    bypass: bool
    lookup: bool
    semantic: bool
    store: bool
    only_if_cached: bool
    threshold: float
    max_age_ms: int | None
    requested_ttl_ms: int | None
    ttl_limit_ms: int


def parse_controls(headers: Iterable[tuple[bytes, bytes]]) -> Controls:
    """Return the controls in `headers`, whose names are lower-case.

    Unknown directives are ignored, as RFC 9111 section 5.2.3 asks.
    Raises: `InvalidRequest` naming the header that is malformed.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        if raw_name not in _PARSED:
            continue
        name = raw_name.decode("latin-1")
        if name in found and name != CACHE_CONTROL:
            raise InvalidRequest(name, "is given more than once")
        value = raw_value.decode("latin-1").strip(" \t")
        found[name] = f"{found[name]},{value}" if name in found else value
    return _controls(found) if found else NO_CONTROLS


def tighten(policy: Policy, controls: Controls) -> Effective:
    """Return what holds: a control may only ask for less than `policy` allows.

    A lower threshold or a longer ttl than the policy's is clamped to it.
    """
    bypass = not policy.enabled or controls.mode is Mode.OFF
    lookup = not bypass and not controls.no_cache
    ttl_ms = controls.ttl_ms
    return Effective(
        bypass=bypass,
        lookup=lookup,
        semantic=lookup and policy.semantic and controls.mode is Mode.ON,
        store=not bypass and not controls.no_store,
        only_if_cached=controls.only_if_cached,
        threshold=max(policy.threshold, controls.threshold or 0.0),
        max_age_ms=controls.max_age_ms,
        requested_ttl_ms=None if ttl_ms is None else min(ttl_ms, policy.max_ttl_ms),
        ttl_limit_ms=policy.max_ttl_ms,
    )


def _controls(found: Mapping[str, str]) -> Controls:
    directives = _directives(found.get(CACHE_CONTROL, ""))
    return Controls(
        no_store="no-store" in directives,
        no_cache="no-cache" in directives,
        only_if_cached="only-if-cached" in directives,
        max_age_ms=_max_age_ms(directives.get("max-age")),
        threshold=_threshold(found[THRESHOLD]) if THRESHOLD in found else None,
        ttl_ms=_ttl_ms(found[TTL]) if TTL in found else None,
        mode=_mode(found[MODE]) if MODE in found else Mode.ON,
    )


def _directives(value: str) -> dict[str, list[str]]:
    """Return each directive's arguments, "" where it has none, by lower-case name."""
    directives: dict[str, list[str]] = {}
    at = 0
    while at < len(value):
        match = _DIRECTIVE.match(value, at)
        if match is None:
            raise InvalidRequest(CACHE_CONTROL, f"is malformed at character {at}")
        name, token, quoted = match.groups()
        if name is not None:
            argument = token if token is not None else quoted or ""
            directives.setdefault(name.lower(), []).append(argument)
        at = match.end()
    return directives


def _max_age_ms(arguments: list[str] | None) -> int | None:
    if arguments is None:
        return None
    # The strictest of several counts; a cache may not serve more than asked for.
    for argument in arguments:
        if not (argument.isascii() and argument.isdigit()):
            raise InvalidRequest(CACHE_CONTROL, "max-age must be whole seconds")
    # Ten digits are past RFC 9111's largest delta already.
    seconds = min(int(argument[-11:]) for argument in arguments)
    return min(seconds, _LARGEST_DELTA_S) * MS_PER_S


def _threshold(value: str) -> float:
    if not value or _COSINE.fullmatch(value) is None or not 0 < float(value) <= 1:
        raise InvalidRequest(THRESHOLD, "must be a number above 0 and at most 1")
    return float(value)


def _ttl_ms(value: str) -> int:
    found = duration_ms(value)
    if found is None:
        raise InvalidRequest(TTL, DURATION)
    return found


def duration_ms(text: str) -> int | None:
    """Return a duration written `90`, `90s`, `10m`, `12h` or `7d`; None for another.

    Units: milliseconds, above 0; a number alone is seconds.
    """
    match = _TTL.fullmatch(text)
    if match is None or int(match[1]) == 0:
        return None
    return int(match[1]) * _UNIT_MS[match[2]]


def _mode(value: str) -> Mode:
    if value.lower() not in list(Mode):
        raise InvalidRequest(MODE, "must be on, exact or off")
    return Mode(value.lower())
