"""The tools by which a model gets at tools that are not bound to it."""

from collections.abc import Collection
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, adrive, drive, with_fallback
from langchain_ctxbudget.messages import vocabulary
from langchain_ctxbudget.stores import embeddings_name
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.tools import (
    FOUND_TOOLS,
    OwnTool,
    ToolSet,
    find_text,
    not_found,
    problem_of_arguments,
    ranked,
    ranked_by_words,
)

_ENGLISH = vocabulary("pipeline")


class FindInput(BaseModel):
    """The arguments that a model gives to `find_tools`."""

    query: str = Field(description=_ENGLISH["find_query"])


class CallInput(BaseModel):
    """The arguments that a model gives to `call_tool`."""

    name: str = Field(description=_ENGLISH["call_name"])
    arguments: dict[str, Any] = Field(default_factory=dict, description=_ENGLISH["call_arguments"])


def with_search(given: ToolSet, embeddings: Embeddings | None, counter: TokenCounter) -> ToolSet:
    """Returns tools with those by which a model finds and calls the ones that are not bound.

    Where the application has given these itself, nothing is added.
    """
    if OwnTool.FIND in given.own:
        return given
    for kind in (OwnTool.FIND, OwnTool.CALL):
        if given.named(kind) is not None:
            raise InputError(
                f"a tool is named {kind.value!r}, as the one by which the model gets at tools that "
                "are not bound: rename it, or leave the setting tool_tokens out"
            )
    by_key = given.with_search
    key = (embeddings_name(embeddings) if embeddings else "", counter.identity)
    if key not in by_key:
        own = search_tools(given, embeddings, counter)
        by_key[key] = ToolSet.of([*(tool.given for tool in given.tools), *own])
    return by_key[key]


def search_tools(
    tool_set: ToolSet, embeddings: Embeddings | None, counter: TokenCounter
) -> list[BaseTool]:
    """Returns the tools by which a model finds tools of a set, and calls what it has found."""

    def find_tools(query: str) -> str:
        return drive(found_tools(tool_set, query, embeddings, counter))

    async def afind_tools(query: str) -> str:
        return await adrive(found_tools(tool_set, query, embeddings, counter))

    def call_tool(name: str, config: RunnableConfig, arguments: dict[str, Any]) -> Any:  # noqa: ANN401
        tool = runnable_tool(tool_set, name, arguments)
        return tool if isinstance(tool, str) else tool.invoke(arguments, config)

    async def acall_tool(name: str, config: RunnableConfig, arguments: dict[str, Any]) -> Any:  # noqa: ANN401
        tool = runnable_tool(tool_set, name, arguments)
        return tool if isinstance(tool, str) else await tool.ainvoke(arguments, config)

    return [
        StructuredTool.from_function(
            func=find_tools,
            coroutine=afind_tools,
            name=OwnTool.FIND.value,
            description=_ENGLISH["find_tools"],
            args_schema=FindInput,
            metadata=OwnTool.FIND.mark,
        ),
        StructuredTool.from_function(
            func=call_tool,
            coroutine=acall_tool,
            name=OwnTool.CALL.value,
            description=_ENGLISH["call_tool"],
            args_schema=CallInput,
            metadata=OwnTool.CALL.mark,
        ),
    ]


def found_tools(
    tool_set: ToolSet,
    query: str,
    embeddings: Embeddings | None,
    counter: TokenCounter,
    bound: Collection[str] = (),
) -> Flow[str]:
    """Returns what a model is told that looks for tools; of those that are bound only the names."""
    ranking = ranked(tool_set, query, embeddings)
    scores = yield from with_fallback(ranking, None, "", [])
    if scores is None:
        scores = ranked_by_words(tool_set, query)
    return find_text(tool_set, scores, counter, FOUND_TOOLS.most_tokens, bound)


def runnable_tool(tool_set: ToolSet, name: str, arguments: dict[str, Any]) -> BaseTool | str:
    """Returns the tool of a name, or what a model is told where it cannot be called like that."""
    tool = tool_set.named(name)
    if tool is None or not tool.is_function:
        return not_found(name)
    problem = problem_of_arguments(tool, arguments)
    if problem is not None:
        return problem
    if isinstance(tool.given, BaseTool):
        return tool.given
    if callable(tool.given) and not isinstance(tool.given, type):
        return StructuredTool.from_function(tool.given)
    return f"{name} is known by its schema alone: the application that gave it has to run it."
