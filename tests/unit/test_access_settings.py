"""Settings of authentication: what fits together, and who may listen where."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cachemind.errors import InvalidSetting
from cachemind_services.bootstrap.requests import topic_of
from cachemind_services.bootstrap.tokens import open_tokens, read_issuer
from cachemind_services.cli import http
from cachemind_services.cli.main import parser
from cachemind_services.gateway.worker import _access
from cachemind_services.host import plan_gateway, plan_serve
from cachemind_services.settings import Settings, load
from cachemind_services.sockets import require_loopback

ISSUER = """
issuer = "https://login.example"
audience = "cachemind"
[[grant]]
claim = "groups"
value = "admins"
role = "cache-admin"
namespaces = ["shop"]
"""


def test_nobody_is_asked_for_a_key_by_default_and_only_this_machine_may_ask() -> None:
    settings = load({})
    assert not settings.auth
    assert not settings.insecure
    require_loopback(settings.host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    require_loopback(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "::", "0"])
def test_another_address_is_no_loopback(host: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        require_loopback(host)
    assert caught.value.name == "host"
    assert "CACHEMIND_AUTH" in caught.value.problem


@pytest.mark.parametrize("plan", [plan_serve, plan_gateway])
@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        pytest.param({}, True, id="nobody-is-asked"),
        pytest.param({"auth": True}, False, id="with-keys"),
        pytest.param({"insecure": True}, False, id="told-so"),
    ],
)
def test_a_gateway_without_keys_listens_to_this_machine_alone(
    tmp_path: Path, plan: Any, changes: dict[str, Any], *, refused: bool
) -> None:
    settings = Settings(
        upstream="http://127.0.0.1:1",
        host="0.0.0.0",  # noqa: S104 (what is tested)
        port=0,
        data_dir=tmp_path,
        kafka={"bootstrap.servers": "127.0.0.1:1"},
        **changes,
    )
    with ExitStack() as opened:
        if not refused:
            assert plan(settings, opened).urls
            return
        with pytest.raises(InvalidSetting) as caught:
            plan(settings, opened)
    assert caught.value.name == "host"


def test_a_file_of_an_issuer_is_of_authentication(tmp_path: Path) -> None:
    path = tmp_path / "oidc.toml"
    with pytest.raises(InvalidSetting) as caught:
        load({"CACHEMIND_OIDC_FILE": str(path)})
    assert caught.value.name == "CACHEMIND_OIDC_FILE"
    assert load({"CACHEMIND_OIDC_FILE": str(path), "CACHEMIND_AUTH": "1"}).auth


def test_a_key_is_no_flag_and_is_not_shown() -> None:
    settings = load({"CACHEMIND_ACCESS_KEY": "cmk_secret"})
    assert "cmk_secret" not in repr(settings)
    with pytest.raises(SystemExit):
        parser().parse_args(["serve", "--access-key", "cmk_secret"])


def test_an_issuer_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "oidc.toml"
    path.write_text(ISSUER)
    assert read_issuer(path).audience == "cachemind"
    assert open_tokens(path) is not None
    assert open_tokens(None) is None


def test_a_worker_takes_tokens_where_keys_are_asked_for() -> None:
    ports = SimpleNamespace(tokens=object(), upstream_credentials={})
    asking = _access(Settings(auth=True), cast(Any, ports))
    assert asking is not None
    assert asking.tokens is ports.tokens
    assert _access(Settings(), cast(Any, ports)) is None


def test_the_issuer_in_the_readme_is_one(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    path = tmp_path / "oidc.toml"
    path.write_text(shown)
    assert read_issuer(path).rules[0].value == "cache-admins"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param(None, "oidc.toml", id="no-file"),
        pytest.param("issuer", "oidc.toml", id="no-toml"),
        pytest.param(ISSUER.replace("https", "http"), "issuer", id="plain-http"),
        pytest.param(ISSUER.replace("cache-admin", "root"), "role", id="no-role"),
    ],
)
def test_a_wrong_file_of_an_issuer_stops_the_start(
    tmp_path: Path, text: str | None, named: str
) -> None:
    path = tmp_path / "oidc.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidSetting) as caught:
        open_tokens(path)
    assert str(path) in caught.value.name
    assert named in caught.value.name


def test_a_command_presents_the_key_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fields(*words: str) -> dict[str, str]:
        arguments = parser().parse_args(["stats", *words])
        return dict(http._credential(arguments, load({"CACHEMIND_ACCESS_KEY": key})))

    path = tmp_path / "key"
    path.write_text("cmk_file\n")
    key = ""
    assert fields() == {}
    assert fields("--key-file", str(path)) == {"x-cachemind-key": "cmk_file"}
    key = "cmk_variable"
    assert fields() == {"x-cachemind-key": "cmk_variable"}
    assert fields("--key-file", str(path), "--in-namespace", "shop") == {
        "x-cachemind-key": "cmk_file",
        "X-CacheMind-Namespace": "shop",
    }


def test_a_namespace_is_picked_without_a_key_too() -> None:
    arguments = parser().parse_args(["stats", "--in-namespace", "shop"])
    picked = {"X-CacheMind-Namespace": "shop"}
    assert http._credential(arguments, load({})) == picked


@pytest.mark.parametrize("text", [None, "cmk_a\nx: y", "cmk_\u00e9"])
def test_a_file_that_holds_no_key_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "key"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    arguments = parser().parse_args(["stats", "--key-file", str(path)])
    with pytest.raises(InvalidSetting) as caught:
        http._credential(arguments, load({}))
    assert caught.value.name == "--key-file"
    assert "cmk_" not in caught.value.problem


@pytest.mark.parametrize(
    ("environ", "trusted"),
    [
        pytest.param({}, True, id="nobody-is-asked"),
        pytest.param({"CACHEMIND_AUTH": "true"}, False, id="deny-by-default"),
        pytest.param(
            {"CACHEMIND_AUTH": "true", "CACHEMIND_SHARED_REQUESTS": "refuse"},
            False,
            id="refused",
        ),
        pytest.param(
            {"CACHEMIND_AUTH": "true", "CACHEMIND_SHARED_REQUESTS": "trust"},
            True,
            id="said-to-be-trusted",
        ),
    ],
)
def test_with_keys_the_topic_that_all_share_is_trusted_only_where_that_is_said(
    environ: dict[str, str], trusted: bool
) -> None:
    settings = load(environ)
    shared = topic_of(settings, "cachemind.requests")
    assert (shared.caller is None) == trusted
    granted = topic_of(settings, "cachemind.requests.shop.auditor")
    assert granted.principal == "kafka:shop.auditor"
