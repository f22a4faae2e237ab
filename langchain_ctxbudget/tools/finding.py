"""What a model is told of tools that are not bound: an answer to its search, and their names."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from langchain_ctxbudget.search import Scores
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.tools.index import order_of
from langchain_ctxbudget.tools.known import KnownTool
from langchain_ctxbudget.tools.own import OwnTool
from langchain_ctxbudget.tools.signatures import full_signature, short_signature
from langchain_ctxbudget.tools.tool_set import ToolSet


@dataclass(frozen=True, slots=True)
class FoundToolsPolicy:
    """How much the answer to a search for tools says."""

    in_full: int = 5
    """Tools that are shown with every parameter."""
    in_short: int = 35
    """Further ones, each in one line."""
    full_share: float = 0.25
    """The share of the tokens left that a tool behind the best may take in full."""
    least_score: float = 0.4
    """Where the best tool scores less, none fits well."""
    share_of_best: float = 0.3
    """Tools that score less than this share of the best are not told."""
    nearest: int = 5
    """Tools that are told, in one line each, where none fits well."""
    most_tokens: int = 4_000
    """About the most tokens of an answer."""


FOUND_TOOLS = FoundToolsPolicy()
_HOW_TO_CALL = (
    f"Call any of these with {OwnTool.CALL}(name, arguments): the name as it stands here, the "
    "arguments as JSON. The best come first."
)
_BOUND = "You have these already, call them directly: {}"
_IN_SHORT = "In short, where ? marks what may be left out:"
_NOTHING = "No tool fits well."
_NEAREST = f"The nearest, which {OwnTool.CALL}(name, arguments) would call:"
_SEARCH_AGAIN = "Search again in other words, such as what a tool does or what it works on."
_SERVERS = "There are tools of these servers: {}"


def find_text(
    tool_set: ToolSet,
    scores: Scores,
    counter: TokenCounter,
    most_tokens: int,
    bound: Collection[str] = (),
) -> str:
    """Returns the answer to a search among tools: signatures, never bare names.

    Args:
        tool_set: All tools.
        scores: How well each fits the search.
        counter: Counts the answer.
        most_tokens: About the most tokens of the answer; it names one tool at least.
        bound: The names of tools that the model can call directly.
    """
    order = _found(tool_set, scores)
    if not order or scores[order[0]] < FOUND_TOOLS.least_score:
        return _nothing_text(tool_set, order, counter, most_tokens)
    found = [tool_set.tools[place] for place in order]
    return _found_text(found, counter, most_tokens, bound)


def _found_text(
    found: Sequence[KnownTool], counter: TokenCounter, most_tokens: int, bound: Collection[str]
) -> str:
    """Returns the answer where tools fit: the names of bound ones, the signatures of others."""
    most = FOUND_TOOLS.in_full + FOUND_TOOLS.in_short
    bound_names = [tool.name for tool in found[:most] if tool.name in bound]
    others = [tool for tool in found if tool.name not in bound][:most]
    parts: list[str] = []
    if bound_names:
        parts.append(_BOUND.format(", ".join(bound_names)))
    if others:
        parts.append(_HOW_TO_CALL)
        tokens_left = most_tokens - counter.count_text("\n\n".join(parts))
        parts += _signatures(others, counter, tokens_left)
    return "\n\n".join(parts)


def already_bound(name: str) -> str:
    """Returns what a model is told that has called one of its own tools by `call_tool`."""
    return f"{name} was not called, as it is among your tools: call it directly."


def not_bound(tool: KnownTool) -> str:
    """Returns what a model is told that has called a tool which it does not have."""
    return (
        f"{tool.name} was not called, as it is not among your tools. {OwnTool.CALL}(name, "
        f"arguments) calls it:\n\n{full_signature(tool)}"
    )


def not_found(name: str) -> str:
    """Returns what a model is told that has called a tool which there is not."""
    return f"There is no tool {name!r}. {OwnTool.FIND}(query) tells which tools there are."


def _can_be_found(tool: KnownTool) -> bool:
    """Tells whether a tool is one of the application's that can be called by its name."""
    return tool.is_function and tool.own is None


def _found(tool_set: ToolSet, scores: Scores) -> list[int]:
    """Returns the places of the tools that fit, compared with the best, the best first."""
    order = [place for place in order_of(scores) if _can_be_found(tool_set.tools[place])]
    if not order:
        return []
    least = max(0.0, FOUND_TOOLS.share_of_best * float(scores[order[0]]))
    return [place for place in order if scores[place] > least]


def _nothing_text(
    tool_set: ToolSet, order: Sequence[int], counter: TokenCounter, most_tokens: int
) -> str:
    """Returns the answer where no tool fits well: the nearest ones, and where others are."""
    parts = [f"{_NOTHING} {_SEARCH_AGAIN}"]
    nearest = [tool_set.tools[place] for place in order[: FOUND_TOOLS.nearest]]
    if nearest:
        parts.append("\n".join([_NEAREST, *map(short_signature, nearest)]))
    servers = [server for server in tool_set.servers if server]
    named = _SERVERS.format(", ".join(servers))
    if servers and counter.count_text("\n\n".join([*parts, named])) <= most_tokens:
        parts.append(named)
    return "\n\n".join(parts)


def _signatures(
    tools: Sequence[KnownTool], counter: TokenCounter, most_tokens: int
) -> Iterator[str]:
    """Yields the best tools in full and the others in one line, as far as there is room."""
    tokens_left = most_tokens
    in_short: list[str] = []
    for number, tool in enumerate(tools):
        is_best = number == 0
        if number < FOUND_TOOLS.in_full:
            text = full_signature(tool)
            cost = counter.count_text(text)
            share = 1.0 if is_best else FOUND_TOOLS.full_share
            if cost <= share * tokens_left:
                tokens_left -= cost
                yield text
                continue
        text = short_signature(tool)
        cost = counter.count_text(text)
        if cost <= tokens_left or is_best:
            tokens_left -= cost
            in_short.append(text)
    if in_short:
        yield "\n".join([_IN_SHORT, *in_short])


def names_by_server(tool_set: ToolSet, without: Collection[str]) -> str:
    """Returns the names of tools, one line a server; "" where none is left.

    Args:
        tool_set: All tools.
        without: The names of those that are left out, such as those that are bound.
    """
    bound = frozenset(without)
    names: dict[str, list[str]] = {}
    for tool in tool_set.tools:
        if _can_be_found(tool) and tool.name not in bound:
            names.setdefault(tool.server, []).append(tool.name)
    lines: list[str] = []
    for server, names_of_server in names.items():
        line = ", ".join(names_of_server)
        if server:
            line = f"{server}: {line}"
        lines.append(line)
    return "\n".join(lines)


def servers_with_counts(tool_set: ToolSet, without: Collection[str]) -> str:
    """Returns the servers of tools, one a line with the number of its tools; "" for no server.

    Args:
        tool_set: All tools.
        without: The names of those that are left out, such as those that are bound.
    """
    bound = frozenset(without)
    counts = Counter(
        tool.server for tool in tool_set.tools if _can_be_found(tool) and tool.name not in bound
    )
    return "\n".join(f"{server}: {number} tools" for server, number in counts.items() if server)
