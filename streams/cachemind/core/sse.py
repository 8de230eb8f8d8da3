"""Server-sent events at the level of bytes, both ways.

Source: WHATWG HTML, section 9.2.6, "Interpreting an event stream".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
DEFAULT_EVENT: Final = "message"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event; `last_id` is the stream's last event id so far."""

    data: str
    event: str = DEFAULT_EVENT
    last_id: str = ""


@dataclass(frozen=True, slots=True)
class SseFrame:
    """The bytes up to and with the line that ended a block, and what they meant.

    `event` is None where the block held only comments, or no data field.
    """

    raw: bytes
    event: SseEvent | None


class SseParser:
    """Cuts a byte stream into frames, wherever its chunks happen to end.

    The `raw` of all frames, then `rest()`, joined, are the bytes that went in.
    """

    def __init__(self) -> None:
        self._raw = bytearray()
        self._seen = 0
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._event = ""
        self._last_id = ""

    def feed(self, chunk: bytes) -> list[SseFrame]:
        """Return the frames that `chunk` completes.

        A CR at the end of a chunk ends its line at once; an LF that follows in
        the next chunk belongs to it and opens that frame's `raw`.
        """
        self._raw += chunk
        if not self._skip_start():
            return []
        frames: list[SseFrame] = []
        taken = 0
        for end in _LINE_END.finditer(self._raw, self._seen):
            line = bytes(self._raw[self._seen : end.start()])
            self._seen = end.end()
            if line:
                self._field(line)
                continue
            frames.append(SseFrame(bytes(self._raw[taken : self._seen]), self._take()))
            taken = self._seen
        self._after_cr = self._seen == len(self._raw) and self._raw.endswith(b"\r")
        del self._raw[:taken]
        self._seen -= taken
        return frames

    def rest(self) -> bytes:
        """Return the bytes after the last frame: at the end, a block cut short."""
        return bytes(self._raw)

    def _skip_start(self) -> bool:
        """Step over a leading BOM or the LF of a split CRLF; False: wait for more."""
        if self._at_start:
            if len(self._raw) < len(_BOM) and _BOM.startswith(self._raw):
                return False
            self._at_start = False
            if self._raw.startswith(_BOM):
                self._seen = len(_BOM)
        elif self._after_cr and len(self._raw) > self._seen:
            self._after_cr = False
            if self._raw[self._seen] == 0x0A:
                self._seen += 1
        return True

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._event = text
        elif name == b"id" and "\0" not in text:
            self._last_id = text

    def _take(self) -> SseEvent | None:
        data, event = self._data, self._event or DEFAULT_EVENT
        self._data, self._event = [], ""
        if not data:
            return None
        return SseEvent("\n".join(data), event, self._last_id)


def serialise(event: SseEvent) -> bytes:
    """Return the frame of `event`, without its id; a CR in the data becomes LF.

    Raises: `ValueError` where the event's name holds a line end.
    """
    if "\n" in event.event or "\r" in event.event:
        raise ValueError("an event's name must be one line")
    head = "" if event.event == DEFAULT_EVENT else f"event: {event.event}\n"
    lines = event.data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode()


def data_frame(data: bytes) -> bytes:
    """Return the frame of one line of data, for example compact JSON."""
    return b"data: " + data + b"\n\n"
