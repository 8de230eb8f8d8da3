"""Dead letters: what their headers say, after those that the record itself had.

A *letter* is a record that could not be folded or answered, bit for bit, and why. A
*replay* is the note, on the same topic, that a letter's record was put back on the
topic that it came from. A letter always has the header `cachemind-dlq-topic`, after
every header of its record, so that no record can pass itself off as a note, or its
own headers as ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from cachemind.errors import InvalidEvent, UndecodableRecord
from cachemind.types import Lsn

HEADER_PREFIX: Final = "cachemind-dlq-"
REPLAY_OF: Final = HEADER_PREFIX + "replay-of"
"""On a record that was put back: the LSN, on its topic, that it was buried from."""

_TOPIC: Final = HEADER_PREFIX + "topic"
_LSN: Final = HEADER_PREFIX + "lsn"
_REASON: Final = HEADER_PREFIX + "reason"
_DETAIL: Final = HEADER_PREFIX + "detail"
_TIMESTAMP: Final = HEADER_PREFIX + "timestamp-ms"
_KEY: Final = HEADER_PREFIX + "key"
_NULL: Final = HEADER_PREFIX + "null-value"
_REPLAYED: Final = HEADER_PREFIX + "replayed"
_BY: Final = HEADER_PREFIX + "by"

_Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a dead letter's record was."""

    topic: str
    lsn: Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record that could not be folded or answered.

    `key`, `value` and `headers` are the record's own. `reason` is one word, of newer
    builds perhaps an unknown one; `detail` holds no payload. Units: `timestamp_ms` is
    Kafka's time of the record, milliseconds since the Unix epoch, -1 where unknown.
    """

    source: Source
    reason: str
    detail: str
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: _Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The note that the record of `source` was put back on its topic, and by whom."""

    source: Source
    by: str


def letter_headers(letter: Letter) -> _Headers:
    """Return the headers to bury a record with: its own, then ours."""
    facts = [
        (_TOPIC, letter.source.topic.encode()),
        (_LSN, str(letter.source.lsn).encode()),
        (_REASON, letter.reason.encode()),
        (_DETAIL, letter.detail.encode()),
        (_TIMESTAMP, str(letter.timestamp_ms).encode()),
    ]
    if letter.key is not None:
        facts.append((_KEY, letter.key))
    if letter.value is None:
        facts.append((_NULL, b"true"))
    return letter.headers + tuple(facts)


def replay_headers(replay: Replay) -> _Headers:
    """Return the headers of the note; its Kafka key is the source topic."""
    return (
        (_REPLAYED, str(replay.source.lsn).encode()),
        (_BY, replay.by.encode()),
    )


def put_back(letter: Letter, without: Collection[str] = ()) -> _Headers:
    """Return the headers to put a letter's record back with: its own, and whence.

    Its own but for those named `without`, such as a deadline that has passed.
    """
    own = (each for each in letter.headers if each[0] not in without)
    return (*own, (REPLAY_OF, str(letter.source.lsn).encode()))


def read_dead_letter(
    key: bytes | None, value: bytes | None, headers: _Headers
) -> Letter | Replay:
    """Return what a record of the dead-letter topic is.

    Raises: `UndecodableRecord` for one that neither `letter_headers` nor
    `replay_headers` wrote.
    """
    begins = [n for n, (name, _) in enumerate(headers) if name == _TOPIC]
    if not begins:
        return _replay(key, dict(headers))
    own, ours = headers[: begins[-1]], dict(headers[begins[-1] :])
    return Letter(
        source=Source(topic=_text(ours, _TOPIC), lsn=_lsn(ours, _LSN)),
        reason=_text(ours, _REASON),
        detail=_text(ours, _DETAIL),
        timestamp_ms=_number(ours, _TIMESTAMP),
        key=ours.get(_KEY),
        value=None if _NULL in ours else value or b"",
        headers=own,
    )


def _replay(key: bytes | None, ours: Mapping[str, bytes]) -> Replay:
    if not key:
        raise UndecodableRecord("no dead letter: no header says of which topic")
    return Replay(
        source=Source(topic=key.decode("utf-8", "replace"), lsn=_lsn(ours, _REPLAYED)),
        by=_text(ours, _BY),
    )


def _text(ours: Mapping[str, bytes], name: str) -> str:
    if name not in ours:
        raise UndecodableRecord(f"no dead letter: it has no header {name}")
    return ours[name].decode("utf-8", "replace")


def _lsn(ours: Mapping[str, bytes], name: str) -> Lsn:
    try:
        return Lsn.parse(_text(ours, name))
    except InvalidEvent as error:
        raise UndecodableRecord(f"no dead letter: {name}: {error.problem}") from error


def _number(ours: Mapping[str, bytes], name: str) -> int:
    text = _text(ours, name)
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise UndecodableRecord(f"no dead letter: {name} is not a number")
    return int(text)
