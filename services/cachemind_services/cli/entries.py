"""`cachemind get`, `put` and `invalidate`: single entries, through a gateway."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cachemind.errors import InvalidRequest
from cachemind.events import SelectorKind
from cachemind_services.cli.http import Answer, add_client, call

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
GATEWAY_TIMEOUT: Final = 504
_MS_PER_S: Final = 1_000


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the three parsers."""
    get = commands.add_parser("get", help="look a prompt up, never asking upstream")
    add_request(get)
    add_client(get)
    get.set_defaults(run=run_get)
    put = commands.add_parser("put", help="store an answer for a prompt")
    add_request(put)
    put.add_argument(
        "--answer", required=True, help="the answer; - reads it from stdin"
    )
    put.add_argument("--ttl", help="life of the entry: seconds, or 90m, 12h, 7d")
    put.add_argument("--tag", action="append", default=[], help="for invalidation")
    add_client(put)
    put.set_defaults(run=run_put)
    invalidate = commands.add_parser("invalidate", help="stop serving entries")
    _add_selector(invalidate)
    add_client(invalidate)
    invalidate.set_defaults(run=run_invalidate)


def run_get(arguments: argparse.Namespace) -> int:
    """Print the cached answer. Exit 1 where there is none."""
    answer = call(
        arguments,
        "POST",
        "/v1/chat/completions",
        request_of(arguments),
        {"cache-control": "only-if-cached"},
    ).expect(200, GATEWAY_TIMEOUT)
    hit = answer.status != GATEWAY_TIMEOUT
    shown = _shown(answer, hit=hit)
    if arguments.json:
        print(json.dumps(shown, ensure_ascii=False))
    elif hit:
        message = shown["response"]["choices"][0]["message"]
        print(message.get("content") or json.dumps(message))
    print(_summary(shown), file=sys.stderr)
    return 0 if hit else 1


def run_put(arguments: argparse.Namespace) -> int:
    """Store an answer and print its key, and where it is on the log."""
    text = sys.stdin.read() if arguments.answer == "-" else arguments.answer
    request = request_of(arguments)
    body: dict[str, Any] = {
        "request": request,
        "response": _completion(request["model"], text),
        "tags": arguments.tag,
    }
    if arguments.ttl is not None:
        body["ttl_s"] = seconds("--ttl", arguments.ttl)
    answer = call(arguments, "POST", "/v1/cachemind/entries", body).expect(200, 201)
    stored = answer.json()
    print(json.dumps(stored) if arguments.json else stored_line(stored))
    return 0


def run_invalidate(arguments: argparse.Namespace) -> int:
    """Append the invalidation and print how many entries it reached.

    Exit 0 also where that is none: none of them is served, as was asked.
    """
    kind, value = _selector(arguments)
    body = {"kind": kind, "value": value, "reason": arguments.reason}
    answer = call(arguments, "POST", "/v1/cachemind/invalidate", body).expect(200, 202)
    done = answer.json()
    print(json.dumps(done) if arguments.json else invalidated_line(done))
    return 0


def stored_line(stored: Mapping[str, Any]) -> str:
    """Return what a gateway stored, as a sentence."""
    life_s = stored["ttl_ms"] / _MS_PER_S
    return f"stored for {life_s:g} s at key {stored['key']} (LSN {stored['lsn']})"


def invalidated_line(done: Mapping[str, Any]) -> str:
    """Return what an invalidation did, as a sentence."""
    removed, at = done.get("removed"), f"(LSN {done['lsn']})"
    if not done["folded"]:
        return f"invalidated; not folded yet, so how many entries is not known {at}"
    if removed is None:
        return f"invalidated; how many entries is not known {at}"
    if removed == 0:
        return f"no entry matched: nothing was invalidated {at}"
    return f"invalidated {removed} {'entry' if removed == 1 else 'entries'} {at}"


def seconds(name: str, text: str) -> int:
    """Return the seconds written as `90`, `90s`, `15m`, `12h` or `7d`.

    Raises: `InvalidRequest` naming `name`.
    """
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    if not (number.isascii() and number.isdigit()):
        raise InvalidRequest(name, "takes seconds, or a number with s, m, h or d")
    return int(number) * _UNITS[unit]


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add what says which request is meant: a prompt and a model, or a whole one."""
    # Defaults are written out: a parser may suppress those that are not.
    parser.add_argument("prompt", nargs="?", default=None, help="the user's message")
    parser.add_argument("--model", default=None, help="as the application names it")
    parser.add_argument("--system", default=None, help="the system prompt")
    parser.add_argument(
        "--request", type=Path, default=None, help="a whole request as a JSON file"
    )


def request_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the request that is meant, never as a stream.

    Raises: `InvalidRequest` naming the argument.
    """
    if arguments.request is not None:
        if arguments.prompt is not None:
            raise InvalidRequest("PROMPT", "give it or --request, not both")
        try:
            request = json.loads(arguments.request.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidRequest("--request", f"cannot be read: {error}") from error
        if not isinstance(request, dict):
            raise InvalidRequest("--request", "must hold a JSON object")
        return {**request, "stream": False}
    if not arguments.prompt or not arguments.model:
        raise InvalidRequest("PROMPT", "give a prompt and --model, or --request")
    messages = [{"role": "user", "content": arguments.prompt}]
    if arguments.system is not None:
        messages.insert(0, {"role": "system", "content": arguments.system})
    return {"model": arguments.model, "messages": messages}


def _completion(model: str, text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-put",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _shown(answer: Answer, *, hit: bool) -> dict[str, Any]:
    names = ("outcome", "similarity", "version", "lsn", "trace")
    shown: dict[str, Any] = {
        name: answer.headers.get(f"x-cachemind-{name}") for name in names
    }
    shown["age"] = answer.headers.get("age")
    shown["response"] = answer.json() if hit else None
    return shown


def _summary(shown: dict[str, Any]) -> str:
    return "  ".join(
        f"{name}={value}"
        for name, value in shown.items()
        if name != "response" and value is not None
    )


def _add_selector(parser: argparse.ArgumentParser) -> None:
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("--key", help="exact key, 64 hex characters")
    one.add_argument("--prefix", help="beginning of the prompt")
    one.add_argument("--tag", help="a tag given when it was stored")
    one.add_argument("--model", help="everything that this model answered")
    one.add_argument("--chunk", help="hash of a source chunk, 64 hex characters")
    one.add_argument("--older-than", help="stored that long ago: 90s, 15m, 12h, 7d")
    one.add_argument("--all", action="store_true", help="the whole namespace")
    parser.add_argument("--reason", default="", help="kept on the log")


def _selector(arguments: argparse.Namespace) -> tuple[SelectorKind, str]:
    if arguments.all:
        return SelectorKind.ALL, ""
    if arguments.older_than is not None:
        age_s = seconds("--older-than", arguments.older_than)
        return SelectorKind.AGE, str(age_s * 1_000)
    for kind in (
        SelectorKind.KEY,
        SelectorKind.PREFIX,
        SelectorKind.TAG,
        SelectorKind.MODEL,
    ):
        value = getattr(arguments, kind.value)
        if value is not None:
            return kind, value
    return SelectorKind.CHUNK, arguments.chunk
