"""`cachemind rollback`: take a namespace, or all of a snapshot, back to a version."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cachemind.core.rollback_report import REASON_CHARS, Strategy
from cachemind.errors import CacheError, InvalidRequest
from cachemind_services.cli.diff import add_showing, change_lines, counts_line
from cachemind_services.cli.http import Answer, add_client, call
from cachemind_services.cli.options import settings_from
from cachemind_services.cli.versions import query_of
from cachemind_services.gateway.shown import shown_rehearsal, shown_report

ACCEPTED: Final = 202
POLL_S: Final = 0.2
WAIT_S: Final = 600.0
DEFAULT_LIMIT: Final = 100
_ON_THE_LOG: Final = ("data_dir", "topic_prefix", "partitions", "schema_registry_url")
_NAMES: Final = (
    "to_version",
    "to_snapshot",
    "to_time",
    "undo",
    "namespace",
    "expected_head",
    "dry_run",
    "strategy",
    "reason",
    "limit",
    "bodies",
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "rollback", help="take a namespace back to a version; --undo takes that back"
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-version", type=int, metavar="N", help="0 is empty")
    to.add_argument(
        "--to-snapshot",
        metavar="NAME",
        help="all namespaces of a snapshot together, straight on the log; with "
        "--namespace one, through the gateway",
    )
    to.add_argument("--to-time", metavar="TIME", help="such as 2026-11-30T21:05:00Z")
    to.add_argument("--undo", metavar="ID", help="take a rollback back")
    parser.add_argument("--namespace", help="the gateway's own by default")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change; change nothing"
    )
    parser.add_argument(
        "--expected-head",
        type=int,
        metavar="N",
        help="refuse where the head is another",
    )
    parser.add_argument(
        "--strategy",
        choices=[strategy.value for strategy in Strategy],
        help="how to check restored entries",
    )
    parser.add_argument("--reason", help="kept on the log, up to 200 characters")
    add_showing(parser)
    add_client(parser, more=_ON_THE_LOG)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Roll back and print what that did. Exit 1 where it was not done."""
    if arguments.to_snapshot is not None and arguments.namespace is None:
        return _run_snapshot(arguments)
    answer = call(arguments, "POST", "/v1/rollback" + query_of(arguments, _NAMES))
    if answer.status == ACCEPTED:
        answer = _until_done(arguments, answer)
    found = answer.expect(200).json()
    if arguments.json:
        print(json.dumps(found))
    else:
        print("\n".join(render(found)))
    return 0 if found.get("status", "committed") == "committed" else 1


def render(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that tell what a rollback did, or would do."""
    if found.get("dry_run"):
        yield from _rehearsed(found)
        return
    if found.get("status") != "committed":
        yield f"{found['status']}: {found.get('verdict', '')}"
        return
    if found.get("repeated"):
        yield "nothing to do: the newest version is that rollback already"
    yield (
        f"{found['namespace']}: version {found['version']} is version "
        f"{found['to_version']} again; {counts_line(found)}"
    )
    yield (
        f"replayed {found['replayed']} events from {_base(found['base'])} in "
        f"{found['duration_ms']} ms; {found['strategy']}: {found['verdict']}; digest "
        f"{found['digest'][:16]}"
    )
    yield f"undo: cachemind rollback --undo {found['rollback_id']}"


def _rehearsed(found: Mapping[str, Any]) -> Iterator[str]:
    for change in found["changes"]:
        yield from change_lines(change)
    if found["more"]:
        yield f"... and {found['more']} more, see --limit"
    yield (
        f"dry run of {found['namespace']}: version {found['from_version']} to "
        f"{found['to_version']}; {counts_line(found)}"
    )
    yield (
        f"replayed {found['replayed']} events from {_base(found['base'])}; "
        f"{found['strategy']}: {found['verdict']}; digest {found['digest'][:16]}"
    )


def _base(offset: int) -> str:
    return "the log's start" if offset < 0 else f"the checkpoint at {offset}"


def _until_done(arguments: argparse.Namespace, answer: Answer) -> Answer:
    """Ask for the report until it is there, showing how far the rollback is."""
    where = answer.headers["location"]
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        answer = call(arguments, "GET", where).expect(200)
        found = answer.json()
        if found["status"] != "running":
            return answer
        progress = found.get("progress")
        if progress:
            shown = (
                f"{progress['phase']}: {progress['replayed']} of {progress['total']}"
            )
            print(shown, end="\r", file=sys.stderr)
    raise CacheError(f"still running after {WAIT_S:.0f} s; ask for {where} later")


def _run_snapshot(arguments: argparse.Namespace) -> int:
    """Roll every namespace of a snapshot back with one Kafka transaction."""
    if arguments.expected_head is not None:
        raise InvalidRequest("--expected-head", "takes one namespace, see --namespace")
    if len(arguments.reason or "") > REASON_CHARS:
        raise InvalidRequest("--reason", f"is longer than {REASON_CHARS} characters")
    # Imported here: without a snapshot nobody must pay for Kafka.
    from cachemind_services.bootstrap.snapshot_rollback import (
        rehearse_snapshot,
        roll_back_to_snapshot,
    )

    settings, name = settings_from(arguments), arguments.to_snapshot
    if arguments.dry_run:
        strategy = Strategy(arguments.strategy or Strategy.FIELD_HASH)
        limit = DEFAULT_LIMIT if arguments.limit is None else arguments.limit
        found = [
            {
                "namespace": namespace,
                **shown_rehearsal(each, limit=limit, bodies=arguments.bodies),
            }
            for namespace, each in rehearse_snapshot(settings, name, strategy)
        ]
    else:
        found = [
            shown_report(report, partition)
            for report, partition in roll_back_to_snapshot(
                settings, name, arguments.reason or ""
            )
        ]
    if arguments.json:
        print(json.dumps(found))
    else:
        for each in found:
            print("\n".join(render(each)))
    done = all(each.get("status", "committed") == "committed" for each in found)
    return 0 if done else 1
