"""Writes topics.json: the topics of the program, for Terraform to read.

usage: python infra/terraform/modules/topics/generate.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from cachemind.core.topics import Mode, TopicSpec, topics

TABLE: Final = Path(__file__).with_name("topics.json")
_PREFIX: Final = "p"


def rendered() -> str:
    """Return the text that topics.json must have."""
    few, many = (topics(count, Mode.PRODUCTION, _PREFIX).all() for count in (2, 3))
    table = {
        "topics": {
            one.name.removeprefix(f"{_PREFIX}."): _row(one, other)
            for one, other in zip(few, many, strict=True)
        }
    }
    return json.dumps(table, indent=2) + "\n"


def _row(one: TopicSpec, other: TopicSpec) -> dict[str, object]:
    scales = one.partitions != other.partitions
    return {
        "as_many_as_wal": scales,
        "partitions": None if scales else one.partitions,
        "replication_factor": one.replication_factor,
        "settings": one.settings(),
    }


if __name__ == "__main__":
    TABLE.write_text(rendered(), encoding="utf-8")
