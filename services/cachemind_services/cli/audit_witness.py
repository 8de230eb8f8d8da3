"""`cachemind audit witness`: sign as a third party what the log of cuts is."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from cachemind.core.public_keys import pem_of
from cachemind_services.bootstrap.audit_dump import cuts_of
from cachemind_services.bootstrap.pinned import read_pinned
from cachemind_services.bootstrap.witness import (
    NS_PER_S,
    Cosigner,
    check,
    cosign,
    new_witness,
    read_note,
)
from cachemind_services.cli.describe import moment
from cachemind_services.cli.options import AUDIT_LOG, add_settings, settings_from


def add_to(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser and those of its actions."""
    witness = actions.add_parser(
        "witness", help="sign, as somebody else, that the log was seen to be so"
    )
    which = witness.add_subparsers(dest="which", metavar="ACTION", required=True)
    init = which.add_parser("init", help="make a witness's key")
    init.add_argument("--name", required=True, help="such as witness.example.com/w1")
    init.add_argument("--witness-key", type=Path, required=True, metavar="FILE")
    init.set_defaults(run=run_init)
    sign = which.add_parser(
        "cosign", help="verify the log of cuts, and sign its newest checkpoint"
    )
    sign.add_argument("--name", required=True, help="as at init")
    sign.add_argument("--witness-key", type=Path, required=True, metavar="FILE")
    sign.add_argument(
        "--memory",
        type=Path,
        required=True,
        metavar="FILE",
        help="what was signed last; the next must follow on from it",
    )
    sign.add_argument("--keys", type=Path, required=True, metavar="FILE")
    sign.add_argument(
        "--files", type=Path, metavar="DIR", help="sealed files in place of the topic"
    )
    sign.add_argument("--out", type=Path, metavar="FILE", help="default: print")
    add_settings(sign, AUDIT_LOG)
    sign.set_defaults(run=run_cosign)
    checked = which.add_parser("check", help="verify the witnesses on a checkpoint")
    checked.add_argument("note", type=Path, metavar="FILE")
    checked.add_argument("--keys", type=Path, required=True, metavar="FILE")
    checked.add_argument("--json", action="store_true", help="print JSON")
    checked.set_defaults(run=run_check)


def run_init(arguments: argparse.Namespace) -> int:
    """Make the key; print what an auditor adds to keys.json."""
    key = new_witness(arguments.name, arguments.witness_key)
    entry = {"name": key.name, "public_key_pem": pem_of(key.public_key)}
    print(json.dumps(entry))
    print(f"verifier key {key}; add the line above to witnesses", file=sys.stderr)
    return 0


def run_cosign(arguments: argparse.Namespace) -> int:
    """Print the newest checkpoint with the witness's line."""
    values = cuts_of(settings_from(arguments), arguments.files)
    who = Cosigner(
        name=arguments.name, key=arguments.witness_key, memory=arguments.memory
    )
    note = str(cosign(values, read_pinned(arguments.keys), who))
    if arguments.out is None:
        print(note, end="")
    else:
        arguments.out.write_text(note, encoding="utf-8")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Print who has signed, and when. Exit 1 where none has, or a line is wrong."""
    found = check(read_note(arguments.note), read_pinned(arguments.keys))
    if arguments.json:
        rows = [{"witness": one.witness, "time_s": one.time_s} for one in found]
        print(json.dumps(rows))
    else:
        for one in found:
            print(f"{one.witness}  {moment(one.time_s * NS_PER_S)}")
    return 0
