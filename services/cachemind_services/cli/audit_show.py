"""`cachemind audit show`: the receipts of one trace, verified here."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from cachemind.codec.evidence import read_evidence, shown_receipt
from cachemind.core.audit_evidence import Evidence, evidence_problems
from cachemind.core.audit_findings import Finding
from cachemind.core.audit_means import Means
from cachemind.errors import (
    CacheError,
    InvalidSetting,
    UndecodableRecord,
    UnknownSchema,
)
from cachemind.receipts import ReceiptItem
from cachemind.types import ID_BYTES, TraceId
from cachemind_services.bootstrap.pinned import means_of, pinned_path, read_pinned
from cachemind_services.cli.describe import moment
from cachemind_services.cli.http import add_client, call
from cachemind_services.cli.options import settings_from

OK: Final = "ok"
TAMPERED: Final = "tampered"
UNVERIFIABLE: Final = "unverifiable"
EXIT_CODES: Final = {OK: 0, TAMPERED: 1, UNVERIFIABLE: 2}
NS_PER_US: Final = 1_000
_PREFIX_CHARS: Final = 16
_EXPECTED: Final = "expected an answer of /v1/receipts/TRACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A receipt, decoded where that could be, and what is wrong with it."""

    evidence: Evidence | None
    outcome: str
    problems: tuple[str, ...]


def add_to(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = actions.add_parser(
        "show", help="show the receipts of a trace and verify them with keys.json alone"
    )
    parser.add_argument(
        "trace", nargs="?", metavar="TRACE", help="as in X-CacheMind-Trace"
    )
    parser.add_argument(
        "--evidence",
        type=Path,
        metavar="FILE",
        help="a saved answer of /v1/receipts/TRACE, asked in place of a gateway; "
        "with TRACE it must be of that trace",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="what you pin; default keys.json in --log-dir",
    )
    parser.add_argument(
        "--wait", default="2s", help="how long a receipt may take (default: 2s)"
    )
    add_client(parser, ("log_dir",))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the receipts. Exit 0: all verified, 1: one is not, 2: it cannot be told."""
    try:
        return _show(arguments)
    except (CacheError, OSError) as error:
        # Whatever keeps us from reading is no verdict: exit 1 means tampered with.
        print(f"cachemind: {error}", file=sys.stderr)
        return EXIT_CODES[UNVERIFIABLE]


def _show(arguments: argparse.Namespace) -> int:
    if arguments.trace is None and arguments.evidence is None:
        raise InvalidSetting("TRACE", "name a trace, or a file by --evidence")
    keys = arguments.keys or _default_keys(arguments)
    means = means_of(read_pinned(keys))
    trace, receipts = _asked(arguments)
    judged = [_judge(given, trace, means) for given in receipts]
    outcome = max((one.outcome for one in judged), key=_weight, default=UNVERIFIABLE)
    if arguments.json:
        print(json.dumps(_as_json(judged, trace, outcome)))
    else:
        print("\n".join(_lines(judged, trace, outcome, keys)))
    return EXIT_CODES[outcome]


def _default_keys(arguments: argparse.Namespace) -> Path:
    settings = settings_from(arguments)
    if settings.log_dir is None:
        raise InvalidSetting("--keys", "name keys.json, or its folder by --log-dir")
    return pinned_path(settings)


def _weight(outcome: str) -> int:
    """Return how much an outcome weighs: what was tampered with is the worst."""
    return (OK, UNVERIFIABLE, TAMPERED).index(outcome)


def _asked(
    arguments: argparse.Namespace,
) -> tuple[TraceId, Iterable[Mapping[str, Any]]]:
    """Return the trace that is asked about, and the receipts that were answered."""
    if arguments.evidence is None:
        return _trace("TRACE", arguments.trace), _from_gateway(arguments)
    page = _read(arguments.evidence)
    receipts = _listed(page)
    if arguments.trace is not None:
        return _trace("TRACE", arguments.trace), receipts
    return _trace("trace_id", page.get("trace_id")), receipts


def _trace(name: str, given: object) -> TraceId:
    try:
        raw = bytes.fromhex(str(given))
    except ValueError:
        raw = b""
    if len(raw) != ID_BYTES:
        raise InvalidSetting(name, f"must be {2 * ID_BYTES} hex characters")
    return TraceId(raw)


def _from_gateway(arguments: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    after: int | None = -1
    while after is not None:
        query = f"?wait={arguments.wait}" if after < 0 else f"?after={after}"
        target = f"/v1/receipts/{quote(arguments.trace, safe='')}{query}"
        page = _page(call(arguments, "GET", target).expect(200).json())
        yield from _listed(page)
        after = page.get("next_after")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found: object = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidSetting(str(path), f"is not JSON: {error}") from error
    return _page(found)


def _page(found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise InvalidSetting("receipts", _EXPECTED)
    return found


def _listed(page: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = page.get("receipts")
    if not isinstance(found, list):
        raise InvalidSetting("receipts", _EXPECTED)
    return found


def _judge(given: Mapping[str, Any], trace: TraceId, means: Means) -> Judged:
    try:
        evidence = read_evidence(given)
    except UnknownSchema as error:
        return _unread(UNVERIFIABLE, error)
    except UndecodableRecord as error:
        return _unread(TAMPERED, error)
    problems = [_words(problem) for problem in evidence_problems(evidence, means)]
    if all(item.trace_id != trace for item in evidence.receipt.items):
        # A sound receipt of another trace proves nothing about the one asked for.
        problems.append(f"other-trace: it is not about the trace {trace.hex()}")
    return Judged(
        evidence=evidence,
        outcome=TAMPERED if problems else OK,
        problems=tuple(problems),
    )


def _unread(outcome: str, error: Exception) -> Judged:
    return Judged(evidence=None, outcome=outcome, problems=(str(error),))


def _words(finding: Finding) -> str:
    return f"{finding.reason}: {finding.text} ({finding.place})"


def _as_json(
    judged: Sequence[Judged], trace: TraceId, outcome: str
) -> Mapping[str, object]:
    return {
        "outcome": outcome,
        "trace_id": trace.hex(),
        "receipts": list(map(_receipt_as_json, judged)),
    }


def _receipt_as_json(judged: Judged) -> Mapping[str, object]:
    """Return what the signed bytes say, and nothing that was sent beside them."""
    told: dict[str, object] = {"outcome": judged.outcome, "problems": judged.problems}
    if judged.evidence is not None:
        receipt, cut = judged.evidence.receipt, judged.evidence.cut
        told["receipt"] = shown_receipt(receipt)
        told["cut"] = {"index": cut.index, "at_ns": cut.at_ns, "log_id": cut.log_id}
    return told


def _lines(
    judged: Sequence[Judged], trace: TraceId, outcome: str, keys: Path
) -> Iterator[str]:
    for one in judged:
        yield from _receipt_lines(one)
    count = len(judged)
    yield (
        f"{outcome.upper()}: {count} receipt{'s'[: count != 1]} of trace "
        f"{trace.hex()}, by {keys} alone"
    )


def _receipt_lines(judged: Judged) -> Iterator[str]:
    evidence = judged.evidence
    if evidence is None:
        yield "a receipt that cannot be read"
    else:
        # From the bytes that are signed, not from what was sent beside them.
        receipt = evidence.receipt
        yield (
            f"partition {receipt.partition} seq {receipt.seq}  {receipt.kind} "
            f"at {receipt.source}  namespace {receipt.namespace}"
        )
        for item in receipt.items:
            yield f"    {item_line(item)}"
        yield f"    record    sha256 {receipt.record_hash.hex()}"
        yield (
            f"    signed    {moment(receipt.signed_at_ns)} by key {receipt.key_id}, "
            f"cut {evidence.cut.index} of {evidence.cut.log_id}"
        )
    yield from (f"    WRONG     {problem}" for problem in judged.problems)


def item_line(item: ReceiptItem) -> str:
    """Return one operation of a receipt as text."""
    hashes = [
        f"  {name} {value.hex()[:_PREFIX_CHARS]}"
        for name, value in (
            ("context", item.context_hash),
            ("prompt", item.prompt_hash),
        )
        if value is not None
    ]
    if item.response_hash is not None:
        # Whole: it is compared with that of an answer that somebody has.
        hashes.append(f"  response {item.response_hash.hex()}")
    when = moment(item.occurred_at_us * NS_PER_US)
    trace = item.trace_id.hex()
    return f"{item.outcome}  {when}  {item.principal}  trace {trace}{''.join(hashes)}"
