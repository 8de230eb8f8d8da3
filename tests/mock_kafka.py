"""A Kafka cluster inside librdkafka that can be told to answer with errors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path
from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
INIT_PRODUCER_ID: Final = 22

_PRODUCER: Final = 0
_REASON_BYTES: Final = 512


class MockKafka:
    """A running cluster of one broker."""

    def __init__(self, library: ctypes.CDLL, cluster: int) -> None:
        self._library = library
        self._cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        found: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return found.decode()

    def create_topic(self, name: str, partitions: int) -> None:
        failed = self._library.rd_kafka_mock_topic_create(
            self._cluster, name.encode(), partitions, 1
        )
        assert not failed

    def answer_with(self, api_key: int, *codes: int) -> None:
        """Answer the next requests of one kind with these error codes, in order."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api_key), len(codes), array
        )

    def answer_normally(self, api_key: int) -> None:
        """Forget the errors that are left for one kind of request."""
        self._library.rd_kafka_mock_clear_request_errors(
            self._cluster, ctypes.c_int16(api_key)
        )


@contextmanager
def mock_kafka() -> Iterator[MockKafka]:
    """Run a cluster. Source: librdkafka's `rdkafka_mock.h`."""
    library = _library()
    reason = ctypes.create_string_buffer(_REASON_BYTES)
    handle = library.rd_kafka_new(_PRODUCER, None, reason, _REASON_BYTES)
    assert handle, reason.value
    cluster = library.rd_kafka_mock_cluster_new(handle, 1)
    try:
        yield MockKafka(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(handle)


def _library() -> ctypes.CDLL:
    """Return the librdkafka that confluent-kafka brings and has loaded."""
    (path,) = (
        Path(str(file.locate()))
        for file in files("confluent-kafka") or ()
        if file.name.startswith("librdkafka-") and ".so" in file.name
    )
    library = ctypes.CDLL(str(path))
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_new.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    library.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.rd_kafka_mock_cluster_destroy.argtypes = [ctypes.c_void_p]
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
    library.rd_kafka_mock_topic_create.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_int,
    ]
    library.rd_kafka_mock_push_request_errors_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int16,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_int),
    ]
    library.rd_kafka_mock_clear_request_errors.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int16,
    ]
    return library
