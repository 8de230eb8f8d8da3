"""Keys of an audit log: made, exchanged under load and revoked by the command line."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cachemind.adapters.key_file import create_key_file
from cachemind.codec.receipts import decode_signed_receipt
from cachemind.core.audit_findings import Finding, Reason, Severity
from cachemind.core.audit_verify import AuditLog, Summary, Verification
from cachemind.receipts import KeyRole
from cachemind.types import Partition
from cachemind_services.bootstrap.audit_keys import rotate_key
from cachemind_services.bootstrap.keys import passphrase
from cachemind_services.bootstrap.pinned import means_of, pinned_path, read_pinned
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from cachemind_services.settings import Settings, load
from tests.integration.signing_host import SignedLog, signed_log
from tests.tokens import PIN, make_token

pytestmark = pytest.mark.broker

HERE = Path(__file__).parents[2]
SIGNER = """
import asyncio, os
from cachemind_services.bootstrap.audit_keys import signer_keys
from cachemind_services.bootstrap.signer import sign
from cachemind_services.settings import load
settings = load(os.environ)
with signer_keys(settings) as keys:
    raise SystemExit(asyncio.run(sign(settings, keys, lambda point: None)))
"""


class Installation:
    """A log, its folder of keys, and the commands that change them."""

    def __init__(
        self, log: SignedLog, settings: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.log = log
        self.settings = settings
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


@pytest.fixture
def there(
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Installation]:
    settings = load(
        {
            "CACHEMIND_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "CACHEMIND_TOPIC_PREFIX": topic_prefix,
            "CACHEMIND_PARTITIONS": "2",
            "CACHEMIND_DATA_DIR": str(tmp_path / "data"),
            "CACHEMIND_LOG_DIR": str(tmp_path / "audit"),
        }
    )
    for name, value in settings.environ().items():
        monkeypatch.setenv(name, value)
    with signed_log(broker, topic_prefix, tmp_path, partitions=2) as log:
        yield Installation(log, settings, capsys)


@contextmanager
def signer() -> Iterator[subprocess.Popen[bytes]]:
    """Run a signer with the settings of the environment."""
    process = subprocess.Popen(
        [sys.executable, "-c", SIGNER],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    try:
        yield process
        process.terminate()
        process.wait(20)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def signing(there: Installation) -> Iterator[subprocess.Popen[bytes]]:
    """A signer with the keys that `init` made."""
    there.command("init")
    with signer() as process:
        yield process


def test_init_makes_keys_tells_the_log_and_pins_the_root(there: Installation) -> None:
    made = there.command("init")
    folder = there.settings.keys_dir
    names = sorted(path.name for path in folder.iterdir())
    assert [name.partition("-")[0] for name in names] == [
        "log",
        "passphrase",
        "receipt",
        "root.pem",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    pinned = read_pinned(Path(made["pinned"]))
    assert [root.key_id for root in pinned.roots] == made["root"]
    assert made["log_id"] == pinned.log_id
    assert pinned.log_id.startswith("cachemind/")
    assert there.wal_events() == 2


def test_init_again_changes_nothing(there: Installation) -> None:
    assert there.command("init") == there.command("init")
    assert there.wal_events() == 2


def test_init_that_was_ended_goes_on_with_the_keys_that_are_there(
    there: Installation,
) -> None:
    made = there.command("init")
    before = sorted(there.settings.keys_dir.iterdir())
    pinned_path(there.settings).unlink()
    assert there.command("init") == made
    assert sorted(there.settings.keys_dir.iterdir()) == before


def test_a_log_that_has_keys_gets_no_second_root(
    there: Installation, signing: subprocess.Popen[bytes]
) -> None:
    there.log.wait_first_cut()
    pinned_path(there.settings).unlink()
    assert there.exit_code("init") == 2


def test_the_log_is_named_as_asked(there: Installation) -> None:
    assert there.exit_code("init", "--log-id", "a b") == 2
    made = there.command("init", "--log-id", "example.com/cachemind")
    assert made["log_id"] == "example.com/cachemind"


def test_keys_are_exchanged_while_receipts_are_signed(
    there: Installation, signing: subprocess.Popen[bytes]
) -> None:
    there.log.append_some(50)
    there.log.wait_signed()
    before = [key for key, state in there.keys().items() if state == "signs"]
    with there.log.load():
        for role in (KeyRole.RECEIPT, KeyRole.LOG):
            new = rotate_key(there.settings, role, "", "yearly", overlap_s=3)
            assert (new.state, new.held) == ("signs", True)
    there.log.wait_signed()
    states = there.keys()
    assert [states[key] for key in before] == ["retired", "retired"]
    assert list(states.values()).count("signs") == 2
    for partition in (0, 1):
        old, now = there.signed_by(partition)
        assert states[old] == "retired"
        assert states[now] == "signs"
    found, summary = there.verified()
    assert not found, [one.text for one in found]
    assert len(summary.keys) == 4


def test_a_key_that_was_stolen_is_taken_back(
    there: Installation, signing: subprocess.Popen[bytes]
) -> None:
    there.log.append_some(20)
    there.log.wait_signed()
    [stolen] = there.signed_by()
    rotate_key(there.settings, KeyRole.RECEIPT, "", "", overlap_s=1)
    revoked = there.command("revoke", stolen, "--last-good-cut", "-1")
    assert revoked == {"key_id": stolen, "state": "revoked"}
    assert there.keys()[stolen] == "revoked"
    found, _ = there.verified()
    assert {one.reason for one in found} == {Reason.KEY_REVOKED}


def test_a_key_that_the_signers_do_not_hold_is_not_exchanged_for(
    there: Installation, signing: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    there.log.wait_first_cut()
    events = there.wal_events()
    create_key_file(tmp_path / "new.pem", passphrase(there.settings)).close()
    assert there.exit_code("rotate", "--key", f"file:{tmp_path / 'new.pem'}") == 2
    assert there.wal_events() == events


def test_keys_are_listed_for_people(
    there: Installation,
    signing: subprocess.Popen[bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    there.log.wait_first_cut()
    capsys.readouterr()
    assert main(["audit", "keys", "list"]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split()[:4] == ["ROLE", "KEY", "STATE", "ADDED"]
    shown = [row.split() for row in rows]
    assert [(row[0], row[2], row[6]) for row in shown] == [
        ("root", "pinned", "yes"),
        ("receipt", "signs", "yes"),
        ("log", "signs", "yes"),
    ]


def test_what_is_asked_of_a_key_that_is_none_is_refused(
    there: Installation, signing: subprocess.Popen[bytes]
) -> None:
    there.log.wait_first_cut()
    assert there.exit_code("retire", "00" * 8) == 2
    assert there.exit_code("revoke", "x", "--last-good-cut", "0") == 2


def test_another_root_key_is_refused_before_the_log_hears_of_it(
    there: Installation, signing: subprocess.Popen[bytes]
) -> None:
    there.log.wait_first_cut()
    events = there.wal_events()
    folder = there.settings.keys_dir
    (folder / "root.pem").unlink()
    create_key_file(folder / "root.pem", passphrase(there.settings)).close()
    files = sorted(folder.iterdir())
    assert there.exit_code("rotate") == 1
    assert there.wal_events() == events
    assert sorted(folder.iterdir()) == files


def test_keys_in_an_hsm_sign_a_log_and_are_exchanged(
    there: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hsm").mkdir()
    token = make_token(tmp_path / "hsm")
    for label in ("root", "log", "receipt-1", "receipt-2"):
        token.make_pair(label)
    for name, value in {
        "PKCS11_MODULE": str(token.module),
        "PKCS11_PIN": PIN,
        "AUDIT_ROOT_KEY": token.uri("root"),
        "AUDIT_LOG_KEYS": token.uri("log"),
        "AUDIT_RECEIPT_KEYS": token.uri("receipt-1"),
    }.items():
        monkeypatch.setenv(f"CACHEMIND_{name}", value)
    there.settings = load(os.environ)
    there.command("init")
    assert not there.settings.keys_dir.exists()
    both = f"{token.uri('receipt-1')} {token.uri('receipt-2')}"
    monkeypatch.setenv("CACHEMIND_AUDIT_RECEIPT_KEYS", both)
    there.settings = load(os.environ)
    with signer() as process:
        there.log.append_some(50)
        there.log.wait_signed()
        uri = token.uri("receipt-2")
        rotate_key(there.settings, KeyRole.RECEIPT, uri, "", overlap_s=2)
        there.log.append_some(50)
        there.log.wait_signed()
        assert process.poll() is None
    assert [len(there.signed_by(partition)) for partition in (0, 1)] == [2, 2]
    found, summary = there.verified()
    assert not found, [one.text for one in found]
    assert len(summary.keys) == 3
