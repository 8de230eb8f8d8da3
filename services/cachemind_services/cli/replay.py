"""`cachemind replay`: the cache as of a version, a place on the log, or a time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from cachemind.codec.export import json_value, write_avro, write_json_lines
from cachemind.core.entry_diff import changes
from cachemind.core.partitioner import partition_of
from cachemind.core.payloads import Payloads, inspected, opened_change
from cachemind.errors import InvalidRequest
from cachemind.ports import StoreInspector
from cachemind.types import HASH_BYTES, ExactKey, Namespace, Version
from cachemind_services.cli.entries import GATEWAY_TIMEOUT, add_request, request_of
from cachemind_services.cli.http import Answer, add_api_key, upstream_key
from cachemind_services.cli.options import LOG, add_settings, settings_from
from cachemind_services.cli.replay_shown import (
    change_line,
    change_row,
    progress_bar,
    state_row,
)
from cachemind_services.settings import Settings
from cachemind_services.sockets import bind_tcp, require_loopback, url_of

if TYPE_CHECKING:
    from cachemind_services.bootstrap.as_of import AsOf
    from cachemind_services.bootstrap.replaying import Replay
    from cachemind_services.bootstrap.tools import OpenLog

_FLAGS: Final = (*LOG, "partitions", "production", "snapshot_url", "secret_file")
_READING: Final = (
    "encoder",
    "similarity_threshold",
    "embed_deadline_ms",
    "share_across_credentials",
    "payload_key",
    "data_keys_url",
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of what can be done with a replay."""
    replay = commands.add_parser(
        "replay", help="look at the cache as of a version, an LSN or a time"
    )
    _add_point(replay)
    replay.add_argument("--json", action="store_true", help="print JSON")
    add_settings(replay, (*_FLAGS, *_READING))
    replay.set_defaults(run=run)
    actions = replay.add_subparsers(dest="action", metavar="ACTION")
    query = _action(actions, "query", "what was answered then")
    add_request(query)
    add_api_key(query)
    query.add_argument(
        "--key", default=None, help="exact key, 64 hex characters, in place of all that"
    )
    export = _action(actions, "export", "write every entry of the namespace")
    export.add_argument("--format", choices=("jsonl", "avro"), default="jsonl")
    export.add_argument(
        "--output", type=Path, default=None, help="file; default standard output"
    )
    diff = _action(actions, "diff", "what has changed from then until now")
    diff.add_argument(
        "--bodies",
        action="store_true",
        default=False,
        help="show prompts, responses, vectors too",
    )
    _action(actions, "forget", "remove the replay from this host")
    serve = _action(actions, "serve", "a gateway as of then, that changes nothing")
    serve.add_argument("--host", default=None, help="address to bind")
    serve.add_argument("--port", default=None, help="TCP port; 0 picks a free one")
    serve.add_argument(
        "--insecure",
        action="store_const",
        const="true",
        help="bind another address than loopback though nobody is asked for a key",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the replay that was asked for, or take the last one, and act on it."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.replaying import materialise, newest
    from cachemind_services.bootstrap.tools import open_log

    settings = settings_from(arguments)
    if _is_asked(arguments):
        with open_log(settings) as log, progress_bar() as progress:
            replay = materialise(log, _point(arguments, log), progress)
    else:
        replay = newest(settings, arguments.replay)
    act = {
        None: _tell,
        "query": _query,
        "export": _export,
        "diff": _diff,
        "forget": _forget,
    }
    if arguments.action == "serve":
        return _serve(settings, replay)
    return act[arguments.action](arguments, settings, replay)


def _tell(arguments: argparse.Namespace, settings: Settings, replay: Replay) -> int:
    """Print what the replay holds."""
    from cachemind_services.bootstrap.replaying import replay_views

    with replay_views(settings, replay) as views:
        states = [state for view in views for state in view.namespaces()]
    shown = {
        "replay": replay.as_of.name,
        "folder": str(replay.folder),
        "ends": [f"{p}@{end}" for p, end in sorted(replay.as_of.ends.items())],
        "namespaces": [state_row(state) for state in states],
    }
    if arguments.json:
        print(json.dumps(shown))
        return 0
    print(f"replay {replay.as_of.name} in {replay.folder}")
    for state in states:
        told = state_row(state)
        print("  ".join(f"{name}={value}" for name, value in told.items()))
    return 0


def _query(arguments: argparse.Namespace, settings: Settings, replay: Replay) -> int:
    """Print the entry or the answer that was cached then. Exit 1 where none was."""
    if arguments.key is not None:
        return _query_key(settings, replay, _key(arguments.key))
    request = request_of(arguments)
    # Imported here: it brings the encoder.
    from cachemind_services.gateway.replay_worker import look_up

    status, headers, body = look_up(settings, replay, request, upstream_key(arguments))
    found = Answer(status=status, headers=headers, body=body)
    found.expect(200, GATEWAY_TIMEOUT)
    told = {
        name.removeprefix("x-cachemind-"): value
        for name, value in headers.items()
        if name.startswith("x-cachemind-") or name == "age"
    }
    print("  ".join(f"{k}={v}" for k, v in told.items()), file=sys.stderr)
    if status == GATEWAY_TIMEOUT:
        print(f"cachemind: nothing was cached for that ({status})", file=sys.stderr)
        return 1
    answer = found.json()
    if arguments.json:
        print(json.dumps({**told, "response": answer}, ensure_ascii=False))
    else:
        message = answer["choices"][0]["message"]
        print(message.get("content") or json.dumps(message))
    return 0


def _query_key(settings: Settings, replay: Replay, key: ExactKey) -> int:
    with _namespace_view(settings, replay) as (namespace, view):
        entry = view.reader(namespace).entry(key)
    if entry is None:
        print("cachemind: there was no entry at that key", file=sys.stderr)
        return 1
    readable = inspected(_payloads(settings), entry)
    print(json.dumps(json_value(namespace, readable), ensure_ascii=False))
    return 0


def _export(arguments: argparse.Namespace, settings: Settings, replay: Replay) -> int:
    """Write every entry that there was, one at a time."""
    payloads = _payloads(settings)
    write = write_avro if arguments.format == "avro" else write_json_lines
    with (
        _namespace_view(settings, replay) as (namespace, view),
        _output(arguments.output) as out,
    ):
        entries = (
            (namespace, inspected(payloads, entry)) for entry in view.entries(namespace)
        )
        count = write(out, entries)
    print(f"{count} entries as of {replay.as_of.name}", file=sys.stderr)
    return 0


def _diff(arguments: argparse.Namespace, settings: Settings, replay: Replay) -> int:
    """Print what became of each entry that is not as it was then."""
    from cachemind_services.bootstrap.tools import open_inspectors

    payloads = _payloads(settings)
    counts = {"added": 0, "removed": 0, "changed": 0}
    with ExitStack() as opened:
        namespace, then = opened.enter_context(_namespace_view(settings, replay))
        partition = partition_of(namespace.encode(), settings.partitions)
        live = opened.enter_context(open_inspectors(settings, None))[partition]
        live.catch_up()
        for change in changes(then.entries(namespace), live.entries(namespace)):
            opened_now = opened_change(payloads, change)
            told = change_row(opened_now, bodies=arguments.bodies)
            counts[str(told["change"])] += 1
            print(json.dumps(told) if arguments.json else change_line(told))
    summary = ", ".join(f"{count} {word}" for word, count in counts.items())
    print(f"since {replay.as_of.name}: {summary}", file=sys.stderr)
    return 0


def _forget(arguments: argparse.Namespace, settings: Settings, replay: Replay) -> int:
    """Remove the replay's stores; the log and the live stores are not touched."""
    from cachemind_services.bootstrap.replaying import forget

    del arguments, settings
    forget(replay)
    print(f"removed {replay.folder}", file=sys.stderr)
    return 0


def _serve(settings: Settings, replay: Replay) -> int:
    """Serve hits as of then until told to stop."""
    from cachemind_services.gateway.replay_worker import serve

    if not settings.insecure:
        # Whatever keys say now: as of then others may have counted.
        require_loopback(settings.host)
    with closing(bind_tcp(settings.host, settings.port)) as listener:
        print(f"serving {url_of(listener)}/v1 as of {replay.as_of.name}", flush=True)
        return serve(settings, replay, listener.fileno())


def _payloads(settings: Settings) -> Payloads:
    from cachemind_services.bootstrap.payloads import read_payloads

    return read_payloads(settings)


# ---- arguments ----------------------------------------------------------------------


def _add_point(parser: argparse.ArgumentParser) -> None:
    point = parser.add_mutually_exclusive_group()
    point.add_argument(
        "--to-version", type=_whole, metavar="N", help="of the namespace"
    )
    point.add_argument("--to-lsn", metavar="PARTITION@OFFSET", help="this record, too")
    point.add_argument(
        "--to-time", metavar="ISO8601", help="UTC where no zone is given"
    )
    point.add_argument("--replay", metavar="NAME", help="one that was made before")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_text: str,
) -> argparse.ArgumentParser:
    # Suppressed: what is not given here must not undo what was given before.
    parser = actions.add_parser(
        name, help=help_text, argument_default=argparse.SUPPRESS
    )
    _add_point(parser)
    parser.add_argument(
        "--json", action="store_true", help="print JSON", default=argparse.SUPPRESS
    )
    add_settings(parser, (*_FLAGS, *_READING))
    return parser


def _is_asked(arguments: argparse.Namespace) -> bool:
    points = (arguments.to_version, arguments.to_lsn, arguments.to_time)
    return any(point is not None for point in points)


def _point(arguments: argparse.Namespace, log: OpenLog) -> AsOf:
    from cachemind_services.bootstrap.as_of import as_of_lsn, as_of_time, as_of_version

    if arguments.to_version is not None:
        namespace = Namespace(log.settings.namespace)
        return as_of_version(log, namespace, Version(arguments.to_version))
    if arguments.to_lsn is not None:
        return as_of_lsn(log, arguments.to_lsn)
    return as_of_time(log, arguments.to_time)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError("takes a whole number")
    return int(text)


def _key(text: str) -> ExactKey:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != HASH_BYTES:
        raise InvalidRequest("--key", "takes 64 hex characters")
    return ExactKey(raw)


@contextmanager
def _namespace_view(
    settings: Settings, replay: Replay
) -> Iterator[tuple[Namespace, StoreInspector]]:
    """Yield the namespace and the replayed view of its partition."""
    from cachemind_services.bootstrap.replaying import replay_views

    namespace = Namespace(settings.namespace)
    partition = partition_of(namespace.encode(), settings.partitions)
    if partition not in replay.as_of.ends:
        raise InvalidRequest(
            "--namespace",
            f"{namespace} is in partition {partition}, and the replay "
            f"{replay.as_of.name} is of others",
        )
    with replay_views(settings, replay) as views:
        yield namespace, views[partition]


@contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    scratch = path.with_name(path.name + ".part")
    with scratch.open("wb") as out:
        yield out
    scratch.replace(path)
