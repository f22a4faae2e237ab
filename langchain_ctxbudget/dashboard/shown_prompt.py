"""A prompt as the page shows it: message by message, and each in parts that a layer, an item and a cache own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.messages import fingerprint, plain_text
from langchain_ctxbudget.prompt import Prompt
from langchain_ctxbudget.report import JOINED, ContextReport, LayerReport, ReportItem

Shown: TypeAlias = dict[str, Any]
"""A message: its role, name, tokens and parts; a part has `layer`, `item`, `text`, and whether a cache has it.

Headings and fences are no item; what belongs to no layer has none.
"""
IN_SYSTEM = (Layer.IDENTITY, Layer.PREFERENCES, Layer.ARC)
SYSTEM_PROMPT = "system prompt"
SYSTEM, SUMMARY, SENT, SAID, TURN = range(5)
"""Kinds of messages, in the order of a prompt."""


class Piece(NamedTuple):
    """A text that may stand in a message, and where it comes from."""

    layer: str
    item: str
    text: str


def exact(prompt: Prompt) -> list[Shown]:
    """Returns the messages of a prompt that was just made, word for word."""
    plan, last = prompt.plan, prompt.plan.conversation.last
    before, shown = deque(() if plan.cold or last is None else last.messages), list[Shown]()
    for message, pieces in zip(prompt.context.messages, _pieces(prompt), strict=True):
        text, cached = plain_text(message), 0
        if before:
            former = before.popleft()
            same = fingerprint(message) == fingerprint(former)
            cached = len(text) if same else _alike(text, plain_text(former))
            if not same:
                before.clear()
        parts = list[Shown]()
        for layer, item, first, end in _found(text, pieces):
            for start, stop in pairwise(sorted({first, min(max(first, cached), end), end})):
                parts.append({"layer": layer, "item": item, "text": text[start:stop], "cached": stop <= cached})
        tokens = plan.counter.count_message(message)
        shown.append({"role": message.type, "name": message.name, "tokens": tokens, "parts": parts})
    return shown


def _alike(one: str, other: str) -> int:
    """Returns the number of characters that two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _pieces(prompt: Prompt) -> Iterator[list[Piece]]:
    """Yields what each message holds, in the order in which prompts are built."""
    content = prompt.plan.content
    said = [(Layer.HISTORY, group) for group in content.bare_history] + [
        (Layer.MESSAGE, group) for group in content.turn
    ]
    front = len(prompt.context.messages) - sum(len(group.messages) for _, group in said)
    for message in prompt.context.messages[:front]:
        if message.type == "system":
            system_prompt = Piece(Layer.IDENTITY, SYSTEM_PROMPT, content.system_prompt)
            yield [system_prompt, *_of(part for part in content.fragments if part.layer != Layer.HISTORY)]
        else:
            yield _of(content.summary)
    for layer, group in said:
        block = content.blocks.get(group.positions[0], ()) if layer == Layer.HISTORY else ()
        if layer == Layer.MESSAGE and content.asked in group.positions:
            block = (*content.volatile, *content.turn_work)
        name = JOINED.join(message.id or message.type for message in group.messages)
        for place, message in enumerate(group.messages):
            yield [*_of(() if place else block), Piece(layer, name, plain_text(message))]


def _of(fragments: Iterable[Fragment]) -> list[Piece]:
    return [Piece(part.layer, part.id, part.text.strip("\n")) for part in fragments]


def _found(text: str, pieces: Sequence[Piece]) -> Iterator[tuple[str | None, str | None, int, int]]:
    """Yields layer, item, start and end of everything in a text; what stands between two items frames the second."""
    at = 0
    for piece in pieces:
        start = text.find(piece.text, at) if piece.text else -1
        if start >= 0:
            if start > at:
                yield piece.layer, None, at, start
            at = start + len(piece.text)
            yield piece.layer, piece.item, start, at
    if at < len(text) or not pieces:
        yield None, None, at, len(text)


def outlined(
    report: ContextReport, text_of: Callable[[LayerReport, ReportItem], str], role_of: Callable[[ReportItem], str]
) -> list[Shown]:
    """Returns the messages of a prompt that only its report tells of, with the texts that are still kept."""
    found: dict[tuple[int, int], list[tuple[LayerReport, ReportItem]]] = {}
    for layer in sorted(report.layers, key=lambda layer: layer.layer == Layer.MESSAGE):  # the message comes last
        for item in layer.items:
            place = TURN
            if item.status is Status.OMITTED:
                continue
            if item.reason is Reason.AS_SENT:  # in front of one of the messages, it is not known of which
                place = SENT
            elif layer.layer in IN_SYSTEM:
                place = SYSTEM
            elif layer.layer == Layer.HISTORY:
                place = SUMMARY if item.reason is Reason.SUMMARY else SAID
            found.setdefault((place, len(found) if place == SAID else 0), []).append((layer, item))
    messages = [(place, found[place, number]) for place, number in sorted(found)]
    left = float(report.stability.shared_tokens or 0)
    if report.total_tokens - report.stability.effective_tokens <= left / 2:  # the cache was cold
        left = 0
    items_tokens = sum(item.tokens for _, message in messages for _, item in message)
    framing = report.total_tokens / max(1, items_tokens)  # headings and fences, as a factor
    shown = list[Shown]()
    for place, message in messages:
        tokens = sum(item.tokens for _, item in message)
        left -= tokens * framing
        cached = left >= 0 and place != TURN
        parts = [
            {"layer": layer.layer, "item": item.id, "text": text_of(layer, item), "cached": cached}
            for layer, item in message
        ]
        role = role_of(message[0][1]) if place == SAID else "system" if place == SYSTEM else "human"
        shown.append({"role": role, "name": None, "tokens": tokens, "parts": parts})
    return shown
