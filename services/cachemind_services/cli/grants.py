"""`cachemind grants`: topics over which commands come from somebody who is known.

It makes topics and access rules with the operator's own Kafka credentials.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cachemind.core.access import Role
from cachemind.core.grant_access import user_of
from cachemind.core.grant_topics import Grant
from cachemind.errors import InvalidEvent, InvalidRequest
from cachemind.types import Namespace
from cachemind_services.cli.options import add_action, settings_from
from cachemind_services.cli.tables import print_table

if TYPE_CHECKING:
    from cachemind_services.bootstrap.grants import ShownGrant

T = TypeVar("T")
_FLAGS: Final = ("data_dir", "topic_prefix", "production")
_action: Final = partial(add_action, flags=_FLAGS)
_HEADS: Final = ("NAMESPACE", "ROLE", "MAY ASK", "MAY READ")
_ANYBODY: Final = "anybody: the cluster has no access rules"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    grants = commands.add_parser(
        "grants", help="make, show, take back topics that say who sends commands"
    )
    actions = grants.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _action(actions, "create", "make the topics of a grant", run_create)
    revoke = _action(actions, "revoke", "take a grant back", run_revoke)
    _action(actions, "list", "show every grant, and who may use it", run_list)
    for parser in (create, revoke):
        parser.add_argument(
            "--namespace", dest="granted", required=True, metavar="NAME"
        )
        parser.add_argument(
            "--role", choices=[role.value for role in Role], required=True
        )
        parser.add_argument(
            "--user",
            default="",
            metavar="User:NAME",
            help="whose Kafka access rules are meant",
        )
    revoke.add_argument(
        "--topics", action="store_true", help="delete the topics, with all rules"
    )


def run_create(arguments: argparse.Namespace) -> int:
    """Make a grant; print its topics."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.grants import create_grant

    user = _user(arguments)
    shown = _named(
        lambda: create_grant(settings_from(arguments), _grant(arguments), user)
    )
    if arguments.json:
        print(json.dumps(_fields(shown)))
        return 0
    print(f"commands  {shown.requests}")
    print(f"replies   {shown.replies}")
    print(f"groups    {shown.group_prefix}*")
    if shown.writers is None:
        print(f"{_ANYBODY}, so anybody may ask by it", file=sys.stderr)
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Print every grant."""
    from cachemind_services.bootstrap.grants import list_grants

    found = list_grants(settings_from(arguments))
    if arguments.json:
        print(json.dumps([_fields(one) for one in found]))
    else:
        print_table([_HEADS, *map(_row, found)])
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    """Take a grant from a user, or from all with its topics."""
    from cachemind_services.bootstrap.grants import revoke_grant

    user, topics = _user(arguments), bool(arguments.topics)
    if not user and not topics:
        raise InvalidRequest("--user", "say from whom, or --topics for everybody")
    settings, grant = settings_from(arguments), _grant(arguments)
    _named(lambda: revoke_grant(settings, grant, user, topics=topics))
    whom = "everybody, its topics are deleted" if topics else user
    if arguments.json:
        print(json.dumps({"revoked": user or None, "topics_deleted": topics}))
    else:
        print(f"{grant.role} in {grant.namespace} was taken from {whom}")
    return 0


def _grant(arguments: argparse.Namespace) -> Grant:
    """Raises: `InvalidRequest`."""
    namespace, role = Namespace(arguments.granted), Role(arguments.role)
    return _named(lambda: Grant(namespace=namespace, role=role))


def _user(arguments: argparse.Namespace) -> str:
    return user_of(arguments.user) if arguments.user else ""


def _named(do: Callable[[], T]) -> T:
    """Return what `do` returns. Raises: `InvalidRequest` naming the argument."""
    try:
        return do()
    except InvalidEvent as error:
        raise InvalidRequest("--namespace", error.problem) from error


def _fields(shown: ShownGrant) -> dict[str, Any]:
    return {
        "namespace": shown.grant.namespace,
        "role": shown.grant.role.value,
        "requests": shown.requests,
        "replies": shown.replies,
        "group_prefix": shown.group_prefix,
        "writers": None if shown.writers is None else list(shown.writers),
        "readers": None if shown.readers is None else list(shown.readers),
    }


def _row(shown: ShownGrant) -> tuple[str, ...]:
    who = (
        "anybody" if found is None else ", ".join(found) or "-"
        for found in (shown.writers, shown.readers)
    )
    return (shown.grant.namespace, shown.grant.role.value, *who)
