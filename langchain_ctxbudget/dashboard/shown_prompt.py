"""A prompt as the page shows it: message by message, and each in parts that a layer, an item and a cache own."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.messages import fingerprint, plain_text
from langchain_ctxbudget.prompt import Prompt
from langchain_ctxbudget.report import JOINED, ContextReport, ReportItem

Shown: TypeAlias = dict[str, Any]
"""A message: its role, name, tokens and parts; a part has `layer`, `item`, `text`, and whether a cache has it.

Headings and fences are no item; what belongs to no layer has none.
"""
IN_SYSTEM = (Layer.IDENTITY, Layer.PREFERENCES, Layer.ARC)
SYSTEM_PROMPT = "system prompt"
SYSTEM, SUMMARY, SENT, SAID, TURN = range(5)
"""Kinds of messages, in the order of a prompt."""
Piece: TypeAlias = tuple[str, str, str]
"""A text that may stand in a message: its layer, its item, the text."""


def exact(prompt: Prompt) -> list[Shown]:
    """Returns the messages of a prompt that was just made, word for word."""
    plan = prompt.plan
    last = plan.conversation.last
    before = deque(() if plan.cold or last is None else last.messages)
    shown: list[Shown] = []
    for message, pieces in zip(prompt.context.messages, _pieces(prompt), strict=True):
        text = plain_text(message)
        cached = 0
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
    said = [(Layer.HISTORY, group) for group in content.bare_history]
    said += [(Layer.MESSAGE, group) for group in content.turn]
    front = len(prompt.context.messages) - sum(len(group.messages) for _, group in said)
    for message in prompt.context.messages[:front]:
        if message.type == "system":
            system_prompt = (Layer.IDENTITY, SYSTEM_PROMPT, content.system_prompt)
            yield [system_prompt, *_of(part for part in content.fragments if part.layer != Layer.HISTORY)]
        else:
            yield _of(content.summary)
    for layer, group in said:
        block = content.blocks.get(group.positions[0], ()) if layer == Layer.HISTORY else ()
        if layer == Layer.MESSAGE and content.asked in group.positions:
            block = (*content.volatile, *content.turn_work)
        name = JOINED.join(message.id or message.type for message in group.messages)
        for place, message in enumerate(group.messages):
            yield [*_of(() if place else block), (layer, name, plain_text(message))]


def _of(fragments: Iterable[Fragment]) -> list[Piece]:
    return [(part.layer, part.id, part.text.strip("\n")) for part in fragments]


def _found(text: str, pieces: Sequence[Piece]) -> Iterator[tuple[str | None, str | None, int, int]]:
    """Yields layer, item, start and end of everything in a text; what stands between two items frames the second."""
    at = 0
    for layer, item, said in pieces:
        start = text.find(said, at) if said else -1
        if start >= 0:
            if start > at:
                yield layer, None, at, start
            at = start + len(said)
            yield layer, item, start, at
    if at < len(text) or not pieces:
        yield None, None, at, len(text)


def outlined(report: ContextReport, quoted: Callable[[str, ReportItem], tuple[str, str]]) -> list[Shown]:
    """Returns the messages of a prompt that only its report tells of; what a cache held of them is not known.

    `quoted` gives the text of a layer's item as far as it is still kept, and the role of the message that said it.
    """
    items = [(layer.layer, it) for layer in report.layers for it in layer.items if it.status is not Status.OMITTED]
    shown: list[Shown] = []
    last = None
    for layer, item in sorted(items, key=lambda one: (_place(*one), one[0] == Layer.MESSAGE)):
        place = _place(layer, item)
        text, role = quoted(layer, item)
        if place != last or place == SAID:
            said_by = role if place == SAID else "system" if place == SYSTEM else "human"
            shown.append({"role": said_by, "name": None, "tokens": 0, "parts": []})
            last = place
        shown[-1]["tokens"] += item.tokens
        shown[-1]["parts"].append({"layer": layer, "item": item.id, "text": text, "cached": None})
    return shown


def _place(layer: str, item: ReportItem) -> int:
    if item.reason is Reason.AS_SENT:  # in front of one of the messages, it is not known of which
        return SENT
    if layer == Layer.HISTORY:
        return SUMMARY if item.reason is Reason.SUMMARY else SAID
    return SYSTEM if layer in IN_SYSTEM else TURN
