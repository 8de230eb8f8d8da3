"""`cachemind keys`: who may ask the gateways for what.

It writes to the log with the operator's own Kafka credentials; every gateway follows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cachemind.core.access import Role
from cachemind.core.api_keys import SCHEME, ApiKey
from cachemind.core.cache_control import DURATION, duration_ms
from cachemind.errors import InvalidEvent, InvalidRequest
from cachemind_services.cli.options import AUDIT_LOG, add_action, settings_from
from cachemind_services.cli.tables import print_table

if TYPE_CHECKING:
    from cachemind_services.bootstrap.key_book import Made

T = TypeVar("T")
_FLAGS: Final = (*AUDIT_LOG, "schema_registry_url")
_action: Final = partial(add_action, flags=_FLAGS)
_MS_PER_S: Final = 1_000
_OVERLAP: Final = "24h"
_HEADS: Final = ("KEY", "NAME", "ROLE", "NAMESPACES", "PREFIXES", "STATE", "EXPIRES")
_ARGUMENTS: Final = {
    "key_id": "KEY",
    "namespaces": "--namespace",
    "namespace": "--namespace",
    "prefixes": "--prefix",
    "name": "--name",
}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    keys = commands.add_parser("keys", help="make, show, exchange, revoke API keys")
    actions = keys.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _action(actions, "create", "make a key and print it, once", run_create)
    create.add_argument("--name", default="", help="whose it is; shown in lists")
    create.add_argument("--role", choices=[role.value for role in Role], required=True)
    create.add_argument(
        "--namespace",
        action="append",
        required=True,
        metavar="NAME",
        help="where it counts; may be repeated",
    )
    create.add_argument(
        "--prefix",
        action="append",
        default=[],
        metavar="TEXT",
        help="only what has a tag that begins so, such as public:; may be repeated",
    )
    create.add_argument(
        "--expires", type=_duration, metavar="90d", help="its life; default no end"
    )
    create.add_argument(
        "--begins", type=_duration, default=0, metavar="1h", help="not before that"
    )
    _action(actions, "list", "show every key, never its secret", run_list)
    rotate = _action(actions, "rotate", "make a key's successor", run_rotate)
    rotate.add_argument(
        "--overlap",
        type=_duration,
        default=duration_ms(_OVERLAP),
        metavar=_OVERLAP,
        help=f"how long both count (default: {_OVERLAP})",
    )
    revoke = _action(actions, "revoke", "let a key count no more, at once", run_revoke)
    for parser in (rotate, revoke):
        parser.add_argument("key", metavar="KEY", help="its id, or cmk_ and its id")


def run_create(arguments: argparse.Namespace) -> int:
    """Make a key; print it alone, and what it is to standard error."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.key_book import Grant, create_key

    grant = Grant(
        name=arguments.name,
        role=Role(arguments.role),
        namespaces=arguments.namespace,
        prefixes=arguments.prefix,
        life_ms=arguments.expires,
        delay_ms=arguments.begins,
    )
    settings = settings_from(arguments)
    _print_made(arguments, _named(lambda: create_key(settings, grant)))
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print every key, the oldest first."""
    from cachemind_services.bootstrap.key_book import list_keys

    found = list_keys(settings_from(arguments))
    if arguments.json:
        print(json.dumps([_shown(key) | {"state": state} for key, state in found]))
    else:
        print_table([_HEADS, *(_row(key, state) for key, state in found)])
    return 0


def run_rotate(arguments: argparse.Namespace) -> int:
    """Make a key's successor; print it as `create` does."""
    from cachemind_services.bootstrap.key_book import rotate_key

    settings, key_id = settings_from(arguments), _key_id(arguments.key)
    made = _named(lambda: rotate_key(settings, key_id, arguments.overlap))
    _print_made(arguments, made)
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke one key."""
    from cachemind_services.bootstrap.key_book import revoke_key

    settings, key_id = settings_from(arguments), _key_id(arguments.key)
    lsn = _named(lambda: revoke_key(settings, key_id))
    where = None if lsn is None else str(lsn)
    if arguments.json:
        print(json.dumps({"key_id": key_id, "state": "revoked", "lsn": where}))
    else:
        when = "before" if where is None else f"at {where}"
        print(f"key {key_id} was revoked {when}")
    return 0


def _duration(text: str) -> int:
    found = duration_ms(text)
    if found is None:
        raise argparse.ArgumentTypeError(DURATION)
    return found


def _named(do: Callable[[], T]) -> T:
    """Return what `do` returns. Raises: `InvalidRequest` naming the argument."""
    try:
        return do()
    except InvalidEvent as error:
        named = _ARGUMENTS.get(error.field)
        if named is None:
            raise
        raise InvalidRequest(named, error.problem) from error


def _key_id(text: str) -> str:
    """Return the id in `cmk_<id>`, in a whole key that was pasted, or alone."""
    return text.removeprefix(SCHEME).partition("_")[0]


def _print_made(arguments: argparse.Namespace, made: Made) -> None:
    key = made.key
    if arguments.json:
        print(json.dumps(_shown(key) | {"key": made.text, "lsn": str(made.lsn)}))
        return
    print(made.text)
    where = ", ".join(key.namespaces)
    print(
        f"{key.role} in {where}, expires {_time(key.expires_ms)}; "
        "the key is not kept and not shown again",
        file=sys.stderr,
    )


def _shown(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "role": key.role.value,
        "namespaces": list(key.namespaces),
        "prefixes": list(key.prefixes),
        "created": _time(key.created_ms),
        "begins": _time(key.not_before_ms) if key.not_before_ms else None,
        "expires": None if key.expires_ms is None else _time(key.expires_ms),
        "revoked": None if key.revoked_ms is None else _time(key.revoked_ms),
        "replaces": key.replaces or None,
    }


def _row(key: ApiKey, state: str) -> Sequence[str]:
    shown: Mapping[str, Any] = _shown(key)
    return (
        f"{SCHEME}{key.key_id}",
        key.name or "-",
        key.role.value,
        ",".join(key.namespaces),
        ",".join(key.prefixes) or "-",
        state,
        shown["expires"] or "never",
    )


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "never"
    moment = datetime.fromtimestamp(at_ms / _MS_PER_S, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
