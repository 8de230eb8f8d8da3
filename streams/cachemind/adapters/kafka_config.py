"""From one mapping of librdkafka properties to what each kind of client needs.

The mapping is the operator's (`bootstrap.servers`, `security.protocol`, `sasl.*`,
`ssl.*`, anything librdkafka knows). What the guarantees rest on is not theirs to
change; trying is an error, never a silent override. No error shows a value.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_logging import FewRepeats
from cachemind.core.topics import MAX_RECORD_BYTES
from cachemind.errors import InvalidSetting

PropertyValue = str | int | float | bool
Properties = Mapping[str, PropertyValue]

DELIVERY_TIMEOUT_MS: Final = 5_000
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""An open transaction holds back all readers of its partitions: not for long."""

_Client = TypeVar("_Client")
_LOG: Final = logging.getLogger("cachemind.kafka")
_LOG.addFilter(FewRepeats())

# What has two names in librdkafka: the value is the name used here.
_ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "compression.codec": "compression.type",
    "sasl.mechanisms": "sasl.mechanism",
}

_PRODUCER_REQUIRED: Final[Properties] = {
    "acks": "all",
    "enable.idempotence": "true",
    # Kafka's own default; librdkafka's would spread a namespace differently.
    "partitioner": "murmur2_random",
}
_PRODUCER_DEFAULTS: Final[Properties] = {
    # Group commit already batches: waiting here would only add latency.
    "linger.ms": 0,
    "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    "message.max.bytes": MAX_RECORD_BYTES,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 256 * 1024,
    # The default of 10 s would keep appends failing long after a restart.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "socket.nagle.disable": "true",
}
_CONSUMER_REQUIRED: Final[Properties] = {
    # Never joined and never committed to: librdkafka only insists on a name.
    "group.id": "cachemind-reader",
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # A record that retention has deleted is an error, not a reason to jump.
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
}
_CONSUMER_DEFAULTS: Final[Properties] = {
    "check.crcs": "true",
    "fetch.wait.max.ms": 100,
    # After a full queue librdkafka would by default fetch nothing for a second.
    "fetch.queue.backoff.ms": 5,
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    # What is read ahead, and so the most that one batch can hold.
    "queued.max.messages.kbytes": 32 * 1024,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
_ADMIN_DEFAULTS: Final[Properties] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
_FORBIDDEN: Final = {
    "transactional.id": "the writer appends outside of transactions",
}
_INVALID_PROPERTY: Final = re.compile(
    r'(?:configuration property:? |Expected bool value for )"(?P<name>[a-z0-9._]+)"',
    re.IGNORECASE,
)
_SECRET: Final = re.compile(r"password|secret|token|pem|key|oauth|jaas|sasl\.username")
_SPELLINGS: Final = {"-1": "all", "1": "true", "t": "true", "0": "false", "f": "false"}


def producer_config(properties: Properties) -> dict[str, str]:
    """Return the configuration of an idempotent producer that waits for all ISRs.

    Raises: `InvalidSetting` naming a property that is not the operator's to set.
    """
    return _merge(properties, _PRODUCER_DEFAULTS, _PRODUCER_REQUIRED)


def consumer_config(properties: Properties) -> dict[str, str]:
    """Return the configuration of a consumer that reads committed records by position.

    Raises: `InvalidSetting` naming a property that is not the operator's to set.
    """
    return _merge(properties, _CONSUMER_DEFAULTS, _CONSUMER_REQUIRED)


def admin_config(properties: Properties) -> dict[str, str]:
    """Return the configuration of an admin client.

    Raises: `InvalidSetting` naming a property that is not the operator's to set.
    """
    return _merge(properties, _ADMIN_DEFAULTS, {})


def open_producer(properties: Properties) -> Producer:
    """Return a connected-on-demand producer. Raises: `InvalidSetting`."""
    config = producer_config(properties)
    return _open(properties, lambda: Producer({**config}, logger=_LOG))


def open_transactional_producer(
    properties: Properties,
    transactional_id: str,
    on_error: Callable[[KafkaError], None],
) -> Producer:
    """Return a producer that appends in transactions, under an id of ours.

    `on_error` is called by whoever polls it; its calls raise what matters to them.
    Raises: `InvalidSetting`.
    """
    config = producer_config(properties)
    # librdkafka wants it no shorter than the time that a record may take.
    longest_ms = max(TRANSACTION_TIMEOUT_MS, int(config["delivery.timeout.ms"]))
    config["transactional.id"] = transactional_id
    config["transaction.timeout.ms"] = str(longest_ms)
    return _open(
        properties, lambda: Producer({**config}, logger=_LOG, error_cb=on_error)
    )


def open_consumer(
    properties: Properties,
    overrides: Properties | None = None,
    on_error: Callable[[KafkaError], None] | None = None,
) -> Consumer:
    """Return a connected-on-demand consumer. Raises: `InvalidSetting`.

    `overrides` are the caller's own, for a property that is not a required one.
    `on_error` is called by whoever polls it, about its connections.
    """
    config = consumer_config(properties)
    config.update(_scalars(overrides or {}))
    told = {} if on_error is None else {"error_cb": on_error}
    return _open(properties, lambda: Consumer({**config, **told}, logger=_LOG))


def open_admin(
    properties: Properties, on_error: Callable[[KafkaError], None]
) -> AdminClient:
    """Return a connected-on-demand admin client. Raises: `InvalidSetting`.

    `on_error` is called by whoever polls it, about its connections.
    """
    config = admin_config(properties)
    return _open(
        properties, lambda: AdminClient({**config}, logger=_LOG, error_cb=on_error)
    )


def _merge(
    properties: Properties, defaults: Properties, required: Properties
) -> dict[str, str]:
    given = _canonical(properties)
    if not given.get("bootstrap.servers"):
        raise InvalidSetting("bootstrap.servers", "must name at least one broker")
    for name, reason in _FORBIDDEN.items():
        if name in given:
            raise InvalidSetting(name, f"cannot be set: {reason}")
    # Every role's rules are checked whatever the role, so that a wrong setting stops
    # each process alike and not only the one it would have hurt.
    for fixed in (_PRODUCER_REQUIRED, _CONSUMER_REQUIRED):
        for name, value in fixed.items():
            found = given.pop(name, None)
            if found is not None and _spelling(found) != _spelling(str(value)):
                raise InvalidSetting(name, f"is fixed to {value}")
    return {**_scalars(defaults), **given, **_scalars(required)}


def _canonical(properties: Properties) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in _scalars(properties).items():
        known = _ALIASES.get(name, name)
        if known in given:
            raise InvalidSetting(known, f"is given twice, also as {name}")
        given[known] = value
    return given


def _scalars(properties: Properties) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in properties.items():
        if isinstance(value, bool):
            given[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            given[name] = str(value)
        else:
            raise InvalidSetting(name, "must be text, a number, true or false")
    return given


def _spelling(value: str) -> str:
    return _SPELLINGS.get(value.strip().lower(), value.strip().lower())


def _open(properties: Properties, build: Callable[[], _Client]) -> _Client:
    try:
        return build()
    except KafkaException as error:
        refused = _invalid(properties, error)
    # Outside of the handler: librdkafka's own message can hold the value, and an
    # error raised inside would carry it along as its context.
    raise refused


def _invalid(properties: Properties, error: KafkaException) -> InvalidSetting:
    text = error.args[0].str() if error.args else str(error)
    found = _INVALID_PROPERTY.search(text)
    if text.startswith("No such configuration property") and found:
        return InvalidSetting(found["name"], "is not a property of librdkafka")
    if found:
        return InvalidSetting(found["name"], "has a value that librdkafka refuses")
    for name, value in properties.items():
        if _SECRET.search(name):
            text = text.replace(str(value), "***")
    return InvalidSetting("kafka", text.removeprefix("Failed to create "))
