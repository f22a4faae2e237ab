"""Turns the chosen content into the messages that are sent, measured to the token.

Stable zone: one system message (system prompt, preferences, arc), the summary, recent messages.
Volatile zone: a fenced background in front of the user's words in the current turn, or with the
layout `"system_first"` at the system message's end.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.budget import Fragment, Layout
from langchain_ctxbudget.history import (
    Background,
    background_lines,
    by_layer,
    with_background,
    with_headings,
)
from langchain_ctxbudget.layers import LAYERS, Place, group_tokens, name_at, place_of
from langchain_ctxbudget.messages import Group, fences, is_user, without_media
from langchain_ctxbudget.prompt.giving_way import Yielding, give_way
from langchain_ctxbudget.providers import COMMON, Profile, opening_before
from langchain_ctxbudget.tokens import TokenCounter

Cost = Callable[[BaseMessage], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything that was chosen for a prompt."""

    system_prompt: str = ""
    fragments: tuple[Fragment, ...] = ()
    """Preferences, arc, summary, and what the background of the turn holds, in this order; those of
    a layer stand in a row."""
    summary_intro: str = ""
    """The line above the summary."""
    summary_outro: str = ""
    """The line behind the summary, or in its place, that says that messages are left out."""
    history: tuple[Group, ...] = ()
    compaction: range | None = None
    """The positions of the compaction by the provider that is in use, see `Conversation`."""
    turn: tuple[Group, ...] = ()
    question_position: int | None = None
    """The position in the turn of the message that it is about; None where it has no human
    message."""
    bare: Mapping[int, BaseMessage] = field(default_factory=dict)
    """Messages of the history that stand there with a background, without it, by position."""
    backgrounds: Mapping[int, tuple[Fragment, ...]] = field(default_factory=dict)
    """The fragments of these backgrounds, which are sent again with their messages."""
    turn_note: str = ""
    """The text in place of the turn's older rounds."""
    turn_work: tuple[Fragment, ...] = ()
    """The lines of that text that tell the work state."""
    layout: Layout = "cache_first"
    profile: Profile = COMMON
    """What the provider accepts that it is sent to."""

    def of(self, layer: str) -> tuple[Fragment, ...]:
        """Returns the fragments of a layer."""
        return tuple(fragment for fragment in self.fragments if fragment.layer == layer)

    def groups_at(self, place: Place) -> tuple[Group, ...]:
        """Returns the messages of the layer at a place, without backgrounds."""
        if place is Place.HISTORY:
            return self.bare_history
        return self.turn if place is Place.TURN else ()

    @property
    def sent_again(self) -> tuple[Fragment, ...]:
        """The fragments in the backgrounds of earlier messages."""
        sent: list[Fragment] = []
        for group in self.history:
            sent += self.backgrounds.get(group.start, ())
        return tuple(sorted(sent, key=lambda part: part.layer))

    @property
    def bare_history(self) -> tuple[Group, ...]:
        """The history without the backgrounds of earlier messages."""
        if not self.bare:
            return self.history
        groups: list[Group] = []
        for group in self.history:
            first = self.bare.get(group.start)
            if first is None:
                groups.append(group)
            else:
                groups.append(replace(group, messages=(first, *group.messages[1:])))
        return tuple(groups)

    @property
    def behind_compaction(self) -> tuple[Group, ...]:
        """The history without a compaction by the provider at its beginning."""
        return self.history[len(self.compacted) :]

    @property
    def compacted(self) -> tuple[Group, ...]:
        """The compaction by the provider, where the history begins with that.

        The provider ignores whatever stands before it.
        """
        if self.compaction is None or not self.history:
            return ()
        first = self.history[0]
        return (first,) if first.start in self.compaction else ()

    @property
    def summary(self) -> tuple[Fragment, ...]:
        """The lines that stand for messages before the verbatim ones."""
        return self.of(name_at(Place.HISTORY))

    @property
    def volatile(self) -> tuple[Fragment, ...]:
        """The background: topics, entities, layers of the application's own, quotes."""
        layers = {part.layer for part in self.fragments}
        background = {layer for layer in layers if place_of(layer).is_in_background}
        return tuple(part for part in self.fragments if part.layer in background)


def messages_of(groups: Iterable[Group]) -> list[BaseMessage]:
    """Returns the messages of groups in order."""
    return [*chain.from_iterable(group.messages for group in groups)]


def without_media_at(
    content: Content, left_out: Mapping[int, Collection[int]], stored: int | None
) -> Content:
    """Returns a content with lines in place of some media of its history and its turn.

    Args:
        content: the content of a prompt.
        left_out: the numbers of these media within their messages, by the numbers of the messages.
        stored: how many messages stand before the turn, so that the lines name the reference under
            which the recall tool shows a medium; None where there is no such tool.
    """
    bare = dict(content.bare)
    for number, group in _numbered(content.history):
        if group.start in bare and number in left_out:
            bare[group.start] = without_media(bare[group.start], only=left_out[number])
    history = _numbered(content.history)
    turn = _numbered(content.turn, first=len(messages_of(content.history)))
    first_of_history = None
    first_of_turn = None
    if stored is not None:
        first_of_history = 1
        first_of_turn = stored + 1
    return replace(
        content,
        history=_groups_without_media(history, left_out, first_of_history),
        turn=_groups_without_media(turn, left_out, first_of_turn),
        bare=bare,
    )


def _numbered(groups: Iterable[Group], first: int = 0) -> Iterator[tuple[int, Group]]:
    """Yields groups, each with the number of its first message."""
    number = first
    for group in groups:
        yield number, group
        number += len(group.messages)


def _groups_without_media(
    groups: Iterable[tuple[int, Group]],
    left_out: Mapping[int, Collection[int]],
    first_reference: int | None,
) -> tuple[Group, ...]:
    """Returns numbered groups without some of their media.

    `first_reference` is the number under which the recall tool has the message at position 0.
    """
    shown: list[Group] = []
    for number, group in groups:
        messages = list(group.messages)
        for at, message in enumerate(group.messages):
            if number + at in left_out:
                reference = _recall_name(group, at, first_reference)
                messages[at] = without_media(message, reference, only=left_out[number + at])
        shown.append(replace(group, messages=tuple(messages)))
    return tuple(shown)


def _recall_name(group: Group, at: int, first_reference: int | None) -> str | None:
    """Returns the name under which the recall tool shows the media of a message; None if it cannot.

    It can show those of results, where no message of their group stands in for another.
    """
    has_positions = len(group.positions) == len(group.messages)
    is_result = isinstance(group.messages[at], ToolMessage)
    if first_reference is None or not has_positions or not is_result:
        return None
    return f"#{first_reference + group.positions[at]}"


def fragments_of(backgrounds: Iterable[Background]) -> list[Fragment]:
    """Returns the fragments of backgrounds in order."""
    return [*chain.from_iterable(background.fragments for background in backgrounds)]


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """The messages of a prompt."""

    messages: tuple[BaseMessage, ...]
    stable: int
    """The number of messages in the stable zone."""


def build(content: Content) -> BuiltPrompt:
    """Makes the messages of a content."""
    background = "".join(background_lines(content.volatile))
    stands_in_system = content.layout == "system_first" and bool(background)
    if stands_in_system:
        messages = _system_messages(content, background)
        background = ""
    else:
        messages = _system_messages(content, "")

    messages += messages_of(content.compacted)
    opening = summary_text(content) if content.summary else opening_note(content)
    note: list[BaseMessage] = [HumanMessage(opening)] if opening else []
    is_note_of_turn = not (content.summary or content.history)
    if not is_note_of_turn:
        messages += note
    messages += messages_of(content.behind_compaction)
    stable = 0 if stands_in_system else len(messages)
    if is_note_of_turn:  # the turn begins the conversation
        messages += note
    messages += _turn_messages(content, background + content.turn_note)
    return BuiltPrompt(tuple(messages), stable)


def _system_messages(content: Content, background: str) -> list[BaseMessage]:
    """Returns the system message, if anything stands in it."""
    parts = system_parts(content)
    if background:
        if parts:
            parts.append("\n\n")
        parts.append(background)
    return [SystemMessage("".join(parts))] if parts else []


def _turn_messages(content: Content, background: str) -> list[BaseMessage]:
    """Returns the messages of the turn, the one that it is about with the background."""
    messages: list[BaseMessage] = []
    for group in content.turn:
        is_asked = len(group.messages) == 1 and group.start == content.question_position
        if is_asked and background:
            messages.append(with_background(group.messages[0], background))
        else:
            messages += group.messages
    return messages


def request_copy(message: BaseMessage) -> BaseMessage:
    """Returns a copy of a message for one request, which has no artifacts."""
    copied = message.model_copy()
    fields = vars(copied)
    for name, value in fields.items():
        if name == "artifact":
            fields[name] = None
        elif not isinstance(value, str) and value is not None:
            fields[name] = _copied(value)
    return copied


def _copied(value: Any) -> Any:  # noqa: ANN401 - whatever a message holds
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [*map(_copied, value)]
    return deepcopy(value)


def opening_note(content: Content) -> str:
    """Returns the line that stands first where there is no summary; empty if none is needed.

    It says that messages are left out, or that the conversation begins with an answer.
    """
    if content.history and content.summary_outro:
        return content.summary_outro
    messages = messages_of((*content.history, *content.turn))
    return opening_before(messages[0] if messages else None, content.profile)


def asking(turn: Sequence[BaseMessage]) -> int | None:
    """Returns the position of the human message that a turn is about, or None where it has none.

    It is the first one, or of several in a row the last: an application may put notes in front of
    the user's words.
    """
    asked: int | None = None
    for position, message in enumerate(turn):
        if isinstance(message, HumanMessage):
            asked = position
        elif asked is not None:
            break
    return asked


def has_human(turn: Iterable[Group]) -> bool:
    """Tells whether a turn has a human message for the background to stand in."""
    return any(is_user(group.messages[0]) for group in turn)


def system_parts(content: Content) -> list[str]:
    """Returns the parts of the system message: the system prompt, preferences and arc, if any."""
    parts = [content.system_prompt] if content.system_prompt else []
    for layer in LAYERS:
        fragments = content.of(layer.name) if layer.place is Place.STABLE else ()
        if fragments:
            gap = "\n\n" if parts else ""
            lines = "".join(with_headings(fragments))
            parts.append(f"{gap}{fences.opening(layer.fence)}{lines}</{layer.fence}>")
    return parts


def summary_text(content: Content) -> str:
    """Returns the text of the message in place of everything before the verbatim messages."""
    parts = (
        fences.opening(fences.SUMMARY),
        content.summary_intro,
        *with_headings(content.summary),
        fences.closing(fences.SUMMARY),
        content.summary_outro,
    )
    return "".join(parts)


def layer_tokens(fragments: Sequence[Fragment], counter: TokenCounter) -> tuple[int, int]:
    """Returns the cost of a layer's items, and that of the section and the headings above them."""
    headings = [heading for heading, _ in groupby(fragment.heading for fragment in fragments)]
    overhead = sum(map(counter.count_text, (fragments[0].section, *headings)))
    return sum(fragment.tokens for fragment in fragments), overhead


@dataclass(frozen=True, slots=True)
class Measure:
    """The cost of a prompt in tokens, and its parts, which add up to it."""

    total_tokens: int
    """Counted on the finished messages, with tool schemas and response format."""
    costs: tuple[int, ...]
    """What each message costs."""
    items_tokens: Counter[str]
    """What the items of each layer cost."""
    layer_overhead_tokens: Counter[str]
    """What the section and the headings of each layer cost."""
    framing_tokens: int
    """The rest: roles, fences, and what tokens do where texts meet."""


def measure(
    content: Content, built: BuiltPrompt, counter: TokenCounter, cost: Cost, extras_tokens: int
) -> Measure:
    """Counts a prompt exactly, each message by its `cost`, and the part of each layer in it."""
    items = Counter[str]()
    overhead = Counter[str]()
    if content.system_prompt:
        items[name_at(Place.SYSTEM_PROMPT)] = counter.count_text(content.system_prompt)
    for fragments in by_layer(content.fragments):
        items_tokens, headings_tokens = layer_tokens(fragments, counter)
        items[fragments[0].layer] += items_tokens
        overhead[fragments[0].layer] += headings_tokens
    for fragments in by_layer(content.sent_again):
        items[fragments[0].layer] += sum(part.tokens for part in fragments)
    for part in content.turn_work:
        items[part.layer] += part.tokens
    for layer in LAYERS:
        items[layer.name] += sum(map(cost, messages_of(content.groups_at(layer.place))))
    costs = tuple(map(cost, built.messages))
    messages_tokens = counter.count_messages([]) + sum(costs)
    framing = messages_tokens - items.total() - overhead.total()
    return Measure(messages_tokens + extras_tokens, costs, items, overhead, framing)


def without_least(
    content: Content, counter: TokenCounter, excess_tokens: int, order: Sequence[str]
) -> tuple[Content, list[Fragment]]:
    """Returns a content that is smaller by about `excess_tokens`, and what was taken out.

    It is taken from the first layer of `order` that has any, the least valuable first. Of the
    history, lines of the summary go first, then the oldest verbatim groups. The content is the same
    where nothing can give way.
    """
    for layer in order:
        removed = _least_valuable(content.fragments, layer, excess_tokens)
        if removed:
            kept = [part for i, part in enumerate(content.fragments) if i not in removed]
            smaller = replace(content, fragments=tuple(kept))
            return smaller, [content.fragments[i] for i in removed]
        if place_of(layer) is Place.HISTORY and content.history:
            return _without_oldest(content, counter, excess_tokens), []
    return content, []


def _least_valuable(fragments: Sequence[Fragment], layer: str, excess_tokens: int) -> list[int]:
    """Returns the places of a layer's fragments that go, so that about `excess_tokens` are freed.

    Those that are shown only once go first.
    """
    removed: list[int] = []

    def take_out(place: int, _excess_tokens: int) -> int:
        removed.append(place)
        return fragments[place].tokens

    items = [
        Yielding((not part.transient, part.value), partial(take_out, place))
        for place, part in enumerate(fragments)
        if part.layer == layer
    ]
    give_way(items, excess_tokens)
    return removed


def _without_oldest(content: Content, counter: TokenCounter, excess_tokens: int) -> Content:
    """Returns a content without the oldest groups of its history."""
    history = list(content.behind_compaction)
    if not history:
        return replace(content, history=())

    def take_out_first(_excess_tokens: int) -> int:
        return group_tokens(history.pop(0), counter)

    items = [Yielding(number, take_out_first) for number in range(len(history))]
    give_way(items, excess_tokens)
    return replace(content, history=(*content.compacted, *history))
