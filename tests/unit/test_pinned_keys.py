from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachemind.core.audit_means import Pinned, RootKey, WitnessKey
from cachemind.core.pinned_keys import pinned_in, pinned_text
from cachemind.core.public_keys import key_id_of, pem_of
from cachemind.errors import InvalidEvent
from cachemind.receipts import LogId
from tests.unit.test_ecdsa_signature import KEY

GOLDEN = Path(__file__).parents[1] / "vectors" / "audit_keys.json"
ROOT = {"key_id": key_id_of(KEY), "public_key_pem": pem_of(KEY)}
DOCUMENT: dict[str, Any] = {"log_id": "example.com/log", "root": [ROOT]}


def test_what_is_pinned_goes_to_text_and_back() -> None:
    pinned = Pinned(
        log_id=LogId("example.com/log"),
        roots=(RootKey(key_id=key_id_of(KEY), public_key=KEY),),
        witnesses=(WitnessKey(name="w.example.com/1", public_key=b"\x30\x00"),),
    )
    assert pinned_in(pinned_text(pinned)) == pinned


def test_the_golden_file_is_read_and_written_the_same() -> None:
    content = GOLDEN.read_bytes()
    assert pinned_text(pinned_in(content)) == content


def test_witnesses_may_be_left_out() -> None:
    assert pinned_in(json.dumps(DOCUMENT).encode()).witnesses == ()


@pytest.mark.parametrize(
    ("content", "field"),
    [
        pytest.param(b"", "pinned keys", id="nothing"),
        pytest.param(b"[]", "pinned keys", id="a-list"),
        pytest.param(b"{}", "pinned keys", id="empty"),
        pytest.param({**DOCUMENT, "more": 1}, "pinned keys", id="unknown-member"),
        pytest.param({**DOCUMENT, "log_id": ""}, "log_id", id="no-name"),
        pytest.param({**DOCUMENT, "log_id": 7}, "log_id", id="name-is-a-number"),
        *(
            pytest.param({**DOCUMENT, "log_id": name}, "log_id", id=f"name-{word}")
            for word, name in {
                "with-a-space": "a b",
                "with-a-plus": "a+b",
                "of-two-lines": "a\nb",
            }.items()
        ),
        pytest.param({**DOCUMENT, "root": []}, "root", id="no-root"),
        pytest.param({**DOCUMENT, "root": {}}, "root", id="root-is-an-object"),
        pytest.param({**DOCUMENT, "root": ["x"]}, "root", id="root-key-is-text"),
        pytest.param({**DOCUMENT, "root": [{}]}, "root", id="root-key-is-empty"),
        pytest.param(
            {**DOCUMENT, "root": [{**ROOT, "key_id": "00" * 8}]},
            "key_id",
            id="another-keys-id",
        ),
        pytest.param(
            {**DOCUMENT, "root": [{**ROOT, "public_key_pem": "x"}]},
            "public_key",
            id="not-pem",
        ),
        pytest.param({**DOCUMENT, "witnesses": 1}, "witnesses", id="no-list"),
        pytest.param({**DOCUMENT, "witnesses": [{}]}, "witnesses", id="no-name-of-it"),
        pytest.param(
            {**DOCUMENT, "witnesses": [{"name": "a b", "public_key_pem": pem_of(KEY)}]},
            "name",
            id="a-witness-that-cannot-sign",
        ),
    ],
)
def test_a_file_that_pins_nothing_sound_is_refused(
    content: bytes | dict[str, Any], field: str
) -> None:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(InvalidEvent) as caught:
        pinned_in(raw)
    assert caught.value.field == field
