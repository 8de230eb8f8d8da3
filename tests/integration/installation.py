"""An audit log whose keys the command line makes, and signers with those keys."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cachemind.codec.receipts import decode_signed_receipt
from cachemind.core.audit_findings import Finding, Severity
from cachemind.core.audit_verify import AuditLog, Summary, Verification
from cachemind.types import Partition
from cachemind_services.bootstrap.pinned import means_of, pinned_path, read_pinned
from cachemind_services.bootstrap.signer import run as run_signer
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from cachemind_services.settings import Settings, load
from tests.integration.forked import Forked
from tests.integration.signing_host import SignedLog, signed_log


class Installation:
    """A log, its folder of keys, and the commands that change them."""

    def __init__(
        self,
        log: SignedLog,
        settings: Settings,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.log = log
        self.settings = settings
        self.folder = folder
        self._capsys = capsys

    def command(self, *words: str) -> Any:
        """Return what `cachemind audit keys` prints as JSON."""
        self._capsys.readouterr()
        assert self.exit_code(*words) == 0, self._capsys.readouterr().err
        return json.loads(self._capsys.readouterr().out)

    def exit_code(self, *words: str) -> int:
        return main(["audit", "keys", *words, "--json"])

    def keys(self) -> dict[str, str]:
        """Return the state of each key."""
        return {row["key_id"]: row["state"] for row in self.command("list")}

    def wal_events(self) -> int:
        """Return how many events are on the log."""
        log = self.log
        return sum(len(log.records(log.wal, place)) for place in log.partitions)

    def signed_by(self, partition: int = 0) -> list[str]:
        """Return which keys signed a partition's receipts, in order, each once."""
        records = self.log.records(self.log.audit, Partition(partition))
        ids = [
            decode_signed_receipt(record.value or b"").signature.key_id
            for record in records
        ]
        return list(dict.fromkeys(ids))

    def verified(self) -> tuple[Sequence[Finding], Summary]:
        """Verify all by what is pinned; return what is wrong."""
        log = self.log
        cuts = [one.value or b"" for one in log.records(log.cuts, Partition(0))]
        receipts = {
            p: iter([one.value or b"" for one in log.records(log.audit, p)])
            for p in log.partitions
        }
        means = means_of(read_pinned(pinned_path(self.settings)))
        found = Verification(
            AuditLog(cuts=lambda: cuts, receipts=receipts, wal={}), means
        )
        wrong = [one for one in found.findings() if one.severity is not Severity.NOTE]
        return wrong, found.summary()


@contextmanager
def installation(
    broker: EmbeddedBroker,
    topic_prefix: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Installation]:
    """Make the topics of a log, and set the environment to it."""
    settings = load(
        {
            "CACHEMIND_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "CACHEMIND_TOPIC_PREFIX": topic_prefix,
            "CACHEMIND_PARTITIONS": "2",
            "CACHEMIND_DATA_DIR": str(folder / "data"),
            "CACHEMIND_LOG_DIR": str(folder / "audit"),
        }
    )
    for name, value in settings.environ().items():
        monkeypatch.setenv(name, value)
    with signed_log(broker, topic_prefix, folder, partitions=2) as log:
        yield Installation(log, settings, folder, capsys)


def sign_here(failpoint: str) -> int:
    """Sign with the settings of the environment."""
    logging.basicConfig(level=logging.INFO)
    return run_signer(load(os.environ), failpoint)


@contextmanager
def signer(there: Installation) -> Iterator[Forked]:
    """Run a signer with the settings of the environment; it must end in order."""
    process = Forked(sign_here, "", there.folder / "signer.log")
    try:
        yield process
        assert process.stop(20) == 0, process.output()
    finally:
        process.close()
