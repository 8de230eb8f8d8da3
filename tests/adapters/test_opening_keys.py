"""Keys as the settings name them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemind.adapters.key_file import create_key_file
from cachemind.adapters.private_file import create_private
from cachemind.adapters.wrap_file import create_wrapper_file
from cachemind.errors import InvalidSetting, KeyRefused
from cachemind.receipts import KeyId, KeyRole
from cachemind_services.bootstrap.keys import (
    HeldByProcess,
    open_key_wrapper,
    open_root_key,
    open_signing_key,
)
from cachemind_services.settings import Settings, load
from tests.tokens import PIN, Token, make_token

PASSPHRASE = "correct horse"


@pytest.fixture(scope="session")
def token(tmp_path_factory: pytest.TempPathFactory) -> Token:
    token = make_token(tmp_path_factory.mktemp("softhsm"))
    token.make_pair("receipt")
    token.make_secret("payload")
    return token


def settings_of(folder: Path, **environ: str) -> Settings:
    named = {f"CACHEMIND_{name.upper()}": value for name, value in environ.items()}
    return load({"CACHEMIND_LOG_DIR": str(folder), **named})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path, audit_passphrase=PASSPHRASE)


@pytest.fixture
def held(settings: Settings) -> Iterator[HeldByProcess]:
    held = HeldByProcess(settings)
    yield held
    held.close()


def make_key(settings: Settings, name: str) -> KeyId:
    return create_key_file(settings.keys_dir / name, PASSPHRASE.encode()).key_id


def test_a_file_is_opened_with_the_passphrase_of_the_settings(
    settings: Settings,
) -> None:
    key_id = make_key(settings, "x.pem")
    uri = f"file:{settings.keys_dir / 'x.pem'}"
    assert open_signing_key(uri, settings).key_id == key_id


def test_the_passphrase_may_be_in_a_file(tmp_path: Path, settings: Settings) -> None:
    key_id = make_key(settings, "root.pem")
    create_private(tmp_path / "elsewhere", PASSPHRASE.encode() + b"\n")
    elsewhere = str(tmp_path / "elsewhere")
    named = settings_of(tmp_path, audit_passphrase_file=elsewhere)
    assert open_root_key(named).key_id == key_id
    create_private(settings.keys_dir / "passphrase", PASSPHRASE.encode())
    assert open_root_key(settings_of(tmp_path)).key_id == key_id


def test_without_a_passphrase_the_variable_is_named() -> None:
    with pytest.raises(InvalidSetting, match="CACHEMIND_AUDIT_PASSPHRASE"):
        open_signing_key("file:/no/such.pem", load({}))


def test_a_passphrase_file_that_others_read_is_refused(
    tmp_path: Path, settings: Settings
) -> None:
    make_key(settings, "root.pem")
    create_private(settings.keys_dir / "passphrase", PASSPHRASE.encode())
    (settings.keys_dir / "passphrase").chmod(0o644)
    with pytest.raises(KeyRefused, match="owner alone"):
        open_root_key(settings_of(tmp_path))


@pytest.mark.parametrize("uri", ["", "x.pem", "vault:x", "FILE:x", "/etc/x.pem"])
def test_a_uri_that_names_no_provider_is_an_invalid_setting(
    uri: str, settings: Settings
) -> None:
    for opener in (open_signing_key, open_key_wrapper):
        with pytest.raises(InvalidSetting, match="key URI: must begin with file:"):
            opener(uri, settings)


def test_a_wrapper_is_opened_from_a_file(tmp_path: Path, settings: Settings) -> None:
    made = create_wrapper_file(tmp_path / "payload")
    wrapper = open_key_wrapper(f"file:{tmp_path / 'payload'}", settings)
    assert wrapper.unwrap(made.wrap(b"s", b"c"), b"c") == b"s"


def test_keys_in_an_hsm_are_opened_with_the_pin_of_the_settings(
    tmp_path: Path, token: Token
) -> None:
    token.restart()
    create_private(tmp_path / "pin", PIN.encode() + b"\n")
    module = str(token.module)
    for environ in (
        {"pkcs11_module": module, "pkcs11_pin": PIN},
        {"pkcs11_module": module, "pkcs11_pin_file": str(tmp_path / "pin")},
    ):
        settings = settings_of(tmp_path, **environ)
        key = open_signing_key(token.uri("receipt"), settings)
        assert key.sign(b"m").key_id == key.key_id
        key.close()
        wrapper = open_key_wrapper(token.uri("payload"), settings)
        assert wrapper.unwrap(wrapper.wrap(b"s", b"c"), b"c") == b"s"
        wrapper.close()


def test_a_uri_may_bring_module_and_pin_of_its_own(
    tmp_path: Path, token: Token
) -> None:
    token.restart()
    create_private(tmp_path / "pin", PIN.encode())
    behind = f"?module-path={token.module}&pin-source=file:{tmp_path / 'pin'}"
    key = open_signing_key(token.uri("receipt") + behind, settings_of(tmp_path))
    key.close()


def test_what_an_hsm_needs_is_named(tmp_path: Path, token: Token) -> None:
    token.restart()
    with pytest.raises(InvalidSetting, match="CACHEMIND_PKCS11_MODULE"):
        open_signing_key(token.uri("receipt"), settings_of(tmp_path))
    settings = settings_of(tmp_path, pkcs11_module=str(token.module))
    with pytest.raises(InvalidSetting, match="CACHEMIND_PKCS11_PIN_FILE"):
        open_signing_key(token.uri("receipt"), settings)


def test_without_the_extra_the_uri_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "cachemind.adapters.pkcs11_object", raising=False)
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    settings = settings_of(tmp_path, pkcs11_module="/x.so")
    for opener in (open_signing_key, open_key_wrapper):
        with pytest.raises(InvalidSetting, match=r"cachemind\[pkcs11\]"):
            opener("pkcs11:token=t;object=k", settings)


def test_the_folders_keys_are_held_and_a_new_one_is_found(
    settings: Settings, held: HeldByProcess
) -> None:
    assert held.first(KeyRole.RECEIPT) is None
    first = make_key(settings, "receipt-1.pem")
    make_key(settings, "log-1.pem")
    found = held.find(KeyRole.RECEIPT, first)
    assert found is not None
    second = make_key(settings, "receipt-0.pem")
    assert [key.key_id for key in held.all(KeyRole.RECEIPT)] == [first, second]
    assert held.find(KeyRole.RECEIPT, first) is found
    oldest = held.first(KeyRole.RECEIPT)
    assert oldest is found
    assert held.find(KeyRole.LOG, first) is None


def test_the_keys_of_the_settings_are_held_and_no_others(
    tmp_path: Path, settings: Settings
) -> None:
    names = ["receipt-1.pem", "b.pem", "a.pem"]
    ids = [make_key(settings, name) for name in names]
    uris = " ".join(f"file:{settings.keys_dir / name}" for name in names[1:])
    held = HeldByProcess(
        settings_of(tmp_path, audit_passphrase=PASSPHRASE, audit_receipt_keys=uris)
    )
    assert [key.key_id for key in held.all(KeyRole.RECEIPT)] == ids[1:]
    assert held.find(KeyRole.RECEIPT, ids[0]) is None
    held.close()


def test_a_key_that_cannot_be_opened_is_said(
    settings: Settings, held: HeldByProcess
) -> None:
    create_key_file(settings.keys_dir / "receipt-1.pem", b"another")
    with pytest.raises(KeyRefused, match="passphrase is wrong"):
        held.first(KeyRole.RECEIPT)


def test_a_key_that_leads_nowhere_is_said(
    settings: Settings, held: HeldByProcess
) -> None:
    make_key(settings, "receipt-1.pem")
    (settings.keys_dir / "receipt-2.pem").symlink_to("gone.pem")
    with pytest.raises(KeyRefused, match=r"receipt-2\.pem.*cannot be read"):
        list(held.all(KeyRole.RECEIPT))
