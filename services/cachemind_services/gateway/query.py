"""The query string of our own API: known names only, each at most once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from cachemind.errors import InvalidRequest
from cachemind_services.gateway.http_io import Scope

_LONGEST: Final = 2048
_MOST: Final = 2**62
_TRUE: Final = frozenset({"", "1", "true", "yes"})
_FALSE: Final = frozenset({"0", "false", "no"})


class Query:
    """The parameters of one request. Every method names the field it refuses."""

    def __init__(self, scope: Scope, known: frozenset[str]) -> None:
        """Parse. Raises: `InvalidRequest` for an unknown name or one given twice."""
        raw: bytes = scope.get("query_string", b"")
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, errors="strict"
            )
        except ValueError as error:
            raise InvalidRequest("query", "is not valid UTF-8") from error
        self._found: dict[str, str] = {}
        for name, value in pairs:
            if name not in known:
                takes = ", ".join(sorted(known))
                raise InvalidRequest(name[:64], f"is not known here, which are {takes}")
            if name in self._found:
                raise InvalidRequest(name, "is given twice")
            if len(value) > _LONGEST:
                raise InvalidRequest(name, f"is longer than {_LONGEST} characters")
            self._found[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def given(self) -> Mapping[str, str]:
        """Return what was given, by name."""
        return self._found

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        return self._found.get(name, default)

    def flag(self, name: str) -> bool:
        """Return whether a flag is given and not off."""
        value = self._found.get(name)
        if value is None or value.lower() in _FALSE:
            return False
        if value.lower() in _TRUE:
            return True
        raise InvalidRequest(name, "must be 1 or 0")

    def whole(self, name: str, least: int = 0, most: int = _MOST) -> int | None:
        """Return a whole number in [least, most], None where it is not given."""
        raw = self._found.get(name)
        if raw is None:
            return None
        if not (raw.isascii() and raw.isdigit() and len(raw) < 20):
            raise InvalidRequest(name, "must be a whole number")
        value = int(raw)
        if not least <= value <= most:
            raise InvalidRequest(name, f"must be from {least} to {most}")
        return value

    def required(self, name: str) -> int:
        """Return a whole number that must be given."""
        value = self.whole(name)
        if value is None:
            raise InvalidRequest(name, "must be given")
        return value
