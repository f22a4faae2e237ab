"""The tools of a call: read once, remembered, counted."""

from typing import Any

import pytest
from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel, Field

from langchain_ctxbudget import EstimatingCounter
from langchain_ctxbudget.tokens import CalibratedCounter
from langchain_ctxbudget.tools import ToolSet


def function(name: str, description: str = "", **parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


@tool
def search_papers(query: str) -> str:
    """Search papers."""
    return query


class SendMail(BaseModel):
    """Send a mail."""

    to: str = Field(description="The address.")


ADD = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("given", "name", "description"),
    [
        (search_papers, "search_papers", "Search papers."),
        (SendMail, "SendMail", "Send a mail."),
        (function("add", "Adds."), "add", "Adds."),
        (ADD, "add", "Adds."),
        ({"type": "function", **ADD}, "add", "Adds."),
        ({"name": "add", "description": "Adds.", "input_schema": {}}, "add", "Adds."),
        ({"type": "custom", **ADD, "input_schema": {}}, "add", "Adds."),
        ({"title": "add", "description": "Adds.", "type": "object"}, "add", "Adds."),
    ],
)
def test_a_tool_is_read_in_every_form(given: Any, name: str, description: str) -> None:
    [known] = ToolSet.of([given]).tools

    assert (known.name, known.description, known.is_function) == (name, description, True)


def test_parameters_are_those_of_the_schema() -> None:
    [known] = ToolSet.of([SendMail]).tools

    assert known.parameters["properties"]["to"]["description"] == "The address."


DEFINED = StructuredTool.from_function(
    lambda command: command,
    name="bash",
    description="Runs.",
    extras={"provider_tool_definition": {"type": "bash_20250124", "name": "bash"}},
)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"type": "web_search"}, ""),
        ({"type": "web_search_20250305", "name": "web_search"}, "web_search"),
        ({"type": "custom", "name": "sql"}, "sql"),
        (DEFINED, "bash"),
    ],
)
def test_a_tool_that_its_provider_defines_is_no_function(given: Any, name: str) -> None:
    [known] = ToolSet.of([given]).tools

    assert (known.name, known.is_function) == (name, False)


def with_metadata(metadata: dict[str, Any]) -> StructuredTool:
    return StructuredTool.from_function(
        lambda query: query, name="find", description="Finds.", metadata=metadata
    )


@pytest.mark.parametrize(
    ("given", "server"),
    [
        (with_metadata({"server": "arxiv"}), "arxiv"),
        (with_metadata({"mcp_server": "arxiv"}), "arxiv"),
        (with_metadata({"mcp": {"server": {"name": "arxiv", "version": "1"}}}), "arxiv"),
        ({**function("find"), "extras": {"server": "arxiv"}}, "arxiv"),
        (function("arxiv__find"), "arxiv"),
        (function("mcp__arxiv__find"), "arxiv"),
        (with_metadata({"_meta": {"other": 1}}), ""),
        (function("find_one"), ""),
    ],
)
def test_the_server_of_a_tool(given: Any, server: str) -> None:
    [known] = ToolSet.of([given]).tools

    assert known.server == server


def test_the_same_tools_are_read_once() -> None:
    tools = [function("one"), search_papers]

    assert ToolSet.of(tools) is ToolSet.of(list(tools))


def test_a_schema_changed_in_place_is_read_again() -> None:
    given = function("one")
    ToolSet.of([given])
    given["function"]["parameters"]["properties"]["x"] = {"type": "string"}

    assert "x" in ToolSet.of([given]).tools[0].parameters["properties"]


def test_a_description_changed_in_place_is_read_again() -> None:
    given = with_metadata({})
    ToolSet.of([given])
    given.description = "Finds more."

    assert ToolSet.of([given]).tools[0].description == "Finds more."


def test_equal_tools_share_what_is_known_of_them() -> None:
    counter = EstimatingCounter()
    first = ToolSet.of([function("one", "shared")])
    first.tokens(counter)
    other_object = function("one", "shared")
    second = ToolSet.of([other_object])

    assert second.tokens(counter) is first.tokens(counter)
    assert second.tools[0].given is other_object


def test_two_functions_are_never_taken_for_each_other() -> None:
    def one(x: str) -> str:
        """One."""
        return x

    def two(x: str) -> str:
        """Two."""
        return x

    assert ToolSet.of([one]).tools[0].name == "one"
    assert ToolSet.of([two]).tools[0].name == "two"


@pytest.mark.parametrize(
    "counter", [EstimatingCounter(), CalibratedCounter(EstimatingCounter(), 1.5)]
)
def test_tokens_of_tools_are_those_of_the_call(counter: Any) -> None:
    tools = [function("one", "Does one thing."), search_papers]
    frame = counter.count_tools(tools[:1]) - ToolSet.of(tools[:1]).tokens(counter)[0]

    together = sum(ToolSet.of(tools).tokens(counter)) + frame

    assert 0 <= together - counter.count_tools(tools) <= len(tools)


def test_a_tool_is_found_by_its_name() -> None:
    tools = ToolSet.of([function("one"), function("two")])

    assert tools.named("two") is tools.tools[1]
    assert tools.named("three") is None
