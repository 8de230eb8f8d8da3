"""Kafka's own tools: names, and where they are told the broker is."""

from __future__ import annotations

import pytest

from cachemind_services.broker.errors import UnknownTool
from cachemind_services.broker.tools import (
    TOOLS,
    find_tool,
    needs_bootstrap,
    with_bootstrap,
)


def test_a_tool_is_found_under_its_script_name_too() -> None:
    assert find_tool("kafka-topics.sh") is find_tool("kafka-topics")


def test_an_unknown_tool_lists_the_known_ones() -> None:
    with pytest.raises(UnknownTool) as caught:
        find_tool("kafka-nonsense")
    assert caught.value.known == tuple(sorted(TOOLS))
    assert "kafka-dump-log" in str(caught.value)


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        pytest.param("kafka-topics", ["--list"], True, id="none-given"),
        pytest.param("kafka-topics", [], True, id="no-arguments"),
        pytest.param("kafka-topics", ["--bootstrap-server", "a:1"], False, id="given"),
        pytest.param(
            "kafka-topics", ["--bootstrap-server=a:1"], False, id="given-with-equals"
        ),
        pytest.param(
            "kafka-configs", ["--bootstrap-controller", "a:1"], False, id="controller"
        ),
        pytest.param("kafka-topics", ["--help"], False, id="help-needs-no-broker"),
        pytest.param("kafka-dump-log", ["--files", "x"], False, id="works-on-files"),
    ],
)
def test_needs_bootstrap(tool: str, arguments: list[str], expected: bool) -> None:
    assert needs_bootstrap(find_tool(tool), arguments) is expected


def test_the_broker_is_named_where_the_tool_parses_it() -> None:
    topics, cluster = find_tool("kafka-topics"), find_tool("kafka-cluster")
    option = ["--bootstrap-server", "h:1"]
    assert with_bootstrap(topics, ["--list"], "h:1") == [*option, "--list"]
    assert with_bootstrap(cluster, ["cluster-id"], "h:1") == ["cluster-id", *option]
