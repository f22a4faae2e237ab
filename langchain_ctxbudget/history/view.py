"""How a history looks in a prompt: its verbatim messages in groups, their costs and repairs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage

from langchain_ctxbudget import providers
from langchain_ctxbudget.budget import Fragment, Reason
from langchain_ctxbudget.content import loses_items
from langchain_ctxbudget.history import work_state
from langchain_ctxbudget.history.backgrounds import Background
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.late_results import late_calls, with_calls_again
from langchain_ctxbudget.messages import Count, Group, one_line
from langchain_ctxbudget.providers import Repair
from langchain_ctxbudget.report import HistoryStrategy
from langchain_ctxbudget.stores import CutRecord, SummaryLine


class KnownCosts:
    """The tokens of messages, looked up by the objects themselves, not by what they say.

    The messages are held, so that the id of an object stands for no other one.
    """

    def __init__(self) -> None:
        self._costs: dict[int, tuple[BaseMessage, int]] = {}

    def add(self, message: BaseMessage, tokens: int) -> None:
        """Notes the tokens of a message."""
        self._costs[id(message)] = (message, tokens)

    def of(self, message: BaseMessage) -> int | None:
        """Returns the tokens of a message; None if they were not noted for this very object."""
        held = self._costs.get(id(message))
        if held is None or held[0] is not message:
            return None
        return held[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """The history as it goes into one prompt."""

    strategy: HistoryStrategy
    cut: int
    """The number of messages that are not verbatim, but for those that are kept."""
    groups: tuple[Group, ...] = ()
    """The verbatim messages, each with those that must stay beside it."""
    costs: KnownCosts = field(default_factory=KnownCosts, repr=False)
    """What the messages in these groups cost: a prompt adds that up several times."""
    repairs: tuple[Repair, ...] = ()
    shortened: frozenset[int] = frozenset()
    """Positions of messages behind the cut, or kept, that are sent in short or left out."""
    backgrounds: Mapping[int, Background] = field(default_factory=dict)
    """The backgrounds that verbatim messages are sent with, by the positions of these."""
    quoted: tuple[int, ...] = ()
    """Positions of the messages that these backgrounds quote whole."""
    summary: tuple[Fragment, ...] = ()
    summary_intro: str = ""
    summary_outro: str = ""
    arc: tuple[Fragment, ...] = ()
    record: CutRecord | None = None
    """The cut, with the summary of the messages before it; None where everything is verbatim."""
    is_rebuilt: bool = False
    """True if the cut is the first one or has moved, or if its summary was written anew."""
    made_by: dict[str, int] = field(default_factory=dict)
    """How many lines of summary and arc were written by extraction, and by each model."""
    waiting: tuple[str, ...] = ()
    """Hashes of the spans that a model has not written about yet."""
    compacted: int = 0
    """The position before which a compaction by the provider stands for all messages."""
    next_cut: int = 0
    """The cut that a compaction would make now; known where a model writes summaries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim:
    """The messages that stand in a prompt word for word."""

    positions: Sequence[int]
    messages: Sequence[BaseMessage]
    shortened: frozenset[int]
    """Positions of those that are sent in short, and of messages that are left out among them."""


def grouped(
    conversation: Conversation, verbatim: Verbatim
) -> tuple[tuple[Group, ...], tuple[Repair, ...]]:
    """Returns verbatim messages in groups that every provider accepts, and the repairs for that."""
    messages: Sequence[BaseMessage] = verbatim.messages
    positions: Sequence[int | None] = verbatim.positions
    calls = late_calls(conversation, messages, max(verbatim.positions, default=0))
    if calls:
        messages, positions = with_calls_again(messages, positions, calls)
    groups, repairs = providers.grouped(messages, conversation.profile, positions)
    repairs += _name_repairs(conversation, verbatim.positions)
    repairs += _item_repairs(conversation, verbatim.positions, verbatim.messages)
    repairs += _thought_repairs(conversation, verbatim.positions)
    return tuple(groups), tuple(repairs)


def _name_repairs(conversation: Conversation, positions: Iterable[int]) -> list[Repair]:
    """Returns the repairs of speakers' names that providers do not accept."""
    repairs: list[Repair] = []
    for position in positions:
        entry = conversation.entries[position]
        if entry.sent_message.name != entry.message.name:
            repair = f"{entry.message.name!r} is sent as {entry.sent_message.name!r}"
            repairs.append(Repair("name", entry.id, repair))
    return repairs


def _item_repairs(
    conversation: Conversation, positions: Iterable[int], messages: Iterable[BaseMessage]
) -> list[Repair]:
    """Returns the repairs of clipped messages, which lose the ids of their items.

    A provider that knows an item by its id refuses another text under that id.
    """
    repairs: list[Repair] = []
    for position, message in zip(positions, messages, strict=True):
        entry = conversation.entries[position]
        if message is not entry.sent_message and loses_items(entry.sent_message, message):
            repair = "sent without ids and reasoning, as it is not sent whole"
            repairs.append(Repair("item_id", entry.id, repair))
    return repairs


def _thought_repairs(conversation: Conversation, positions: Iterable[int]) -> list[Repair]:
    """Returns the repairs of messages that lose their thoughts."""
    repairs: list[Repair] = []
    for position in positions:
        if position in conversation.without_thoughts:
            message = conversation.entries[position].message
            repairs += providers.repairs_of_lost_thoughts(message, conversation.profile)
    return repairs


def known_costs(conversation: Conversation, groups: Iterable[Group]) -> KnownCosts:
    """Returns what the messages of groups cost.

    Messages that are sent as they are stored have been counted already.
    """
    costs = KnownCosts()
    counter = conversation.counter
    for part in groups:
        # Messages that stand in for missing results have no positions.
        has_all_positions = len(part.positions) == len(part.messages)
        for number, message in enumerate(part.messages):
            position = part.positions[number] if has_all_positions else None
            is_stored = (
                position is not None and message is conversation.entries[position].sent_message
            )
            if position is not None and is_stored and counter.is_sent_alone(message):
                costs.add(message, conversation.costs[position])
            else:
                costs.add(message, counter.count_message(message))
    return costs


def quoted_positions(
    conversation: Conversation, backgrounds: Iterable[Background]
) -> tuple[int, ...]:
    """Returns the positions of the messages that backgrounds quote whole."""
    positions: list[int] = []
    for background in backgrounds:
        for part in background.fragments:
            position = conversation.position(part.id) if part.is_quoted_whole else None
            if position is not None:
                positions.append(position)
    return tuple(positions)


def fragments(layer: str, lines: Sequence[SummaryLine], count: Count) -> tuple[Fragment, ...]:
    """Returns the lines of a summary or an arc as they go into a prompt."""
    return tuple(
        Fragment(
            layer=layer,
            id=_fragment_id(line),
            text=line.text,
            tokens=count(line.text),
            reason=Reason.SUMMARY,
            heading=line.heading,
            value=line.value,
            covers=(line.first, line.end),
        )
        for line in lines
    )


def _fragment_id(line: SummaryLine) -> str:
    """Returns the id of a line in the report, which says where the line comes from."""
    if line.heading in work_state.headings():
        section = one_line(line.heading[2:]).lower()
        return f"{section}, {line.order + 1}"
    if line.end > line.first:
        return f"message {line.position + 1}"
    return "heading"


def without_empty(backgrounds: Mapping[int, Background]) -> dict[int, Background]:
    """Returns the backgrounds that say something."""
    return {
        position: background for position, background in backgrounds.items() if background.fragments
    }


def line_makers(lines: Iterable[SummaryLine]) -> dict[str, int]:
    """Returns how many of some lines were written by extraction, and by each model."""
    makers = Counter(line.made_by for line in lines)
    return dict(sorted(makers.items()))
