"""Turns the chosen content into the messages that are sent, measured to the token.

Stable zone: one system message (system prompt, preferences, arc), the summary, recent messages.
Volatile zone: a fenced background in front of the user's words in the current turn, or with the
layout `"system_first"` at the system message's end.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.budget import Fragment, Layer, Layout
from langchain_ctxbudget.history import background_lines, by_layer, with_background, with_headings
from langchain_ctxbudget.messages import Group, fences, fingerprint, is_user
from langchain_ctxbudget.tokens import TokenCounter, encodable

NO_FIRST_QUESTION = "[The conversation begins.]"
MOST_MARKERS = 4
"""The most marks that Anthropic takes in a request."""
Cost = Callable[[BaseMessage], int]
STABLE_LAYERS = (Layer.PREFERENCES, Layer.ARC, Layer.HISTORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything that was chosen for a prompt."""

    system_prompt: str = ""
    fragments: tuple[Fragment, ...] = ()
    """Preferences, arc, summary, and what the background of the turn holds, in this order; those of
    a layer in a row."""
    summary_intro: str = ""
    summary_outro: str = ""
    history: tuple[Group, ...] = ()
    turn: tuple[Group, ...] = ()
    asked: int | None = None
    """The position in the turn of the message that it is about; None where it has no human
    message."""
    bare: Mapping[int, BaseMessage] = field(default_factory=dict)
    """The messages of the history that stand with a background, without it, by position."""
    backgrounds: Mapping[int, tuple[Fragment, ...]] = field(default_factory=dict)
    """What the backgrounds in front of these hold; it was sent with them."""
    turn_note: str = ""
    """The text in place of its older steps."""
    turn_work: tuple[Fragment, ...] = ()
    layout: Layout = "cache_first"

    def of(self, layer: Layer) -> tuple[Fragment, ...]:
        """Returns the fragments of a layer."""
        return tuple(fragment for fragment in self.fragments if fragment.layer == layer)

    @property
    def sent_again(self) -> tuple[Fragment, ...]:
        """The fragments in the backgrounds of earlier messages."""
        sent = [
            part for group in self.history for part in self.backgrounds.get(group.positions[0], ())
        ]
        return tuple(sorted(sent, key=lambda part: part.layer))

    @property
    def bare_history(self) -> tuple[Group, ...]:
        """The history without the backgrounds of earlier messages."""
        if not self.bare:
            return self.history
        groups: list[Group] = []
        for group in self.history:
            first = self.bare.get(group.positions[0])
            groups.append(
                group if first is None else replace(group, messages=(first, *group.messages[1:]))
            )
        return tuple(groups)

    @property
    def summary(self) -> tuple[Fragment, ...]:
        """The lines that stand for messages before the verbatim ones."""
        return self.of(Layer.HISTORY)

    @property
    def volatile(self) -> tuple[Fragment, ...]:
        """The fragments of the background.

        Topics, entities, layers of the application's own, retrieved items.
        """
        return tuple(fragment for fragment in self.fragments if fragment.layer not in STABLE_LAYERS)


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """The messages, and the number of them in the stable zone."""

    messages: tuple[BaseMessage, ...]
    stable: int


def build(content: Content) -> BuiltPrompt:
    """Makes the messages of a content."""
    background = "".join(background_lines(content.volatile))
    system = system_parts(content)
    in_system = bool(background) and content.layout == "system_first"
    if in_system:
        system += ["\n\n", background] if system else [background]
        background = ""
    messages: list[BaseMessage] = [SystemMessage("".join(system))] if system else []
    if content.summary:
        messages.append(HumanMessage(summary_text(content)))
    note = "" if content.summary else opening_note(content)
    if note and content.history:
        messages.append(HumanMessage(note))
    messages += [message for group in content.history for message in group.messages]
    stable = 0 if in_system else len(messages)
    if note and not content.history:
        messages.append(HumanMessage(note))
    turn = [message for group in content.turn for message in group.messages]
    given = [
        group.positions[0] if len(group.messages) == 1 else -1
        for group in content.turn
        for _ in group.messages
    ]
    first = given.index(content.asked) if content.asked in given else None
    background += content.turn_note
    if background and first is not None:
        turn[first] = with_background(turn[first], background)
    return BuiltPrompt((*messages, *turn), stable)


def request_copy(message: BaseMessage) -> BaseMessage:
    """Returns a copy that UTF-8 can hold, without artifacts and ids for which OpenAI reads a copy of its own."""
    copied = message.model_copy()
    for name, value in (own := vars(copied)).items():
        if value is not None and name != "id":
            own[name] = _copied(value) if name != "artifact" else None
    if str(copied.response_metadata.get("id", "")).startswith("resp_"):
        del copied.response_metadata["id"]
    return copied


def _copied(value: Any) -> Any:  # noqa: ANN401 - whatever a message holds
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_copied(key): _copied(part) for key, part in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else deepcopy(value)


def opening_note(content: Content) -> str:
    """Returns the line that stands first where there is no summary.

    That messages are left out, or none came before.
    """
    first = next(
        (message for group in (*content.history, *content.turn) for message in group.messages), None
    )
    if content.history and content.summary_outro:
        return content.summary_outro
    return NO_FIRST_QUESTION if first is not None and not isinstance(first, HumanMessage) else ""


def asking(turn: Sequence[BaseMessage]) -> int | None:
    """Returns the position of the human message that a turn is about; None where it has none.

    It is the first one, or of several in a row the last: an application may put notes in front of
    the user's words.
    """
    first = next((i for i, message in enumerate(turn) if isinstance(message, HumanMessage)), None)
    while first is not None and first + 1 < len(turn) and isinstance(turn[first + 1], HumanMessage):
        first += 1
    return first


def has_human(turn: Iterable[Group]) -> bool:
    """Tells whether a turn has a human message for the volatile zone to stand in."""
    return any(is_user(message) for group in turn for message in group.messages)


def system_parts(content: Content) -> list[str]:
    """Returns the parts of the system message: the prompt itself, preferences, arc.

    Empty ones left out.
    """
    parts = [content.system_prompt] if content.system_prompt else []
    for name, layer in ((fences.PREFERENCES, Layer.PREFERENCES), (fences.ARC, Layer.ARC)):
        if fragments := content.of(layer):
            gap = "\n\n" if parts else ""
            parts.append(f"{gap}{fences.opening(name)}{''.join(with_headings(fragments))}</{name}>")
    return parts


def summary_text(content: Content) -> str:
    """Returns the text of the message in place of everything before the verbatim messages."""
    lines = "".join((content.summary_intro, *with_headings(content.summary)))
    return f"{fences.opening(fences.SUMMARY)}{lines}{fences.closing(fences.SUMMARY)}{content.summary_outro}"


def layer_tokens(fragments: Sequence[Fragment], counter: TokenCounter) -> tuple[int, int]:
    """Returns the cost of a layer's items, and that of the section and the headings above them."""
    above = [
        fragments[0].section,
        *(heading for heading, _ in groupby(fragment.heading for fragment in fragments)),
    ]
    return sum(fragment.tokens for fragment in fragments), sum(map(counter.count_text, above))


@dataclass(frozen=True, slots=True)
class Measure:
    """The cost of a prompt in tokens, and its parts, which add up to it."""

    total_tokens: int
    """Counted on the finished messages, tool schemas and response format included."""
    costs: tuple[int, ...]
    items_tokens: Counter[str]
    layer_overhead_tokens: Counter[str]
    framing_tokens: int


def group_tokens(group: Group, counter: TokenCounter) -> int:
    """Returns the cost of a group in a prompt."""
    return sum(map(counter.count_message, group.messages))


def measure(
    content: Content, built: BuiltPrompt, counter: TokenCounter, cost: Cost, extras_tokens: int
) -> Measure:
    """Counts a prompt exactly, each message by its `cost`, and the part of each layer."""
    items = Counter[str]()
    overhead = Counter[str]()
    if content.system_prompt:
        items[Layer.IDENTITY] = counter.count_text(content.system_prompt)
    for fragments in by_layer(content.fragments):
        own, above = layer_tokens(fragments, counter)
        items[fragments[0].layer] += own
        overhead[fragments[0].layer] += above
    for fragments in by_layer(content.sent_again):
        items[fragments[0].layer] += sum(part.tokens for part in fragments)
    items[Layer.ARC] += sum(part.tokens for part in content.turn_work)
    items[Layer.HISTORY] += sum(
        cost(message) for group in content.bare_history for message in group.messages
    )
    items[Layer.MESSAGE] = sum(
        cost(message) for group in content.turn for message in group.messages
    )
    costs = tuple(map(cost, built.messages))
    messages_tokens = counter.count_messages([]) + sum(costs)
    framing = messages_tokens - items.total() - overhead.total()
    return Measure(messages_tokens + extras_tokens, costs, items, overhead, framing)


def without_least(
    content: Content, counter: TokenCounter, excess_tokens: int, order: Sequence[str]
) -> tuple[Content, list[Fragment]]:
    """Returns a content that is smaller by about `excess_tokens`, taken from the first layer of an order that has any.

    Of the history, lines of the summary go first, then the oldest verbatim groups. What is taken
    out is returned, too; the content is the same where nothing can give way.
    """
    fragments = content.fragments
    for layer in order:
        out: list[int] = []
        freed = 0
        for i in sorted(
            range(len(fragments)), key=lambda i: (not fragments[i].transient, fragments[i].value)
        ):
            if fragments[i].layer == layer and freed < excess_tokens:
                out.append(i)
                freed += fragments[i].tokens
        if out:
            left = tuple(fragment for i, fragment in enumerate(fragments) if i not in out)
            return replace(content, fragments=left), [fragments[i] for i in out]
        if layer == Layer.HISTORY and content.history:
            count = 0
            while count < len(content.history) and freed < excess_tokens:
                freed += group_tokens(content.history[count], counter)
                count += 1
            return replace(content, history=content.history[count:]), []
    return content, []


# Caches of providers


def common_prefix(
    messages: Sequence[BaseMessage],
    costs: Sequence[int],
    previous: Sequence[BaseMessage],
    counter: TokenCounter,
) -> tuple[int, int]:
    """Returns the tokens, and the number of whole messages, that a prompt and the one before it begin with alike."""
    tokens = same = 0
    for message, cost, before in zip(messages, costs, previous, strict=False):
        if message is not before and fingerprint(message) != fingerprint(before):
            one = message.content
            other = before.content
            if isinstance(one, str) and isinstance(other, str):
                sizes = range(
                    1, min(len(one), len(other)) + 1
                )  # comparing slices is far faster than characters
                tokens += counter.count_text(
                    one[: bisect_left(sizes, 1, key=lambda n: one[:n] != other[:n])]
                )
            break
        tokens += cost
        same += 1
    return tokens, same


def with_cache_markers(
    messages: Sequence[BaseMessage], stable: int, most: int = MOST_MARKERS
) -> list[BaseMessage]:
    """Marks for Anthropic's prompt cache where the prompt, its stable zone and its system message end.

    The given messages are not changed, and what the application has marked itself counts: `most` is
    the provider's limit. A mark goes to the last text of its message; a message that only calls
    tools, thinks or shows something has none, and the one before it is tried.
    """
    marked = list(messages)
    left = most - sum(map(_marks, marked))
    for end in (len(marked), stable, 1):
        position = min(end, len(marked)) - 1
        while position >= 0 and (content := _marked(marked[position])) is None:
            position -= 1
        if position >= 0 and left > 0 and not _marks(marked[position]):
            marked[position] = marked[position].model_copy(update={"content": content})
            left -= 1
    return marked


def _marks(message: BaseMessage) -> int:
    return sum(isinstance(block, dict) and "cache_control" in block for block in message.content)


def _marked(message: BaseMessage) -> list[Any] | None:
    """Returns the content of a message with a mark on its last text that is not empty.

    None if it can have none.
    """
    if isinstance(message, AIMessage) and message.response_metadata.get("output_version") == "v1":
        return None  # out of LangChain's standard content `langchain-anthropic` makes new blocks
    blocks: list[Any] = (
        [message.content] if isinstance(message.content, str) else list(message.content)
    )
    for number in reversed(range(len(blocks))):
        block = (
            {"type": "text", "text": blocks[number]}
            if isinstance(blocks[number], str)
            else blocks[number]
        )
        if block.get("type") == "text" and str(block.get("text") or "").strip():
            blocks[number] = {**block, "cache_control": {"type": "ephemeral"}}
            return blocks
    return None
