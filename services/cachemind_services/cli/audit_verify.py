"""`cachemind audit verify`: is the audit log what was signed?"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cachemind.core.audit_findings import Outcome
from cachemind.core.audit_notes import CutNote
from cachemind.core.audit_report import AuditReport, report_row
from cachemind.core.audit_verify import Verification
from cachemind.errors import (
    CacheError,
    InvalidRequest,
    MalformedNote,
    UndecodableRecord,
)
from cachemind.receipts import LogId
from cachemind_services.cli.audit_shown import read_bar, report_lines
from cachemind_services.cli.options import add_settings, settings_from

EXITS: Final = {Outcome.OK: 0, Outcome.TAMPERED: 1, Outcome.UNVERIFIABLE: 2}
_FLAGS: Final = ("data_dir", "topic_prefix", "schema_registry_url")
_NS_PER_S: Final = 1_000_000_000


def add_to(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = actions.add_parser(
        "verify",
        help="prove that nothing was altered, dropped, inserted or reordered",
        description="Verifies the audit log with the pinned public keys and nothing "
        "else. Exit 0: verified; 1: tampered with; 2: cannot be told, or wrong usage.",
    )
    parser.add_argument(
        "--keys", type=Path, required=True, help="keys.json: what the auditor pins"
    )
    parser.add_argument(
        "--files",
        metavar="PATH",
        help="in place of the topics: sealed files (a folder, s3://BUCKET/PREFIX) or a "
        "dump (JSON lines)",
    )
    parser.add_argument(
        "--against-wal",
        action="store_true",
        help="compare each receipt with its record on the log, too",
    )
    parser.add_argument(
        "--pinned-cut",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a checkpoint that was kept elsewhere; may be given again",
    )
    parser.add_argument(
        "--since",
        metavar="ISO8601",
        help="list only what is from then on; all is verified all the same",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, _FLAGS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify, print the report, and return the verdict's exit code."""
    try:
        return _verify(arguments)
    except (CacheError, OSError) as error:
        # Whatever keeps us from reading is no verdict: exit 1 means tampered with.
        print(f"cachemind: {error}", file=sys.stderr)
        return EXITS[Outcome.UNVERIFIABLE]


def _verify(arguments: argparse.Namespace) -> int:
    # Imported here: commands that need no Kafka must not pay for it.
    from cachemind_services.bootstrap.auditing import opened_audit
    from cachemind_services.bootstrap.pinned import means_of, read_pinned

    pinned = read_pinned(arguments.keys)
    pins = [_pinned_cut(path, pinned.log_id) for path in arguments.pinned_cut]
    report = AuditReport(_since_ns(arguments.since))
    settings = settings_from(arguments)
    wal: bool = arguments.against_wal
    try:
        with (
            read_bar() as progress,
            opened_audit(settings, arguments.files, wal, progress) as opened,
        ):
            verification = Verification(opened.log, means_of(pinned), pins)
            for finding in verification.findings():
                report.add(finding)
            for finding in opened.kept():
                report.add(finding)
    except UndecodableRecord as error:
        raise InvalidRequest("--files", error.reason) from error
    summary = verification.summary()
    report.fold(summary)
    if arguments.json:
        told = {"log_id": pinned.log_id, "where": opened.where}
        print(json.dumps(told | report_row(report, summary)))
    else:
        print("\n".join(report_lines(report, summary, opened.where, wal=wal)))
    return EXITS[report.outcome]


def _pinned_cut(path: Path, log_id: LogId) -> CutNote:
    try:
        found = CutNote.parse(path.read_text(encoding="utf-8"))
    except (MalformedNote, UnicodeDecodeError) as error:
        problem = f"{path} is no checkpoint: {error}"
        raise InvalidRequest("--pinned-cut", problem) from error
    if found.checkpoint.origin != log_id:
        problem = f"{path} is of {found.checkpoint.origin!r}, not of {log_id!r}"
        raise InvalidRequest("--pinned-cut", problem)
    return found


def _since_ns(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        problem = "takes ISO 8601, for example 2026-01-31T12:00:00Z"
        raise InvalidRequest("--since", problem) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * _NS_PER_S
