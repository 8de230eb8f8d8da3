from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import pytest

from cachemind.adapters.memory_registry import MemoryIds
from cachemind.adapters.registry import RegistryIds
from cachemind.errors import (
    InvalidSetting,
    LogRejected,
    LogUnavailable,
    UnknownSchema,
)
from cachemind.ports import SchemaIds
from tests.contracts.schema_ids_contract import FIRST, SECOND, SchemaIdsContract
from tests.schema_registry import FULL, Registry, serving_registry

SUBJECT = "cachemind.wal-value"
USER = "registrar:s3cret"


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving_registry() as server:
        yield server


@pytest.fixture
def adapter(registry: Registry) -> Iterator[RegistryIds]:
    client = RegistryIds(f"http://{registry.address}", "cachemind.wal")
    yield client
    client.close()


class TestMemoryIds(SchemaIdsContract):
    @pytest.fixture
    def ids(self) -> SchemaIds:
        return MemoryIds()


class TestRegistryIds(SchemaIdsContract):
    @pytest.fixture
    def ids(self, adapter: RegistryIds) -> SchemaIds:
        return adapter


def test_each_answer_is_asked_for_once(
    registry: Registry, adapter: RegistryIds
) -> None:
    registry.schemas.append({"schema": FIRST})
    for _ in range(3):
        adapter.schema_for(1)
        adapter.id_for(SECOND)
    assert registry.requests == [
        "GET /schemas/ids/1",
        f"POST /subjects/{SUBJECT}/versions",
    ]


ONE, OTHER, MORE = (
    json.dumps({"type": "record", "name": "Evolving", "fields": fields})
    for fields in (
        [{"name": "a", "type": "int"}],
        [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
        [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}],
    )
)


def test_what_is_compatible_is_a_new_version_and_what_is_not_is_refused(
    registry: Registry, adapter: RegistryIds
) -> None:
    registry.demand(SUBJECT, FULL)
    first = adapter.id_for(ONE)
    with pytest.raises(LogRejected, match=r"409.*incompatible"):
        adapter.id_for(OTHER)
    second = adapter.id_for(MORE)
    assert registry.subjects[SUBJECT] == [first, second]
    assert [adapter.schema_for(each) for each in (first, second)] == [ONE, MORE]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        pytest.param(409, 409, "schema being registered is incompatible", id="409"),
        pytest.param(422, 42201, "Invalid schema", id="422"),
    ],
)
def test_a_refused_schema_is_rejected_with_the_reason(
    registry: Registry, adapter: RegistryIds, status: int, code: int, message: str
) -> None:
    registry.fails(status, code, message)
    with pytest.raises(LogRejected, match=f"{status} .code {code}.: {message}"):
        adapter.id_for(FIRST)


def test_a_registry_quotes_no_more_than_an_excerpt(
    registry: Registry, adapter: RegistryIds
) -> None:
    registry.fails(409, 409, "x" * 10_000)
    with pytest.raises(LogRejected) as caught:
        adapter.id_for(FIRST)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_failing_registry_is_unavailable_and_then_not(
    registry: Registry, adapter: RegistryIds, status: int
) -> None:
    registry.fails(status, 50001, "Error in the backend data store")
    with pytest.raises(LogUnavailable, match=str(status)):
        adapter.id_for(FIRST)
    with pytest.raises(LogUnavailable, match=str(status)):
        adapter.schema_for(1)
    registry.failure = None
    assert adapter.schema_for(adapter.id_for(FIRST)) == FIRST


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b"{}", b"null", b"7", b'"id"', b""]
)
def test_an_answer_that_makes_no_sense_is_unavailable(
    registry: Registry, adapter: RegistryIds, answer: bytes
) -> None:
    registry.failure = 200, answer
    with pytest.raises(LogUnavailable):
        adapter.id_for(FIRST)
    with pytest.raises(LogUnavailable):
        adapter.schema_for(1)


def test_a_page_that_is_no_registry_is_unavailable(
    registry: Registry, adapter: RegistryIds
) -> None:
    registry.failure = 404, b"<html>nothing here</html>"
    with pytest.raises(LogUnavailable, match="404"):
        adapter.schema_for(1)


def test_a_schema_of_another_kind_is_unknown(
    registry: Registry, adapter: RegistryIds
) -> None:
    registry.schemas.append({"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})
    with pytest.raises(UnknownSchema, match="schema id 1, which is not for Avro"):
        adapter.schema_for(1)


def test_a_registry_that_is_down_is_unavailable(registry: Registry) -> None:
    with Registry() as gone:
        address = gone.address
    adapter = RegistryIds(f"http://{address}", "cachemind.wal")
    with pytest.raises(LogUnavailable, match="did not answer"):
        adapter.id_for(FIRST)
    adapter.close()


def test_a_registry_that_hangs_is_given_up_in_time(registry: Registry) -> None:
    registry.hanging.set()
    adapter = RegistryIds(f"http://{registry.address}", "cachemind.wal", timeout_s=0.2)
    start = time.monotonic()
    with pytest.raises(LogUnavailable, match="Timeout"):
        adapter.schema_for(1)
    assert time.monotonic() - start < 5
    adapter.close()


def test_the_next_url_is_tried(registry: Registry) -> None:
    with Registry() as gone:
        address = gone.address
    urls = f"http://{address}, http://{registry.address}"
    adapter = RegistryIds(urls, "cachemind.wal")
    assert adapter.id_for(FIRST) == 1
    adapter.close()


@pytest.mark.parametrize("in_url", [True, False], ids=["in-url", "in-settings"])
def test_credentials_reach_the_registry(registry: Registry, *, in_url: bool) -> None:
    registry.user = USER
    host = registry.address
    url = f"http://{USER}@{host}" if in_url else f"http://{host}"
    settings = {} if in_url else {"basic.auth.user.info": USER}
    adapter = RegistryIds(url, "cachemind.wal", settings=settings)
    assert adapter.id_for(FIRST) == 1
    adapter.close()


def test_wrong_credentials_are_rejected_and_not_quoted(registry: Registry) -> None:
    registry.user = USER
    adapter = RegistryIds(f"http://registrar:wr0ng@{registry.address}", "cachemind.wal")
    with pytest.raises(LogRejected, match=r"401.*not authorised") as caught:
        adapter.id_for(FIRST)
    assert "wr0ng" not in repr(caught.value)
    adapter.close()


@pytest.mark.parametrize(
    "url", ["", "host:8081", "ftp://host", "http://", "http://a,", "//u:s3cret@h"]
)
def test_a_url_that_is_none_is_an_invalid_setting(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        RegistryIds(url, "cachemind.wal")
    assert caught.value.name == "schema_registry_url"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"no.such.thing": "1"}, "no.such.thing"),
        ({"basic.auth.user.info": "no-colon"}, "basic.auth.user.info"),
        ({"ssl.ca.location": "/no/such/file.pem"}, "No such file"),
    ],
)
def test_settings_that_the_client_refuses_are_named(
    settings: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        RegistryIds("http://localhost:1", "cachemind.wal", settings=settings)


def test_a_deadline_must_be_positive() -> None:
    with pytest.raises(InvalidSetting):
        RegistryIds("http://localhost:1", "cachemind.wal", timeout_s=0)


def test_without_the_extra_the_setting_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(InvalidSetting, match=r"cachemind\[registry\]"):
        RegistryIds("http://localhost:1", "cachemind.wal")
