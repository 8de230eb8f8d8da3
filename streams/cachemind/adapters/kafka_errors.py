"""Kafka's errors in our words: retry later, or never."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from cachemind.errors import LogError, LogRejected, LogUnavailable

_NEVER_RETRY: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
    }
)


def log_error(doing: str, error: KafkaError) -> LogError:
    """Return `error` as `LogRejected` where a retry cannot help, else `LogUnavailable`.

    `doing` says what was tried, in the words of a log line.
    """
    kind = LogRejected if error.code() in _NEVER_RETRY else LogUnavailable
    return kind(f"{doing}: {error.name()}: {error.str()}")


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the facts that librdkafka's exception carries."""
    fact = error.args[0] if error.args else None
    if isinstance(fact, KafkaError):
        return fact
    return KafkaError(KafkaError._FAIL, str(error))
