"""What `cachemind replay` prints: a bar, states, and what has changed since."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from cachemind.core.delta import EntryChange
from cachemind.core.entry_diff import changed_fields
from cachemind.core.state import Entry, NamespaceState
from cachemind.types import Offset, Partition
from cachemind_services.cli.describe import HIDDEN

BAR_CHARS: Final = 30
REDRAW_S: Final = 0.1
Draw = Callable[[Partition, Offset, Offset, Offset], None]


def state_row(state: NamespaceState) -> dict[str, object]:
    """Return what is told of a namespace."""
    return {
        "namespace": state.namespace,
        "version": state.version,
        "timeline": state.timeline,
        "entries": state.entries,
        "digest": f"{state.digest:064x}",
    }


def change_row(change: EntryChange, *, bodies: bool) -> dict[str, Any]:
    """Return what became of one entry since then: each changed field, old and new.

    What people wrote or were told only with `bodies`; such a field is still named
    where it differs, under `hidden`.
    """
    word = "added" if change.before is None else "removed"
    told: dict[str, Any] = {"key": change.key.hex()}
    if change.before is None or change.after is None:
        entry = change.after or change.before
        return told | {"change": word} | _of(entry, bodies=bodies)
    names = changed_fields(change)
    hidden = [] if bodies else [name for name in names if name in HIDDEN]
    fields = {
        name: [
            _plain(getattr(change.before, name)),
            _plain(getattr(change.after, name)),
        ]
        for name in names
        if name not in hidden
    }
    return told | {"change": "changed", "fields": fields, "hidden": hidden}


def _of(entry: Entry | None, *, bodies: bool) -> dict[str, Any]:
    if entry is None:
        return {}
    told: dict[str, Any] = {"version": entry.version, "model": entry.model}
    return told | {"prompt": entry.prompt} if bodies else told


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def change_line(told: dict[str, Any]) -> str:
    """Return a `change_row` as text, a line a field."""
    marks = {"added": "+", "removed": "-", "changed": "~"}
    # The whole key: it is what `replay query --key` and `invalidate --key` take.
    head = f"{marks[told['change']]} {told['key']}"
    if "fields" not in told:
        prompt = f"  {told['prompt']!r}" if "prompt" in told else ""
        return f"{head}  version {told['version']}  {told['model']}{prompt}"
    lines = [
        f"    {name}: {old!r} -> {new!r}" for name, (old, new) in told["fields"].items()
    ]
    if told["hidden"]:
        lines.append(f"    {', '.join(told['hidden'])}: differ, see --bodies")
    return "\n".join([head, *lines])


@contextmanager
def progress_bar() -> Iterator[Draw]:
    """Yield what draws how far a replay is, on a terminal's error output."""
    shows = sys.stderr.isatty()
    drawn_s = 0.0

    def draw(partition: Partition, began: Offset, at: Offset, end: Offset) -> None:
        nonlocal drawn_s
        now_s = time.monotonic()
        if at < end and now_s - drawn_s < REDRAW_S:
            return
        drawn_s = now_s
        line = bar(partition, began, at, end)
        width = shutil.get_terminal_size().columns - 1
        print(line[:width], end="\r" if shows else "\n", file=sys.stderr, flush=True)

    yield draw
    if shows:
        print(file=sys.stderr)


def bar(partition: Partition, began: Offset, at: Offset, end: Offset) -> str:
    """Return one line that says how much of a partition is replayed."""
    span = max(end - began, 1)
    done = min(max(at - began, 0), span)
    full = BAR_CHARS * done // span
    drawn = "#" * full + "." * (BAR_CHARS - full)
    return f"partition {partition} [{drawn}] {100 * done // span:3d}%  {at} of {end}"
