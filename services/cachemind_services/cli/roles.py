"""The roles that `serve` starts, each also on its own."""

from __future__ import annotations

import argparse
import time

from cachemind.core.collecting import start_s
from cachemind_services.cli.options import (
    AUDIT,
    COLLECTOR,
    GATEWAY,
    MATERIALIZER,
    SINK,
    add_settings,
    settings_from,
)
from cachemind_services.process import (
    end_on_sigterm,
    give_way,
    open_many_files,
    tune_collector,
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parsers of the roles."""
    fold = commands.add_parser("materializer", help="fold the log into the stores")
    add_settings(fold, MATERIALIZER)
    # For tests of crashes: the process kills itself where it reaches this point.
    fold.add_argument("--failpoint", default="", help=argparse.SUPPRESS)
    fold.set_defaults(run=run_materializer)
    receipts = commands.add_parser(
        "receipts", help="keep the index in which gateways find receipts"
    )
    add_settings(receipts, AUDIT)
    receipts.set_defaults(run=run_receipts)
    signer = commands.add_parser(
        "signer", help="sign a receipt of each record of the log, and cuts over them"
    )
    add_settings(signer, AUDIT)
    signer.add_argument("--failpoint", default="", help=argparse.SUPPRESS)
    signer.set_defaults(run=run_signer)
    sink = commands.add_parser(
        "sink", help="seal receipts and cuts in files: a folder, or a locked bucket"
    )
    add_settings(sink, SINK)
    sink.add_argument("--failpoint", default="", help=argparse.SUPPRESS)
    sink.set_defaults(run=run_sink)
    collector = commands.add_parser(
        "collector", help="evict what has expired, by events on the log"
    )
    add_settings(collector, COLLECTOR)
    collector.add_argument("--failpoint", default="", help=argparse.SUPPRESS)
    collector.set_defaults(run=run_collector)
    requests = commands.add_parser(
        "requests", help="answer the commands of Kafka-native clients"
    )
    add_settings(requests, GATEWAY)
    requests.add_argument("--failpoint", default="", help=argparse.SUPPRESS)
    requests.set_defaults(run=run_requests)
    worker = commands.add_parser("gateway-worker")
    worker.add_argument("--fd", type=int, action="append", required=True)
    worker.add_argument("--number", type=int, required=True)
    add_settings(worker, GATEWAY)
    worker.set_defaults(run=run_worker)


def run_materializer(arguments: argparse.Namespace) -> int:
    """Fold until told to stop. Exit 0, or 3 where the watchdog ended it."""
    end_on_sigterm()
    # Imported here: the other commands must not pay for Faust.
    from cachemind_services.bootstrap import materializer
    from cachemind_services.metric_files import share_as

    share_as("materializer")
    tune_collector()
    return materializer.run(settings_from(arguments), arguments.failpoint)


def run_sink(arguments: argparse.Namespace) -> int:
    """Seal what is signed until told to stop. Exit 0; 3 where it made no progress."""
    end_on_sigterm()
    # Imported here: the other commands must not pay for Faust.
    from cachemind_services.bootstrap import sink
    from cachemind_services.metric_files import share_as

    share_as("sink")
    give_way()
    tune_collector()
    return sink.run(settings_from(arguments), arguments.failpoint)


def run_signer(arguments: argparse.Namespace) -> int:
    """Sign until told to stop. Exit 0; 1 where no key may sign, 3 by the watchdog."""
    end_on_sigterm()
    # Imported here: the other commands must not pay for Faust.
    from cachemind_services.bootstrap import first_keys, signer
    from cachemind_services.metric_files import share_as

    share_as("signer")
    give_way()
    tune_collector()
    settings = settings_from(arguments)
    told = first_keys.make_first_keys(settings)
    if told is not None:
        print(f"audit: {told}", flush=True)
    return signer.run(settings, arguments.failpoint)


def run_receipts(arguments: argparse.Namespace) -> int:
    """Keep the index of receipts until told to stop."""
    end_on_sigterm()
    from cachemind_services.bootstrap import receipts

    give_way()
    tune_collector()
    return receipts.run(settings_from(arguments))


def run_collector(arguments: argparse.Namespace) -> int:
    """Evict what has expired until told to stop. Exit 0; 3 where Faust gave up."""
    end_on_sigterm()
    give_way()
    settings = settings_from(arguments)
    # Nothing is urgent, and who starts beside it has better use for the processor.
    time.sleep(start_s(settings.collect_interval_s, settings.collect_grace_s))
    # Imported here: the other commands must not pay for Faust, nor this one so early.
    from cachemind_services.bootstrap import collector
    from cachemind_services.metric_files import share_as

    share_as("collector")
    tune_collector()
    return collector.run(settings, arguments.failpoint)


def run_requests(arguments: argparse.Namespace) -> int:
    """Answer commands until told to stop. Exit 0, or 3 where the group gave up."""
    end_on_sigterm()
    open_many_files()
    # Imported here: the other commands must not pay for Faust, nor for the encoder.
    from cachemind_services.gateway import requests_worker
    from cachemind_services.metric_files import share_as

    share_as("requests")
    tune_collector()
    return requests_worker.run(settings_from(arguments), arguments.failpoint)


def run_worker(arguments: argparse.Namespace) -> int:
    """Serve HTTP on inherited sockets until told to stop."""
    end_on_sigterm()
    open_many_files()
    # Imported here: the other commands must not pay for the encoder.
    from cachemind_services.gateway import worker
    from cachemind_services.metric_files import share_as

    share_as(f"gateway-{arguments.number}")
    tune_collector()
    return worker.run(settings_from(arguments), arguments.fd, arguments.number)
