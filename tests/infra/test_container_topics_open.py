"""A cluster that is open until it has rules, as MSK is at the first apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemind.errors import LogRejected
from infra.terraform.container.apply_topics import apply, plan_in
from tests.infra.test_container_topics import ACLS, document
from tests.integration.serving import eventually
from tests.secured_kafka import Secured, secured_broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Secured]:
    with secured_broker(
        tmp_path / "open",
        users=["topics", "bob"],
        more="allow.everyone.if.no.acl.found=true\n",
    ) as found:
        yield found


def test_the_first_plan_closes_it_and_the_same_account_applies_the_next(
    kafka: Secured,
) -> None:
    topics, bob = kafka.login("topics"), kafka.login("bob")
    wanted = document("open", retention_ms="86400000")
    wanted["acls"] += [
        rule | {"principal": "User:topics", "name": rule["name"].format(prefix="open")}
        for rule in json.loads(ACLS.read_text("utf-8"))["topics"]
    ]
    *topics_before, one_more = wanted["topics"]
    first = plan_in(json.dumps(wanted | {"topics": topics_before}))
    assert "created topic open.wal" in list(apply(topics, first))
    eventually(lambda: not list(apply(topics, first)))
    wanted["topics"][0]["settings"]["retention.ms"] = "1"
    second = plan_in(json.dumps(wanted))
    said = list(apply(topics, second))
    assert f"{wanted['topics'][0]['name']}: retention.ms is 1, was 86400000" in said
    # What a later version of the program, or another grant, brings.
    assert f"created topic {one_more['name']}" in said
    eventually(lambda: not list(apply(topics, second)))
    with pytest.raises(LogRejected):
        list(apply(bob, first))
