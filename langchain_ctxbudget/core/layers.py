"""The eight layers of a prompt and what is said about their items."""

from __future__ import annotations

from enum import StrEnum


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


TITLES: dict[Layer, str] = {
    Layer.IDENTITY: "Identity",
    Layer.PREFERENCES: "Preferences",
    Layer.TOPICS: "Topics",
    Layer.ENTITIES: "Entities",
    Layer.ARC: "Conversation arc",
    Layer.RETRIEVAL: "Retrieval",
    Layer.HISTORY: "History",
    Layer.MESSAGE: "Message",
}


def title_of(layer: str) -> str:
    """The title of a layer; a layer of the application's own is called what it is called."""
    return TITLES[Layer(layer)] if layer in set(Layer) else layer


class Status(StrEnum):
    """What became of a candidate item."""

    INCLUDED = "included"
    SHRUNK = "shrunk"
    OMITTED = "omitted"


class Reason(StrEnum):
    """Why an item was included, shrunk or omitted."""

    REQUIRED = "required"
    """Always sent: the system prompt, the current message, the newest call group."""
    CONFIGURED = "configured"
    """Given in the settings, and it fits."""
    DETECTED = "detected"
    """Named in the current message."""
    RECENT = "recent"
    """Among the newest messages, verbatim."""
    SUMMARY = "summary"
    """Stands for older messages."""
    PINNED = "pinned"
    """Kept verbatim because the application asked for it."""
    SHORTENED = "shortened"
    """A message of the history that stands in short: too large, an old result of a tool, or only to be summarised."""
    DROPPED = "dropped"
    """Left out because the application asked for it."""
    RELEVANT = "relevant"
    """Found for the current message."""
    SUMMARIZED = "summarized"
    """Not verbatim; a summary in this prompt has read it."""
    NO_ROOM = "no_room"
    """Does not fit into what its layer was given."""
    RANKED_LOWER = "ranked_lower"
    """Others are worth more per token."""
    LOW_RELEVANCE = "low_relevance"
    """Less relevant than the average candidate."""
    REMEMBERED = "remembered"
    """Known about the user, and among what this conversation shows of that."""
    NEXT_SNAPSHOT = "next_snapshot"
    """Learned since this conversation chose what it shows: waits for its next compaction step."""
    STALE = "stale"
    """As it was known before the last change: the new text is not compiled yet."""
    NOT_COMPILED = "not_compiled"
    """Known, but there is no text of it yet: it is compiled in the background."""
    NOT_DETECTED = "not_detected"
    """Not named in the current message."""
    SWITCHED_OFF = "switched_off"
    """A setting leaves it out."""
    USAGE_LIMIT = "usage_limit"
    """Little of a usage limit is left, and others count more."""
    NO_HUMAN_MESSAGE = "no_human_message"
    """The turn has no human message to stand in front of."""
    REPAIRED = "repaired"
    """Could not be sent as it stands; see the repairs."""
    CLIPPED = "clipped"
    """Larger than what there is: its middle is left out."""
    COMPRESSED = "compressed"
    """Made shorter or taken out by a step of the last resort, because the exact recount was over the budget."""
    PRUNED = "pruned"
    """Taken out again because the exact recount was over the budget."""
