from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from cachemind.errors import InvalidSetting
from cachemind_services.host import plan_gateway, plan_serve
from cachemind_services.settings import Settings
from cachemind_services.settings import load as read_settings


def test_a_second_command_on_the_same_data_leaves_the_first_ones_metrics(
    tmp_path: Path,
) -> None:
    settings = Settings(upstream="http://127.0.0.1:1", port=0, data_dir=tmp_path)
    with ExitStack() as first, ExitStack() as second:
        plan_gateway(settings, first)
        counted = tmp_path / "metrics" / "counter_gateway-0.db"
        counted.write_bytes(b"1")
        for plan in (plan_serve, plan_gateway):
            with pytest.raises(InvalidSetting, match="in use by another") as caught:
                plan(settings, second)
            assert caught.value.name == "data_dir"
        assert counted.exists()
    with ExitStack() as third:
        plan_gateway(settings, third)
        assert not counted.exists()


@pytest.mark.parametrize("audit_mode", [False, True])
def test_audit_mode_brings_a_signer_that_ends_after_what_it_signs(
    tmp_path: Path, audit_mode: bool
) -> None:
    flags = {
        "upstream": "http://127.0.0.1:1",
        "bootstrap.servers": "127.0.0.1:1",
        "port": "0",
        "data_dir": str(tmp_path),
    }
    if audit_mode:
        flags |= {"audit_mode": "true", "log_dir": str(tmp_path / "audit")}
    with ExitStack() as opened:
        plan = plan_serve(read_settings({}, flags=flags), opened)
    ranks = {child.name: child.rank for child in plan.children}
    assert ("signer" in ranks) is ("receipts" in ranks) is audit_mode
    if audit_mode:
        assert ranks["signer"] > max(ranks["gateway-0"], ranks["materializer"])


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        pytest.param({"audit_mode": "true"}, "CACHEMIND_LOG_DIR", id="no-folder"),
        pytest.param({"log_dir": "x"}, "CACHEMIND_LOG_DIR", id="folder-for-nothing"),
        pytest.param(
            {"namespace": "cachemind.system"}, "CACHEMIND_NAMESPACE", id="our-own"
        ),
        pytest.param(
            {"namespace": "cachemind.access"}, "CACHEMIND_NAMESPACE", id="of-keys"
        ),
    ],
)
def test_what_cannot_be_served_is_said_at_the_start(
    tmp_path: Path, flags: dict[str, str], name: str
) -> None:
    given = {"upstream": "http://127.0.0.1:1", "data_dir": str(tmp_path), **flags}
    with ExitStack() as opened, pytest.raises(InvalidSetting) as caught:
        plan_serve(read_settings({}, flags=given), opened)
    assert caught.value.name == name
