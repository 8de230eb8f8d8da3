from __future__ import annotations

from collections.abc import Callable

import pytest

from cachemind.adapters.kafka_config import (
    Properties,
    admin_config,
    consumer_config,
    open_admin,
    open_consumer,
    open_producer,
    producer_config,
)
from cachemind.errors import InvalidSetting

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
SECRET = "hunter2-in-plain-sight"


def test_a_producer_waits_for_all_replicas_and_never_duplicates() -> None:
    config = producer_config(NOWHERE)
    assert config["acks"] == "all"
    assert config["enable.idempotence"] == "true"
    assert config["partitioner"] == "murmur2_random"
    assert config["linger.ms"] == "0"
    assert config["delivery.timeout.ms"] == "5000"


def test_a_consumer_reads_committed_records_and_never_jumps_or_commits() -> None:
    config = consumer_config(NOWHERE)
    assert config["isolation.level"] == "read_committed"
    assert config["enable.auto.commit"] == "false"
    assert config["auto.offset.reset"] == "error"


@pytest.mark.parametrize("role", [producer_config, consumer_config, admin_config])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("acks", 0),
        ("request.required.acks", "1"),
        ("enable.idempotence", False),
        ("partitioner", "consistent_random"),
        ("isolation.level", "read_uncommitted"),
        ("enable.auto.commit", "true"),
        ("auto.offset.reset", "earliest"),
        ("group.id", "mine"),
        ("transactional.id", "mine"),
    ],
)
def test_what_the_guarantees_rest_on_cannot_be_changed_in_any_role(
    role: Callable[[Properties], object], name: str, value: str | int | bool
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        role({**NOWHERE, name: value})
    assert caught.value.name in (name, "acks")


@pytest.mark.parametrize(
    "same",
    [
        {"acks": -1},
        {"acks": "ALL"},
        {"request.required.acks": "-1"},
        {"enable.idempotence": True},
        {"enable.auto.commit": 0},
    ],
)
def test_saying_what_is_fixed_anyway_is_no_error(same: Properties) -> None:
    assert producer_config({**NOWHERE, **same}) == producer_config(NOWHERE)


def test_anything_else_is_the_operators() -> None:
    theirs: dict[str, str | int] = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "linger.ms": 5,
        "message.timeout.ms": 20_000,
        "socket.keepalive.enable": True,
    }
    config = producer_config({**NOWHERE, **theirs})
    assert config["security.protocol"] == "SASL_SSL"
    assert config["linger.ms"] == "5"
    assert config["delivery.timeout.ms"] == "20000"
    assert config["socket.keepalive.enable"] == "true"


def test_a_property_given_under_both_its_names_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"linger\.ms.*queue\.buffering\.max\.ms"):
        producer_config({**NOWHERE, "linger.ms": 1, "queue.buffering.max.ms": 2})


@pytest.mark.parametrize("properties", [{}, {"bootstrap.servers": ""}])
def test_a_broker_must_be_named(properties: Properties) -> None:
    with pytest.raises(InvalidSetting) as caught:
        admin_config(properties)
    assert caught.value.name == "bootstrap.servers"


def test_a_property_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(InvalidSetting, match="not a property") as caught:
        open_producer({**NOWHERE, "linger.mss": 5})
    assert caught.value.name == "linger.mss"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security.protocol", SECRET),
        ("socket.keepalive.enable", SECRET),
        ("queue.buffering.max.messages", SECRET),
        ("queue.buffering.max.messages", -5),
    ],
)
def test_a_refused_value_is_not_shown_but_its_property_is(
    name: str, value: str | int
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        open_producer({**NOWHERE, name: value})
    error = caught.value
    assert error.name == name
    assert str(value) not in f"{error}{error.__cause__}{error.__context__!r}"


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "ssl", "ssl.key.pem": SECRET},
        {"security.protocol": "ssl", "ssl.ca.pem": SECRET},
        {"security.protocol": "sasl_plaintext", "sasl.password": SECRET},
        {"sasl.password": [SECRET]},
    ],
)
def test_a_secret_is_never_part_of_an_error(properties: Properties) -> None:
    with pytest.raises(InvalidSetting) as caught:
        open_consumer({**NOWHERE, "sasl.mechanism": "PLAIN", **properties})
    error = caught.value
    assert SECRET not in f"{error!r}{error.__cause__!r}{error.__context__!r}"


def test_every_client_accepts_its_own_configuration() -> None:
    open_producer(NOWHERE).close()
    open_consumer(NOWHERE).close()
    with open_admin(NOWHERE, lambda _: None):
        pass
