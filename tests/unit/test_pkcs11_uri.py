from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.core.pkcs11_uri import Pkcs11Uri, parse_pkcs11_uri
from cachemind.errors import InvalidSetting

EMPTY = Pkcs11Uri(
    token="",
    manufacturer="",
    serial="",
    model="",
    label="",
    object_id=None,
    module_path="",
    pin_path="",
)


def test_every_attribute_is_read_and_unescaped() -> None:
    found = parse_pkcs11_uri(
        "pkcs11:token=The%20Software%20Token;manufacturer=Snake%20Oil;serial=0a1b;"
        "model=1.0;object=k%C3%A4y;id=%00%ff%3b;type=private"
        "?module-path=/usr/lib/x.so&pin-source=file:/etc/pin"
    )
    assert found == Pkcs11Uri(
        token="The Software Token",
        manufacturer="Snake Oil",
        serial="0a1b",
        model="1.0",
        label="käy",
        object_id=b"\0\xff;",
        module_path="/usr/lib/x.so",
        pin_path="/etc/pin",
    )


@pytest.mark.parametrize(
    ("source", "path"),
    [
        pytest.param("/etc/pin", "/etc/pin", id="bare"),
        pytest.param("file:/etc/pin", "/etc/pin", id="file"),
        pytest.param("file:///etc/pin", "/etc/pin", id="file-with-empty-host"),
        pytest.param("file:%2Fetc%2Fthe%20pin", "/etc/the pin", id="escaped"),
    ],
)
def test_a_pin_comes_from_a_file(source: str, path: str) -> None:
    uri = f"pkcs11:token=t;object=k?pin-source={source}"
    assert parse_pkcs11_uri(uri).pin_path == path


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        pytest.param("file:x", "must begin with pkcs11:", id="another-scheme"),
        pytest.param("pkcs11:", "must name the key", id="empty"),
        pytest.param("pkcs11:token=t", "must name the key", id="no-key"),
        pytest.param("pkcs11:object=k", "must name the token", id="no-token"),
        pytest.param("pkcs11:token=t;object=k;object=l", "object twice", id="twice"),
        pytest.param("pkcs11:token=t;object=k;colour=red", "other than", id="unknown"),
        pytest.param("pkcs11:token=t;object=k;", "other than", id="empty-attribute"),
        pytest.param("pkcs11:token;object=k", "other than", id="no-value"),
        pytest.param("pkcs11:token=%ff;object=k", "not UTF-8", id="not-utf-8"),
        pytest.param(
            "pkcs11:token=t;object=k?pin-value=s3cret", "must not hold a PIN", id="pin"
        ),
        pytest.param(
            "pkcs11:token=t;object=k?pin-source=|cat%20s3cret",
            "not a command",
            id="command",
        ),
    ],
)
def test_what_is_no_uri_of_a_key_is_refused_and_not_quoted(
    uri: str, problem: str
) -> None:
    with pytest.raises(InvalidSetting, match=problem) as caught:
        parse_pkcs11_uri(uri)
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_uri_or_an_invalid_setting(text: str) -> None:
    try:
        found = parse_pkcs11_uri("pkcs11:token=t;object=k;" + text)
    except InvalidSetting:
        return
    assert found.token == "t"
    assert found != EMPTY
