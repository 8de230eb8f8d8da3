"""Checkpoints: the head of a log as the text of a signed note.

    origin\\n
    number of leaves, decimal\\n
    base64(root)\\n

Further lines may follow, which say nothing about the tree.
Source: C2SP tlog-checkpoint v1.0.0.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final

from cachemind.core.signed_note import decoded_base64
from cachemind.errors import MalformedNote
from cachemind.types import HASH_BYTES, Sha256

MAX_SIZE: Final = 2**63 - 1
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_FIELDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The root of the first `size` leaves of the log that `origin` names."""

    origin: str
    size: int
    root: Sha256
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for line in (self.origin, *self.extensions):
            if not line or "\n" in line:
                raise MalformedNote("a checkpoint's lines must be lines, none empty")
        if not 0 <= self.size <= MAX_SIZE:
            raise MalformedNote("a checkpoint's size must be from 0 to 2**63 - 1")
        if len(self.root) != HASH_BYTES:
            raise MalformedNote(f"a checkpoint's root must be {HASH_BYTES} bytes")

    def __str__(self) -> str:
        """Return the note's text."""
        root = base64.b64encode(self.root).decode()
        lines = (self.origin, str(self.size), root, *self.extensions)
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Return what a note's text says of a log. Raises: `MalformedNote`."""
        lines = text.split("\n")
        if len(lines) <= _FIELDS or lines.pop():
            raise MalformedNote("a checkpoint must be three lines or more")
        origin, size, root, *extensions = lines
        if not _SIZE.fullmatch(size):
            raise MalformedNote("a checkpoint's size must be a decimal number")
        return cls(
            origin=origin,
            size=int(size),
            root=Sha256(decoded_base64(root, "a checkpoint's root")),
            extensions=tuple(extensions),
        )
