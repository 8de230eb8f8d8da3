"""`cachemind audit show`: the receipts of one trace, verified here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from cachemind.codec.evidence import read_evidence
from cachemind.core.audit_evidence import Evidence, evidence_problems
from cachemind.core.audit_findings import Finding
from cachemind.core.audit_means import Means
from cachemind.errors import InvalidSetting, UndecodableRecord, UnknownSchema
from cachemind.receipts import ReceiptItem
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A receipt as it came, decoded where that could be, and what is wrong with it."""

    shown: Mapping[str, Any]
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
        help="a saved answer of /v1/receipts/TRACE; then no gateway is asked",
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
    if (arguments.trace is None) == (arguments.evidence is None):
        raise InvalidSetting("TRACE", "name a trace, or a file by --evidence")
    keys = arguments.keys or pinned_path(settings_from(arguments))
    means = means_of(read_pinned(keys))
    judged = [_judge(shown, means) for shown in _receipts(arguments)]
    outcome = max((one.outcome for one in judged), key=_weight, default=UNVERIFIABLE)
    if arguments.json:
        print(json.dumps(_as_json(judged, outcome)))
    else:
        print("\n".join(_lines(judged, outcome, keys)))
    return EXIT_CODES[outcome]


def _weight(outcome: str) -> int:
    """Return how much an outcome weighs: what was tampered with is the worst."""
    return (OK, UNVERIFIABLE, TAMPERED).index(outcome)


def _receipts(arguments: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    if arguments.evidence is not None:
        yield from _listed(_read(arguments.evidence))
        return
    after: int | None = -1
    while after is not None:
        query = f"?wait={arguments.wait}" if after < 0 else f"?after={after}"
        target = f"/v1/receipts/{quote(arguments.trace, safe='')}{query}"
        page = call(arguments, "GET", target).expect(200).json()
        yield from _listed(page)
        after = page.get("next_after")


def _read(path: Path) -> object:
    try:
        found: object = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidSetting(str(path), f"is not JSON: {error}") from error
    return found


def _listed(page: object) -> Sequence[Mapping[str, Any]]:
    found = page.get("receipts") if isinstance(page, dict) else None
    if not isinstance(found, list):
        raise InvalidSetting("receipts", "expected an answer of /v1/receipts/TRACE")
    return found


def _judge(shown: Mapping[str, Any], means: Means) -> Judged:
    try:
        evidence = read_evidence(shown)
    except UnknownSchema as error:
        return _unread(shown, UNVERIFIABLE, error)
    except UndecodableRecord as error:
        return _unread(shown, TAMPERED, error)
    problems = tuple(map(_words, evidence_problems(evidence, means)))
    return Judged(
        shown=shown,
        evidence=evidence,
        outcome=TAMPERED if problems else OK,
        problems=problems,
    )


def _unread(shown: Mapping[str, Any], outcome: str, error: Exception) -> Judged:
    return Judged(shown=shown, evidence=None, outcome=outcome, problems=(str(error),))


def _words(finding: Finding) -> str:
    return f"{finding.reason}: {finding.text} ({finding.place})"


def _as_json(judged: Sequence[Judged], outcome: str) -> Mapping[str, object]:
    return {
        "outcome": outcome,
        "receipts": [
            {**one.shown, "outcome": one.outcome, "problems": one.problems}
            for one in judged
        ],
    }


def _lines(judged: Sequence[Judged], outcome: str, keys: Path) -> Iterator[str]:
    for one in judged:
        yield from _receipt_lines(one)
    count = len(judged)
    yield f"{outcome.upper()}: {count} receipt{'s'[: count != 1]}, by {keys} alone"


def _receipt_lines(judged: Judged) -> Iterator[str]:
    evidence = judged.evidence
    if evidence is None:
        yield "a receipt that cannot be read"
    else:
        # From the bytes that are signed, not from what is shown beside them.
        receipt = evidence.receipt
        yield (
            f"partition {receipt.partition} seq {receipt.seq}  {receipt.kind} "
            f"at {receipt.source}  namespace {receipt.namespace}"
        )
        for item in receipt.items:
            yield f"    {_item(item)}"
        yield f"    record    sha256 {receipt.record_hash.hex()}"
        yield (
            f"    signed    {moment(receipt.signed_at_ns)} by key {receipt.key_id}, "
            f"cut {evidence.cut.index} of {evidence.cut.log_id}"
        )
    yield from (f"    WRONG     {problem}" for problem in judged.problems)


def _item(item: ReceiptItem) -> str:
    hashes = (
        f"  {name} {value.hex()[:_PREFIX_CHARS]}"
        for name, value in (
            ("context", item.context_hash),
            ("prompt", item.prompt_hash),
            ("response", item.response_hash),
        )
        if value is not None
    )
    when = moment(item.occurred_at_us * NS_PER_US)
    return f"{item.outcome}  {when}  {item.principal}{''.join(hashes)}"
