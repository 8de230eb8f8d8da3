"""Payloads as the settings ask for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachemind.adapters.data_key_bucket import DataKeyBucket
from cachemind.adapters.data_key_folder import DataKeyFolder
from cachemind.core.payloads import PLAIN
from cachemind.errors import InvalidSetting, PayloadUnreadable
from cachemind_services.bootstrap.payloads import (
    open_data_keys,
    open_payloads,
    read_payloads,
)
from cachemind_services.settings import Settings, load
from tests.unit.test_gateway_parts import stored


def settings(folder: Path, **more: str) -> Settings:
    key = folder / "payload.key"
    if not key.exists():
        key.write_text(os.urandom(32).hex() + "\n")
        key.chmod(0o600)
    flags = {
        "data_dir": str(folder / "data"),
        "payload_key": f"file:{key}",
        "namespace": "shop",
        **more,
    }
    return load({}, flags=flags)


def test_payloads_are_in_the_clear_by_default(tmp_path: Path) -> None:
    opened = open_payloads(load({}, flags={"data_dir": str(tmp_path)}), makes=True)
    assert (opened.payloads, opened.keys) == (PLAIN, None)
    assert not opened.payloads.encrypted


def test_a_writer_makes_the_key_that_a_reader_finds(tmp_path: Path) -> None:
    opened = open_payloads(settings(tmp_path), makes=True)
    assert opened.keys is not None
    assert opened.payloads.encrypted
    with pytest.raises(PayloadUnreadable):
        opened.payloads.stored(stored(1))
    opened.keys.refresh()
    sealed = opened.payloads.stored(stored(1))
    assert read_payloads(settings(tmp_path)).opened(sealed).prompt == stored(1).prompt
    [path] = (tmp_path / "data" / "data-keys" / "shop").iterdir()
    assert path.name == "00000001.json"


def test_who_reads_makes_nothing(tmp_path: Path) -> None:
    assert read_payloads(settings(tmp_path)).encrypted
    assert not (tmp_path / "data" / "data-keys").exists()


def test_a_shared_log_needs_a_shared_place_for_keys(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "k:9092"}
    with pytest.raises(InvalidSetting, match="DATA_KEYS_URL"):
        open_payloads(settings(tmp_path, **kafka), makes=True)
    shared = settings(tmp_path, **kafka, data_keys_url=str(tmp_path / "shared"))
    assert isinstance(open_data_keys(shared), DataKeyFolder)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("/srv/keys", DataKeyFolder),
        ("file:///srv/keys", DataKeyFolder),
        ("s3://bucket/keys", DataKeyBucket),
    ],
)
def test_the_place_is_named_by_a_path_or_a_url(
    tmp_path: Path, url: str, kind: type
) -> None:
    assert isinstance(open_data_keys(settings(tmp_path, data_keys_url=url)), kind)


@pytest.mark.parametrize(
    "uri", ["file:/no/such/key", "nothing:x", "/srv/key", "aws-kms:not-an-arn"]
)
def test_a_wrong_key_stops_the_start_by_the_settings_name(
    tmp_path: Path, uri: str
) -> None:
    with pytest.raises(InvalidSetting) as found:
        open_payloads(settings(tmp_path, payload_key=uri), makes=True)
    said = str(found.value)
    assert "CACHEMIND_PAYLOAD_KEY" in said or "--payload-key" in said


def test_a_key_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    wanted = settings(tmp_path)
    (tmp_path / "payload.key").chmod(0o644)
    with pytest.raises(InvalidSetting, match="CACHEMIND_PAYLOAD_KEY"):
        open_payloads(wanted, makes=True)
