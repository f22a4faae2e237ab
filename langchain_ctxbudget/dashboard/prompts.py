"""A prompt as the page shows it: message by message, each in parts.

A part belongs to a layer and an item, and a cache has it or not. Headings and fences belong to a
layer and to no item; what belongs to no layer has none.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from langchain_core.messages import BaseMessage

from langchain_ctxbudget import layers
from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.messages import Group, fingerprint, plain_text
from langchain_ctxbudget.prompt import Content, Plan, Prompt
from langchain_ctxbudget.report import JOINED, ContextReport, ReportItem
from langchain_ctxbudget.tools import full_signature

Shown: TypeAlias = dict[str, Any]
"""A message: its role, name, tokens and parts; a part has `layer`, `item`, `text` and `cached`."""


class Piece(NamedTuple):
    """A text that may stand in a message, and whose it is."""

    layer: str
    item: str
    text: str


class Part(NamedTuple):
    """A range of characters of a message, and whose it is."""

    layer: str | None
    item: str | None
    start: int
    end: int


class Quotation(NamedTuple):
    """The text of an item as far as it is still kept, and the role of the message that said it."""

    text: str
    role: str = ""


class Place(IntEnum):
    """Where an item stands in a prompt, in order."""

    TOOLS = 0
    """The schemas that stand in front of all messages."""
    SYSTEM = 1
    SUMMARY = 2
    AS_SENT = 3
    """In the background of an earlier message; a report does not say of which."""
    HISTORY = 4
    TURN = 5


def exact(prompt: Prompt) -> list[Shown]:
    """Returns the messages of a prompt that was just made, word for word, behind its tools."""
    plan = prompt.plan
    messages = prompt.context.messages
    previous = plan.cached_prompt.messages if plan.cached_prompt else ()
    cached_lengths = _cached_lengths(messages, previous)
    shown: list[Shown] = []
    if plan.tools.bound:
        shown.append(_shown_tools(plan))
    for message, pieces, cached in zip(messages, _pieces(prompt), cached_lengths, strict=True):
        text = plain_text(message)
        shown.append(
            {
                "role": message.type,
                "name": message.name,
                "tokens": plan.counter.count_message(message),
                "parts": list(_shown_parts(text, pieces, cached)),
            }
        )
    return shown


def _shown_tools(plan: Plan) -> Shown:
    """Returns the bound tools, as they stand in front of all messages.

    A cache tells prompts apart by their tools, so it has all of them or none.
    """
    is_cached = plan.cached_prompt is not None
    parts: list[Shown] = []
    for position in plan.tools.bound:
        known = plan.tools.known
        parts.append(
            {
                "layer": Layer.TOOLS,
                "item": known.label_of(position),
                "text": full_signature(known.tools[position]),
                "cached": is_cached,
            }
        )
    tokens = sum(plan.extras.values()) - sum(plan.extras_beside_tools.values())
    return {"role": "tools", "name": None, "tokens": tokens, "parts": parts}


def _cached_lengths(
    messages: Sequence[BaseMessage], previous: Sequence[BaseMessage]
) -> Iterator[int]:
    """Yields how many characters of each message a cache has.

    It has all messages up to the first that differs, and of that one the beginning.
    """
    cached = deque(previous)
    for message in messages:
        if not cached:
            yield 0
            continue
        before = cached.popleft()
        text = plain_text(message)
        if fingerprint(message) == fingerprint(before):
            yield len(text)
        else:
            cached.clear()
            yield _common_characters(text, plain_text(before))


def _common_characters(first: str, second: str) -> int:
    """Returns the length of the common beginning of two texts."""
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position
    return min(len(first), len(second))


def _shown_parts(text: str, pieces: Sequence[Piece], cached: int) -> Iterator[dict[str, Any]]:
    """Yields the parts of a message; a part that a cache has in part is two."""
    for part in _parts(text, pieces):
        border = min(max(part.start, cached), part.end)
        for start, end in pairwise(sorted({part.start, border, part.end})):
            yield {
                "layer": part.layer,
                "item": part.item,
                "text": text[start:end],
                "cached": end <= cached,
            }


def _pieces(prompt: Prompt) -> Iterator[list[Piece]]:
    """Yields what each message holds, in the order in which prompts are built."""
    content = prompt.plan.content
    groups: list[tuple[layers.Place, Group]] = []
    for place in (layers.Place.HISTORY, layers.Place.TURN):
        groups += [(place, group) for group in content.groups_at(place)]
    dialogue = sum(len(group.messages) for _, group in groups)
    for message in prompt.context.messages[: len(prompt.context.messages) - dialogue]:
        if message.type == "system":
            yield _system_pieces(content)
        else:
            yield _fragment_pieces(content.summary)
    for place, group in groups:
        yield from _group_pieces(place, group, content)


def _system_pieces(content: Content) -> list[Piece]:
    """Returns what a system message holds."""
    name = layers.name_at(layers.Place.SYSTEM_PROMPT)
    system_prompt = Piece(name, layers.SYSTEM_PROMPT, content.system_prompt)
    around = (
        part
        for part in content.fragments
        if layers.place_of(part.layer) is not layers.Place.HISTORY
    )
    return [system_prompt, *_fragment_pieces(around)]


def _group_pieces(place: layers.Place, group: Group, content: Content) -> Iterator[list[Piece]]:
    """Yields what each message of a group holds; the first one has the background in front."""
    background: Sequence[Fragment] = ()
    if place is layers.Place.HISTORY:
        background = content.backgrounds.get(group.start, ())
    elif content.question_position in group.positions:
        background = (*content.volatile, *content.turn_work)
    in_front = _fragment_pieces(background)
    name = JOINED.join(message.id or message.type for message in group.messages)
    for message in group.messages:
        yield [*in_front, Piece(layers.name_at(place), name, plain_text(message))]
        in_front = []


def _fragment_pieces(fragments: Iterable[Fragment]) -> list[Piece]:
    return [Piece(part.layer, part.id, part.text.strip("\n")) for part in fragments]


def _parts(text: str, pieces: Sequence[Piece]) -> Iterator[Part]:
    """Yields the parts of a text; what stands between two items frames the second."""
    reached = 0
    for piece in pieces:
        start = text.find(piece.text, reached) if piece.text else -1
        if start < 0:
            continue
        if start > reached:
            yield Part(piece.layer, None, reached, start)
        reached = start + len(piece.text)
        yield Part(piece.layer, piece.item, start, reached)
    if reached < len(text) or not pieces:
        yield Part(None, None, reached, len(text))


def outlined(report: ContextReport, quoted: Callable[[str, ReportItem], Quotation]) -> list[Shown]:
    """Returns the messages of a prompt of which only the report is left.

    It is not known what a cache had of them.

    Args:
        report: of the prompt.
        quoted: returns the text of a layer's item.
    """
    items: list[tuple[Place, str, ReportItem]] = []
    for layer_report in report.layers:
        name = layer_report.layer
        sent = [item for item in layer_report.items if item.status is not Status.OMITTED]
        items += [(_place_of(name, item), name, item) for item in sent]
    items.sort(key=lambda entry: (entry[0], layers.place_of(entry[1]) is layers.Place.TURN))
    shown: list[Shown] = []
    last_place = None
    for place, layer, item in items:
        quotation = quoted(layer, item)
        if place != last_place or place is Place.HISTORY:
            role = _role_of(place, quotation)
            shown.append({"role": role, "name": None, "tokens": 0, "parts": []})
            last_place = place
        text = item.id if place is Place.TOOLS else quotation.text
        message = shown[-1]
        message["tokens"] += item.tokens
        message["parts"].append({"layer": layer, "item": item.id, "text": text, "cached": None})
    return shown


def _role_of(place: Place, quotation: Quotation) -> str:
    if place is Place.HISTORY:
        return quotation.role
    if place is Place.TOOLS:
        return "tools"
    if place is Place.SYSTEM:
        return "system"
    return "human"


def _place_of(layer: str, item: ReportItem) -> Place:
    if item.reason is Reason.AS_SENT:
        return Place.AS_SENT
    if layer == Layer.TOOLS and item.reason is not Reason.NAMES_TOOLS:
        return Place.TOOLS
    place = layers.place_of(layer)
    if place is layers.Place.HISTORY:
        return Place.SUMMARY if item.reason is Reason.SUMMARY else Place.HISTORY
    if place in (layers.Place.SYSTEM_PROMPT, layers.Place.STABLE):
        return Place.SYSTEM
    return Place.TURN
