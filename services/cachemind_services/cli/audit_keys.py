"""`cachemind audit keys`: make, show, exchange and take back the keys that sign."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from cachemind.receipts import KeyRole
from cachemind_services.cli.options import AUDIT, add_action, settings_from

_ROLES: Final = (KeyRole.RECEIPT.value, KeyRole.LOG.value)
_action: Final = partial(add_action, flags=AUDIT)
_HEADS: Final = ("ROLE", "KEY", "STATE", "ADDED", "RETIRED", "GOOD TO", "HELD")


def add_to(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    keys = actions.add_parser("keys", help="make, show, exchange, take back keys")
    which = keys.add_subparsers(dest="key_action", metavar="ACTION", required=True)
    init = _action(which, "init", "make keys, tell the log, write keys.json", run_init)
    init.add_argument("--log-id", default="", help="name of the log in its checkpoints")
    _action(which, "list", "show every key and from where to where it counts", run_list)
    rotate = _action(which, "rotate", "sign with a new key from now on", run_rotate)
    rotate.add_argument("--role", choices=_ROLES, default=_ROLES[0])
    rotate.add_argument(
        "--key",
        default="",
        metavar="URI",
        help="the new key, which the signer's settings name already; default one made "
        "in the folder",
    )
    retire = _action(which, "retire", "end a key's time in good order", run_retire)
    retire.add_argument("key_id", metavar="KEY")
    revoke = _action(which, "revoke", "take back a key that was stolen", run_revoke)
    revoke.add_argument("key_id", metavar="KEY")
    revoke.add_argument(
        "--last-good-cut",
        type=_cut,
        required=True,
        metavar="INDEX",
        help="what it signed beyond this cut counts for nothing; -1: all of it",
    )
    for action in (rotate, retire, revoke):
        action.add_argument("--reason", default="", help="is kept on the log")


def run_init(arguments: argparse.Namespace) -> int:
    """Make what is missing; print the log's name and what an auditor has to pin."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.audit_keys import ensure_keys
    from cachemind_services.bootstrap.pinned import pinned_path

    settings = settings_from(arguments)
    pinned = ensure_keys(settings, arguments.log_id)
    roots = [root.key_id for root in pinned.roots]
    path = str(pinned_path(settings))
    if arguments.json:
        print(json.dumps({"log_id": pinned.log_id, "root": roots, "pinned": path}))
    else:
        print(f"log {pinned.log_id}, root key {', '.join(roots)}")
        print(f"give {path} to the auditor; keep the root key elsewhere")
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print every key, the root keys first."""
    from cachemind_services.bootstrap.audit_keys import known_keys

    found = [asdict(key) for key in known_keys(settings_from(arguments))]
    _print(arguments, found)
    return 0


def run_rotate(arguments: argparse.Namespace) -> int:
    """Add a new key and retire the others of its role."""
    from cachemind_services.bootstrap.audit_keys import rotate_key

    settings = settings_from(arguments)
    role = KeyRole(arguments.role)
    found = rotate_key(settings, role, arguments.key, arguments.reason)
    _print(arguments, [asdict(found)])
    return 0


def run_retire(arguments: argparse.Namespace) -> int:
    """Retire one key."""
    from cachemind_services.bootstrap.audit_keys import retire_key

    settings = settings_from(arguments)
    _done(
        arguments, retire_key(settings, arguments.key_id, arguments.reason), "retired"
    )
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke one key."""
    from cachemind_services.bootstrap.audit_keys import revoke_key

    key_id = revoke_key(
        settings_from(arguments),
        arguments.key_id,
        arguments.last_good_cut,
        arguments.reason,
    )
    _done(arguments, key_id, "revoked")
    return 0


def _cut(text: str) -> int:
    try:
        index = int(text)
    except ValueError:
        index = -2
    if index < -1:
        raise argparse.ArgumentTypeError("must be the index of a cut, or -1")
    return index


def _print(arguments: argparse.Namespace, keys: Sequence[Mapping[str, Any]]) -> None:
    if arguments.json:
        print(json.dumps(keys))
        return
    rows = [_HEADS, *(_row(key) for key in keys)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _row(key: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (key["added"], key["retired"], key["last_good_cut"])
    shown = ("-" if number is None else str(number) for number in numbers)
    held = "yes" if key["held"] else "no"
    return (key["role"], key["key_id"], key["state"], *shown, held)


def _done(arguments: argparse.Namespace, key_id: str, state: str) -> None:
    if arguments.json:
        print(json.dumps({"key_id": key_id, "state": state}))
    else:
        print(f"key {key_id} is {state}")
