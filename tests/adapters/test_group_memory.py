from __future__ import annotations

from pathlib import Path

import pytest

from cachemind.adapters.group_memory import NAME, GroupMemory
from cachemind.errors import StoreMismatch
from cachemind.types import Offset, Partition

OFFSETS = {Partition(0): Offset(7), Partition(11): Offset(0)}


def test_what_was_saved_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    GroupMemory(folder, "group", "topic").save(OFFSETS)
    GroupMemory(folder, "group", "topic").save({**OFFSETS, Partition(0): Offset(9)})
    found = GroupMemory(folder, "group", "topic").load()
    assert found == {Partition(0): Offset(9), Partition(11): Offset(0)}
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize(("group", "topic"), [("other", "topic"), ("group", "other")])
def test_of_another_group_or_log_nothing_is_remembered(
    tmp_path: Path, group: str, topic: str
) -> None:
    GroupMemory(tmp_path, "group", "topic").save(OFFSETS)
    assert GroupMemory(tmp_path, group, topic).load() == {}


def test_before_the_first_commit_nothing_is_remembered(tmp_path: Path) -> None:
    assert GroupMemory(tmp_path, "group", "topic").load() == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"group":"group","topic_id":"topic"}']
)
def test_a_file_that_is_not_ours_is_said_to_be(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(StoreMismatch, match=NAME):
        GroupMemory(tmp_path, "group", "topic").load()
