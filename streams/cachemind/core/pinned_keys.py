"""What an auditor pins, as a JSON file: the log's name, root keys, witnesses.

{"log_id": .., "root": [{"key_id": .., "public_key_pem": ..}, ..],
 "witnesses": [{"name": .., "public_key_pem": ..}, ..]}
"""

from __future__ import annotations

from typing import Final

import orjson

from cachemind.core.audit_means import Pinned, RootKey, WitnessKey
from cachemind.core.public_keys import der_of_pem, key_id_of, pem_of
from cachemind.core.signed_note import check_note_name
from cachemind.errors import InvalidEvent, MalformedNote
from cachemind.receipts import LogId

_LOG_ID: Final = "log_id"
_ROOT: Final = "root"
_WITNESSES: Final = "witnesses"
_PEM: Final = "public_key_pem"


def pinned_text(pinned: Pinned) -> bytes:
    """Return the content of the file, for people to read and compare."""
    document = {
        _LOG_ID: pinned.log_id,
        _ROOT: [
            {"key_id": root.key_id, _PEM: pem_of(root.public_key)}
            for root in pinned.roots
        ],
        _WITNESSES: [
            {"name": witness.name, _PEM: pem_of(witness.public_key)}
            for witness in pinned.witnesses
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def pinned_in(content: bytes) -> Pinned:
    """Return what the content of the file pins.

    Raises: `InvalidEvent` naming the member that is missing, unknown or malformed.
    """
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent("pinned keys", "are not JSON") from error
    members = _members(document, "pinned keys", {_LOG_ID, _ROOT}, {_WITNESSES})
    roots = tuple(map(_root, _list(members, _ROOT)))
    if not roots:
        raise InvalidEvent(_ROOT, "must name a key at least")
    return Pinned(
        log_id=LogId(_note_name(members, _LOG_ID)),
        roots=roots,
        witnesses=tuple(map(_witness, _list(members, _WITNESSES))),
    )


def _root(found: object) -> RootKey:
    members = _members(found, _ROOT, {"key_id", _PEM}, set())
    public_key = der_of_pem(_text(members, _PEM))
    key_id = key_id_of(public_key)
    if members["key_id"] != key_id:
        # A key that was exchanged by hand: the id was written down elsewhere too.
        raise InvalidEvent("key_id", f"of the key in PEM is {key_id}, found another")
    return RootKey(key_id=key_id, public_key=public_key)


def _witness(found: object) -> WitnessKey:
    members = _members(found, _WITNESSES, {"name", _PEM}, set())
    return WitnessKey(
        name=_note_name(members, "name"), public_key=der_of_pem(_text(members, _PEM))
    )


def _members(
    found: object, where: str, needed: set[str], known: set[str]
) -> dict[str, object]:
    if not isinstance(found, dict):
        raise InvalidEvent(where, "must be a JSON object")
    if not needed <= found.keys() <= needed | known:
        raise InvalidEvent(where, "must have " + ", ".join(sorted(needed)))
    return found


def _list(members: dict[str, object], name: str) -> list[object]:
    found = members.get(name, [])
    if not isinstance(found, list):
        raise InvalidEvent(name, "must be a list")
    return found


def _text(members: dict[str, object], name: str) -> str:
    found = members[name]
    if not isinstance(found, str) or not found:
        raise InvalidEvent(name, "must be text")
    return found


def _note_name(members: dict[str, object], name: str) -> str:
    """Return what signs notes under this name; a note could not be made with others."""
    found = _text(members, name)
    try:
        check_note_name(found)
    except MalformedNote as error:
        raise InvalidEvent(name, error.problem) from error
    return found
