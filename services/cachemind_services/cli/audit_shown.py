"""What `cachemind audit verify` prints: a bar, and a report that people can read."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from cachemind.core.audit_findings import Finding, Outcome, Reason, Step
from cachemind.core.audit_report import AuditReport
from cachemind.core.audit_verify import Summary

BAR_CHARS: Final = 30
REDRAW_S: Final = 0.1
MOST_SHOWN: Final = 50
_NS_PER_S: Final = 1_000_000_000

STEPS: Final = {
    Step.BYTES: "records decode, and have no other encoding",
    Step.KEYS: "key events are signed by root and by their key",
    Step.CUTS: "cuts and key events are dense, in order, chained",
    Step.CHECKPOINTS: "each cut's tree is signed by a log key of its time",
    Step.HEADS: "each cut names every partition, none shrinks",
    Step.SEQUENCE: "receipts are dense, none twice, none missing",
    Step.SIGNATURES: "receipts are signed by a receipt key of their time",
    Step.CHAIN: "each receipt names the one before, of this log",
    Step.SOURCES: "each receipt is about a later record",
    Step.ROOTS: "the receipts have the roots that the cuts name",
    Step.WITNESSES: "pinned cuts and witnesses agree",
    Step.WAL: "each record has its receipt, and is unchanged",
}
_VERDICTS: Final = {
    Outcome.OK: "VERIFIED",
    Outcome.TAMPERED: "TAMPERED: the log is not what was signed",
    Outcome.UNVERIFIABLE: "UNVERIFIABLE: whether it is what was signed cannot be told",
}


@contextmanager
def read_bar() -> Iterator[Callable[[int, int], None]]:
    """Yield what draws how much was read, on a terminal's error output."""
    shows = sys.stderr.isatty()
    drawn_s = 0.0

    def draw(done: int, total: int) -> None:
        nonlocal drawn_s
        now_s = time.monotonic()
        if not shows or (done < total and now_s - drawn_s < REDRAW_S):
            return
        drawn_s = now_s
        width = shutil.get_terminal_size().columns - 1
        print(bar(done, total)[:width], end="\r", file=sys.stderr, flush=True)

    yield draw
    if shows:
        print(file=sys.stderr)


def bar(done: int, total: int) -> str:
    """Return one line that says how much of the receipts was read."""
    span = max(total, 1)
    full = BAR_CHARS * min(done, span) // span
    drawn = "#" * full + "." * (BAR_CHARS - full)
    return f"receipts [{drawn}] {100 * min(done, span) // span:3d}%  {done} of {total}"


def report_lines(
    report: AuditReport, summary: Summary, where: str, *, wal: bool
) -> Iterator[str]:
    """Yield the report, a line at a time."""
    yield f"audit log in {where}"
    yield _what(summary)
    yield ""
    for step, purpose in STEPS.items():
        yield _step(report, summary, step, purpose, wal=wal)
    yield ""
    if report.first is not None:
        yield f"first: {line(report.first)}"
        yield ""
        yield from _listed(report)
    if report.notes:
        yield "to know:"
        yield from (f"  {line(note)}" for note in report.notes[:MOST_SHOWN])
        if len(report.notes) > MOST_SHOWN:
            yield f"  and {len(report.notes) - MOST_SHOWN} more; --json has them"
        yield ""
    yield _VERDICTS[report.outcome]


def line(finding: Finding) -> str:
    """Return one finding as text."""
    place = finding.place
    when = "" if place.at_ns is None else f" of {moment(place.at_ns)}"
    return f"{place}{when}: {finding.reason}: {finding.text}"


def moment(at_ns: int) -> str:
    """Return a time as text. Units: nanoseconds since the Unix epoch (UTC)."""
    whole = datetime.fromtimestamp(at_ns // _NS_PER_S, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}Z"


def _what(summary: Summary) -> str:
    receipts = sum(summary.receipts.values())
    told = f"{receipts} receipts in {len(summary.receipts)} partitions"
    if summary.last_cut is None or summary.last_cut_ns is None:
        return f"{told}, and no cut"
    return (
        f"{told}, {summary.cuts} cuts, the last is {summary.last_cut} of "
        f"{moment(summary.last_cut_ns)}"
    )


def _step(
    report: AuditReport, summary: Summary, step: Step, purpose: str, *, wal: bool
) -> str:
    count = report.steps[step].total()
    if count:
        words = ", ".join(
            f"{reason} ({times})" for reason, times in report.steps[step].items()
        )
        return f"FAILED {step:2d}  {purpose}: {words}"
    anchored = summary.seen_elsewhere is not None
    asked = (step is not Step.WAL or wal) and (step is not Step.WITNESSES or anchored)
    return f"{'ok    ' if asked else '-     '} {step:2d}  {purpose}"


def _listed(report: AuditReport) -> Iterator[str]:
    yield f"{report.count} finding{'s'[: report.count != 1]}:"
    shown = report.problems[:MOST_SHOWN]
    for finding in shown:
        times = report.times(finding)
        more = f", and {times - 1} more like it" if times > 1 else ""
        yield f"  {finding.severity}  {line(finding)}{more}"
    rest = 0 if report.folded else report.count - report.earlier - len(shown)
    if rest:
        yield f"  and {rest} more; --json has the first {len(report.problems)}"
    if report.earlier:
        yield f"  and {report.earlier} from before the time given by --since"
    if Reason.DELETED_BEFORE in {note.reason for note in report.notes}:
        yield "  (records at a topic's beginning were deleted from it: see below)"
    yield ""
