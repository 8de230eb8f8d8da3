"""`cachemind snapshot`: named states that can be kept, shipped and brought back."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from cachemind.core.snapshots import check_name
from cachemind.errors import InvalidEvent, InvalidRequest
from cachemind_services.cli.options import LOG, add_action, settings_from
from cachemind_services.control import ask

CREATE_S: Final = 600.0
PRUNE_S: Final = 600.0
_FLAGS: Final = (*LOG, "partitions", "production")
_action: Final = partial(add_action, flags=(*_FLAGS, "snapshot_url", "host_silence_h"))
_NS_PER_S: Final = 1_000_000_000
_MIB: Final = 2**20


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    snapshot = commands.add_parser(
        "snapshot", help="keep, ship and restore named states"
    )
    actions = snapshot.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_create(actions)
    listing = _action(actions, "list", "show what there is, here and shipped", run_list)
    listing.add_argument("--from", dest="url", help="also what is shipped there")
    listing.add_argument(
        "--hosts",
        action="store_true",
        help="instead the checkpoints of every host, by their own words",
    )
    ship = _action(actions, "ship", "send a snapshot to a folder or bucket", run_ship)
    ship.add_argument("name", nargs="?", help="name or id; default the newest")
    ship.add_argument("--to", dest="url", help="folder or URL; default snapshot_url")
    restore = _action(
        actions, "restore", "make this host's stores from a shipped one", run_restore
    )
    restore.add_argument("--from", dest="url", help="default snapshot_url")
    restore.add_argument("--name", help="name or id; default the newest sound one")
    restore.add_argument(
        "--replace", action="store_true", help="also where there are stores already"
    )
    prune = _action(actions, "prune", "remove what retention has ended", run_prune)
    prune.add_argument("name", nargs="?", help="also remove this one, whatever its age")


def run_create(arguments: argparse.Namespace) -> int:
    """Have the materializer take a snapshot of all partitions at one moment."""
    settings = settings_from(arguments)
    try:
        name = check_name(arguments.name) if arguments.name else ""
    except InvalidEvent as error:
        raise InvalidRequest("--name", error.problem) from error
    answer = ask(
        settings.data_dir,
        "snapshot-create",
        CREATE_S,
        name=name,
        retention_days=arguments.retention_days,
        namespaces=arguments.only,
    )
    _print(arguments, [answer])
    if arguments.ship:
        # Imported here: commands that need no Kafka must not pay for it.
        from cachemind_services.bootstrap.snapshots import ship

        _print(arguments, [ship(settings, None, str(answer["snapshot_id"]))])
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print every snapshot, the newest first."""
    if arguments.hosts:
        from cachemind_services.bootstrap.hosts import host_rows

        for row in host_rows(settings_from(arguments)):
            print(json.dumps(row) if arguments.json else _host_line(row))
        return 0
    from cachemind_services.bootstrap.snapshots import known_snapshots

    rows, refused = known_snapshots(settings_from(arguments), arguments.url)
    _print(arguments, rows)
    for problem in refused:
        print(f"cachemind: {problem}", file=sys.stderr)
    return 1 if refused else 0


def run_ship(arguments: argparse.Namespace) -> int:
    """Send what is not there yet, then the manifest."""
    from cachemind_services.bootstrap.snapshots import ship

    _print(arguments, [ship(settings_from(arguments), arguments.url, arguments.name)])
    return 0


def run_restore(arguments: argparse.Namespace) -> int:
    """Bring the stores; the materializer replays the rest when it starts."""
    from cachemind_services.bootstrap.snapshots import restore_shipped

    found = restore_shipped(
        settings_from(arguments),
        arguments.url,
        arguments.name,
        replace=arguments.replace,
    )
    _print(arguments, [found])
    return 0


def run_prune(arguments: argparse.Namespace) -> int:
    """Have the materializer remove what is past its retention."""
    settings = settings_from(arguments)
    answer = ask(settings.data_dir, "snapshot-prune", PRUNE_S, name=arguments.name)
    _print(arguments, [answer])
    return 0


def _add_create(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    create = _action(actions, "create", "take one now, of all partitions", run_create)
    create.add_argument("--name", help="for example v1.2.0")
    create.add_argument(
        "--retention-days",
        type=_days,
        default=0,
        help="remove it after so many days; 0, the default: never by itself",
    )
    create.add_argument(
        "--ship", action="store_true", help="send it to snapshot_url at once"
    )
    create.add_argument(
        "--only",
        action="append",
        metavar="NAMESPACE",
        help="note it in the history of these namespaces alone; default all",
    )


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 36_500:
        raise argparse.ArgumentTypeError("takes whole days, up to 36500")
    return int(text)


def _print(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        print(json.dumps(row) if arguments.json else render(row))


def render(row: Mapping[str, Any]) -> str:
    """Return one line of what a snapshot, or something done to one, is."""
    return "  ".join(
        f"{name.removesuffix('_at_ns').removesuffix('_bytes')}={_shown(name, value)}"
        for name, value in row.items()
        if value not in (None, "", [])
    )


def _shown(name: str, value: Any) -> str:
    if name.endswith("_at_ns"):
        moment = datetime.fromtimestamp(value / _NS_PER_S, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if value else "never"
    if name.endswith("_bytes"):
        return f"{value / _MIB:.1f}MiB"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _host_line(row: Mapping[str, Any]) -> str:
    seen = _shown("seen_at_ns", row["seen_at_ns"])
    lives = "" if row["lives"] else "  SILENT"
    return (
        f"{row['hostname']} ({row['host_id']}): {len(row['checkpoints'])} "
        f"checkpoints, last heard of {seen}{lives}"
    )
