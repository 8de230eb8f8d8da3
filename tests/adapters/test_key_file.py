from __future__ import annotations

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from cachemind.adapters.key_file import create_key_file, open_key_file
from cachemind.adapters.local_key import LocalKey
from cachemind.adapters.private_file import create_private, read_private
from cachemind.core.ecdsa_signature import with_low_s
from cachemind.errors import KeyRefused, KeyUnavailable
from cachemind.ports import SigningKey
from tests.contracts.signing_key_contract import SigningKeyContract

PASSPHRASE = b"correct horse battery staple"
P_256 = ec.derive_private_key(7, ec.SECP256R1())
ENCRYPTED = BestAvailableEncryption(PASSPHRASE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "root.pem"


class TestKeyFile(SigningKeyContract):
    @pytest.fixture
    def key(self, path: Path) -> SigningKey:
        return create_key_file(path, PASSPHRASE)


def test_a_key_is_the_same_after_it_was_opened_again(path: Path) -> None:
    made = create_key_file(path, PASSPHRASE)
    again = open_key_file(path, PASSPHRASE)
    assert again.public_key == made.public_key
    assert again.sign(b"message") == made.sign(b"message")


@pytest.mark.parametrize(
    ("message", "signature"),
    [
        pytest.param(
            b"sample",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
            "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
            id="sample",
        ),
        pytest.param(
            b"test",
            "F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367"
            "019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083",
            id="test",
        ),
    ],
)
def test_signatures_are_those_of_rfc_6979_with_a_low_s(
    message: bytes, signature: str
) -> None:
    number = 0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721
    key = LocalKey(ec.derive_private_key(number, ec.SECP256R1()))
    assert key.sign(message).value == with_low_s(bytes.fromhex(signature))


def test_the_file_is_its_owners_alone_and_encrypted_with_scrypt(path: Path) -> None:
    create_key_file(path, PASSPHRASE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert [file.name for file in path.parent.iterdir()] == ["root.pem"]


@pytest.mark.skipif(which("openssl") is None, reason="openssl is not installed")
def test_openssl_reads_the_file_and_agrees_on_the_public_key(path: Path) -> None:
    key = create_key_file(path, PASSPHRASE)
    command = ["openssl", "pkey", "-in", str(path), "-passin", "stdin"]
    found = subprocess.run(
        [*command, "-pubout", "-outform", "DER"],
        input=PASSPHRASE + b"\n",
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert found.stdout == key.public_key
    shown = subprocess.run(
        ["openssl", "asn1parse", "-in", str(path)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert b":scrypt" in shown.stdout


def test_a_key_that_openssl_encrypted_another_way_is_opened(path: Path) -> None:
    create_private(
        path, P_256.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, ENCRYPTED)
    )
    assert open_key_file(path, PASSPHRASE).public_key == LocalKey(P_256).public_key


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, ENCRYPTED)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"", "not a private key in PEM", id="empty"),
        pytest.param(b"\xff" * 99, "not a private key in PEM", id="noise"),
        pytest.param(pem(P_256)[:200], "not a private key in PEM", id="cut"),
        pytest.param(
            P_256.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "must be encrypted",
            id="in-the-clear",
        ),
        pytest.param(
            pem(ec.derive_private_key(7, ec.SECP384R1())), "P-256", id="p-384"
        ),
        pytest.param(
            pem(ec.derive_private_key(7, ec.SECP256K1())), "P-256", id="secp256k1"
        ),
        pytest.param(
            pem(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))),
            "P-256",
            id="ed25519",
        ),
    ],
)
def test_a_file_that_holds_no_encrypted_p_256_key_is_refused(
    path: Path, content: bytes, problem: str
) -> None:
    create_private(path, content)
    with pytest.raises(KeyRefused, match=problem) as caught:
        open_key_file(path, PASSPHRASE)
    assert caught.value.key == str(path)


def test_a_wrong_passphrase_is_said_and_not_shown(path: Path) -> None:
    create_key_file(path, PASSPHRASE)
    with pytest.raises(KeyRefused, match="passphrase is wrong") as caught:
        open_key_file(path, b"wr0ng")
    assert "wr0ng" not in repr(caught.value)


def test_an_empty_passphrase_is_none(path: Path) -> None:
    with pytest.raises(KeyRefused, match="needs a passphrase"):
        create_key_file(path, b"")
    assert not path.exists()
    create_key_file(path, PASSPHRASE)
    with pytest.raises(KeyRefused, match="needs a passphrase"):
        open_key_file(path, b"")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610, 0o602])
def test_a_file_that_others_get_at_is_refused(path: Path, mode: int) -> None:
    create_key_file(path, PASSPHRASE)
    path.chmod(mode)
    with pytest.raises(KeyRefused, match=rf"owner alone.*found mode 0{mode:o}"):
        open_key_file(path, PASSPHRASE)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_that_its_owner_alone_reads_will_do(path: Path, mode: int) -> None:
    create_key_file(path, PASSPHRASE)
    path.chmod(mode)
    open_key_file(path, PASSPHRASE)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, problem in {
        "none": "No such file",
        "pipe": "regular file",
        ".": "Is a directory",
        "pipe/below": "Not a directory",
    }.items():
        with pytest.raises(KeyRefused, match=problem):
            read_private(tmp_path / name)


def test_a_large_file_is_refused(path: Path) -> None:
    create_private(path, bytes(65_537))
    with pytest.raises(KeyRefused, match="at most 65536 bytes"):
        read_private(path)


def test_a_key_is_never_replaced(path: Path) -> None:
    made = create_key_file(path, PASSPHRASE)
    with pytest.raises(KeyRefused, match="already there"):
        create_key_file(path, PASSPHRASE)
    assert open_key_file(path, PASSPHRASE).public_key == made.public_key
    assert [file.name for file in path.parent.iterdir()] == ["root.pem"]


def test_of_many_makers_one_wins_and_its_file_is_whole(path: Path) -> None:
    def make(_: int) -> LocalKey | None:
        try:
            return create_key_file(path, PASSPHRASE)
        except KeyRefused:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [key for key in pool.map(make, range(8)) if key is not None]
    assert [key.key_id for key in made] == [open_key_file(path, PASSPHRASE).key_id]


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyUnavailable, match="cannot be made: File exists"):
        create_private(tmp_path / "file" / "root.pem", b"x")
