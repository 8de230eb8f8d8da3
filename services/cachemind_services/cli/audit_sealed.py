"""`cachemind audit sealed`: the local copy of receipts under a MAC."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Final

from cachemind_services.bootstrap.sealed import check_sealed, rotate_seal_key
from cachemind_services.cli.options import add_settings, settings_from

EXIT_CODES: Final = {"ok": 0, "tampered": 1, "unverifiable": 2}
_WORST_LAST: Final = ("ok", "unverifiable", "tampered")


def add_to(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    sealed = actions.add_parser(
        "sealed",
        help="check the sealed copy in --log-dir, exchange the key it is under",
    )
    which = sealed.add_subparsers(dest="which", metavar="ACTION", required=True)
    check = which.add_parser(
        "check", help="say of each file: ok, tampered, unverifiable"
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=run_check)
    rotate = which.add_parser("rotate", help="seal with a new key from now on")
    rotate.set_defaults(run=run_rotate)
    for parser in (check, rotate):
        add_settings(parser, ("log_dir",))


def run_check(arguments: argparse.Namespace) -> int:
    """Print what each file is worth. Exit 0: ok, 1: tampered, 2: unverifiable."""
    found = check_sealed(settings_from(arguments))
    outcome = max(
        (one.report.outcome.value for one in found),
        key=_WORST_LAST.index,
        default="unverifiable",
    )
    if arguments.json:
        files = [
            {
                "file": one.name,
                **asdict(one.report),
                "chain": one.report.chain.hex(),
            }
            for one in found
        ]
        print(json.dumps({"outcome": outcome, "files": files}))
    else:
        for one in found:
            report = one.report
            problem = f"  {report.problem}" if report.problem else ""
            print(f"{one.name}  {report.outcome}  {report.records} records{problem}")
        last = f", chain {found[-1].report.chain.hex()}" if found else ""
        print(f"{outcome.upper()}: {len(found)} files{last}")
    return EXIT_CODES[outcome]


def run_rotate(arguments: argparse.Namespace) -> int:
    """Make a key and print its id."""
    print(rotate_seal_key(settings_from(arguments)))
    return 0
