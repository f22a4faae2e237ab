"""Showing messages of a turn in short, so that they fit a budget together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import has_media, media_count, only_answers, parts_of, with_parts
from langchain_ctxbudget.history import known_files
from langchain_ctxbudget.messages import Group, clip_message, water_level, without_media
from langchain_ctxbudget.prompt.giving_way import Yielding, give_way
from langchain_ctxbudget.providers import with_calls_as_shown
from langchain_ctxbudget.tokens import TokenCounter

Place = tuple[int, int]
"""The number of a group in the turn, and the place of a message in that group."""

RecallName = Callable[[BaseMessage], str | None]
"""Returns the reference under which the recall tool gives a message."""


Kinds = tuple[type[BaseMessage], ...]
"""Kinds of messages. Of the kind of tool messages is whatever is nothing but results."""


def is_of_kinds(message: BaseMessage, kinds: Kinds) -> bool:
    """Tells if a message is of some kinds."""
    return isinstance(message, kinds) or (ToolMessage in kinds and only_answers(message))


@dataclass(frozen=True, slots=True)
class Shortening:
    """A message, and how it is shown in short."""

    message: BaseMessage
    counter: TokenCounter
    reference: str | None = None
    """The reference under which the recall tool gives all of it."""
    focus: frozenset[str] = frozenset()
    """Terms: lines that have some of them stay first."""
    line_worth: tuple[float, ...] = ()
    """What each line is worth, where the message shows a known file."""
    keeps_media: bool | None = None
    """True if all media stay; by default those of a tool's result give way, and no others."""
    names_media: bool = True
    """True if lines in place of media name the reference."""

    def clipped(self, most_tokens: int) -> BaseMessage | None:
        """Returns the message in at most so many tokens, or None where that cannot be."""
        message = self.message
        if self.line_worth and isinstance(message.content, str):
            unpadded = known_files.PADDING.sub("", message.content)
            message = message.model_copy(update={"content": unpadded})
        return clip_message(
            message,
            self.counter.count_message,
            self.counter.count_text,
            most_tokens,
            reference=self.reference,
            focus=self.focus,
            worth=self.line_worth,
            keeps_media=self.keeps_media,
            names_media=self.names_media,
        )

    def shortest(self, smallest_tokens: int) -> BaseMessage:
        """Returns the message in about so many tokens, beside media that stay.

        Where it cannot be that short, it gets twice or four times as many; else it is returned as
        it is.
        """
        media_tokens = self._staying_media_tokens()
        for factor in (1, 2, 4):  # some characters take many tokens
            shorter = self.clipped(media_tokens + smallest_tokens * factor)
            if shorter is not None:
                return shorter
        return self.message

    def _staying_media_tokens(self) -> int:
        if only_answers(self.message) and not self.keeps_media:
            return 0
        media = [part for part in parts_of(self.message) if part.is_media]
        if not media:
            return 0
        return self.counter.count_message(with_parts(self.message, media))


def shortened_together(
    groups: Mapping[int, Group],
    shortenings: Mapping[Place, Shortening],
    budget_tokens: int,
    smallest_tokens: int,
    counter: TokenCounter,
) -> dict[int, Group]:
    """Returns groups whose largest messages are shortened to one size, at which all fit a budget.

    Args:
        groups: groups of a turn, by their numbers.
        shortenings: the messages that may be shortened, by their places.
        budget_tokens: what the groups may cost together; they cost more where even the shortest
            forms do.
        smallest_tokens: about the fewest tokens of a message that is shortened.
        counter: counts the messages.
    """
    costs: dict[Place, int] = {}
    for number, group in groups.items():
        for at, message in enumerate(group.messages):
            costs[number, at] = counter.count_message(message)
    shown = _shortest_forms(shortenings, smallest_tokens)
    least_costs = {place: counter.count_message(message) for place, message in shown.items()}

    whole_costs = [costs[place] for place in shown]
    tokens_left = budget_tokens - (sum(costs.values()) - sum(whole_costs))
    most = water_level(whole_costs, tokens_left, [*least_costs.values()])
    for place, least_cost in least_costs.items():
        if least_cost < min(most, costs[place]):
            clipped = shortenings[place].clipped(most)
            if clipped is not None:
                shown[place] = clipped
    return {number: _with_shown(number, group, shown) for number, group in groups.items()}


def _shortest_forms(
    shortenings: Mapping[Place, Shortening], smallest_tokens: int
) -> dict[Place, BaseMessage]:
    """Returns the shortest forms of messages, without those that cannot be shortened."""
    shortest: dict[Place, BaseMessage] = {}
    for place, shortening in shortenings.items():
        shorter = shortening.shortest(smallest_tokens)
        if shorter is not shortening.message:
            shortest[place] = shorter
    return shortest


def _with_shown(number: int, group: Group, shown: Mapping[Place, BaseMessage]) -> Group:
    """Returns a group with the messages that are shown in place of its own."""
    messages = [shown.get((number, at), message) for at, message in enumerate(group.messages)]
    return with_calls_as_shown(replace(group, messages=tuple(messages)))


def without_older_media(
    groups: Mapping[int, Group], recall_name: RecallName
) -> list[dict[int, Group]]:
    """Returns groups as they are, then without the media of the oldest result, and so on.

    The newest result that has media keeps them in all of these.
    """
    places: list[Place] = []
    for number, group in groups.items():
        for at, message in enumerate(group.messages):
            if only_answers(message) and has_media(message):
                places.append((number, at))
    shown = dict(groups)
    stages = [dict(shown)]
    for number, at in places[:-1]:
        messages = list(shown[number].messages)
        messages[at] = without_media(messages[at], recall_name(messages[at]))
        shown[number] = with_calls_as_shown(replace(shown[number], messages=tuple(messages)))
        stages.append(dict(shown))
    return stages


def without_oldest_human_media(
    groups: Mapping[int, Group], counter: TokenCounter, excess_tokens: int
) -> dict[int, Group]:
    """Returns groups with lines in place of the user's media, until an excess is gone.

    The oldest give way first, one by one. The newest of the user's newest message stays, and every
    word.
    """
    shown = dict(groups)

    def take_out(number: int, at: int, _excess_tokens: int) -> int:
        messages = list(shown[number].messages)
        bare = without_media(messages[at], only=[0])  # the first one that is left
        saved_tokens = counter.count_message(messages[at]) - counter.count_message(bare)
        messages[at] = bare
        shown[number] = replace(shown[number], messages=tuple(messages))
        return saved_tokens

    items: list[Yielding] = []
    media_of_newest = 0
    for number, group in groups.items():
        for at, message in enumerate(group.messages):
            if isinstance(message, HumanMessage):
                media_of_newest = media_count(message)
                for _ in range(media_of_newest):
                    items.append(Yielding(len(items), partial(take_out, number, at)))
    if media_of_newest:
        items.pop()
    give_way(items, excess_tokens)
    return shown
