"""Topics that say who asks: taken up while they are made, and what they do not give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.client import CacheMind, Kafka, NotAllowed, Selector
from cachemind.codec.codec import Codec
from cachemind.core.access import Role
from cachemind.core.grant_topics import Grant, grant_specs
from cachemind.core.topics import Mode
from cachemind.events import Reads, Stored
from cachemind.types import Namespace
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import CliHost, cli_host
from tests.integration.requests_host import Client, answering, records
from tests.upstreams import completion
from tests.wal_events import ALPHA

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
ELSEWHERE = Namespace("elsewhere")
MESSAGES = [{"role": "user", "content": "q"}]


def chat(text: str) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages}).encode()


def answer_to(text: str) -> bytes:
    return json.dumps(completion(json.loads(chat(text)), "by hand")).encode()


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[CliHost]:
    with cli_host(broker.bootstrap_servers, topic_prefix, tmp_path / "h") as running:
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


def make(host: CliHost, role: Role) -> list[str]:
    grant = Grant(namespace=ALPHA, role=role)
    specs = grant_specs(host.prefix, grant, Mode.DEVELOPMENT)
    ensure_topics(host.kafka, specs)
    return [spec.name for spec in specs]


def client(host: CliHost, role: Role) -> Client:
    servers, prefix = host.bootstrap_servers, host.prefix
    return Client(servers, prefix, ALPHA, grant=f"{ALPHA}.{role}")


def refused(host: CliHost) -> list[tuple[str, str]]:
    codec = Codec()
    bodies = [codec.decode(record.value).body for record in records(host, "wal")]
    reads = [read for body in bodies if isinstance(body, Reads) for read in body.items]
    return [(r.principal, r.reason) for r in reads if r.strategy == "access"]


def test_a_grant_is_taken_up_live_and_gives_what_its_name_says(host: CliHost) -> None:
    admin = AdminClient({"bootstrap.servers": host.bootstrap_servers})
    with answering(host) as desk, ExitStack() as stack:
        process = desk.start()
        shared = stack.enter_context(
            closing(Client(host.bootstrap_servers, host.prefix, ALPHA))
        )
        assert shared.want("Lookup", request=chat("q")).kind == "Answered"

        # Made while the process answers; the names of the last are no grants'.
        pair = make(host, Role.CACHE_WRITER)
        make(host, Role.CACHE_READER)
        writer = stack.enter_context(closing(client(host, Role.CACHE_WRITER)))
        reader = stack.enter_context(closing(client(host, Role.CACHE_READER)))
        put = writer.want("Put", request=chat("q"), response=answer_to("q"))
        assert put.kind == "PutDone", put.body
        hit = reader.want("Lookup", request=chat("q"))
        assert hit.body["outcome"] == "hit_exact"

        denied = reader.want("Put", request=chat("r"), response=answer_to("r"))
        assert denied.kind == "Problem"
        assert (denied.body["code"], denied.body["field"]) == ("forbidden", "store")
        back = writer.ask(to_version=0)
        assert (back.body["code"], back.body["field"]) == ("forbidden", "rollback")

        # Another namespace by key, by body, and somebody else's topic for the answer.
        before = len(records(host, "dlq"))
        writer.command("Invalidate", key=ELSEWHERE, kind="all")
        writer.command("Invalidate", namespace=ELSEWHERE, kind="all")
        for topic in (reader.replies, shared.replies, f"{host.prefix}.wal"):
            to = {"reply-to": topic.encode()}
            writer.command("Lookup", request=chat("q"), headers=to)
        to = {"reply-to": writer.replies.encode()}
        shared.command("Lookup", request=chat("q"), headers=to)
        last = writer.want("Lookup", request=chat("q"))
        assert last.body["outcome"] == "hit_exact"
        shared.want("Lookup", request=chat("q"))
        reasons = [
            dict(letter.headers)["cachemind-dlq-reason"]
            for letter in records(host, "dlq")[before:]
        ]
        assert sorted(reasons) == [b"misplaced"] * 2 + [b"no_reply"] * 4
        wal = [Codec().decode(record.value) for record in records(host, "wal")]
        stored = [one for one in wal if isinstance(one.body, Stored)]
        assert [one.principal for one in stored] == [f"kafka:{ALPHA}.cache-writer"]
        assert {one.namespace for one in wal} == {ALPHA}
        assert sorted(refused(host)) == [
            (f"kafka:{ALPHA}.cache-reader", "forbidden:store"),
            (f"kafka:{ALPHA}.cache-writer", "forbidden:rollback"),
        ]

        # The client library by the role in its URL, or beside it.
        kafka = Kafka(topic_prefix=host.prefix)
        url = f"kafka://{host.bootstrap_servers}"
        with CacheMind(url + "?role=cache-reader", namespace=ALPHA, kafka=kafka) as one:
            found = one.lookup("m", MESSAGES)
            assert found is not None
            with pytest.raises(NotAllowed, match="lacks the right invalidate"):
                one.invalidate(Selector(everything=True))
        kafka = replace(kafka, role="cache-writer")
        with CacheMind(url, namespace=ALPHA, kafka=kafka) as one:
            assert one.lookup("m", MESSAGES) is not None

        # Taken away, and made again: from the beginning, on the same process.
        for future in admin.delete_topics(pair, operation_timeout=10).values():
            future.result(20)
        host.wait(lambda: "are answered no more" in desk.output())
        assert shared.want("Lookup", request=chat("q")).kind == "Answered"
        make(host, Role.CACHE_WRITER)
        again = stack.enter_context(closing(client(host, Role.CACHE_WRITER)))
        hit = again.want("Lookup", request=chat("q"))
        assert hit.body["outcome"] == "hit_exact"
        assert process.poll() is None
        desk.stop(process)
