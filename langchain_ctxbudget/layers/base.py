"""What a layer of a prompt answers, and what it may look at for its answers.

A layer says where it stands, what it asks for, what it shows within a grant of tokens, how it gives
way, and what became of its items. Code that makes prompts goes through the list of layers
(`registry.py`), and asks each of them in turn.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from itertools import chain

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.budget import Fragment, LayerSpec, Reason, Situation, Status, Tier
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import Continuation, Conversation, HistoryView
from langchain_ctxbudget.knowledge import (
    NO_RULES,
    NOTHING,
    Detected,
    FactsLayer,
    Knowledge,
    StandingRules,
)
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.report import CoverageRange, ReportItem, preview
from langchain_ctxbudget.retrieval import Pool
from langchain_ctxbudget.settings import ContextSettings, LayerRequest
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.tools import NO_TOOLS, ChosenTools, OwnTool

Groups = tuple[Group, ...]


class Place(IntEnum):
    """Where a layer stands in a prompt; the places are in the order of the prompt.

    System prompt, history and turn are one layer each; any number of layers may stand elsewhere.
    """

    SYSTEM_PROMPT = 0
    STABLE = 1
    """In the system message, in a fence behind the system prompt."""
    HISTORY = 2
    """The messages before the turn; items stand in one message in front of them."""
    BACKGROUND = 3
    """In front of the user's words in the turn."""
    QUOTES = 4
    """At the end of the background, next to the user's words."""
    TURN = 5

    @property
    def is_in_background(self) -> bool:
        """True for what is chosen for one turn, and stands in front of the user's words there."""
        return self in (Place.BACKGROUND, Place.QUOTES)


# What a layer may look at


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the user, as far as it may have to do with the message."""

    detected: Detected = field(default_factory=Detected)
    """The topics and entities that the message is about."""
    knowledge: Knowledge = NOTHING
    remembered: FactsLayer = field(default_factory=FactsLayer)
    """The facts about the user."""
    rules: StandingRules = NO_RULES
    """What is known of the user's standing rules."""
    persona_id: str | None = None
    own_items: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The items that the application has given, by the names of its layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """The current turn, as far as layers look at it."""

    given: Sequence[BaseMessage] = ()
    """Its messages as they were given."""
    groups: Groups = ()
    """The groups that are sent."""
    left_out: Groups = ()
    clipped: frozenset[int] = frozenset()
    """The positions of the groups that are sent in short."""
    tokens: int = 0
    """What is sent costs so many tokens."""
    free_tokens: int = 0
    """The tokens that are kept free for calls and results."""
    work_tokens: int = 0
    """The most that the work state of the stored messages may cost; the arc tells it."""
    own_work_tokens: int = 0
    """The most that the work state of this turn may cost."""
    stage: int = 0
    """How many times it has outgrown the room that was planned for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that a layer may look at."""

    conversation: Conversation
    counter: TokenCounter
    settings: ContextSettings
    tier: Tier
    """What the user's usage limit lets in."""
    limit_tokens: int
    """The limit of the whole prompt."""
    system_prompt: str = ""
    known: Known = field(default_factory=Known)
    continuation: Continuation = field(default_factory=Continuation)
    turn: TurnView = field(default_factory=TurnView)
    history: HistoryView = field(default_factory=lambda: HistoryView(strategy="empty", cut=0))
    pool: Pool | None = None
    """The ranked texts that may be quoted; None if nothing has been searched."""
    tools: ChosenTools = NO_TOOLS
    """The tools of the call: which are bound, and which are left to be found."""
    tools_tokens: int = 0
    """What the bound ones cost together."""

    @property
    def recall_tool(self) -> str:
        """The name of the tool that quotes messages; empty where it is not bound."""
        return self.tools.name_of(OwnTool.RECALL)

    @property
    def earlier_fragments(self) -> list[Fragment]:
        """What the backgrounds of earlier turns in the prompt show, the oldest one first."""
        fragments: list[Fragment] = []
        for position, background in sorted(self.history.backgrounds.items()):
            if position < len(self.conversation.entries):
                fragments += background.fragments
        return fragments


# What it answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a layer shows, and what it leaves out."""

    fragments: tuple[Fragment, ...] = ()
    left_out: Callable[[], tuple[ReportItem, ...]] = tuple
    """Returns the candidates that are left out, for the report; a function because only a report
    needs their texts."""
    more_left_out: Mapping[Reason, int] = field(default_factory=dict)
    """The number of all others, by reason."""
    lacks_room: bool = False
    """True if something is left out because there is no room for it."""
    warning: str = ""
    """What a report says besides; empty for nothing."""
    is_given: bool = False
    """True if somebody else has written it, so that it is not written anew."""
    scores: Callable[[str, str], Mapping[str, float]] = lambda *_: {}
    """Returns the parts of an item's ranking, by its source and id; empty if it was not ranked."""

    @property
    def wants_more(self) -> bool:
        """True if something was left out or shortened for want of room."""
        if self.is_given:
            return False
        return self.lacks_room or any(part.status is Status.SHRUNK for part in self.fragments)

    def without(self, shown_before: Iterable[Fragment]) -> "Chosen":
        """Returns it without what an earlier background of the prompt says already."""
        texts = {(part.layer, part.text) for part in shown_before}
        if not texts:
            return self
        parts = tuple(part for part in self.fragments if (part.layer, part.text) not in texts)
        return replace(self, fragments=parts)


NOTHING_CHOSEN = Chosen()


class Rung(StrEnum):
    """The last resort's rungs, by their names in a report, in the order in which they are taken.

    A prompt that is far over its budget goes down from rung to rung until it fits.
    """

    LIGHT = "light"
    """Needless blanks, and what the background says twice."""
    MEDIUM = "medium"
    HEAVY = "heavy"
    EXTREME = "extreme"
    MIDDLE_OUT = "middle-out"
    MEMORY_REDUCTION = "memory reduction"
    MEMORIES_LEFT_OUT = "memories left out"


def _any_item(_part: Fragment) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Staying:
    """How many items of a layer stay when a rung is taken; the most valuable ones do."""

    number: int = 0
    """So many stay, and all others go; not looked at where `share` says something."""
    share: float | None = None
    """This share of them stays in any case, and of the others no more go than must."""
    among: Callable[[Fragment], bool] = _any_item
    """Tells whether an item is one of those that are meant."""

    @property
    def is_strict(self) -> bool:
        """True if all others go, however little is over the budget."""
        return self.share is None

    def most_going(self, count: int) -> int:
        """Returns how many of so many items may go."""
        staying = self.number if self.share is None else math.ceil(count * self.share)
        return max(0, count - staying)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What has become of a layer in a finished prompt."""

    fragments: tuple[Fragment, ...] = ()
    """Its items: sent again, sent for this turn, and taken out of the finished prompt."""
    groups: Groups = ()
    """Its messages as they were said."""
    shortened: frozenset[int] = frozenset()
    """The positions of messages that are sent in short."""
    coverage: Sequence[CoverageRange] = ()
    """How each message of the conversation is in the prompt."""
    irrelevant: int = 0
    """How many texts of all layers have too little to do with the message."""


class PromptLayer:
    """A layer of a prompt; each one overrides what it does otherwise.

    A layer holds nothing of a conversation: what it answers depends on what it is asked.
    """

    name: str
    """Its short name in reports and stored backgrounds."""
    title: str
    place: Place
    fence: str = ""
    """The name of the fence around it, where it stands in the system message."""
    section: str = ""
    """The line above its items, where it stands in the background."""
    is_required: bool = False
    """True if it is always sent whole, and never gives way."""
    is_asked: bool = False
    """True if `fetched` asks somebody for its items."""

    # The budget

    def measured(self, situation: Situation, _view: View) -> Situation:
        """Returns a situation with what this layer asks for."""
        return situation

    def granted_tokens(self, tokens: int, _turn: TurnView) -> int:
        """Returns what a report counts as its grant, where a strategy gives it some tokens."""
        return tokens

    def wider_tokens(
        self, spec: LayerSpec, granted_tokens: int, most_tokens: int, _view: View
    ) -> int | None:
        """Returns its grant with what others leave, or None if even that is less than it needs.

        Args:
            spec: What the strategy says of the layer.
            granted_tokens: Its grant so far.
            most_tokens: All that it may cost, the line above its items included.
            _view: What it may look at.
        """
        wider = max(granted_tokens, min(most_tokens, spec.limit_tokens))
        return wider if wider >= spec.min_tokens else None

    # Its items

    def fetched(self, _request: LayerRequest) -> Flow[tuple[str, ...]]:
        """Asks somebody for its items, where `is_asked`."""
        yield from ()
        return ()

    def items(self, _view: View, _tokens: int) -> Chosen:
        """Returns what it shows within its grant of tokens."""
        return NOTHING_CHOSEN

    def not_shown_before(
        self, _view: View, chosen: Chosen, backgrounds: Sequence[Sequence[Fragment]]
    ) -> Chosen:
        """Returns what it chose without what earlier backgrounds of the prompt say already.

        Args:
            _view: What it may look at.
            chosen: What it chose.
            backgrounds: The fragments of each earlier background, the oldest one first.
        """
        return chosen.without(chain.from_iterable(backgrounds))

    def given(self, _view: View, fragments: tuple[Fragment, ...]) -> Chosen:
        """Returns it with items that somebody else has written."""
        return Chosen(fragments=fragments, is_given=True)

    def compiled(self, _view: View, _chosen: Chosen) -> Mapping[str, bool]:
        """Returns the compiled texts that it uses, by id; True if a text is as it should be."""
        return {}

    def schemas_tokens(self, _view: View) -> int:
        """Returns what it costs outside of the messages."""
        return 0

    def tokens_beside(self, _view: View) -> int:
        """Returns what it costs outside of the messages, beside its items."""
        return 0

    # How it gives way

    def staying(self, _rung: Rung) -> Sequence[Staying]:
        """Returns how many of its items stay when a rung is taken; empty if all of them do."""
        return ()

    def shortened(self, _rung: Rung, groups: Groups, _counter: TokenCounter) -> Groups:
        """Returns what stays of its messages when a rung is taken."""
        return groups

    # How it is explained

    def explained(self, view: View, sent: Sent, chosen: Chosen) -> list[ReportItem]:
        """Returns its candidates, each with its status and reason."""
        items = [item_of(part, chosen) for part in sent.fragments]
        return [*items, *self.explained_messages(view, sent), *chosen.left_out()]

    def explained_messages(self, _view: View, _sent: Sent) -> list[ReportItem]:
        """Returns its candidates that are messages, or the system prompt."""
        return []

    def counted(self, _view: View, _sent: Sent, chosen: Chosen) -> Mapping[Reason, int]:
        """Returns how many candidates are counted rather than listed, by reason."""
        return chosen.more_left_out


# Lines of a report


def item_of(part: Fragment, chosen: Chosen = NOTHING_CHOSEN) -> ReportItem:
    """Returns what a report says of an item."""
    return ReportItem(
        id=part.id,
        tokens=part.tokens,
        status=part.status,
        reason=part.reason,
        preview=preview(part.text),
        source=part.source,
        citation=part.citation,
        scores=part.scores or chosen.scores(part.source, part.id),
    )
