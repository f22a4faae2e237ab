"""The eight layers of a prompt, and what a report says about their items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Self

Layout = Literal["cache_first", "system_first"]
"""The place of content chosen for a turn: in front of its human message, or in the system message."""
MEMORIES_HEADING = "## What you know about this user\n"


class Layer(StrEnum):
    """A layer of the prompt; the value is its short name in reports."""

    IDENTITY = "L0"
    PREFERENCES = "L1"
    TOPICS = "L2"
    ENTITIES = "L3"
    ARC = "L4"
    RETRIEVAL = "L5"
    HISTORY = "L6"
    MESSAGE = "L7"


TITLES: dict[Layer, str] = {layer: layer.name.capitalize() for layer in Layer} | {Layer.ARC: "Conversation arc"}


def title_of(layer: str) -> str:
    """Returns the title of a layer; a custom layer is called by its name."""
    return TITLES[Layer(layer)] if layer in set(Layer) else layer


class Status(StrEnum):
    """The outcome for a candidate item."""

    INCLUDED = "included"
    SHRUNK = "shrunk"
    OMITTED = "omitted"


class Reason(StrEnum):
    """Why an item was included, shrunk or omitted; `meaning` says it in words."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Takes the code and its meaning."""
        reason = str.__new__(cls, value)
        reason._value_, reason.meaning = value, meaning
        return reason

    REQUIRED = "required", "always sent: system prompt, current message and the newest calls with their results"
    CONFIGURED = "configured", "given in the settings, and it fits"
    DETECTED = "detected", "the current message names it"
    RECENT = "recent", "among the newest messages, which are sent word for word"
    SUMMARY = "summary", "stands for older messages that are not sent themselves"
    PINNED = "pinned", "kept word for word because the application pinned it"
    SHORTENED = "shortened", "sent in short: too large, an old result of a tool, or only to be summarised"
    DROPPED = "dropped", "left out because the application asked for it"
    RELEVANT = "relevant", "found for the current message, and worth its tokens"
    AS_SENT = "as_sent", "chosen for an earlier message of this stretch, and sent with it again"
    SUMMARIZED = "summarized", "not sent word for word; a summary in this prompt has read it"
    NO_ROOM = "no_room", "does not fit into what its layer was given"
    RANKED_LOWER = "ranked_lower", "others are worth more per token for the current message"
    LOW_RELEVANCE = "low_relevance", "less relevant than the average candidate"
    REMEMBERED = "remembered", "known about the user, and shown in this conversation"
    NEXT_SNAPSHOT = (
        "next_snapshot",
        "learned since this conversation chose what it shows; waits for its next compaction step",
    )
    NOT_COMPILED = "not_compiled", "known, but its text is still being compiled in the background"
    NOT_DETECTED = "not_detected", "the current message does not name it"
    SWITCHED_OFF = "switched_off", "a setting leaves it out"
    USAGE_LIMIT = (
        "usage_limit",
        "little of a usage limit is left, and others count more; `force_include` lets it in",
    )
    NO_HUMAN_MESSAGE = "no_human_message", "the turn has no human message to stand in front of"
    REPAIRED = "repaired", "cannot be sent as it stands; the repairs say why"
    CLIPPED = "clipped", "larger than the room there is: its middle is left out"
    COMPRESSED = "compressed", "made shorter or taken out as a last resort, as the exact count was over the budget"
    PRUNED = "pruned", "taken out again, as the exact count was over the budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """One item as text: lines that begin with a mark and end with a line break."""

    layer: str
    """A `Layer`, or the name of a custom layer."""
    id: str
    text: str
    tokens: int
    reason: Reason
    status: Status = Status.INCLUDED
    section: str = ""
    """A line above the first fragment of its layer."""
    heading: str = ""
    """A line above it, once for all fragments in a row that share it."""
    value: float = 0.0
    """Its worth; the least is taken out first."""
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What it was found by; the parts of a quote's ranking are in `Retrieved`."""
    expendable: bool = False
    """True for what goes first where the window is tight (seed 001, stage two)."""
    source: str = ""
    """The origin of a retrieved item."""
    covers: tuple[int, int] = (0, 0)
    """The messages behind a line of a summary: the position of the first, and the one after the last."""

    @property
    def is_quoted_whole(self) -> bool:
        """It is a retrieved item that stands there word for word."""
        return self.layer == Layer.RETRIEVAL and self.status is Status.INCLUDED
