"""Policies as JSON: what is accepted, what is refused and by which name."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from cachemind.core.policy import Policy, Volatile
from cachemind.core.policy_text import (
    LONGEST,
    parse_policy,
    policy_from,
    render_policy,
    shown_policy,
)
from cachemind.errors import InvalidEvent

BASE = Policy(threshold=0.95, semantic=False)


def test_what_a_policy_leaves_out_is_as_the_settings_have_it() -> None:
    assert parse_policy("", BASE) is BASE
    assert parse_policy("{}", BASE) == BASE
    text = '{"default_ttl_ms":1000,"volatile":"short"}'
    expected = replace(BASE, default_ttl_ms=1000, volatile=Volatile.SHORT)
    assert parse_policy(text, BASE) == expected


def test_every_member_comes_back_as_it_was_rendered() -> None:
    policy = Policy(
        enabled=False,
        semantic=False,
        threshold=0.5,
        default_ttl_ms=1,
        uncertain_ttl_ms=2,
        max_ttl_ms=3,
        max_entry_bytes=4,
        max_entries=5,
        max_total_bytes=6,
        volatile=Volatile.SHORT,
        share_across_credentials=True,
    )
    shown = shown_policy(policy)
    assert set(shown) == {item.name for item in fields(Policy)}
    assert parse_policy(render_policy(shown), Policy()) == policy


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("nonsense", "policy"),
        ("[]", "policy"),
        ("null", "policy"),
        (" " * (LONGEST + 1), "policy"),
        ('{"treshold":0.9}', "treshold"),
        ('{"threshold":"0.9"}', "threshold"),
        ('{"threshold":true}', "threshold"),
        ('{"threshold":0}', "threshold"),
        ('{"threshold":1.5}', "threshold"),
        ('{"enabled":1}', "enabled"),
        ('{"semantic":null}', "semantic"),
        ('{"share_across_credentials":"yes"}', "share_across_credentials"),
        ('{"default_ttl_ms":0}', "default_ttl_ms"),
        ('{"default_ttl_ms":1.5}', "default_ttl_ms"),
        ('{"max_ttl_ms":true}', "max_ttl_ms"),
        ('{"max_entries":-1}', "max_entries"),
        ('{"max_total_bytes":9007199254740993}', "max_total_bytes"),
        ('{"volatile":"maybe"}', "volatile"),
        ('{"volatile":[]}', "volatile"),
    ],
)
def test_a_policy_that_is_not_sound_is_refused_by_name(text: str, field: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        parse_policy(text, BASE)
    assert refused.value.field == field


def test_a_document_of_a_file_is_rendered_in_one_way() -> None:
    document = {"threshold": 1, "enabled": True}
    assert json.loads(render_policy(document)) == {"threshold": 1, "enabled": True}
    assert render_policy(document) == render_policy(dict(reversed(document.items())))
    assert policy_from(document, BASE).threshold == 1.0
    with pytest.raises(InvalidEvent):
        render_policy({"threshold": 7})
