"""The layer of the tools: the schemas of those that are bound, and the names of all others.

Schemas stand beside the messages, in front of everything in a provider's cache. The names stand in
the system message, so that the model knows what it may look for.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Situation, Status
from langchain_ctxbudget.layers.base import NOTHING_CHOSEN, Chosen, Place, PromptLayer, Sent, View
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.tools import (
    ChosenTools,
    OwnTool,
    ToolSet,
    names_by_server,
    servers_with_counts,
)

MOST_NAMES_SHARE = 0.1
"""The names of tools that are not bound stand in a prompt where they take at most this share."""
NAMES = "names of other tools"
"""The id of the item that these names are."""
INTRO = "[More tools than you see; `{find}` shows how to call them.]\n"


class ToolsLayer(PromptLayer):
    """The tools that the model may call."""

    name = Layer.TOOLS
    title = Layer.TOOLS.full_name
    place = Place.STABLE
    fence = fences.OTHER_TOOLS
    is_required = True

    def measured(self, situation: Situation, view: View) -> Situation:
        """Returns a situation with what the schemas cost, and the names of the other tools."""
        tokens = view.tools_tokens
        for part in self.items(view, 0).fragments:
            frame = (fences.opening(self.fence), fences.closing(self.fence))
            tokens += part.tokens + sum(map(view.counter.count_text, frame))
        return replace(situation, tools_tokens=tokens)

    def items(self, view: View, _tokens: int) -> Chosen:
        """Returns the names of the tools that are not bound, or as much of them as has room."""
        tools = view.tools
        if not tools.to_be_found:
            return NOTHING_CHOSEN
        most_tokens = view.limit_tokens * MOST_NAMES_SHARE
        for text in _texts(tools.known, tools.names, tools.name_of(OwnTool.FIND)):
            tokens = view.counter.count_text(text)
            if tokens <= most_tokens:
                names = Fragment(
                    layer=self.name,
                    id=NAMES,
                    text=text,
                    tokens=tokens,
                    reason=Reason.NAMES_TOOLS,
                )
                return Chosen(fragments=(names,))
        return NOTHING_CHOSEN

    def schemas_tokens(self, view: View) -> int:
        """Returns what the tools cost together."""
        return view.tools_tokens

    def tokens_beside(self, view: View) -> int:
        """Returns what the tools cost together beside the schema of each."""
        tools = view.tools
        return view.tools_tokens - sum(tools.window_tokens[position] for position in tools.bound)

    def explained_messages(self, view: View, _sent: Sent) -> list[ReportItem]:
        """Returns every tool: bound, or left to be found."""
        tools = view.tools
        items = [_item(view, at, Status.INCLUDED, reason) for at, reason in tools.bound.items()]
        for position, reason in _listed(tools):
            items.append(_item(view, position, Status.OMITTED, reason))
        return items

    def counted(self, view: View, _sent: Sent, _chosen: Chosen) -> Mapping[Reason, int]:
        """Returns how many tools that are not bound are counted rather than listed, by reason."""
        counts = Counter(view.tools.left_out.values())
        counts.subtract(reason for _, reason in _listed(view.tools))
        return +counts


def _listed(tools: ChosenTools) -> Iterator[tuple[int, Reason]]:
    """Yields the tools that are not bound, as far as a report lists them."""
    return islice(tools.left_out.items(), LISTED_OMISSIONS)


@lru_cache(maxsize=32)
def _texts(known: ToolSet, bound: tuple[str, ...], find_tools: str) -> tuple[str, ...]:
    """Returns what may be said of the tools that are not bound, the longest text first."""
    intro = INTRO.format(find=find_tools)
    listed = (names_by_server(known, bound), servers_with_counts(known, bound))
    return tuple(intro + _lines(text) for text in listed)


def _lines(text: str) -> str:
    """Returns lines of names as lines of a fence."""
    return "".join(f"- {line}\n" for line in fences.as_data(text).splitlines() if line)


def _item(view: View, position: int, status: Status, reason: Reason) -> ReportItem:
    tool = view.tools.known.tools[position]
    tokens = view.tools.window_tokens[position]
    if status is Status.INCLUDED and not tokens:
        reason = Reason.LOADED_BY_PROVIDER
    return ReportItem(
        id=view.tools.known.label_of(position),
        tokens=tokens,
        status=status,
        reason=reason,
        preview=preview(tool.description),
        source=tool.server,
    )
