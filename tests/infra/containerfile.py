"""A container file and its .dockerignore, read as far as the tests ask for."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CONTAINER: Final = ROOT / "infra" / "terraform" / "container"
INSIDE: Final = "/opt/cachemind/"
"""Where the image has the Python files of the container's folder."""

_INSTRUCTION: Final = re.compile(r"([A-Z]+)\s+(.*)", re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction: its name, its `--flags`, and all that follows, on one line."""

    name: str
    flags: Mapping[str, str]
    rest: str

    def words(self) -> list[str]:
        """Return what follows as words: a JSON list, or as a shell parts it."""
        if self.rest.startswith("["):
            return [str(word) for word in json.loads(self.rest)]
        return shlex.split(self.rest)

    def pairs(self) -> dict[str, str]:
        """Return what follows as NAME=VALUE."""
        return dict(_pair(word) for word in self.words())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What stands between one FROM and the next."""

    base: str
    name: str
    instructions: Sequence[Instruction]

    def all(self, name: str) -> list[Instruction]:
        """Return the instructions of one name, in their order."""
        return [one for one in self.instructions if one.name == name]

    def last(self, name: str) -> Instruction:
        """Return the one that counts where a later one replaces an earlier one."""
        return self.all(name)[-1]

    def environment(self) -> dict[str, str]:
        """Return the variables that it sets, as written."""
        return {k: v for one in self.all("ENV") for k, v in one.pairs().items()}

    def commands(self) -> list[list[str]]:
        """Return each command that a RUN gives to the shell, as words."""
        return [
            command
            for one in self.all("RUN")
            for part in re.split(r"&&|\|\||;|\bthen\b|\bfi\b", one.rest)
            if (command := shlex.split(part))
        ]


def stages(text: str) -> list[Stage]:
    """Return the stages of a container file."""
    found: list[Stage] = []
    for one in _instructions(text):
        if one.name == "FROM":
            base, _, name = one.rest.partition(" AS ")
            found.append(Stage(base=base.strip(), name=name.strip(), instructions=[]))
        else:
            last = found[-1]
            found[-1] = Stage(
                base=last.base,
                name=last.name,
                instructions=[*last.instructions, one],
            )
    return found


def kept(ignore: str, paths: Iterable[str]) -> list[str]:
    """Return those of `paths`, relative to the context, that are sent.

    Source: the documentation of .dockerignore: the last line that fits decides; `!`
    takes a path back in; a line that fits a folder fits all that is in it.
    """
    rules = [
        (not line.startswith("!"), re.compile(_glob(line.removeprefix("!"))))
        for line in ignore.splitlines()
        if line.strip() and not line.startswith("#")
    ]
    return [path for path in paths if not _left_out(PurePosixPath(path), rules)]


def _left_out(
    path: PurePosixPath, rules: Sequence[tuple[bool, re.Pattern[str]]]
) -> bool:
    names = [str(one) for one in (path, *path.parents) if str(one) != "."]
    out = False
    for leaves_out, pattern in rules:
        if any(pattern.fullmatch(name) for name in names):
            out = leaves_out
    return out


def _glob(line: str) -> str:
    parts = [
        "(?:.*/)?" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") + "/"
        for part in line.strip().split("/")
    ]
    return "".join(parts).removesuffix("/")


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [_instruction(line) for line in joined.splitlines() if line.strip()]


def _instruction(line: str) -> Instruction:
    matched = _INSTRUCTION.fullmatch(line)
    if matched is None:
        raise ValueError(f"not an instruction: {line}")
    name, rest = matched.groups()
    flags: dict[str, str] = {}
    while rest.startswith("--"):
        flag, _, rest = rest.partition(" ")
        key, _, value = flag.removeprefix("--").partition("=")
        flags[key] = value
        rest = rest.lstrip()
    return Instruction(name=name, flags=flags, rest=rest)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"not NAME=VALUE: {word}")
    return name, value
