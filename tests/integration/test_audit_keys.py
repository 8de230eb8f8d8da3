"""Keys of an audit log: made, exchanged under load and revoked by the command line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemind.adapters.key_file import create_key_file
from cachemind.core.audit_findings import Reason
from cachemind.errors import InvalidSetting
from cachemind.receipts import KeyRole
from cachemind_services.bootstrap.audit_keys import rotate_key
from cachemind_services.bootstrap.keys import passphrase
from cachemind_services.bootstrap.pinned import pinned_path, read_pinned
from cachemind_services.bootstrap.signer import run as run_signer
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from cachemind_services.settings import load
from tests.integration.forked import Forked
from tests.integration.installation import Installation, installation, signer
from tests.tokens import PIN, make_token

pytestmark = pytest.mark.broker


@pytest.fixture
def there(
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Installation]:
    with installation(broker, topic_prefix, tmp_path, monkeypatch, capsys) as there:
        yield there


@pytest.fixture
def signing(there: Installation) -> Iterator[Forked]:
    """A signer with the keys that `init` made."""
    there.command("init")
    with signer(there) as process:
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
    there: Installation, signing: Forked
) -> None:
    there.log.wait_first_cut()
    pinned_path(there.settings).unlink()
    assert there.exit_code("init") == 2


def test_the_log_is_named_as_asked(there: Installation) -> None:
    assert there.exit_code("init", "--log-id", "a b") == 2
    assert not there.settings.keys_dir.exists()
    made = there.command("init", "--log-id", "example.com/cachemind")
    assert made["log_id"] == "example.com/cachemind"
    assert there.command("init", "--log-id", "example.com/cachemind") == made
    assert there.exit_code("init", "--log-id", "example.com/other") == 2


def test_a_log_whose_name_no_checkpoint_can_have_is_not_signed(
    there: Installation,
) -> None:
    there.command("init")
    path = pinned_path(there.settings)
    path.write_text(path.read_text().replace("cachemind/", "cache mind/", 1))
    with pytest.raises(InvalidSetting, match=r"keys\.json: log_id: .* no spaces"):
        run_signer(there.settings)


def test_keys_are_exchanged_while_receipts_are_signed(
    there: Installation, signing: Forked
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
    there: Installation, signing: Forked
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
    there: Installation, signing: Forked, tmp_path: Path
) -> None:
    there.log.wait_first_cut()
    events = there.wal_events()
    create_key_file(tmp_path / "new.pem", passphrase(there.settings)).close()
    assert there.exit_code("rotate", "--key", f"file:{tmp_path / 'new.pem'}") == 2
    assert there.wal_events() == events


def test_keys_are_listed_for_people(
    there: Installation,
    signing: Forked,
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
    there: Installation, signing: Forked
) -> None:
    there.log.wait_first_cut()
    assert there.exit_code("retire", "00" * 8) == 2
    assert there.exit_code("revoke", "x", "--last-good-cut", "0") == 2


def test_another_root_key_is_refused_before_the_log_hears_of_it(
    there: Installation, signing: Forked
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
    with signer(there) as process:
        there.log.append_some(50)
        there.log.wait_signed()
        uri = token.uri("receipt-2")
        rotate_key(there.settings, KeyRole.RECEIPT, uri, "", overlap_s=2)
        there.log.append_some(50)
        there.log.wait_signed()
        assert process.alive()
    assert [len(there.signed_by(partition)) for partition in (0, 1)] == [2, 2]
    found, summary = there.verified()
    assert not found, [one.text for one in found]
    assert len(summary.keys) == 3
