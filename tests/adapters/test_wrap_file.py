from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cachemind.adapters.private_file import create_private
from cachemind.adapters.wrap_file import (
    FileWrapper,
    create_wrapper_file,
    open_wrapper_file,
)
from cachemind.core.wrapped_key import bound
from cachemind.errors import KeyRefused
from cachemind.ports import KeyWrapper
from tests.contracts.key_wrapper_contract import CONTEXT, SECRET, KeyWrapperContract


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "payload"


class TestFileWrapper(KeyWrapperContract):
    @pytest.fixture
    def wrapper(self, path: Path) -> KeyWrapper:
        return create_wrapper_file(path)

    @pytest.fixture
    def other(self, tmp_path: Path) -> KeyWrapper:
        return create_wrapper_file(tmp_path / "other")


def test_a_key_unwraps_after_it_was_opened_again(path: Path) -> None:
    made = create_wrapper_file(path)
    again = open_wrapper_file(path)
    assert again.wrapper_id == made.wrapper_id
    assert again.unwrap(made.wrap(SECRET, CONTEXT), CONTEXT) == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_wrapping_twice_gives_other_bytes() -> None:
    wrapper = FileWrapper(bytes(32))
    assert wrapper.wrap(SECRET, CONTEXT) != wrapper.wrap(SECRET, CONTEXT)


def test_the_bytes_are_version_nonce_and_aes_gcm() -> None:
    wrapper = FileWrapper(bytes(32))
    wrapped = wrapper.wrap(SECRET, CONTEXT)
    assert wrapper.wrapper_id == "file:39201e3da818f230"
    assert wrapped[:1] == b"\x01"
    assert len(wrapped) == 1 + 12 + 32 + 16
    found = AESGCM(bytes(32)).decrypt(
        wrapped[1:13], wrapped[13:], bound(wrapper.wrapper_id, CONTEXT)
    )
    assert found == SECRET


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"", "64 hex", id="empty"),
        pytest.param(b"00" * 31, "64 hex", id="short"),
        pytest.param(b"00" * 33, "64 hex", id="long"),
        pytest.param(b"xx" * 32, "hex characters only", id="not-hex"),
        pytest.param(b"\xff" * 64, "hex characters only", id="not-ascii"),
    ],
)
def test_a_file_that_holds_no_key_is_refused(
    path: Path, content: bytes, problem: str
) -> None:
    create_private(path, content)
    with pytest.raises(KeyRefused, match=problem):
        open_wrapper_file(path)


def test_a_file_that_others_read_is_refused(path: Path) -> None:
    create_wrapper_file(path)
    path.chmod(0o644)
    with pytest.raises(KeyRefused, match="owner alone"):
        open_wrapper_file(path)


def test_a_closed_wrapper_refuses() -> None:
    wrapper = FileWrapper(bytes(32))
    wrapped = wrapper.wrap(SECRET, CONTEXT)
    wrapper.close()
    for work in (wrapper.wrap, wrapper.unwrap):
        with pytest.raises(KeyRefused, match="is closed"):
            work(wrapped, CONTEXT)
