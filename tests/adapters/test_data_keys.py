from __future__ import annotations

import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from cachemind.adapters.data_key_bucket import DataKeyBucket
from cachemind.adapters.data_key_folder import DataKeyFolder
from cachemind.adapters.memory_data_keys import MemoryDataKeys
from cachemind.errors import InvalidSetting, KeyRefused, KeyUnavailable
from cachemind.ports.data_keys import DataKeyStore
from tests.contracts.data_keys_contract import SHOP, DataKeysContract, data_key

CREDENTIALS = {
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}


class TestMemoryDataKeys(DataKeysContract):
    @pytest.fixture
    def store(self) -> DataKeyStore:
        return MemoryDataKeys()


class TestDataKeyFolder(DataKeysContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DataKeyStore:
        return DataKeyFolder(tmp_path / "data-keys")


class TestDataKeyBucketOnDisk(DataKeysContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DataKeyStore:
        folder = tmp_path / "bucket"
        folder.mkdir()
        return DataKeyBucket(folder.as_uri())


class TestDataKeyBucketOnS3(DataKeysContract):
    @pytest.fixture
    def store(self, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> DataKeyStore:
        bucket = f"b{uuid.uuid4().hex[:12]}"
        urlopen(Request(f"{s3_server}/{bucket}", method="PUT"), timeout=10).close()
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT": s3_server}.items():
            monkeypatch.setenv(name, value)
        return DataKeyBucket(f"s3://{bucket}/data/keys")


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_files_are_their_owners_alone_also_once_destroyed(tmp_path: Path) -> None:
    store, key = DataKeyFolder(tmp_path / "keys"), data_key()
    store.create(key)
    [path] = (tmp_path / "keys" / SHOP).iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.destroy(key.destroyed(2))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list((tmp_path / "keys" / SHOP).iterdir()) == [path]


def test_a_destroyed_keys_bytes_are_overwritten(tmp_path: Path) -> None:
    store, key = DataKeyFolder(tmp_path), data_key()
    store.create(key)
    path = tmp_path / SHOP / "00000001.json"
    with path.open("rb") as former:
        store.destroy(key.destroyed(2))
        assert not former.read().strip(b"\0")


def test_a_file_that_is_no_key_is_refused_by_name(tmp_path: Path) -> None:
    store = DataKeyFolder(tmp_path)
    store.create(data_key())
    path = tmp_path / SHOP / "00000001.json"
    path.write_bytes(b"{}")
    with pytest.raises(KeyRefused, match=r"00000001\.json"):
        store.keys(SHOP)
    path.chmod(0o644)
    with pytest.raises(KeyRefused, match="owner"):
        store.keys(SHOP)


def test_what_else_lies_there_is_passed_over(tmp_path: Path) -> None:
    store = DataKeyFolder(tmp_path)
    store.create(data_key())
    (tmp_path / SHOP / ".00000002.json-1-ab").write_bytes(b"cut")
    assert list(store.keys(SHOP)) == [data_key()]


def test_a_disk_that_does_not_do_it_is_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(KeyUnavailable):
        DataKeyFolder(file).keys(SHOP)
    with pytest.raises(KeyUnavailable):
        DataKeyFolder(tmp_path).destroy(data_key().destroyed(1))


def test_a_bucket_that_nobody_serves_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(KeyUnavailable, match="s3://keys/x"):
        DataKeyBucket("s3://user:secret@keys/x").keys(SHOP)


def test_a_url_that_names_no_store_is_a_wrong_setting() -> None:
    with pytest.raises(InvalidSetting):
        DataKeyBucket("nowhere://x")
