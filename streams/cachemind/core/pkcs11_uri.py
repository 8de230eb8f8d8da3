"""Names of keys in an HSM: PKCS#11 URIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from cachemind.errors import InvalidSetting

SCHEME: Final = "pkcs11:"
_HERE: Final = "PKCS#11 URI"
_PATH: Final = frozenset(
    {"token", "manufacturer", "serial", "model", "object", "id", "type"}
)
_QUERY: Final = frozenset({"module-path", "pin-source"})
_FILE: Final = "file:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pkcs11Uri:
    """Which token and which object on it; `None` or empty says nothing of it.

    `module_path` is the library to talk to the token with, `pin_path` the file that
    holds its PIN.
    """

    token: str
    manufacturer: str
    serial: str
    model: str
    label: str
    object_id: bytes | None
    module_path: str
    pin_path: str


def parse_pkcs11_uri(uri: str) -> Pkcs11Uri:
    """Return what a URI says. Source: RFC 7512 section 2.3.

    Raises: `InvalidSetting`, which never quotes the URI: a PIN may be in it.
    """
    if not uri.startswith(SCHEME):
        raise InvalidSetting(_HERE, f"must begin with {SCHEME}")
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    inside = _attributes(path, ";", _PATH)
    behind = _attributes(query, "&", _QUERY)
    if not (inside.get("object") or inside.get("id")):
        raise InvalidSetting(_HERE, "must name the key by object=LABEL or id=%..")
    if not (inside.get("token") or inside.get("serial")):
        raise InvalidSetting(_HERE, "must name the token by token=LABEL or serial=..")
    return Pkcs11Uri(
        token=_text(inside, "token"),
        manufacturer=_text(inside, "manufacturer"),
        serial=_text(inside, "serial"),
        model=_text(inside, "model"),
        label=_text(inside, "object"),
        object_id=unquote_to_bytes(inside["id"]) if "id" in inside else None,
        module_path=_text(behind, "module-path"),
        pin_path=_file(_text(behind, "pin-source")),
    )


def _attributes(joined: str, separator: str, known: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in joined.split(separator) if joined else ():
        name, equals, value = part.partition("=")
        if name == "pin-value":
            # It would end up in shell histories, process lists and log files.
            raise InvalidSetting(_HERE, "must not hold a PIN: use pin-source=file:..")
        if not equals or name not in known:
            raise InvalidSetting(_HERE, "has an attribute other than " + _list(known))
        if name in found:
            raise InvalidSetting(_HERE, f"has {name} twice")
        found[name] = value
    return found


def _text(attributes: dict[str, str], name: str) -> str:
    try:
        return unquote(attributes.get(name, ""), errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidSetting(_HERE, f"{name} is not UTF-8") from error


def _file(source: str) -> str:
    if source.startswith("|"):
        raise InvalidSetting(_HERE, "pin-source must be a file, not a command")
    return source.removeprefix(_FILE).removeprefix("//")


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
