"""`cachemind erase`: make all that a namespace ever stored unreadable, for good."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from cachemind.errors import InvalidSetting
from cachemind.types import Namespace
from cachemind_services.cli.options import LOG, add_settings, settings_from

if TYPE_CHECKING:
    from cachemind_services.bootstrap.erasure import Erasure

_FLAGS: Final = (*LOG, "partitions", "production", "data_keys_url")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "erase", help="shred the data keys of an encrypted namespace, for good"
    )
    parser.add_argument("--reason", default="", help="kept on the log")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, _FLAGS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Erase the namespace that is named on the command line, and say what was done."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.erasure import erase_namespace, who_asks

    if arguments.namespace is None:
        raise InvalidSetting("--namespace", "name the namespace that is to be erased")
    settings = settings_from(arguments)
    done = erase_namespace(settings, Namespace(settings.namespace), arguments.reason)
    shown = _shown(done) | {"principal": who_asks()}
    print(json.dumps(shown) if arguments.json else _told(done))
    if not done.shredded:
        print("every data key was gone already", file=sys.stderr)
    return 0


def _shown(done: Erasure) -> dict[str, Any]:
    return {
        "namespace": done.namespace,
        "shredded": [
            {"key_id": each.key_id, "lsn": str(each.lsn)} for each in done.shredded
        ],
        "invalidated": None if done.invalidated is None else str(done.invalidated),
        "gone_before": list(done.before),
    }


def _told(done: Erasure) -> str:
    lines = [f"key {each.key_id} is shredded ({each.lsn})" for each in done.shredded]
    lines += [f"key {key_id} was shredded before" for key_id in done.before]
    return "\n".join([*lines, f"namespace {done.namespace} is erased"])
