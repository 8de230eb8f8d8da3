"""`cachemind doctor`: is the state what the log says it is?"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cachemind.core.digest import to_hex
from cachemind.core.state import NamespaceState
from cachemind.core.verification import digest_mismatch
from cachemind.errors import CacheError
from cachemind.ports import StoreInspector
from cachemind.types import Offset, Partition
from cachemind_services.cli.options import LOG, add_settings, settings_from

if TYPE_CHECKING:
    from cachemind_services.bootstrap.tools import OpenLog


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    check: str
    ok: bool
    found: str


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "doctor", help="check topics and stores, recompute every digest"
    )
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="fold the whole log into a second store and compare",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, (*LOG, "partitions", "production"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what was checked. Exit 1 where anything is not right."""
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.tools import open_inspectors, open_log

    with ExitStack() as opened:
        log = opened.enter_context(open_log(settings_from(arguments)))
        findings = [Finding("topics", ok=True, found="as configured")]
        stores = opened.enter_context(open_inspectors(log.settings, log.identity))
        for number, store in zip(log.partitions, stores, strict=True):
            findings += examine(log, number, store, rebuild=arguments.rebuild)
    _print(findings, as_json=arguments.json)
    return 0 if all(finding.ok for finding in findings) else 1


def examine(
    log: OpenLog, number: Partition, store: StoreInspector, *, rebuild: bool
) -> Iterator[Finding]:
    """Yield what is found about one partition."""
    try:
        applied = store.catch_up()
    except CacheError as error:
        yield Finding(f"store {number}", ok=False, found=str(error))
        return
    end = log.reader.bounds(number)[1]
    yield Finding(
        f"store {number}",
        ok=applied < end,
        found=f"folded to {applied}, log ends {end}",
    )
    for state in store.namespaces():
        yield _digest(state, store)
    if rebuild:
        yield from _rebuild(log, number, store, applied)


def compare(
    live: Sequence[NamespaceState], again: Sequence[NamespaceState]
) -> Iterator[Finding]:
    """Yield, for each namespace, whether two folds of one log agree."""
    others = {state.namespace: state for state in again}
    for state in live:
        other = others.pop(state.namespace, None)
        same = other is not None and (state.version, state.digest, state.entries) == (
            other.version,
            other.digest,
            other.entries,
        )
        yield Finding(
            f"rebuild of {state.namespace}",
            ok=same,
            found=f"{_short(state)} live, {_short(other)} from the log alone",
        )
    for name in others:
        yield Finding(f"rebuild of {name}", ok=False, found="missing in the live store")


def _digest(state: NamespaceState, store: StoreInspector) -> Finding:
    mismatch = digest_mismatch(state, store.entries(state.namespace))
    found = _short(state) if mismatch is None else str(mismatch)
    return Finding(f"digest of {state.namespace}", ok=mismatch is None, found=found)


def _rebuild(
    log: OpenLog, number: Partition, store: StoreInspector, applied: Offset
) -> Iterator[Finding]:
    from cachemind_services.bootstrap.tools import rebuilt

    def progress(position: Offset, end: Offset) -> None:
        # In a file it would run into the next line.
        if sys.stderr.isatty():
            told = f"partition {number}: {position} of {end}"
            print(told, end="\r", file=sys.stderr)

    with (
        tempfile.TemporaryDirectory(prefix="cachemind-doctor-") as scratch,
        rebuilt(log, number, Offset(applied + 1), Path(scratch), progress) as again,
    ):
        yield from compare(store.namespaces(), again.namespaces())


def _short(state: NamespaceState | None) -> str:
    if state is None:
        return "nothing"
    digest = to_hex(state.digest)[:16]
    return f"version {state.version}, {state.entries} entries, digest {digest}"


def _print(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
        return
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark = "ok    " if finding.ok else "FAILED"
        print(f"{mark}  {finding.check:<{width}}  {finding.found}")
