"""What this host last committed for its group, beside the stores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cachemind.adapters.file_sync import write_whole
from cachemind.errors import StoreMismatch, StoreUnavailable
from cachemind.types import Offset, Partition

NAME: Final = "group.json"


class GroupMemory:
    """`OffsetMemory` in a file that names the group and the log it is of.

    Of another group or log nothing is remembered.
    """

    def __init__(self, folder: Path, group: str, topic_id: str) -> None:
        self._path = folder / NAME
        self._group = group
        self._topic_id = topic_id

    def load(self) -> Mapping[Partition, Offset]:
        """Return the next offset to read of each partition, as last committed here.

        Raises: `StoreUnavailable`; `StoreMismatch` where the file is not ours.
        """
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        except ValueError as error:
            raise StoreMismatch(f"{self._path}: is not JSON; remove it") from error
        return self._offsets(found)

    def save(self, offsets: Mapping[Partition, Offset]) -> None:
        """Replace what is remembered. Raises: `StoreUnavailable`."""
        content = {
            "group": self._group,
            "topic_id": self._topic_id,
            "offsets": {str(p): offset for p, offset in sorted(offsets.items())},
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(content).encode())
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error

    def _offsets(self, found: Any) -> Mapping[Partition, Offset]:
        try:
            if (found["group"], found["topic_id"]) != (self._group, self._topic_id):
                return {}
            return {
                Partition(int(p)): Offset(int(at)) for p, at in found["offsets"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreMismatch(f"{self._path}: not a group's offsets") from error
