"""What the client refuses before it asks anybody, and how it waits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from cachemind.client import (
    AsyncCacheMind,
    CacheMind,
    CallFailed,
    Control,
    Kafka,
    NotFound,
    NotValid,
    Patience,
    RollbackGoal,
    Selector,
    TooMany,
    Unavailable,
)
from cachemind.client.http_calls import control_fields
from cachemind.client.repeating import Again
from tests.bench.running import free_port

KEY = "cmk_ABCDEFGH_secret"
QUESTION = [{"role": "user", "content": "?"}]


@pytest.fixture
def cache() -> CacheMind:
    return CacheMind("http://127.0.0.1:1", key=KEY, upstream_key="sk-secret")


HEAVY = ("aiohttp", "confluent_kafka", "faust", "numpy", "rocksdict", "torch")


def test_an_application_loads_nothing_that_serves() -> None:
    code = (
        f"import sys, cachemind.client; print([n for n in {HEAVY} if n in sys.modules])"
    )
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.check_output(
        [sys.executable, "-c", code], env={**os.environ, **paths}, text=True
    )
    assert found.strip() == "[]"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "http://h/?a=1",
        "http://h:x",
        "http://h:8080/v1",
        "http://h:8080/v1/",
    ],
)
def test_a_url_that_leads_nowhere_is_refused_and_not_quoted(url: str) -> None:
    for make in (CacheMind, AsyncCacheMind):
        with pytest.raises(NotValid) as raised:
            make(url)
        assert raised.value.field == "url"
        assert "u:p" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "named", "field"),
    [
        ("kafka://", {"namespace": "a"}, "url"),
        ("kafka://u:p@h:1", {"namespace": "a"}, "url"),
        ("kafka://h:1/x", {"namespace": "a"}, "url"),
        ("kafka://h:1?", {"namespace": "a"}, "url"),
        ("kafka://h:1?role=", {"namespace": "a"}, "url"),
        ("kafka://h:1?key=x", {"namespace": "a"}, "url"),
        ("kafka://h:1?role=auditor&x=1", {"namespace": "a"}, "url"),
        ("kafka://?role=auditor", {"namespace": "a"}, "url"),
        ("kafka://h:1?role=root", {"namespace": "a"}, "role"),
        ("kafka://h:1?role=auditor", {"namespace": "cachemind.a"}, "namespace"),
        ("kafka://h:1", {}, "namespace"),
        ("kafka://h:1", {"namespace": "A b"}, "namespace"),
        ("kafka://h:1", {"namespace": "a", "key": KEY}, "key"),
        ("kafka://h:1", {"namespace": "a", "upstream_key": "sk"}, "upstream_key"),
    ],
)
def test_a_kafka_url_needs_brokers_and_a_namespace_and_no_key(
    url: str, named: dict[str, str], field: str
) -> None:
    for make in (CacheMind, AsyncCacheMind):
        with pytest.raises(NotValid) as raised:
            make(url, **named)  # type: ignore[arg-type]  # names of arguments
        assert raised.value.field == field
        assert "u:p" not in str(raised.value)
        assert "secret" not in str(raised.value)


def test_a_property_that_librdkafka_refuses_is_named() -> None:
    kafka = Kafka(properties={"no.such.thing": "s3cret"})
    cache = CacheMind("kafka://127.0.0.1:1", namespace="a", kafka=kafka)
    with pytest.raises(NotValid, match=r"no\.such\.thing") as raised:
        cache.lookup("m", QUESTION)
    assert raised.value.field == "kafka"
    assert "s3cret" not in repr(raised.value) + repr(kafka)


@pytest.mark.parametrize("name", ["key", "namespace", "upstream_key"])
def test_a_credential_cannot_smuggle_a_header(name: str) -> None:
    with pytest.raises(NotValid) as raised:
        CacheMind("http://h", **{name: "a\r\nx: y"})  # type: ignore[arg-type]  # one of the names
    assert raised.value.field == name


def test_nothing_shows_a_secret(cache: CacheMind) -> None:
    assert "secret" not in repr(cache)
    assert "secret" not in repr(vars(cache))


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda cache: cache.complete("", QUESTION), "model"),
        (lambda cache: cache.complete("m", QUESTION, stream=True), "stream"),
        (lambda cache: cache.complete("m", QUESTION, x=object()), "body"),
        (lambda cache: cache.complete("m", "a question"), "messages"),
        (lambda cache: cache.complete("m", QUESTION[0]), "messages"),
        (lambda cache: cache.complete("m", []), "messages"),
        (lambda cache: cache.lookup("m", QUESTION, timeout_s=0), "timeout_s"),
        (lambda cache: cache.feedback(None, "cd" * 16, right=True), "key"),
        (lambda cache: cache.invalidate(Selector()), "selector"),
        (lambda cache: cache.invalidate(Selector(tag="a", model="b")), "selector"),
        (lambda cache: cache.rollback(RollbackGoal()), "goal"),
        (lambda cache: cache.feedback("ab", "cd" * 16, right=True), "key"),
        (lambda cache: cache.feedback("ab" * 32, "CD" * 16, right=True), "trace_id"),
        (lambda cache: cache.receipt("../x"), "trace_id"),
    ],
)
def test_what_is_wrong_is_named_and_nobody_is_asked(
    cache: CacheMind, call: Callable[[CacheMind], object], field: str
) -> None:
    with pytest.raises(NotValid) as raised:
        call(cache)
    assert raised.value.field == field


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), None])
def test_a_time_limit_that_is_none_is_refused(timeout_s: float) -> None:
    for make in (CacheMind, AsyncCacheMind):
        with pytest.raises(NotValid, match="timeout_s"):
            make("http://h", timeout_s=timeout_s)


def test_a_client_that_was_closed_says_so_at_once() -> None:
    for url, named in (("http://127.0.0.1:1", {}), ("kafka://h:1", {"namespace": "a"})):
        cache = CacheMind(url, **named)  # type: ignore[arg-type]  # names of arguments
        cache.close()
        with pytest.raises(CallFailed, match="closed"):
            cache.lookup("m", QUESTION)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}", "kafka://127.0.0.1:{}"])
def test_who_cannot_be_reached_is_named_with_the_reason_in_time(url: str) -> None:
    port = free_port()
    began = time.monotonic()
    with (
        CacheMind(url.format(port), namespace="a", timeout_s=1) as cache,
        pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{port}") as raised,
    ):
        cache.lookup("m", QUESTION)
    assert time.monotonic() - began < 10
    assert raised.value.sent is False


def test_control_is_told_in_the_fields_that_the_gateway_reads() -> None:
    assert control_fields(Control()) == {}
    asked = Control(threshold=0.97, ttl_s=60, max_age_s=5, refresh=True, store=False)
    assert control_fields(asked) == {
        "cache-control": "no-cache, no-store, max-age=5",
        "x-cachemind-threshold": "0.970000",
        "x-cachemind-ttl": "60s",
    }
    assert control_fields(Control(exact=True)) == {"x-cachemind-mode": "exact"}
    assert control_fields(Control(exact=True, off=True)) == {"x-cachemind-mode": "off"}


@pytest.mark.parametrize(
    ("failed", "attempt", "again", "pause_s"),
    [
        pytest.param(Unavailable("x"), 0, Again.ALWAYS, 0.5, id="first"),
        pytest.param(Unavailable("x"), 1, Again.ALWAYS, 1.0, id="twice-as-long"),
        pytest.param(Unavailable("x"), 2, Again.ALWAYS, None, id="no-more"),
        pytest.param(Unavailable("x"), 0, Again.UNSTARTED, None, id="maybe-done"),
        pytest.param(
            Unavailable("x", sent=False), 0, Again.UNSTARTED, 0.5, id="not-done"
        ),
        pytest.param(
            Unavailable("x", retry_after_s=7.0), 0, Again.ALWAYS, 7.0, id="as-told"
        ),
        pytest.param(
            TooMany("x", retry_after_s=3.0), 0, Again.UNSTARTED, 3.0, id="429"
        ),
        pytest.param(NotFound("x"), 0, Again.ALWAYS, None, id="404"),
    ],
)
def test_how_long_is_waited(
    failed: Unavailable | TooMany | NotFound,
    attempt: int,
    again: Again,
    pause_s: float | None,
) -> None:
    patience = Patience(retries=2, first_s=0.5, most_s=4.0)
    longest = patience.pause_s(failed, attempt, again, 1.0)
    shortest = patience.pause_s(failed, attempt, again, 0.0)
    assert longest == pause_s
    if pause_s is not None and shortest is not None:
        assert pause_s / 2 <= shortest <= pause_s
