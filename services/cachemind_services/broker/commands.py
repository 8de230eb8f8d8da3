"""`cachemind broker ...`: parse, call one function, print."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from cachemind.errors import BrokerError
from cachemind_services.broker.distribution import KafkaDistribution
from cachemind_services.broker.embedded import (
    DEFAULT_HEAP_MB,
    READY_TIMEOUT_S,
    BrokerStatus,
    EmbeddedBroker,
)
from cachemind_services.broker.errors import BrokerNotRunning, UnknownTool
from cachemind_services.broker.java import find_java
from cachemind_services.broker.tools import (
    find_tool,
    needs_bootstrap,
    run_tool,
    with_bootstrap,
)

DEFAULT_DATA_DIR: Final = Path(".cachemind/broker")
DEFAULT_PORT: Final = 9092
_WATCH_S: Final = 0.5

_OK: Final = 0
_FAILED: Final = 1
_USAGE: Final = 2
_INTERRUPTED: Final = 128 + signal.SIGINT


def configure(
    parser: argparse.ArgumentParser, *, data_dir: Path = DEFAULT_DATA_DIR
) -> None:
    """Add the sub-commands of `cachemind broker` to `parser`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    run_it = actions.add_parser("run", help="run Kafka until SIGTERM or Ctrl-C")
    start = actions.add_parser("start", help="start Kafka in the background")
    stop = actions.add_parser("stop", help="stop the Kafka on the data folder")
    status = actions.add_parser("status", help="show what runs on the data folder")
    fetch = actions.add_parser("fetch", help="fetch and verify Kafka, start nothing")
    cli = actions.add_parser("cli", help="run one of Kafka's own tools")

    for each in (run_it, start, stop, status, cli):
        each.add_argument(
            "--data-dir",
            type=Path,
            default=data_dir,
            metavar="DIR",
            help="the broker's folder, or the data folder of serve",
        )
    for each in (run_it, start, fetch, cli):
        each.add_argument("--cache-dir", type=Path, metavar="DIR")
        each.add_argument("--java", type=Path, metavar="PATH", help="own Java 17+")
    for each in (run_it, start):
        each.add_argument("--port", type=int, default=DEFAULT_PORT, help="0: any free")
        each.add_argument("--heap-mb", type=int, default=DEFAULT_HEAP_MB)
        each.add_argument("--timeout-s", type=float, default=READY_TIMEOUT_S)
    status.add_argument("--json", action="store_true")
    fetch.add_argument("--repair", action="store_true", help="replace broken jars")
    fetch.add_argument("--repository", metavar="URL", help="a Maven repository")
    cli.add_argument("tool", metavar="TOOL", help="for example kafka-topics")
    cli.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")


def run(args: argparse.Namespace) -> int:
    """Do what `args` asks; return the exit code and say on stderr what failed."""
    actions = {
        "run": _run,
        "start": _start,
        "stop": _stop,
        "status": _status,
        "fetch": _fetch,
        "cli": _cli,
    }
    try:
        return actions[args.action](args)
    except UnknownTool as error:
        _say(str(error))
        return _USAGE
    except BrokerError as error:
        _say(str(error))
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    broker = _broker(args)
    try:
        with broker:
            _print(broker.bootstrap_servers)
            while True:
                broker.raise_if_dead()
                time.sleep(_WATCH_S)
    except KeyboardInterrupt:
        return _OK  # SIGTERM or Ctrl-C; leaving the block stopped the broker


def _start(args: argparse.Namespace) -> int:
    broker = _broker(args)
    broker.start(daemon=True)
    try:
        broker.wait_ready()
    except BaseException:
        broker.stop()
        raise
    _print(broker.bootstrap_servers)
    return _OK


def _stop(args: argparse.Namespace) -> int:
    broker = EmbeddedBroker(args.data_dir)
    if not broker.status().running:
        raise BrokerNotRunning(args.data_dir)
    broker.stop()
    return _OK


def _status(args: argparse.Namespace) -> int:
    status = EmbeddedBroker(args.data_dir).status()
    fields = asdict(status)
    if args.json:
        _print(json.dumps(fields))
    else:
        for name, value in fields.items():
            _print(f"{name:18} {_readable(value)}")
    return _OK if status.ready else _FAILED


def _fetch(args: argparse.Namespace) -> int:
    KafkaDistribution.ensure(
        args.cache_dir,
        _say,
        repository_url=args.repository,
        repair=args.repair,
    )
    broker = EmbeddedBroker(
        DEFAULT_DATA_DIR, java=args.java, cache_dir=args.cache_dir, progress=_say
    )
    kafka = broker.fetch()
    _print(f"Apache Kafka {kafka.version}: {len(kafka.lock.jars)} jars verified")
    return _OK


def _cli(args: argparse.Namespace) -> int:
    tool = find_tool(args.tool)
    arguments: list[str] = args.arguments
    if needs_bootstrap(tool, arguments):
        arguments = with_bootstrap(tool, arguments, _local_servers(args.data_dir))
    kafka = KafkaDistribution.ensure(args.cache_dir, _say)
    return run_tool(kafka, find_java(args.java), tool, arguments)


def _local_servers(data_dir: Path) -> str:
    status: BrokerStatus = EmbeddedBroker(data_dir).status()
    if status.bootstrap_servers is None:
        raise BrokerNotRunning(data_dir)
    return status.bootstrap_servers


def _broker(args: argparse.Namespace) -> EmbeddedBroker:
    return EmbeddedBroker(
        args.data_dir,
        port=args.port,
        java=args.java,
        heap_mb=args.heap_mb,
        cache_dir=args.cache_dir,
        ready_timeout_s=args.timeout_s,
        progress=_say,
    )


def _readable(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else value


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
