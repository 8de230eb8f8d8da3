"""A poisoned cache and the way back, on real Kafka, as an operator goes it."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.codec.codec import Codec
from cachemind.events import Body
from cachemind.types import Timeline
from cachemind_services.bootstrap.log import kafka_of, topics_of
from cachemind_services.settings import load as read_settings
from tests.freezing import freeze
from tests.integration.rollback_host import (
    CHAT,
    NAMESPACE,
    Readers,
    Shop,
    asked,
    cli,
    neighbour,
    second_gateway,
)
from tests.integration.serving import Serving, eventually, run_cli, serving
from tests.upstreams import ScriptedUpstream, served
from tests.wal_events import envelope, stored

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)
GOOD, POISONED = 127, 130
POISON = "Send your password to everybody."


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with served(ScriptedUpstream()) as url:
        yield url


@pytest.fixture(scope="module")
def host(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("rollback")
    flags = ("--workers", "2", "--encoder", "off")
    with serving(upstream, folder / "data", *flags) as running:
        yield running


@pytest.fixture(scope="module")
def shop(host: Serving) -> Iterator[Shop]:
    """130 writes: 127 good answers, then three of them poisoned."""
    with Shop(host.url) as shop:
        yield poisoned(shop)


def poisoned(shop: Shop) -> Shop:
    for number in range(GOOD):
        shop.put(f"question {number}", f"good {number}")
    for number in range(POISONED - GOOD):
        shop.put(f"question {number}", POISON)
    shop.settle(POISONED)
    return shop


def answers(shop: Shop) -> set[str]:
    """Return what clients get for the poisoned questions, over both workers."""
    return {shop.ask(f"question {k}")[1] for k in range(3) for _ in range(8)}


GOOD_ANSWERS = {"good 0", "good 1", "good 2"}


def test_the_way_back_from_poison_and_forth_and_back_again(
    host: Serving, shop: Shop
) -> None:
    good, bad = shop.digest(GOOD), shop.digest(POISONED)
    assert answers(shop) == {POISON}

    dry = cli(host, "rollback", "--to-version=127", "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    shown = json.loads(dry.stdout)
    assert (shown["restored"], shown["removed"], shown["changed"]) == (0, 0, 3)
    assert shown["digest"] == good
    assert POISON not in dry.stdout
    text = cli(host, "rollback", "--to-version=127", "--dry-run", "--bodies").stdout
    assert POISON in text
    assert "0 restored, 0 removed, 3 changed" in text
    assert shop.head() == POISONED

    done = cli(
        host,
        "rollback",
        "--to-version=127",
        "--expected-head=130",
        "--reason=poisoned answers",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["version"], report["changed"], report["digest"]) == (131, 3, good)
    assert report["verdict"] == "valid"
    assert answers(shop) == GOOD_ANSWERS
    eventually(lambda: shop.stats()["digest"] == good)

    undone = undo(host, report["rollback_id"])
    assert (undone["to_version"], undone["digest"]) == (POISONED, bad)
    assert answers(shop) == {POISON}
    again = undo(host, undone["rollback_id"])
    assert (again["to_version"], again["digest"]) == (131, good)
    assert answers(shop) == GOOD_ANSWERS

    drawn = cli(host, "versions").stdout
    assert "rolled back to 127" in drawn
    assert '"poisoned answers"' in drawn
    assert drawn.count("[voided]") == len(range(128, 131)) + 1
    told = cli(host, "diff", "130", "127").stdout
    assert told.endswith("0 restored, 0 removed, 3 changed\n")
    assert "~ " in told
    events = tail(host)
    rollbacks = [event for event in events if event["kind"] == "RolledBack"]
    assert [event["body"]["to_version"] for event in rollbacks] == [127, 130, 131]
    assert rollbacks[0]["body"]["reason"] == "poisoned answers"
    rebuilt_equal(host)


def undo(host: Serving, rollback_id: str) -> dict[str, Any]:
    done = cli(host, "rollback", f"--undo={rollback_id}", "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def tail(host: Serving) -> list[dict[str, Any]]:
    flags = ("--json", "--no-follow", "--from-beginning")
    done = run_cli("tail", *flags, f"--data-dir={host.data_dir}")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def rebuilt_equal(host: Serving) -> None:
    done = run_cli("doctor", "--rebuild", "--json", f"--data-dir={host.data_dir}")
    findings = json.loads(done.stdout)
    assert done.returncode == 0, findings
    assert any(finding["check"] == "rebuild of default" for finding in findings)


def test_what_is_refused_changes_nothing_and_a_repeat_neither(
    host: Serving, shop: Shop
) -> None:
    head, events = shop.head(), len(tail(host))
    for query, status in (
        ({"to_version": 1, "expected_head": head - 1}, 409),
        ({"to_version": head + 1}, 422),
        ({"to_version": "soon"}, 400),
        ({"to_version": 1, "namespace": "elsewhere"}, 403),
        ({"undo": "01900000-0000-7000-8000-000000000000"}, 404),
    ):
        assert shop.rollback(**query).status_code == status
    assert (shop.head(), len(tail(host))) == (head, events)
    first = shop.rollback(to_version=GOOD).json()
    again = shop.rollback(to_version=GOOD).json()
    assert again["rollback_id"] == first["rollback_id"]
    assert shop.head() == head + 1
    wrong = cli(host, "rollback", "--to-version=1", "--expected-head=1")
    assert wrong.returncode == 1
    assert "expected_head" in wrong.stderr


def test_after_the_call_returned_no_reader_on_any_worker_gets_what_is_void(
    host: Serving, shop: Shop, upstream: str
) -> None:
    questions = [f"question {number}" for number in range(3)]
    with second_gateway(host, upstream, neighbour()) as other:
        other.put("neighbour", "stays")
        for _ in range(5):
            good = shop.rollback(to_version=GOOD).json()["digest"]
            for question in questions:
                shop.put(question, POISON)
            eventually(lambda: answers(shop) == {POISON})
            with (
                Readers(shop, questions, threads=6) as readers,
                Readers(other, ["neighbour"], threads=1) as beside,
            ):
                eventually(lambda r=readers: len(r.answers) > 10)  # type: ignore[misc]  # bound now
                began = time.monotonic()
                report = shop.rollback(to_version=GOOD).json()
                returned = time.monotonic()
                eventually(lambda t=returned: len(readers.after(t)) > 20, 60)  # type: ignore[misc]  # bound now
            assert report["digest"] == good
            assert not readers.errors
            later = {answer.content for answer in readers.after(returned)}
            assert POISON not in later
            assert POISON in {a.content for a in readers.answers if a.asked_s < began}
            neighbours_kept_serving(beside, began, returned)


def neighbours_kept_serving(beside: Readers, began: float, returned: float) -> None:
    """Another namespace of the same partition answers from cache, as ever."""
    assert not beside.errors
    assert {answer.outcome for answer in beside.answers} == {"hit_exact"}
    during = [
        answer.took_s
        for answer in beside.answers
        if answer.asked_s + answer.took_s > began and answer.asked_s < returned
    ]
    log.info(
        "rollback took %.0f ms; %d answers beside it, the slowest in %.0f ms",
        (returned - began) * 1e3,
        len(during),
        max(during) * 1e3,
    )
    assert max(during) < max(1.0, (returned - began) / 2)


MANY = 4_000


def test_a_long_rollback_holds_up_nobody_else(
    host: Serving, shop: Shop, upstream: str
) -> None:
    """The fold of the partition waits; its other namespace reads and writes on."""
    began_at, timeline = shop.head(), shop.stats()["timeline"]
    bulk(host, [stored(number) for number in range(MANY)], timeline)
    shop.settle(began_at + MANY)
    before = shop.stats()
    bulk(host, [stored(number, 64) for number in range(MANY)], timeline)
    shop.settle(began_at + 2 * MANY)
    with second_gateway(host, upstream, neighbour()) as other:
        other.put("neighbour", "stays")
        with (
            Readers(other, ["neighbour"], threads=2) as beside,
            ThreadPoolExecutor(1) as threads,
        ):
            began = time.monotonic()
            running = threads.submit(shop.rollback, to_version=before["version"])
            writes = 0
            while not running.done():
                other.put(f"neighbour {writes}", "written meanwhile")
                assert other.ask(f"neighbour {writes}")[0] == "hit_exact"
                writes += 1
            returned = time.monotonic()
    report = running.result().json()
    assert (report["changed"], report["digest"]) == (MANY, before["digest"])
    log.info("%d writes were read back beside it", writes)
    assert writes > 3
    neighbours_kept_serving(beside, began, returned)


def bulk(host: Serving, bodies: Sequence[Body], timeline: int) -> None:
    """Append events straight to the log, as many writers would."""
    settings = read_settings({}, flags={"data_dir": str(host.data_dir)})
    writer = KafkaWriter(kafka_of(settings), topics_of(settings).wal.name)
    waiting = []
    for body in bodies:
        number = next(NUMBERS)
        event = replace(envelope(number, body, NAMESPACE), timeline=Timeline(timeline))
        record = Codec().encode(event)
        waiting.append(writer.append(NAMESPACE.encode(), record, ()))
    for future in waiting:
        future.result(60)
    writer.close(10)


NUMBERS = count(1)
CONNECTIONS = 12


def test_a_worker_that_was_asleep_wakes_up_behind_the_fence(
    host: Serving, shop: Shop
) -> None:
    """It has not looked at its store since, and is asked before it can."""
    workers = host.pids_of("gateway-worker")
    assert len(workers) == 2
    with ExitStack() as opened:
        clients = [
            opened.enter_context(httpx.Client(timeout=60)) for _ in range(CONNECTIONS)
        ]
        threads = opened.enter_context(ThreadPoolExecutor(CONNECTIONS))
        for worker in [*workers, *workers]:
            shop.put("question 0", POISON)
            eventually(lambda: set(at_once(shop, threads, clients)) == {POISON})
            freeze(worker)
            try:
                url = f"{shop.url}/v1/rollback?to_version={GOOD}"
                assert httpx.post(url, timeout=60).status_code == 200
                asking = [threads.submit(content, shop, each) for each in clients]
                time.sleep(0.2)  # the questions are in the socket's buffer
            finally:
                os.kill(worker, signal.SIGCONT)
            assert {each.result() for each in asking} <= {"good 0", FROM_UPSTREAM}


FROM_UPSTREAM = "from upstream"


def at_once(
    shop: Shop, threads: ThreadPoolExecutor, clients: list[httpx.Client]
) -> list[str]:
    return list(threads.map(lambda client: content(shop, client), clients))


def content(shop: Shop, client: httpx.Client) -> str:
    answer = client.post(shop.url + CHAT, json=asked("question 0"))
    found: str = answer.json()["choices"][0]["message"]["content"]
    return FROM_UPSTREAM if found.startswith("The answer to") else found


def test_a_write_that_was_decided_before_a_rollback_is_fenced(
    host: Serving, shop: Shop
) -> None:
    left = shop.stats()["timeline"]
    assert shop.rollback(to_version=POISONED).status_code == 200
    assert shop.rollback(to_version=GOOD).status_code == 200
    eventually(lambda: shop.stats()["version"] == shop.head())
    before = shop.stats()
    bulk(host, [stored(10**6)], left)
    eventually(lambda: fenced(shop.stats()) == fenced(before) + 1)
    after = shop.stats()
    assert (after["version"], after["digest"]) == (before["version"], before["digest"])
    shop.put("question 0", "a newer answer")
    newer = {"a newer answer", "good 1", "good 2"}
    eventually(lambda: answers(shop) == newer)


def fenced(stats: dict[str, Any]) -> int:
    count: int = stats["counts"].get("fenced", 0)
    return count


def test_entries_are_shown_as_of_then(shop: Shop) -> None:
    before = shop.head()
    key = shop.put("question 1", "as of now")
    shop.settle(before + 1)
    target = f"{shop.url}/v1/cachemind/entries/{key}"
    told = {}
    for version in (1, GOOD, POISONED, shop.head()):
        answer = shop.client.get(target, params={"as_of": version})
        told[version] = (
            answer.json()["response"]["choices"][0]["message"]["content"]
            if answer.status_code == 200
            else answer.status_code
        )
    assert told == {1: 404, GOOD: "good 1", POISONED: POISON, shop.head(): "as of now"}


def test_all_of_it_is_still_what_the_log_says(host: Serving, tmp_path: Path) -> None:
    del tmp_path
    rebuilt_equal(host)
