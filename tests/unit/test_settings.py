from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cachemind.errors import InvalidSetting
from cachemind_services.cli.main import main
from cachemind_services.cli.options import AUDIT, GATEWAY, SERVICE, add_settings
from cachemind_services.settings import Settings, load


def test_defaults_embed_kafka_and_bind_loopback() -> None:
    settings = load({})
    assert settings.embedded
    assert settings.host == "127.0.0.1"
    assert settings.similarity_threshold == 0.92


def test_flag_beats_variable_beats_file_beats_default(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("port = 1\nworkers = 3\nttl_s = 7\n")
    settings = load(
        {"CACHEMIND_PORT": "2", "CACHEMIND_WORKERS": "4"},
        config=config,
        flags={"port": "5"},
    )
    assert (settings.port, settings.workers, settings.ttl_s) == (5, 4, 7)


def test_any_librdkafka_property_comes_by_variable_or_file(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        '[kafka]\nbootstrap.servers = "a:1"\n"ssl.ca.location" = "/ca"\n'
        'sasl.mechanism = "PLAIN"\nsocket.keepalive.enable = true\n'
    )
    settings = load(
        {
            "CACHEMIND_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "CACHEMIND_KAFKA_LOG_LEVEL": "3",
        },
        config=config,
    )
    assert not settings.embedded
    assert settings.kafka == {
        "bootstrap.servers": "a:1",
        "ssl.ca.location": "/ca",
        "sasl.mechanism": "SCRAM-SHA-512",
        "socket.keepalive.enable": "true",
        "log_level": "3",
    }


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        pytest.param({"CACHEMIND_PORT": "x"}, "CACHEMIND_PORT", id="not-a-number"),
        pytest.param({"CACHEMIND_PORT": "70000"}, "CACHEMIND_PORT", id="too-high"),
        pytest.param({"CACHEMIND_PROT": "1"}, "CACHEMIND_PROT", id="unknown"),
        pytest.param(
            {"CACHEMIND_UPSTREAM": "ftp://x"}, "CACHEMIND_UPSTREAM", id="scheme"
        ),
        pytest.param(
            {"CACHEMIND_NAMESPACE": "A b"}, "CACHEMIND_NAMESPACE", id="namespace"
        ),
        pytest.param(
            {"CACHEMIND_SIMILARITY_THRESHOLD": "nan"},
            "CACHEMIND_SIMILARITY_THRESHOLD",
            id="nan",
        ),
        pytest.param(
            {"CACHEMIND_PRODUCTION": "true"},
            "CACHEMIND_KAFKA_BOOTSTRAP_SERVERS",
            id="production-needs-a-cluster",
        ),
        *(
            pytest.param(
                {"CACHEMIND_PAYLOAD_KEY": uri}, "CACHEMIND_PAYLOAD_KEY", id=uri
            )
            for uri in (
                "/srv/payload.key",
                "file:",
                "vault:key",
                "aws-kms:not-an-arn",
                "pkcs11:object=key",
                "pkcs11:token=t;object=key?pin-value=1234",
            )
        ),
        pytest.param({"CACHEMIND_TTL_S": "999999"}, "CACHEMIND_TTL_S", id="ttl-order"),
        pytest.param(
            {"CACHEMIND_AUDIT_MODE": "1", "CACHEMIND_WAL_ACK": "async"},
            "CACHEMIND_WAL_ACK",
            id="audit-mode-waits-for-the-log",
        ),
        pytest.param(
            {"CACHEMIND_AUDIT_MODE": "1", "CACHEMIND_ON_WAL_FAILURE": "bypass"},
            "CACHEMIND_ON_WAL_FAILURE",
            id="audit-mode-serves-nothing-unlogged",
        ),
    ],
)
def test_a_wrong_value_names_its_variable(environ: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(environ)
    assert caught.value.name == name


def test_a_key_without_a_scheme_is_wrong_usage_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--payload-key=/srv/payload.key", f"--data-dir={tmp_path / 'none'}"]
    assert main(["serve", "--upstream=http://127.0.0.1:9", *words]) == 2
    assert "--payload-key: must be file:PATH" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_what_is_wrong_with_a_key_is_said_without_its_pin() -> None:
    uri = "pkcs11:token=t;object=key?pin-value=1234"
    with pytest.raises(InvalidSetting) as caught:
        load({"CACHEMIND_PAYLOAD_KEY": uri})
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:/srv/payload.key",
        "pkcs11:token=t;object=key",
        "aws-kms:arn:aws:kms:eu-west-1:111122223333:key/1234-abcd",
    ],
)
def test_a_key_is_named_by_a_uri_and_not_opened_yet(uri: str) -> None:
    assert load({"CACHEMIND_PAYLOAD_KEY": uri}).payload_key == uri


@pytest.mark.parametrize("text", ["port = [1]", "port =", "colour = 1"])
def test_a_wrong_file_is_refused(text: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(text)
    with pytest.raises(InvalidSetting):
        load({}, config=config)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"nowhere\.toml"):
        load({"CACHEMIND_CONFIG": str(tmp_path / "nowhere.toml")})


def test_a_child_process_reads_the_same_settings() -> None:
    settings = Settings(
        port=9,
        data_dir=Path("/d"),
        uds=Path("/s"),
        production=True,
        similarity_threshold=0.95,
        kafka={"bootstrap.servers": "a:1", "sasl.password": "p"},
    )
    assert load(settings.environ()) == settings


def test_audit_mode_makes_the_log_strict_also_in_child_processes(
    tmp_path: Path,
) -> None:
    settings = load({}, flags={"audit_mode": "true", "log_dir": str(tmp_path)})
    assert (settings.wal_ack, settings.on_wal_failure) == ("acked", "refuse")
    assert load(settings.environ()) == settings


def test_the_folder_of_audit_mode_holds_keys_receipts_and_sealed_copy(
    tmp_path: Path,
) -> None:
    settings = load({"CACHEMIND_LOG_DIR": str(tmp_path)})
    folders = [settings.keys_dir, settings.sealed_dir]
    assert [folder.name for folder in folders] == ["keys", "sealed"]
    assert settings.sink_folder == tmp_path  # with receipts/ and cuts/ in it
    assert {folder.parent for folder in folders} == {tmp_path}


def test_a_folder_of_audit_mode_that_is_not_named_is_asked_for() -> None:
    with pytest.raises(InvalidSetting) as caught:
        load({}).keys_dir  # noqa: B018  # the property is what is asked
    assert caught.value.name == "CACHEMIND_LOG_DIR"


def test_a_flag_without_a_value_is_on() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, AUDIT)
    given = parser.parse_args(["--audit-mode", "--log-dir", "x", "--production=no"])
    assert (given.audit_mode, given.log_dir, given.production) == ("true", "x", "no")


def test_a_secret_comes_by_variable_never_by_flag_and_is_not_shown() -> None:
    settings = load({"CACHEMIND_AUDIT_PASSPHRASE": "s3cret"})
    assert settings.audit_passphrase == "s3cret"
    assert settings.environ() == {
        "CACHEMIND_AUDIT_PASSPHRASE": "s3cret",
        "CACHEMIND_DATA_DIR": str(settings.data_dir),
    }
    assert "s3cret" not in repr(settings)
    assert not {"audit_passphrase", "pkcs11_pin"} & {*SERVICE, *AUDIT, *GATEWAY}


def test_keys_are_named_to_the_processes_that_sign_alone() -> None:
    assert {"audit_receipt_keys", "pkcs11_module"} <= set(AUDIT)
    assert not {"audit_receipt_keys", "audit_log_keys"} & set(GATEWAY)
    assert {"payload_key", "pkcs11_module"} <= set(GATEWAY)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        pytest.param(
            {"CACHEMIND_SINK_DIR": "/x", "CACHEMIND_SINK_URL": "s3://b/x"},
            "CACHEMIND_SINK_URL",
            id="two-targets",
        ),
        pytest.param(
            {"CACHEMIND_SINK_DIR": "/x", "CACHEMIND_SINK_RETENTION_DAYS": "1"},
            "CACHEMIND_SINK_RETENTION_DAYS",
            id="a-folder-cannot-be-locked",
        ),
    ],
)
def test_a_sink_has_one_target_that_can_do_what_is_asked(
    variables: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidSetting, match=named):
        load(variables)
