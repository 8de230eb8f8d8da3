"""Gathers what a verification finds into a report of bounded size."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from cachemind.core.audit_findings import (
    Finding,
    Outcome,
    Place,
    Reason,
    Severity,
    Step,
    tampered,
)
from cachemind.core.audit_verify import Summary

MOST_LISTED: Final = 1_000
"""Findings, and as many notes, that are kept word for word; all are counted."""


class AuditReport:
    """Takes findings one by one; the verdict is on all of them.

    Of those that claim a time before `since_ns` only the number is kept.
    Units: `since_ns` in nanoseconds since the Unix epoch (UTC).
    """

    def __init__(self, since_ns: int | None = None) -> None:
        self.since_ns = since_ns
        self.problems: list[Finding] = []
        self.notes: list[Finding] = []
        self.first: Finding | None = None
        self.count = 0
        self.earlier = 0
        self.steps: dict[Step, Counter[str]] = {step: Counter() for step in Step}
        self.firsts: dict[Step, Finding] = {}
        self.folded = False
        self._severities: set[Severity] = set()

    def add(self, finding: Finding) -> None:
        """Take in one finding."""
        early = self._is_early(finding.place)
        if finding.severity is Severity.NOTE:
            if not early and len(self.notes) < MOST_LISTED:
                self.notes.append(finding)
            return
        self._severities.add(finding.severity)
        self.count += 1
        self.steps[finding.step][finding.reason] += 1
        self.first = self.first or finding
        self.firsts.setdefault(finding.step, finding)
        if early:
            self.earlier += 1
        elif len(self.problems) < MOST_LISTED:
            self.problems.append(finding)

    def fold(self, summary: Summary) -> None:
        """Say what all findings come from where no key is vouched for at all.

        To be called once, when all were added. One of each kind is listed then. What
        is counted and the verdict stay: a log that is forged as a whole looks the same
        as one that was given with another log's pinned keys.
        """
        if summary.keys or self.outcome is not Outcome.TAMPERED:
            return
        found = tampered(
            Step.KEYS,
            Reason.NO_KEY_VOUCHED_FOR,
            "nothing here is signed by a key that the pinned root keys vouch for: they "
            "are those of another log, or all of this one is forged",
        )
        kinds = {(one.step, one.reason): one for one in reversed(self.problems)}
        listed = [one for one in self.problems if kinds[one.step, one.reason] is one]
        self.first = self.firsts[Step.KEYS] = found
        self.problems = [found, *listed]
        self.steps[Step.KEYS][found.reason] += 1
        self.count += 1
        self.folded = True

    def times(self, finding: Finding) -> int:
        """Return how many findings the listed one stands for."""
        return self.steps[finding.step][finding.reason] if self.folded else 1

    @property
    def outcome(self) -> Outcome:
        """Return the verdict: the worst finding counts, whenever it was."""
        if Severity.TAMPERED in self._severities:
            return Outcome.TAMPERED
        if Severity.UNVERIFIABLE in self._severities:
            return Outcome.UNVERIFIABLE
        return Outcome.OK

    def _is_early(self, place: Place) -> bool:
        return (
            self.since_ns is not None
            and place.at_ns is not None
            and place.at_ns < self.since_ns
        )


def report_row(report: AuditReport, summary: Summary) -> dict[str, Any]:
    """Return the whole report as JSON takes it."""
    return {
        "outcome": report.outcome.value,
        "first": None if report.first is None else finding_row(report.first),
        "findings": [
            finding_row(one)
            | ({"times": report.times(one)} if report.times(one) > 1 else {})
            for one in report.problems
        ],
        "findings_in_all": report.count,
        "findings_before_since": report.earlier,
        "notes": [finding_row(one) for one in report.notes],
        "steps": [
            {"step": int(step), "name": step.name.lower(), "reasons": dict(reasons)}
            for step, reasons in report.steps.items()
        ],
        "summary": summary_row(summary),
    }


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return one finding; a place has only what is known of it."""
    place = finding.place
    where = {
        "partition": place.partition,
        "seq": place.seq,
        "lsn": None if place.source is None else str(place.source),
        "cut": place.index,
        "at_ns": place.at_ns,
    }
    return {
        "severity": finding.severity.value,
        "step": int(finding.step),
        "reason": finding.reason.value,
        **{name: value for name, value in where.items() if value is not None},
        "text": finding.text,
    }


def summary_row(summary: Summary) -> dict[str, Any]:
    """Return what the log is."""
    return {
        "cuts": summary.cuts,
        "last_cut": summary.last_cut,
        "last_cut_ns": summary.last_cut_ns,
        "partitions": [
            {
                "partition": number,
                "receipts": count,
                "covered": summary.covered.get(number, 0),
            }
            for number, count in sorted(summary.receipts.items())
        ],
        "kinds": dict(summary.kinds),
        "keys": [
            {
                "key_id": key.key_id,
                "role": key.role.value,
                "added": key.added,
                "retired": key.retired,
                "last_good_cut": key.last_good_cut,
            }
            for key in summary.keys
        ],
        "seen_elsewhere": summary.seen_elsewhere,
        "witnesses": dict(summary.witnesses),
    }
