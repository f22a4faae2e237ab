"""How what was found stands in a prompt: one line an item, under the date and the place that it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.messages.text import one_line
from langchain_ctxbudget.search.packing import Candidate

OWN_SECTION = "## Said earlier in this conversation\n"
MIXED_SECTION = "## Found for this message\n"
HERE = "[in this conversation]\n"
"""What a message without a date stands under, where it could seem to be a part of what comes from elsewhere."""
_MOST_TITLE_CHARACTERS = 80
_NO_HEADING = str.maketrans("[]", "()")
IS_RECALL = {"ctxbudget": "recall"}
"""What the metadata of the recall tool say."""


@dataclass(frozen=True, slots=True)
class Style:
    """What stands beside the words."""

    speakers: bool = True
    dates: bool = True
    references: bool = False
    """The number under which the recall tool gives a message."""
    mixed: bool = False
    """Whether what comes from elsewhere stands above the messages."""


def has_recall_tool(tools: Sequence[object]) -> bool:
    """Whether the recall tool is among the tools of a request."""
    return any((getattr(tool, "metadata", None) or {}).items() >= IS_RECALL.items() for tool in tools)


def message_line(entry: Entry, number: int, style: Style, text: str | None = None) -> str:
    """A past message, or a part of it, as an item.

    Args:
        entry: the message.
        number: its number, from 1.
        style: what stands beside its words.
        text: what is shown of it; None: all.
    """
    name = f"{entry.speaker}: " if style.speakers else ""
    reference = f"#{number} " if style.references or text is not None else ""
    return f"- {reference}{name}{fences.as_item(entry.text if text is None else text)}\n"


def message_heading(entry: Entry, style: Style) -> str:
    """The line that messages of one day stand under."""
    if entry.date and style.dates:
        return f"[{entry.date}]\n"
    return HERE if style.mixed else ""


def line(candidate: Candidate, style: Style) -> str:
    """A text from elsewhere as an item."""
    name = f"{candidate.speaker}: " if style.speakers and candidate.speaker else ""
    return f"- {name}{fences.as_item(candidate.text)}\n"


def heading(candidate: Candidate, style: Style) -> str:
    """The line that texts of one place stand under."""
    date = candidate.date if style.dates else None
    if candidate.source == "memories":
        parts = ["known about the user"]
    elif candidate.source == "documents":
        title = one_line(candidate.title)[:_MOST_TITLE_CHARACTERS].translate(_NO_HEADING)
        parts = [f"document: {fences.as_data(title)}", date or ""]
    else:
        parts = [date or "", "in another conversation"]
    return f"[{', '.join(part for part in parts if part)}]\n"
