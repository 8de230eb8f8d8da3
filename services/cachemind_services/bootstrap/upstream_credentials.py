"""The file of header fields that go to upstream for a namespace.

    [shop]
    authorization = "Bearer sk-..."

It holds secrets: only its owner may read it, and no error repeats a value.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cachemind.errors import InvalidEvent, InvalidSetting
from cachemind.types import Namespace, check_namespace
from cachemind_services.settings import PREFIX

HeaderFields = tuple[tuple[bytes, bytes], ...]
_VARIABLE: Final = f"{PREFIX}UPSTREAM_CREDENTIALS"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,8190}[\x21-\x7e])?")
_NOT_CREDENTIALS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "te",
        "traceparent",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Of the connection or the body, not of who asks."""

_OURS: Final = "x-cachemind-"


def read_upstream_credentials(path: Path | None) -> Mapping[Namespace, HeaderFields]:
    """Return the fields by namespace, names in lower case; nothing without a file.

    Raises: `InvalidSetting` naming file, namespace and field.
    """
    if path is None:
        return {}
    document = _document(path)
    return {
        _namespace(path, name): _fields(f"{path}: {name}", table)
        for name, table in document.items()
    }


def _document(path: Path) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _OTHERS:
                raise InvalidSetting(
                    _VARIABLE,
                    f"{path} is open to others than its owner: chmod 600 it",
                )
            return tomllib.load(file)
    except OSError as error:
        raise InvalidSetting(
            _VARIABLE, f"{path} cannot be read: {error.strerror}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Without its cause: that quotes the file.
        raise InvalidSetting(_VARIABLE, f"{path} is not TOML") from None


def _namespace(path: Path, name: str) -> Namespace:
    try:
        return check_namespace(name)
    except InvalidEvent as error:
        raise InvalidSetting(_VARIABLE, f"{path}: {name}: {error.problem}") from error


def _fields(where: str, table: object) -> HeaderFields:
    if not isinstance(table, dict) or not table:
        raise InvalidSetting(_VARIABLE, f"{where} must be a table of header fields")
    found: dict[str, bytes] = {}
    for name, value in table.items():
        field = name.lower()
        if not _NAME.fullmatch(field):
            raise InvalidSetting(_VARIABLE, f"{where}: a field's name is not a token")
        if field in _NOT_CREDENTIALS or field.startswith(_OURS):
            raise InvalidSetting(_VARIABLE, f"{where}: {field} is not a credential")
        if field in found:
            raise InvalidSetting(_VARIABLE, f"{where}: {field} is there twice")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise InvalidSetting(
                _VARIABLE, f"{where}: {field} must be printable ASCII in one line"
            )
        found[field] = value.encode("ascii")
    return tuple((field.encode(), value) for field, value in found.items())
