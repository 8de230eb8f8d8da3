"""One namespace's commands wait for a slow model: the others' do not wait for them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cachemind.agents.batching import MOST_WAITING
from cachemind.agents.inbox import MOST_RECORDS
from cachemind_services.broker import EmbeddedBroker
from tests.integration.cli_host import CliHost, cli_host
from tests.integration.grants_host import granted, make_topics
from tests.integration.requests_host import answering
from tests.upstreams import Received, ScriptedUpstream, Send, served

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
GRANTS = ("busy.cache-writer", "calm.cache-writer")
COMMANDS = MOST_WAITING + MOST_RECORDS + 800
"""More than what is read ahead and what waits unread."""


def chat(text: str) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages}).encode()


class SlowModel(ScriptedUpstream):
    """Answers nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()


@pytest.fixture
def model() -> SlowModel:
    return SlowModel()


@pytest.fixture
def host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path, model: SlowModel
) -> Iterator[CliHost]:
    servers, folder = broker.bootstrap_servers, tmp_path / "h"
    with (
        served(model) as url,
        cli_host(servers, topic_prefix, folder, upstream=url) as running,
    ):
        running.start()
        running.wait(lambda: "live" in running.output())
        yield running


def test_who_is_far_behind_holds_up_no_other_and_is_answered_whole(
    host: CliHost, model: SlowModel
) -> None:
    async def slow(received: Received, send: Send) -> None:
        while not model.may_answer.is_set():
            await asyncio.sleep(0.02)
        await answered(received, send)

    answered, model.behaviour = model.behaviour, slow
    make_topics(host, *GRANTS)
    with answering(host) as desk, ExitStack() as stack:
        process = desk.start()
        busy, calm = stack.enter_context(granted(host, *GRANTS))
        for one in (busy, calm):
            assert one.want("Lookup", request=chat("q")).kind == "Answered"
        sent = [busy.command("Complete", request=chat("slow"))]
        sent += [
            busy.command("Lookup", request=chat("q"), flush=False)
            for _ in range(COMMANDS)
        ]
        busy.producer.flush(30)
        # Of what was written after all of that.
        for _ in range(5):
            assert calm.want("Lookup", request=chat("q")).kind == "Answered"
        assert len(busy.answers) == 1
        model.may_answer.set()
        last = busy.to(sent[-1], 120)
        assert last.kind == "Answered"
        counts = Counter(one.correlation_id for one in busy.quiet())
        assert all(counts[each] == 1 for each in sent)
        desk.stop(process)
