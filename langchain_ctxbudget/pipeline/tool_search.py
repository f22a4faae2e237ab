"""The tools by which a model gets at tools that are not bound to it."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, Field, field_validator

from langchain_ctxbudget.errors import InputError, suggestion_for
from langchain_ctxbudget.flow import Flow, adrive, drive, with_fallback
from langchain_ctxbudget.messages import vocabulary
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import embeddings_name
from langchain_ctxbudget.tokens import TokenCounter, compact_json
from langchain_ctxbudget.tools import (
    FOUND_TOOLS,
    KnownTool,
    OwnTool,
    ToolSet,
    find_text,
    full_signature,
    not_found,
    problem_of_arguments,
    ranked,
    ranked_by_words,
)

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_ENGLISH = vocabulary("pipeline")


class FindInput(BaseModel):
    """The arguments that a model gives to `find_tools`."""

    query: str = Field(description=_ENGLISH["find_query"])


class CallInput(BaseModel):
    """The arguments that a model gives to `call_tool`."""

    name: str = Field(description=_ENGLISH["call_name"])
    # A text, as an object of any fields is refused by Google, and empty in OpenAI's strict form.
    arguments: str = Field(default="{}", description=_ENGLISH["call_arguments"])

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_text(cls, given: object) -> object:
        """Takes an object, too, as some models write one whatever the schema says."""
        return compact_json(given) if isinstance(given, Mapping) else given


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
        found = partial(found_tools, given, embeddings=embeddings, counter=counter)
        own = search_tools(given, found)
        by_key[key] = ToolSet.of([*(tool.given for tool in given.tools), *own])
    return by_key[key]


def problems_of_limit(
    given: ToolSet, settings: ContextSettings, counter: TokenCounter
) -> list[str]:
    """Returns what a report says of a limit of tools that does not do what it was set for.

    Args:
        given: the tools of a call, and those that search them.
        settings: with the limit, and the names of tools that are always bound.
        counter: counts the tools.
    """
    limit = settings.tool_tokens
    names = [tool.name for tool in given.tools if tool.own is None]
    if limit is None or not names:
        return []
    problems: list[str] = []
    unknown = [name for name in settings.required_tools if given.named(name) is None]
    if unknown:
        nearest = suggestion_for(unknown[0], names)
        problems.append(
            f"required_tools: no tool is named {', '.join(map(repr, unknown))}{nearest}"
        )
    costs = given.tokens(counter)
    others = [costs[at] for at, tool in enumerate(given.tools) if tool.own is None]
    searching = [at for kind, at in given.own.items() if kind in (OwnTool.FIND, OwnTool.CALL)]
    search = sum(costs[at] for at in searching)
    if sum(others) > limit and search + min(others) > limit:
        problems.append(
            f"tool_tokens is {limit:,}, but find_tools and call_tool take {search:,} of it, so "
            f"that no tool is bound and the model has to find each one: raise it to at least "
            f"{search + min(others):,}, the room for the smallest"
        )
    return problems


def search_tools(tool_set: ToolSet, found: Callable[[str], Flow[str]]) -> "list[BaseTool]":
    """Returns the tools by which a model finds tools of a set, and calls what it has found.

    Args:
        tool_set: the tools.
        found: answers a search; see `found_tools`.
    """
    # LangChain's tools take 0.2 s to load, and few prompts have tools to search.
    from langchain_core.runnables import RunnableConfig  # noqa: PLC0415
    from langchain_core.tools import StructuredTool  # noqa: PLC0415

    def find_tools(query: str) -> str:
        return drive(found(query))

    async def afind_tools(query: str) -> str:
        return await adrive(found(query))

    def call_tool(name: str, arguments: str, config: RunnableConfig) -> Any:  # noqa: ANN401
        call = wanted_call(tool_set, name, arguments)
        return call if isinstance(call, str) else call.tool.invoke(call.arguments, config)

    async def acall_tool(name: str, arguments: str, config: RunnableConfig) -> Any:  # noqa: ANN401
        call = wanted_call(tool_set, name, arguments)
        return call if isinstance(call, str) else await call.tool.ainvoke(call.arguments, config)

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
    """Returns what a model is told that looks for tools.

    Args:
        tool_set: all tools.
        query: what is to be done.
        embeddings: make vectors; without any, words alone are compared.
        counter: counts the answer.
        bound: the names of the tools that the model has.
    """
    ranking = ranked(tool_set, query, embeddings)
    scores = yield from with_fallback(ranking, None, "", [])
    if scores is None:
        scores = ranked_by_words(tool_set, query)
    return find_text(tool_set, scores, counter, FOUND_TOOLS.most_tokens, bound)


@dataclass(frozen=True, slots=True)
class WantedCall:
    """What a model calls by way of `call_tool`."""

    tool: "BaseTool"
    arguments: dict[str, Any]


def wanted_call(tool_set: ToolSet, name: str, arguments: str) -> WantedCall | str:
    """Returns what a model wants to call, or what it is told where that cannot be called.

    Args:
        tool_set: all tools.
        name: the name of the wanted one.
        arguments: its arguments as JSON.
    """
    tool = tool_set.named(name)
    if tool is None or not tool.is_function:
        return not_found(name)
    given = _read_arguments(arguments)
    if given is None:
        return f"The arguments are not the JSON text of an object.\n\n{full_signature(tool)}"
    problem = problem_of_arguments(tool, given)
    if problem is not None:
        return problem
    runnable = runnable_tool(tool)
    if runnable is None:
        return f"{name} is known by its schema alone: the application that gave it has to run it."
    return WantedCall(runnable, given)


def runnable_tool(tool: KnownTool) -> "BaseTool | None":
    """Returns a tool that can be run; None where only its schema is known."""
    from langchain_core.tools import BaseTool, StructuredTool  # noqa: PLC0415 - as above

    if isinstance(tool.given, BaseTool):
        return tool.given
    if callable(tool.given) and not isinstance(tool.given, type):
        return StructuredTool.from_function(tool.given)
    return None


def _read_arguments(text: str) -> dict[str, Any] | None:
    """Returns arguments that were written as JSON; None where they are no object."""
    try:
        arguments = json.loads(text or "{}")
    except json.JSONDecodeError:
        return None
    return arguments if isinstance(arguments, dict) else None
