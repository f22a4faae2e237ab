"""What a model is told of tools that are not bound: an answer to its search, and their names."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.tools.known import KnownTool
from langchain_ctxbudget.tools.own import OwnTool
from langchain_ctxbudget.tools.signatures import full_signature, short_signature
from langchain_ctxbudget.tools.tool_set import ToolSet


@dataclass(frozen=True, slots=True)
class FoundToolsPolicy:
    """How much the answer to a search for tools says."""

    in_full: int = 3
    """Tools that are shown with every parameter."""
    in_short: int = 17
    """Further ones, each in one line."""
    most_tokens: int = 4_000
    """The most tokens of an answer."""


FOUND_TOOLS = FoundToolsPolicy()
HOW_TO_CALL = (
    "Call any of these with call_tool(name, arguments): the name as it stands here, and the "
    "arguments as an object. The best come first."
)
BOUND = "Among your tools already, call them directly: {}"
FURTHER = "Further ones in short (? marks what may be left out):"
NOTHING = "No tool fits well."
ON_SERVERS = "There are tools of: {}"


def find_text(
    tool_set: ToolSet,
    order: Sequence[int],
    counter: TokenCounter,
    most_tokens: int,
    bound: Collection[str] = (),
) -> str:
    """Returns the answer to a search among tools.

    Args:
        tool_set: All tools.
        order: The places of those that were found, the best first.
        counter: Counts the answer.
        most_tokens: The most tokens of the answer; the best tool is shown in one line at least.
        bound: The names of tools that the model can call directly.
    """
    shown = list(order[: FOUND_TOOLS.in_full + FOUND_TOOLS.in_short])
    found = [tool_set.tools[place] for place in shown]
    direct = [tool.name for tool in found if tool.name in bound]
    others = [tool for tool in found if tool.name not in bound and tool.is_function]
    if not others and not direct:
        return nothing_found(tool_set)
    parts: list[str] = []
    if direct:
        parts.append(BOUND.format(", ".join(direct)))
    if others:
        parts.append(HOW_TO_CALL)
        parts += _signatures(others, counter, most_tokens - counter.count_text("\n".join(parts)))
    return "\n\n".join(parts)


def nothing_found(tool_set: ToolSet) -> str:
    """Returns what a model is told whose search finds nothing."""
    servers = [server for server in tool_set.servers if server]
    if not servers:
        return NOTHING
    return f"{NOTHING} {ON_SERVERS.format(', '.join(servers))}"


def not_found(name: str) -> str:
    """Returns what a model is told that has called a tool which there is not."""
    return f"There is no tool {name!r}. {OwnTool.FIND.value}(query) tells which tools there are."


def _signatures(tools: Sequence[KnownTool], counter: TokenCounter, tokens: int) -> Iterator[str]:
    """Yields the best tools in full and the others in one line, as far as there is room."""
    short: list[str] = []
    for number, tool in enumerate(tools):
        is_full = number < FOUND_TOOLS.in_full
        text = full_signature(tool) if is_full else short_signature(tool)
        cost = counter.count_text(text)
        if is_full and cost > tokens:
            is_full = False
            text = short_signature(tool)
            cost = counter.count_text(text)
        if cost > tokens and number:
            continue
        tokens -= cost
        if is_full:
            yield text
        else:
            short.append(text)
    if short:
        yield "\n".join([FURTHER, *short])


def names_by_server(tool_set: ToolSet, without: Collection[str]) -> str:
    """Returns the names of tools, one line a server; "" where none is left.

    Args:
        tool_set: All tools.
        without: The names of those that are left out, such as those that are bound.
    """
    names: dict[str, list[str]] = {}
    for tool in tool_set.tools:
        if tool.is_function and tool.name not in without:
            names.setdefault(tool.server, []).append(tool.name)
    lines: list[str] = []
    for server, of_server in names.items():
        start = f"{server}: " if server else ""
        lines.append(start + ", ".join(of_server))
    return "\n".join(lines)


def servers_with_counts(tool_set: ToolSet, without: Collection[str]) -> str:
    """Returns the servers of tools, one a line with the number of its tools; "" for no server.

    Args:
        tool_set: All tools.
        without: The names of those that are left out, such as those that are bound.
    """
    names = Counter(
        tool.server for tool in tool_set.tools if tool.is_function and tool.name not in without
    )
    return "\n".join(f"{server}: {number} tools" for server, number in names.items() if server)
