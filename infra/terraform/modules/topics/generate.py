"""Writes topics.json: the topics of the program, for Terraform to read.

usage: python infra/terraform/modules/topics/generate.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from cachemind.core.access import Role
from cachemind.core.grant_access import rules_of
from cachemind.core.grant_topics import Grant, GrantTopics, grant_specs
from cachemind.core.topics import Mode, TopicSpec, topics
from cachemind.types import Namespace

TABLE: Final = Path(__file__).with_name("topics.json")
_PREFIX: Final = "p"
_SOMEBODY: Final = "User:somebody"
_ANY: Final = Grant(namespace=Namespace("some-namespace"), role=Role.CACHE_READER)


def rendered() -> str:
    """Return the text that topics.json must have."""
    few, many = (topics(count, Mode.PRODUCTION, _PREFIX).all() for count in (2, 3))
    table = {
        "topics": {
            one.name.removeprefix(f"{_PREFIX}."): _row(one, other)
            for one, other in zip(few, many, strict=True)
        },
        "grants": _grants(),
    }
    return json.dumps(table, indent=2) + "\n"


def _grants() -> dict[str, object]:
    """Return what a grant has, by the topic that its two are configured as."""
    names = GrantTopics(_PREFIX)
    specs = grant_specs(_PREFIX, _ANY, Mode.PRODUCTION)
    return {
        "roles": list(Role),
        "topics": {
            kind: {"name": _template(spec.name), "partitions": spec.partitions}
            for kind, spec in zip(("requests", "replies"), specs, strict=True)
        },
        "group": _template(names.group_prefix(_ANY)),
        "rules": _rules(names),
    }


def _rules(names: GrantTopics) -> list[dict[str, object]]:
    """Return what lets a user have a grant, a row a resource."""
    rows: dict[tuple[str, str, bool], list[str]] = {}
    for rule in sorted(rules_of(names, _ANY, _SOMEBODY)):
        about = rule.resource.value, _template(rule.name), rule.prefixed
        rows.setdefault(about, []).append(rule.doing.value)
    return [
        {
            "resource": resource,
            "name": name,
            "pattern": "prefixed" if prefixed else "literal",
            "operations": operations,
        }
        for (resource, name, prefixed), operations in rows.items()
    ]


def _template(name: str) -> str:
    below = name.removeprefix(f"{_PREFIX}.")
    below = below.replace(_ANY.namespace, "{namespace}").replace(_ANY.role, "{role}")
    return "{prefix}." + below


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
