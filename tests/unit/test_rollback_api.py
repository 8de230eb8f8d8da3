"""Versions, differences and rollbacks over HTTP, on memory adapters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from cachemind.core.digest import to_hex
from cachemind.core.partitioner import partition_of
from cachemind.core.rollback_report import RollbackPhase, RollbackProgress
from cachemind.core.snapshots import (
    SnapshotManifest,
    SnapshotNamespace,
    SnapshotPartition,
)
from cachemind.events import RolledBack
from cachemind.types import (
    FIRST_TIMELINE,
    EventId,
    Namespace,
    Offset,
    Partition,
    Sha256,
    Version,
)
from cachemind_services.bootstrap.gateway import log_ends
from tests.gateways import NAMESPACE, PARTITIONS, World, another_worker, gateway
from tests.upstreams import ScriptedUpstream, served, wait_until

PARTITION = Partition(partition_of(NAMESPACE.encode(), PARTITIONS))


@dataclass(frozen=True)
class Api:
    """A gateway with some versions."""

    world: World

    def ask(self, prompt: str, **more: Any) -> httpx.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        return httpx.post(self.world.url + "/v1/chat/completions", json=body | more)

    def put(self, prompt: str, answer: str, **more: Any) -> str:
        request = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        completion = {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        done = httpx.post(
            self.world.url + "/v1/cachemind/entries",
            json={"request": request, "response": completion, **more},
        )
        assert done.status_code == 201, done.text
        key: str = done.json()["key"]
        return key

    def post(self, **query: Any) -> httpx.Response:
        return httpx.post(self.world.url + "/v1/rollback", params=query, timeout=20)

    def get(self, target: str, **query: Any) -> httpx.Response:
        return httpx.get(self.world.url + target, params=query, timeout=20)

    @property
    def head(self) -> int:
        return self.world.fold.stores[PARTITION].namespace(NAMESPACE).version

    def settle(self, head: int) -> None:
        wait_until(lambda: self.head == head)


@pytest.fixture
def api() -> Iterator[Api]:
    """Four versions: three answers, then the first one poisoned."""
    with served(ScriptedUpstream()) as url, gateway(url) as world:
        api = Api(world)
        for number in range(3):
            api.put(f"question {number}", f"good {number}")
        api.put("question 0", "poison")
        api.settle(4)
        yield api


def said(answer: httpx.Response) -> str:
    content: str = answer.json()["choices"][0]["message"]["content"]
    return content


def problem(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    error = answer.json()["error"]
    assert error["message"]
    return answer.status_code, error["param"], error["code"]


def digest_at(api: Api, version: int) -> str:
    listed = api.get("/v1/versions").json()["versions"]
    found: str = next(row for row in listed if row["version"] == version)["digest"]
    return found


def test_a_rollback_brings_the_good_answer_back_and_says_what_it_did(api: Api) -> None:
    assert said(api.ask("question 0")) == "poison"
    before = digest_at(api, 3)
    answer = api.post(to_version=3, expected_head=4, reason="poisoned")
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["status"] == "committed"
    assert (report["from_version"], report["to_version"], report["version"]) == (
        4,
        3,
        5,
    )
    assert (report["restored"], report["removed"], report["changed"]) == (0, 0, 1)
    assert report["digest"] == before == digest_at(api, 5)
    assert (report["verdict"], report["strategy"]) == ("valid", "field-hash")
    assert report["reason"] == "poisoned"
    hit = api.ask("question 0")
    assert (hit.headers["x-cachemind-outcome"], said(hit)) == ("hit_exact", "good 0")
    again = api.get(f"/v1/rollbacks/{report['rollback_id']}")
    assert again.json() == report


def test_a_dry_run_names_every_entry_and_changes_nothing(api: Api) -> None:
    records = len(api.world.bodies)
    answer = api.post(to_version=1, dry_run=1)
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert shown["dry_run"] is True
    assert (shown["restored"], shown["removed"], shown["changed"]) == (0, 2, 1)
    assert [each["change"] for each in shown["changes"]].count("removed") == 2
    changed = next(c for c in shown["changes"] if c["change"] == "changed")
    assert "response_hash" in changed["fields"]
    assert "response" in changed["fields"]
    assert "response" not in changed["before"]
    assert "poison" not in answer.text
    assert "good" not in answer.text
    with_bodies = api.post(to_version=1, dry_run=1, bodies=1, limit=10)
    assert "poison" in with_bodies.text
    few = api.post(to_version=1, dry_run=1, limit=1).json()
    assert (len(few["changes"]), few["more"]) == (1, 2)
    assert (api.head, len(api.world.bodies)) == (4, records)


def test_undo_and_undo_of_undo_lead_back_and_forth(api: Api) -> None:
    poisoned, good = digest_at(api, 4), digest_at(api, 3)
    first = api.post(to_version=3).json()
    undone = api.post(undo=first["rollback_id"]).json()
    assert (undone["to_version"], undone["version"]) == (4, 6)
    assert undone["digest"] == poisoned
    assert said(api.ask("question 0")) == "poison"
    again = api.post(undo=undone["rollback_id"]).json()
    assert (again["to_version"], again["version"]) == (5, 7)
    assert again["digest"] == good
    assert said(api.ask("question 0")) == "good 0"


def test_repeating_a_rollback_changes_nothing(api: Api) -> None:
    given = str(uuid4())
    first = api.post(to_version=3, rollback_id=given)
    assert first.json()["rollback_id"] == given
    records = len(api.world.of(RolledBack))
    assert api.post(to_version=3, rollback_id=given).json() == first.json()
    other = api.post(to_version=2, rollback_id=given)
    assert problem(other) == (400, "rollback_id", None)
    repeated = api.post(to_version=3).json()
    assert repeated == {**first.json(), "repeated": True}
    assert (api.head, len(api.world.of(RolledBack))) == (5, records)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(
            {"to_version": 3, "expected_head": 2},
            (409, "expected_head", "wrong_head"),
            id="another-head",
        ),
        pytest.param(
            {"to_version": 99}, (422, "to_version", "unknown_version"), id="never-was"
        ),
        pytest.param(
            {"to_version": 3, "namespace": "other"},
            (403, "namespace", "namespace_not_served"),
            id="another-namespace",
        ),
        pytest.param({}, (400, "to_version", None), id="no-target"),
        pytest.param(
            {"to_version": 1, "undo": str(UUID(int=1))},
            (400, "undo", None),
            id="two-targets",
        ),
        pytest.param({"to_version": "x"}, (400, "to_version", None), id="no-number"),
        pytest.param({"to_version": "-1"}, (400, "to_version", None), id="negative"),
        pytest.param({"to_version": 1, "at": 2}, (400, "at", None), id="unknown-name"),
        pytest.param(
            {"to_version": 1, "strategy": "hope"},
            (400, "strategy", None),
            id="strategy",
        ),
        pytest.param(
            {"to_version": 1, "dry_run": "maybe"}, (400, "dry_run", None), id="flag"
        ),
        pytest.param(
            {"to_version": 1, "reason": "x" * 201}, (400, "reason", None), id="reason"
        ),
        pytest.param({"to_time": "soon"}, (400, "to_time", None), id="no-time"),
        pytest.param({"undo": "7"}, (400, "undo", None), id="no-id"),
        pytest.param(
            {"undo": str(UUID(int=5))}, (404, "undo", "not_found"), id="not-rolled"
        ),
        pytest.param(
            {"to_snapshot": "v9"}, (404, "to_snapshot", "not_found"), id="no-snapshot"
        ),
    ],
)
def test_what_is_refused_names_the_parameter_and_appends_nothing(
    api: Api, query: dict[str, Any], expected: tuple[int, str, str | None]
) -> None:
    records = len(api.world.bodies)
    assert problem(api.post(**query)) == expected
    assert problem(api.post(**{"dry_run": 1, **query})) == expected
    assert (api.head, len(api.world.bodies)) == (4, records)


def test_a_page_of_another_site_cannot_roll_back(api: Api) -> None:
    url = api.world.url + "/v1/rollback?to_version=1"
    answer = httpx.post(url, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    assert api.head == 4


def test_a_version_that_nothing_leads_to_any_more_is_gone(api: Api) -> None:
    api.world.fold.checkpoints[PARTITION].create(api.world.fold.stores[PARTITION])
    api.put("question 9", "later")
    api.settle(5)
    _, end = api.world.log.reader().bounds(PARTITION)
    api.world.log.delete_before(PARTITION, Offset(end))
    assert problem(api.post(to_version=3)) == (410, "to_version", "past_the_horizon")
    assert problem(api.get("/v1/diff", **{"from": 1, "to": 4}))[:2] == (410, "from")
    assert api.post(to_version=4).status_code == 200


def test_what_a_transaction_leaves_at_the_logs_end_is_not_waited_for(api: Api) -> None:
    api.world.log.leave_gap(PARTITION, 2)
    assert api.post(to_version=3, dry_run=1).status_code == 200
    assert api.post(to_version=3).status_code == 200
    ends = log_ends(api.world.log.reader(), PARTITIONS)()
    assert ends[PARTITION] == api.world.fold.stores[PARTITION].applied() + 1
    api.world.log.leave_gap(PARTITION, 3)
    assert log_ends(api.world.log.reader(), PARTITIONS)() == ends


def test_to_time_is_the_newest_version_that_claims_to_be_from_then(api: Api) -> None:
    rows = api.get("/v1/versions").json()["versions"]
    second = rows[1]["occurred_at_ns"]
    text = stamp(second + 1_000)  # a time in the query has microseconds
    assert api.post(to_time=text, dry_run=1).json()["to_version"] == 2
    assert api.post(to_time="1999-01-01T00:00:00Z", dry_run=1).json()["to_version"] == 0
    assert api.post(to_time="2999-01-01", dry_run=1).json()["to_version"] == 4


def test_a_time_finds_versions_of_the_heads_lineage_only(api: Api) -> None:
    rows = api.get("/v1/versions").json()["versions"]
    poisoned = stamp(rows[3]["occurred_at_ns"] + 1_000)
    assert api.post(to_version=2).json()["version"] == 5
    assert api.post(to_time=poisoned, dry_run=1).json()["to_version"] == 2


def stamp(at_ns: int) -> str:
    seconds, rest = divmod(at_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


def test_a_snapshot_of_one_namespace_is_a_target_and_one_of_more_is_not(
    api: Api,
) -> None:
    snapshots = api.world.fold.snapshots
    snapshots["mine"] = manifest({NAMESPACE: 2})
    snapshots["ours"] = manifest({NAMESPACE: 2, Namespace("other"): 5})
    assert problem(api.post(to_snapshot="ours"))[:2] == (403, "to_snapshot")
    assert api.post(to_snapshot="mine", dry_run=1).json()["to_version"] == 2
    done = api.post(to_snapshot="ours", namespace=NAMESPACE).json()
    assert (done["to_version"], done["version"]) == (2, 5)


def manifest(versions: dict[Namespace, int]) -> SnapshotManifest:
    held = tuple(
        SnapshotNamespace(
            namespace=namespace,
            version=Version(version),
            timeline=FIRST_TIMELINE,
            digest=Sha256(bytes(32)),
            entries=0,
        )
        for namespace, version in versions.items()
    )
    part = SnapshotPartition(
        partition=Partition(0), offset=Offset(1), namespaces=held, files=()
    )
    return SnapshotManifest(
        snapshot_id="0" * 32,
        name="",
        created_at_ns=1,
        expires_at_ns=0,
        cluster_id="c",
        topic_id="t",
        store_format=1,
        partitions=(part,),
    )


def test_versions_show_who_did_what_when_and_what_is_void(api: Api) -> None:
    api.post(to_version=2, reason="wrong batch")
    shown = api.get("/v1/versions").json()
    assert (shown["namespace"], shown["head"], shown["timeline"]) == (NAMESPACE, 5, 5)
    assert shown["branches"] == [{"version": 5, "target": 2}]
    assert shown["voided"] == [[3, 4]]
    rows = shown["versions"]
    assert [row["version"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["voided"] for row in rows] == [False, False, True, True, False]
    last = rows[-1]
    assert (last["kind"], last["target"], last["parent"]) == ("rolled_back", 2, 2)
    assert (last["reason"], last["principal"]) == ("wrong batch", "gateway")
    assert last["digest"] == to_hex(
        api.world.fold.stores[PARTITION].namespace(NAMESPACE).digest
    )
    some = api.get("/v1/versions", first=2, last=3).json()["versions"]
    assert [row["version"] for row in some] == [2, 3]
    assert problem(api.get("/v1/versions", first=3, last=2))[:2] == (400, "first")


def test_a_difference_is_shown_field_by_field(api: Api) -> None:
    shown = api.get("/v1/diff", **{"from": 1, "to": 4}).json()
    assert (shown["restored"], shown["removed"], shown["changed"]) == (2, 0, 1)
    back = api.get("/v1/diff", **{"from": 4, "to": 1}).json()
    assert (back["restored"], back["removed"], back["changed"]) == (0, 2, 1)
    assert "poison" not in api.get("/v1/diff", **{"from": 1, "to": 4}).text
    unknown = api.get("/v1/diff", **{"from": 1, "to": 40})
    assert problem(unknown) == (422, "to", "unknown_version")


def test_an_entry_is_shown_as_it_was(api: Api) -> None:
    key = api.put("question 0", "better")
    api.settle(5)
    target = f"/v1/cachemind/entries/{key}"
    told = {
        version: said_in(api.get(target, as_of=version).json()) for version in (1, 4, 5)
    }
    assert told == {1: "good 0", 4: "poison", 5: "better"}
    assert problem(api.get(target, as_of=0)) == (404, "key", "not_found")
    assert problem(api.get(target, as_of=6))[:2] == (422, "as_of")


def said_in(entry: dict[str, Any]) -> str:
    content: str = entry["response"]["choices"][0]["message"]["content"]
    return content


def test_without_the_log_a_rollback_is_unavailable(api: Api) -> None:
    api.world.log.go_away()
    answer = api.post(to_version=3)
    assert problem(answer) == (503, None, "wal_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert api.get("/v1/versions").status_code == 200


def test_a_slow_fold_gets_202_and_any_worker_tells_how_it_goes(api: Api) -> None:
    with served(ScriptedUpstream()) as url, another_worker(api.world, url) as other:
        api.world.fold.pause()
        asked = f"{api.world.url}/v1/rollback?to_version=3"
        answer = httpx.post(asked, headers={"prefer": "wait=0"}, timeout=20)
        assert answer.status_code == 202, answer.text
        running = answer.json()
        where = answer.headers["location"]
        assert where == f"/v1/rollbacks/{running['rollback_id']}"
        for worker in (api.world.url, other):
            shown = httpx.get(worker + where, timeout=20).json()
            assert (shown["status"], shown["lsn"]) == ("running", running["lsn"])
            assert shown["progress"] is None
        api.world.fold.progress = RollbackProgress(
            rollback_id=EventId(UUID(running["rollback_id"]).bytes),
            namespace=NAMESPACE,
            offset=Offset(9),
            phase=RollbackPhase.REPLAYING,
            base=Offset(3),
            replayed=40,
            total=100,
        )
        progress = {"phase": "replaying", "base": 3, "replayed": 40, "total": 100}
        assert httpx.get(other + where, timeout=20).json()["progress"] == progress
        api.world.fold.resume()
        wait_until(lambda: api.get(where).json()["status"] == "committed")


def test_a_rollback_that_never_was_is_not_found(api: Api) -> None:
    unknown = api.get(f"/v1/rollbacks/{uuid4()}")
    assert problem(unknown) == (404, "id", "not_found")
    assert problem(api.get("/v1/rollbacks/7"))[:2] == (400, "id")


def test_the_fold_has_the_last_word_on_the_head(api: Api) -> None:
    log = api.world.log
    log.hold()
    with ThreadPoolExecutor(2) as threads:
        threads.submit(api.put, "question 9", "overtakes")
        wait_until(lambda: log.held == 1)
        asked = threads.submit(api.post, to_version=3, expected_head=4)
        wait_until(lambda: log.held == 2)
        log.release()
    answer = asked.result()
    assert problem(answer) == (409, "expected_head", "wrong_head")
    assert answer.json()["rollback"]["status"] == "refused"
    assert api.head == 5
    undo = api.post(undo=answer.json()["rollback"]["rollback_id"])
    assert problem(undo)[:2] == (422, "undo")


ASKED = "How do I reset the password of my account?"
NEAR = "how do i reset the password of my account"


def test_hits_by_meaning_go_and_come_with_the_versions(api: Api) -> None:
    api.put(ASKED, "by meaning")
    api.settle(5)
    found = api.ask(NEAR)
    assert (outcome(found), said(found)) == ("hit_semantic", "by meaning")
    first = api.post(to_version=4).json()
    assert outcome(api.ask(NEAR)) == "miss"
    api.post(undo=first["rollback_id"])
    back = api.ask(NEAR)
    assert (outcome(back), said(back)) == ("hit_semantic", "by meaning")


def test_what_has_expired_since_does_not_come_back_alive(api: Api) -> None:
    api.put("short life", "lived", ttl_s=1)
    api.settle(5)
    assert outcome(api.ask("short life")) == "hit_exact"
    api.put("short life", "lives on")
    api.settle(6)
    stored_at = api.get("/v1/versions", first=5, last=5).json()["versions"][0]
    expires_s = stored_at["occurred_at_ns"] / 1e9 + 1
    wait_until(lambda: time.time() > expires_s)
    report = api.post(to_version=5).json()
    assert (report["status"], report["changed"]) == ("committed", 1)
    answer = api.ask("short life")
    assert outcome(answer) == "miss"
    assert "detail=expired" in answer.headers["cache-status"]


def outcome(answer: httpx.Response) -> str:
    found: str = answer.headers["x-cachemind-outcome"]
    return found


def test_another_method_is_not_allowed(api: Api) -> None:
    answer = api.get("/v1/rollback")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
