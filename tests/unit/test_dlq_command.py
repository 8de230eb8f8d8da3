"""What `dlq` understands, and prints of what others wrote."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cachemind.codec import Codec
from cachemind.core.commands import Command, Rollback
from cachemind.core.dead_letter import Letter, Replay, Source
from cachemind.types import EventId, Lsn, Namespace, Offset, Partition, Version
from cachemind_services.bootstrap.dlq import Buried, is_of_requests
from cachemind_services.cli.dlq_shown import before, framing, line, page, row, whole
from cachemind_services.cli.main import main
from tests.wal_events import envelope, stored

AT = Lsn(Partition(0), Offset(17))
SECRET = b"Bearer s3cret"
EVENT = envelope(3, stored(3))
LETTER = Letter(
    source=Source(topic="c.wal", lsn=Lsn(Partition(1), Offset(7))),
    reason="misplaced",
    detail="not of this partition",
    timestamp_ms=1_700_000_000_123,
    key=b"alpha",
    value=Codec().encode(EVENT),
    headers=(("authorization", SECRET), ("reply-to", b"answers")),
)
FOUND = Buried(at=AT, letter=LETTER)


def test_a_letter_is_one_line_that_says_why() -> None:
    assert line(row(FOUND)) == (
        "0@17     2023-11-14T22:13:20.123Z  c.wal 1@7  misplaced  "
        f"{len(LETTER.value or b'')} B  not of this partition"
    )


def test_a_replayed_letter_says_who_replayed_it() -> None:
    note = Replay(source=LETTER.source, by="operator/a@b")
    found = replace(FOUND, replayed=note)
    assert line(row(found)).endswith("[replayed by operator/a@b]")
    assert before(found, note) == "0@17 was replayed before, by operator/a@b"


def test_what_is_no_letter_is_listed_as_that() -> None:
    found = Buried(at=AT, letter=None, problem="no header says of which topic")
    assert line(row(found)) == (
        "0@17     not a dead letter: no header says of which topic"
    )
    assert whole(found, "", bodies=True) == row(found)


def test_nothing_a_client_wrote_is_shown_unless_asked_for() -> None:
    shown = whole(FOUND, EVENT, bodies=False)
    assert shown["headers"] == [
        {"name": "authorization", "bytes": len(SECRET)},
        {"name": "reply-to", "value": "answers"},
    ]
    told = json.dumps(shown) + page(shown)
    assert "s3cret" not in told
    assert "prompt" not in shown["content"]["body"]
    assert "value_hex" not in shown
    assert shown["content"]["namespace"] == EVENT.namespace
    asked = whole(FOUND, EVENT, bodies=True)
    assert bytes.fromhex(asked["value_hex"]) == LETTER.value
    assert asked["headers"][0] == {"name": "authorization", "value": SECRET.decode()}
    assert "prompt" in asked["content"]["body"]


def test_a_command_shows_what_is_asked_for_only_when_asked() -> None:
    command = Command(
        request_id=EventId(b"\x01" * 16),
        namespace=Namespace("alpha"),
        body=Rollback(to_version=Version(3), reason="words"),
    )
    shown = whole(FOUND, command, bodies=False)["content"]
    assert shown == {
        "request_id": "01" * 16,
        "namespace": "alpha",
        "kind": "Rollback",
    }
    asked = whole(FOUND, command, bodies=True)["content"]
    assert asked["body"]["to_version"] == 3


def test_nothing_that_a_terminal_obeys_is_printed() -> None:
    hostile = replace(LETTER, reason="\x1b[2J", key=b"\x9b\n\xff")
    found = Buried(at=AT, letter=hostile)
    for told in (line(row(found)), page(whole(found, "\x07", bodies=True))):
        assert all(each.isprintable() for each in told.replace("\n", ""))
    assert "\n" not in line(row(found))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\xc3\x01" + bytes(range(8)), "single-object, fingerprint 0706050403020100"),
        (b"\x00\x00\x00\x00\x07rest", "Confluent, schema id 7"),
        (b"\xc3\x01abc", "cut inside the single-object header"),
        (b"", "empty"),
    ],
)
def test_the_framing_is_named(value: bytes, said: str) -> None:
    assert framing(value) == said


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("0@1", "--all"),
        ("0@1", "--reason", "no_reply"),
        ("zero",),
    ],
)
def test_what_is_to_be_replayed_must_be_said(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "replay", *words, "--data-dir", "/none"]) == 2
    assert "ID: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topic", "is_ours"),
    [
        ("c.requests", True),
        ("c.requests.alpha", True),
        ("c.requestsx", False),
        ("c.replies", False),
    ],
)
def test_commands_go_back_to_topics_of_requests_only(topic: str, is_ours: bool) -> None:
    assert is_of_requests(topic, "c.requests") is is_ours
