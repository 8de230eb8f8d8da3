"""`cachemind policy`: what a namespace allows, as an event on its log.

It is written with the operator's own Kafka credentials, or with `--url` by a gateway
whose key has the right.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import orjson

from cachemind.core.access import ACCESS_NAMESPACE, is_reserved
from cachemind.core.policy_text import render_policy
from cachemind.errors import InvalidEvent, InvalidRequest, InvalidSetting
from cachemind.types import Namespace
from cachemind_services.cli.http import Answer, add_gateway, call
from cachemind_services.cli.options import LOG, add_settings, settings_from
from cachemind_services.settings import Settings

_FLAGS: Final = (*LOG, "partitions", "production")
_LARGEST_BYTES: Final = 1 << 20


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    policy = commands.add_parser("policy", help="show or set a namespace's policy")
    actions = policy.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print what was set for the namespace")
    show.set_defaults(run=run_show)
    set_ = actions.add_parser("set", help="set it; what FILE lacks is as the settings")
    set_.add_argument("file", metavar="FILE", help="TOML, or JSON (*.json); - for JSON")
    set_.set_defaults(run=run_set)
    for parser in (show, set_):
        parser.add_argument("--json", action="store_true", help="print JSON")
        add_gateway(parser)
        add_settings(parser, _FLAGS)


def run_show(arguments: argparse.Namespace) -> int:
    """Print the members that were set; none of them: the gateways' own settings."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.policies import read_policy

    settings = settings_from(arguments)
    if arguments.url is not None:
        shown = _ask(arguments, "GET").expect(200).json()
        _print(arguments, shown["on_log"])
        return 0
    _print(arguments, read_policy(settings, _namespace(settings)))
    return 0


def run_set(arguments: argparse.Namespace) -> int:
    """Put the policy in a file in force, and print it."""
    from cachemind_services.bootstrap.policies import change_policy

    settings = settings_from(arguments)
    wanted = _rendered(arguments.file)
    if arguments.url is not None:
        told = _ask(arguments, "PUT", orjson.loads(wanted)).expect(200, 202).json()
        if arguments.json:
            print(json.dumps(told))
            return 0
        _print(arguments, wanted)
        where = "" if arguments.namespace is None else f" of {arguments.namespace}"
        print(f"policy{where}, since {told['lsn']}", file=sys.stderr)
        return 0
    namespace = _namespace(settings)
    done = change_policy(settings, namespace, lambda _: wanted)
    if arguments.json:
        lsn = None if done.lsn is None else str(done.lsn)
        shown = {"namespace": namespace, "policy": orjson.loads(wanted), "lsn": lsn}
        print(json.dumps(shown))
        return 0
    _print(arguments, done.policy)
    when = "was so before" if done.lsn is None else f"since {done.lsn}"
    print(f"policy of {namespace}, {when}", file=sys.stderr)
    return 0


def _ask(arguments: argparse.Namespace, method: str, body: object = None) -> Answer:
    """Return what a gateway says to a call about a namespace's policy."""
    arguments.api_key, arguments.in_namespace = "", arguments.namespace
    return call(arguments, method, "/v1/cachemind/policy", body)


def _namespace(settings: Settings) -> Namespace:
    """Return the namespace that is meant. Raises: `InvalidSetting`."""
    if is_reserved(settings.namespace):
        hint = (
            "; see `cachemind keys`" if settings.namespace == ACCESS_NAMESPACE else ""
        )
        raise InvalidSetting(
            "--namespace", f"{settings.namespace} is the installation's own{hint}"
        )
    return Namespace(settings.namespace)


def _rendered(name: str) -> str:
    """Return the policy in a file as canonical JSON.

    Raises: `InvalidRequest` naming the member, or the file.
    """
    try:
        return render_policy(_document(name))
    except InvalidEvent as error:
        raise InvalidRequest(error.field, error.problem) from error


def _document(name: str) -> Any:
    try:
        if name == "-":
            return orjson.loads(sys.stdin.buffer.read(_LARGEST_BYTES))
        raw = Path(name).read_bytes()
        if name.endswith(".json"):
            return orjson.loads(raw)
        return tomllib.loads(raw.decode())
    except (orjson.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(name, f"cannot be parsed: {error}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(name, "is not UTF-8") from error
    except OSError as error:
        raise InvalidRequest(name, f"cannot be read: {error.strerror}") from error


def _print(arguments: argparse.Namespace, policy: str) -> None:
    members = orjson.loads(policy) if policy else {}
    if arguments.json:
        print(json.dumps(members))
        return
    for member, value in members.items():
        # What TOML and JSON write alike, so that it can go into a file again.
        print(f"{member} = {json.dumps(value)}")
    if not members:
        print("nothing is set: the gateways' own settings count", file=sys.stderr)
