"""A log whose receipts an HSM signs and whose cuts a KMS signs: SoftHSM2 and moto."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cachemind.types import Partition
from cachemind_services.bootstrap.pinned import pinned_path
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from cachemind_services.settings import load
from tests.integration.installation import Installation, installation, signer
from tests.integration.serving import eventually
from tests.integration.signing_host import SignedLog
from tests.kms import KmsFront, fronted_kms, new_key, set_credentials
from tests.tokens import PIN, Token, make_token

pytestmark = pytest.mark.broker

SLOW_S = 0.05
BATCH_S = 0.5


@pytest.fixture
def token(tmp_path: Path) -> Token:
    (tmp_path / "hsm").mkdir()
    return make_token(tmp_path / "hsm")


@pytest.fixture
def kms(token: Token, monkeypatch: pytest.MonkeyPatch) -> Iterator[KmsFront]:
    """A KMS that can be slow or away; not even started where there is no HSM."""
    set_credentials(monkeypatch)
    with fronted_kms() as front:
        yield front


@pytest.fixture
def there(
    token: Token,
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Installation]:
    with installation(broker, topic_prefix, tmp_path, monkeypatch, capsys) as there:
        yield there


def in_kms(kms: KmsFront) -> str:
    """Make a key; return its URI by the front."""
    arn = new_key(kms.url, "ECC_NIST_P256", "SIGN_VERIFY")
    return f"aws-kms:{arn}?endpoint={kms.url}"


def begin(
    there: Installation,
    token: Token,
    monkeypatch: pytest.MonkeyPatch,
    *,
    receipt_key: str,
    log_key: str,
) -> None:
    """Begin the log with these keys, and a root key in the HSM."""
    token.make_pair("root")
    for name, value in {
        "PKCS11_MODULE": str(token.module),
        "PKCS11_PIN": PIN,
        "AUDIT_ROOT_KEY": token.uri("root"),
        "AUDIT_LOG_KEYS": log_key,
        "AUDIT_RECEIPT_KEYS": receipt_key,
    }.items():
        monkeypatch.setenv(f"CACHEMIND_{name}", value)
    there.settings = load(os.environ)
    there.command("init")


def verdict(
    there: Installation,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *flags: str,
) -> dict[str, Any]:
    """Return what an auditor is told who has keys.json and the topics alone."""
    keys = shutil.copy(pinned_path(there.settings), folder / "pinned.json")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name in there.settings.environ():
            if name.startswith(("CACHEMIND_AUDIT", "CACHEMIND_PKCS11")):
                patch.delenv(name, raising=False)
        patch.delenv("CACHEMIND_LOG_DIR")
        code = main(["audit", "verify", "--keys", str(keys), "--json", *flags])
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == 0, told
    return told


def require_one_to_one(log: SignedLog) -> None:
    """Require a receipt of each record of the WAL, in its order."""
    for partition in log.partitions:
        records = log.records(log.wal, partition)
        sources = [receipt.source for receipt in log.receipts(partition)]
        assert sources == [record.lsn for record in records]


def runs(log: SignedLog, partition: Partition) -> list[int]:
    """Return how many receipts each transaction brought: its mark takes an offset."""
    found = [1]
    offsets = [record.lsn.offset for record in log.records(log.audit, partition)]
    for before, after in pairwise(offsets):
        if after == before + 1:
            found[-1] += 1
        else:
            found.append(1)
    return found


def test_receipts_by_an_hsm_and_cuts_by_a_kms_verify_by_the_pinned_keys_alone(
    there: Installation,
    token: Token,
    kms: KmsFront,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = there.log
    token.make_pair("receipt")
    receipt_key, log_key = token.uri("receipt"), in_kms(kms)
    begin(there, token, monkeypatch, receipt_key=receipt_key, log_key=log_key)
    with signer(there) as process:
        log.append_some(200)
        log.wait_signed()

        kms.away.set()
        log.append_some(50)
        eventually(lambda: kms.turned_away > 0)
        # Whoever asks for the next signature has appended the last cut.
        cuts, turned_away = log.cuts_end(), kms.turned_away
        log.append_some(1500)
        eventually(log.is_signed, 60)
        eventually(lambda: kms.turned_away > turned_away + 3, 60)
        assert log.cuts_end() == cuts

        kms.away.clear()
        log.append_some(50)
        log.wait_signed()
        assert process.alive()
    require_one_to_one(log)
    told = verdict(there, tmp_path, monkeypatch, capsys)
    assert told["outcome"] == "ok"
    against = verdict(there, tmp_path, monkeypatch, capsys, "--against-wal")
    assert against["outcome"] == "ok"
    assert sum(len(log.receipts(p)) for p in log.partitions) == 1802


def test_what_a_slow_key_has_signed_does_not_wait_for_the_rest(
    there: Installation,
    token: Token,
    kms: KmsFront,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = there.log
    token.make_pair("log")
    receipt_key, log_key = in_kms(kms), token.uri("log")
    begin(there, token, monkeypatch, receipt_key=receipt_key, log_key=log_key)
    log.append_some(60)
    kms.delay_s = SLOW_S
    with signer(there):
        log.wait_signed()
    most = int(BATCH_S / SLOW_S) + 1
    assert all(max(runs(log, partition)) <= most for partition in log.partitions)
    require_one_to_one(log)
    assert verdict(there, tmp_path, monkeypatch, capsys)["outcome"] == "ok"
