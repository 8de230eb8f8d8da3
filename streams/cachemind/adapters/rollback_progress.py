"""How far a running rollback is, in a small file that any process may read.

It is written anew as a whole, is not synced to disk and is no part of any state: after
a crash it may tell of a rollback that is being done again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cachemind.core.rollback_report import RollbackPhase, RollbackProgress
from cachemind.types import EventId, Namespace, Offset

log = logging.getLogger(__name__)


class ProgressFile:
    """`RollbackProgressBoard` of one partition."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def show(self, progress: RollbackProgress) -> None:
        """Replace what was shown. A disk that is full must not stop a rollback."""
        scratch = self._path.with_name(self._path.name + ".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(_plain(progress)), encoding="ascii")
            scratch.replace(self._path)
        except OSError as error:
            log.warning("%s: %s", self._path, error)

    def clear(self) -> None:
        """Show nothing: no rollback is running."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: %s", self._path, error)


def read_progress(path: Path) -> RollbackProgress | None:
    """Return what is shown at `path`; None where nothing is, or nothing readable."""
    try:
        return _progress(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError) as error:
        log.warning("%s: %s", path, type(error).__name__)
        return None


def _plain(progress: RollbackProgress) -> Mapping[str, object]:
    return {
        "rollback_id": progress.rollback_id.hex(),
        "namespace": progress.namespace,
        "offset": progress.offset,
        "phase": progress.phase.value,
        "base": progress.base,
        "replayed": progress.replayed,
        "total": progress.total,
    }


def _progress(found: Mapping[str, Any]) -> RollbackProgress:
    return RollbackProgress(
        rollback_id=EventId(bytes.fromhex(found["rollback_id"])),
        namespace=Namespace(found["namespace"]),
        offset=Offset(int(found["offset"])),
        phase=RollbackPhase(found["phase"]),
        base=Offset(int(found["base"])),
        replayed=int(found["replayed"]),
        total=int(found["total"]),
    )
