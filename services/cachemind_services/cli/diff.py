"""`cachemind diff`: what differs between two versions, field by field."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from cachemind_services.cli.describe import moment
from cachemind_services.cli.http import add_client, call
from cachemind_services.cli.versions import require_version

MARKS: Final = {"restored": "+", "removed": "-", "changed": "~"}
_HASH_CHARS: Final = 16
_LONGEST: Final = 400


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "diff", help="compare two versions: + restored, - removed, ~ changed"
    )
    parser.add_argument("one", type=int, metavar="FROM")
    parser.add_argument("other", type=int, metavar="TO")
    parser.add_argument("--namespace", help="the gateway's own by default")
    add_showing(parser)
    add_client(parser)
    parser.set_defaults(run=run)


def add_showing(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how much of a difference is shown."""
    parser.add_argument("--limit", type=int, help="entries to show; 100 by default")
    parser.add_argument(
        "--bodies", action="store_true", help="show prompts, responses, vectors too"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the difference."""
    query: dict[str, Any] = {
        "from": require_version("FROM", arguments.one),
        "to": require_version("TO", arguments.other),
    }
    for name in ("namespace", "limit"):
        if getattr(arguments, name) is not None:
            query[name] = getattr(arguments, name)
    if arguments.bodies:
        query["bodies"] = 1
    found = call(arguments, "GET", "/v1/diff?" + urlencode(query)).expect(200).json()
    if arguments.json:
        print(json.dumps(found))
    else:
        print("\n".join(render(found)))
    return 0


def render(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line an entry, its changed fields below it, the counts last."""
    for change in found["changes"]:
        yield from change_lines(change)
    if found["more"]:
        yield f"... and {found['more']} more, see --limit"
    yield counts_line(found)


def counts_line(found: Mapping[str, Any]) -> str:
    """Return how many entries are affected, and how."""
    return ", ".join(f"{found[word]} {word}" for word in MARKS)


def change_lines(change: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one entry."""
    shown = change["after"] or change["before"]
    # The whole key: it is what `replay query --key` and `invalidate --key` take.
    head = f"{MARKS[change['change']]} {change['key']}"
    if not change["fields"]:
        about = ("model", "version", "finish_reason", "response_hash", "prompt")
        words = [f"{name}={_short(shown[name])}" for name in about if name in shown]
        yield "  ".join([head, *words])
        if "response" in shown:
            yield f"    response: {_text(shown['response'])}"
        return
    yield f"{head}  {', '.join(change['fields'])}"
    for name in change["fields"]:
        if name in change["before"]:
            before, after = (
                _value(name, change[side][name]) for side in ("before", "after")
            )
            yield f"    {name.removesuffix('_ns')}: {before} -> {after}"


def _value(name: str, value: object) -> str:
    if name.endswith("_at_ns") and isinstance(value, int):
        return moment(value)
    return _text(value)


def _short(value: object) -> str:
    text = str(value)
    return text[:_HASH_CHARS] if len(text) == 64 else text


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _short(text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
