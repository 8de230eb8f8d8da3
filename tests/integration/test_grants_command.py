"""`cachemind grants` on a Kafka that asks who one is, and on one that does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_acls import KafkaAcls
from cachemind.adapters.kafka_config import open_consumer
from cachemind.adapters.kafka_errors import kafka_error
from cachemind.adapters.kafka_grants import KafkaGrants
from cachemind.adapters.kafka_topics import describe_topics, ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.core.grant_access import AccessRule, Doing, Resource
from cachemind.core.topics import Mode, topics
from cachemind.errors import LogRejected
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from tests.integration.serving import eventually
from tests.secured_kafka import Properties, Secured, secured_broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
ADMIN, APP, OTHER = "topics", "app", "other"
GRANT = ("--namespace", "shop", "--role", "cache-writer")
WAIT_S = 20.0

Grants = Callable[..., Any]


@pytest.fixture(scope="module")
def secured(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    # The session's comes up first: as long as this one runs it would be as this one.
    assert broker.bootstrap_servers
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder, [APP, OTHER], [ADMIN]) as found:
        yield found


@pytest.fixture
def grants(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    topic_prefix: str,
) -> Grants:
    """Runs the command in somebody's name; returns its JSON, or its error's text."""
    monkeypatch.setenv("CACHEMIND_TOPIC_PREFIX", topic_prefix)

    def run(kafka: Properties, action: str, *words: str, code: int = 0) -> Any:
        for name, value in kafka.items():
            variable = "CACHEMIND_KAFKA_" + name.upper().replace(".", "_")
            monkeypatch.setenv(variable, str(value))
        capsys.readouterr()
        assert main(["grants", action, *words, "--json"]) == code
        told = capsys.readouterr()
        return told.err if code else json.loads(told.out)

    return run


def may_ask(kafka: Properties, topic: str) -> bool:
    """Return whether a command goes to `topic`, by an idempotent producer."""
    writer = KafkaWriter(kafka, topic)
    error = writer.append(b"k", b"v", ()).exception(WAIT_S)
    writer.close(0)
    assert error is None or isinstance(error, LogRejected)
    return error is None


def may_read(kafka: Properties, topic: str, group: str) -> bool:
    """Return whether what is on `topic` can be read, by a reader of that name."""
    with closing(open_consumer(kafka, {"group.id": group})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
    assert error is None or error.code() in DENIED
    return error is None


def may_be_in(kafka: Properties, group: str) -> bool:
    """Return whether a consumer may be in `group`."""
    client = AdminClient(kafka)
    found = client.describe_consumer_groups([group], request_timeout=WAIT_S)
    try:
        found[group].result(WAIT_S)
    except KafkaException as error:
        if kafka_error(error).code() in DENIED:
            return False
        raise
    return True


def test_a_grant_is_its_users_until_it_is_taken_back(
    secured: Secured, grants: Grants, topic_prefix: str
) -> None:
    admin, app, other = map(secured.login, (ADMIN, APP, OTHER))
    made = grants(admin, "create", *GRANT, "--user", f"User:{APP}")
    requests, replies = made["requests"], made["replies"]
    assert requests == f"{topic_prefix}.requests.shop.cache-writer"
    assert (made["writers"], made["readers"]) == ([f"User:{APP}"], [f"User:{APP}"])
    group = made["group_prefix"] + "1"
    assert may_ask(app, requests)
    assert may_ask(admin, replies)
    assert may_read(app, replies, group)
    # The other side of each, groups beside its own, and somebody else.
    assert not may_ask(app, replies)
    assert not may_read(app, requests, group)
    assert may_be_in(app, group)
    assert not may_be_in(app, f"{topic_prefix}.client.shop.cache-writer.x:1")
    assert not may_be_in(other, group)
    assert not may_ask(other, requests)
    assert not may_read(other, replies, group)

    # Twice is once; a second user comes beside the first.
    assert grants(admin, "create", *GRANT, "--user", f"User:{APP}") == made
    both = grants(admin, "create", *GRANT, "--user", f"User:{OTHER}")
    assert both["writers"] == [f"User:{APP}", f"User:{OTHER}"]
    assert grants(admin, "list") == [both]
    grants(admin, "revoke", *GRANT, "--user", f"User:{APP}")
    (left,) = grants(admin, "list")
    assert left["writers"] == left["readers"] == [f"User:{OTHER}"]
    eventually(lambda: not may_ask(app, requests))

    # Without its topics it is nobody's, and made anew nobody's still.
    grants(admin, "revoke", *GRANT, "--topics")
    eventually(lambda: grants(admin, "list") == [])
    again = grants(admin, "create", *GRANT)
    assert (again["writers"], again["readers"]) == ([], [])


@pytest.mark.parametrize(
    ("who", "words", "code", "said"),
    [
        pytest.param(ADMIN, ["--production"], 2, "replica", id="one-broker-is-too-few"),
        pytest.param(
            OTHER, [], 1, "may not; on the cluster it needs Alter", id="who-may-not"
        ),
    ],
)
def test_what_cannot_be_made_leaves_nothing_behind(
    secured: Secured,
    grants: Grants,
    topic_prefix: str,
    who: str,
    words: list[str],
    code: int,
    said: str,
) -> None:
    kafka = secured.login(who)
    told = grants(kafka, "create", *GRANT, "--user", f"User:{APP}", *words, code=code)
    assert said in told
    admin = secured.login(ADMIN)
    assert grants(admin, "list") == []
    made = grants(admin, "create", *GRANT)
    assert (made["writers"], made["readers"]) == ([], [])


def test_where_nobody_is_asked_who_he_is_a_user_cannot_be_named(
    broker: EmbeddedBroker, grants: Grants, topic_prefix: str
) -> None:
    kafka: Properties = {"bootstrap.servers": str(broker.bootstrap_servers)}
    told = grants(kafka, "create", *GRANT, "--user", "User:app", code=2)
    assert "--user" in told
    assert "no authorizer" in told
    names = [f"{topic_prefix}.{k}.shop.cache-writer" for k in ("requests", "replies")]
    assert describe_topics(kafka, names) == {}
    made = grants(kafka, "create", *GRANT)
    assert (made["writers"], made["readers"]) == (None, None)
    assert set(describe_topics(kafka, names)) == set(names)
    assert grants(kafka, "list") == [made]
    grants(kafka, "revoke", *GRANT, "--topics")
    eventually(lambda: grants(kafka, "list") == [])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        pytest.param(["--namespace", "Shop", "--role", "auditor"], "--namespace"),
        pytest.param(
            ["--namespace", "cachemind.a", "--role", "auditor"], "--namespace"
        ),
        pytest.param([*GRANT, "--user", "app"], "--user"),
        pytest.param([*GRANT, "--user", "User:*"], "--user"),
    ],
)
def test_a_wrong_argument_is_named(
    grants: Grants, words: list[str], named: str
) -> None:
    nobody: Properties = {"bootstrap.servers": "127.0.0.1:1"}
    assert named in grants(nobody, "create", *words, code=2)


def test_what_may_not_be_read_and_what_is_no_grant_is_left_out_and_said_once(
    secured: Secured,
    grants: Grants,
    topic_prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin = secured.login(ADMIN)
    made = grants(admin, "create", *GRANT)
    like = topics(1, Mode.DEVELOPMENT, topic_prefix).requests
    ensure_topics(admin, [like, replace(like, name=f"{like.name}.shop.writer")])
    looks = AccessRule(
        principal=f"User:{OTHER}",
        resource=Resource.TOPIC,
        name=topic_prefix,
        prefixed=True,
        doing=Doing.DESCRIBE,
    )
    with (
        closing(KafkaAcls(admin)) as acls,
        closing(KafkaGrants(secured.login(OTHER), topic_prefix)) as found,
    ):
        acls.add([looks])
        # Until the broker knows the rule there is nothing to be seen at all.
        eventually(lambda: found.listed() != [])
        assert found.find() == found.find() == {}
        acls.add([replace(looks, doing=Doing.READ)])
        eventually(lambda: list(found.find()) == [made["requests"]])
    for said in ("may not be read", "is no topic of a grant"):
        assert sum(said in told for told in caplog.messages) == 1
