"""What gives way when a prompt is still over its budget: a ladder of steps, gentle ones first, taken as far as needed.

The order and the numbers are seed 004's `compress_at_level` (light, medium, heavy, extreme), then seed 001's two stages
(`stageOneTrimHistory`, `stageTwoReduceMemory`):

| step | in the seed | here |
|---|---|---|
| light | simpler formatting, no duplicate chunks | blanks in the dialogue collapse, what is said twice goes |
| medium | older turns summarised, 3 chunks | newer half of the history, a sentence per entity, 3 items |
| heavy | last turn verbatim, 3 entities, 2 chunks | last exchange, 3 entities, 2 items, half of the summary |
| extreme | the essential, 1 entity, 1 chunk | its results clipped, 1 summary line, 1/4 of the arc, 1 entity, 1 item |
| middle-out | first 2 and last 6 messages | the same of what is left: the calls of a long last exchange |
| memory reduction | identity facts go, preferences halved | the same; of what settings say, the first half |
| memories left out | | none of it |

Seed 004 summarises while it compresses. Here nothing is written in the hot path: older messages leave the prompt, and
the summary, the arc and the recall tool stand for them. System prompt and current turn are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.assembly import Content, Fragment, group_tokens, has_human, parted
from langchain_ctxbudget.core.blanks import collapsed
from langchain_ctxbudget.core.clipping import clip_message
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.messages import plain_text, speaker
from langchain_ctxbudget.core.packing import ELLIPSIS
from langchain_ctxbudget.core.text import fold, one_line, sentences
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.core.turns import Group, newest_that_fit, provider_name

MEMORIES_HEADING = "## What you know about this user\n"
"""The line above the facts about the user, by which they can be told from preferences."""
MEDIUM_ITEMS, HEAVY_ITEMS, EXTREME_ITEMS = 3, 2, 1
"""Retrieved items that stay (seed 004)."""
HEAVY_ENTITIES, EXTREME_ENTITIES = 3, 1
"""Entities that stay (seed 004)."""
FIRST_MESSAGES, LAST_MESSAGES = 2, 6
"""Messages that middle-out trimming keeps at both ends (seed 001)."""
CLIPPED_RESULT_TOKENS = 64
"""What a result in the history keeps at the extreme level, framing included."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What a step made of a content."""

    content: Content
    gone: tuple[Fragment, ...] = ()
    """The fragments that were taken out; verbatim messages are missed in the content's history."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the ladder.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import EstimatingCounter
        >>> history = tuple(Group((HumanMessage(f"Question {i}"),), (i,)) for i in range(9))
        >>> middle_out = next(step for step in LADDER if step.name == "middle-out")
        >>> left = middle_out.apply(Content(history=history), EstimatingCounter()).content.history
        >>> [group.positions[0] for group in left]
        [0, 1, 3, 4, 5, 6, 7, 8]
    """

    name: str
    """As it stands in the report."""
    apply: Callable[[Content, TokenCounter], Reduced]
    """Makes a content smaller, or leaves it as it is."""


class LastResort(NamedTuple):
    """What the ladder made of a content."""

    content: Content
    steps: tuple[str, ...]
    """The steps that changed something, in order."""
    gone: tuple[Fragment, ...]
    """The fragments that were taken out."""


def reduce(content: Content, counter: TokenCounter, over: Callable[[Content], int]) -> LastResort:
    """Take one step after the other until a content fits, or no step is left: the smaller content, and what was done.

    Args:
        content: everything that was chosen for a prompt.
        counter: how tokens are counted.
        over: by how many tokens a prompt of a content is over its limit; asked before a step, at most once per step.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import EstimatingCounter
        >>> history = tuple(Group((HumanMessage(f"Question {i}"),), (i,)) for i in range(4))
        >>> over = lambda content: len(content.history) - 2
        >>> reduce(Content(history=history), EstimatingCounter(), over).steps
        ('medium',)
    """
    taken: list[str] = []
    gone: list[Fragment] = []
    changed = True
    for step in LADDER:
        if changed and over(content) <= 0:
            break
        reduced = step.apply(content, counter)
        changed = reduced.content != content
        if changed:
            content = reduced.content
            taken.append(step.name)
            gone += reduced.gone
    return LastResort(content, tuple(taken), tuple(gone))


Change = Callable[[Content, TokenCounter], Reduced]


def _in_turn(*changes: Change) -> Change:
    def apply(content: Content, counter: TokenCounter) -> Reduced:
        gone: list[Fragment] = []
        for change in changes:
            reduced = change(content, counter)
            content = reduced.content
            gone += reduced.gone
        return Reduced(content, tuple(gone))

    return apply


# Fragments: the most valuable stay


def _keeping(field: str, belongs: Callable[[Fragment], bool], number: Callable[[int], int]) -> Change:
    """Keep the most valuable fragments of a field.

    Args:
        field: of the content.
        belongs: which of its fragments are meant; the others stay.
        number: how many stay of so many.
    """

    def apply(content: Content, _counter: TokenCounter) -> Reduced:
        fragments: tuple[Fragment, ...] = getattr(content, field)
        those = [i for i, fragment in enumerate(fragments) if belongs(fragment)]
        least = sorted(those, key=lambda i: fragments[i].value)[: max(0, len(those) - number(len(those)))]
        return _without(content, field, least)

    return apply


def _without(content: Content, field: str, out: Sequence[int]) -> Reduced:
    if not out:
        return Reduced(content)
    left, gone = parted(getattr(content, field), out)
    changes: dict[str, Any] = {field: left}
    return Reduced(replace(content, **changes), tuple(gone))


def _without_bare_frames(content: Content, _counter: TokenCounter) -> Reduced:
    """A summary without the lines that are wrong or stand for nothing once items are taken out.

    Those are the marks of gaps (`[… 3 messages left out …]`) and titles (`# Messages 1-20`) with no item below them.
    """
    bare: list[int] = []
    empty = True  # whether there is no item between here and the next title
    for i, fragment in reversed(list(enumerate(content.summary))):
        if _is_item(fragment):
            empty = False
        elif not fragment.text.startswith("#"):
            bare.append(i)
        else:
            if empty:
                bare.append(i)
            empty = True
    return _without(content, "summary", sorted(bare))


def _is_item(fragment: Fragment) -> bool:
    return fragment.text.startswith("- ")


def _is_retrieved(fragment: Fragment) -> bool:
    return fragment.layer == Layer.RETRIEVAL


def _is_entity(fragment: Fragment) -> bool:
    return fragment.layer == Layer.ENTITIES


def _is_memory(fragment: Fragment) -> bool:
    return _is_given(fragment) or fragment.id.startswith("fact/")


def _is_given(fragment: Fragment) -> bool:
    return fragment.id.startswith("memory ")


def _is_expendable(fragment: Fragment) -> bool:
    return fragment.expendable


def _at_most(number: int) -> Callable[[int], int]:
    return lambda _: number


def _share(divisor: int) -> Callable[[int], int]:
    """A share of them, rounded up."""
    return lambda number: -(-number // divisor)


# Light

_DATE_ABOVE = re.compile(r"\A\[[0-9]{4}-[0-9]{2}-[0-9]{2}[^\n]*\]\n")


def _simplified(content: Content, counter: TokenCounter) -> Reduced:
    """The dialogue with its blanks collapsed; results of tools are data, in which they may mean something."""

    def simpler(message: BaseMessage) -> BaseMessage:
        if isinstance(message, ToolMessage):
            return message
        said = message.content
        said = _simple_block(said) if isinstance(said, str) else [_simple_block(block) for block in said]
        if said == message.content:
            return message
        changed = message.model_copy(update={"content": said})
        return changed if counter.count_message(changed) < counter.count_message(message) else message

    return Reduced(replace(content, history=_each_message(content.history, simpler)))


def _simple_block(block: Any) -> Any:  # noqa: ANN401 - a block is anything
    """A plain text block collapsed; one with annotations or an id says more than its text and stays."""
    if isinstance(block, str):
        return collapsed(block)
    if block.get("type") == "text" and block.keys() == {"type", "text"} and isinstance(block["text"], str):
        return {"type": "text", "text": collapsed(block["text"])}
    return block


def _each_message(groups: Sequence[Group], change: Callable[[BaseMessage], BaseMessage]) -> tuple[Group, ...]:
    """Groups with their messages changed; those in which nothing changes stay the same objects."""
    result: list[Group] = []
    for group in groups:
        messages = tuple(map(change, group.messages))
        same = all(new is old for new, old in zip(messages, group.messages, strict=True))
        result.append(group if same else replace(group, messages=messages))
    return tuple(result)


def _without_repetitions(content: Content, _counter: TokenCounter) -> Reduced:
    """Of items that say the same, one stays; of retrieved ones that a verbatim message of the history says, none.

    It is the one that is not retrieved, else the most valuable.
    """
    fragments = content.volatile
    spoken = {said for group in content.history for message in group.messages for said in _sayings(message)}
    seen: set[str] = set()
    out: list[int] = []
    for i in sorted(range(len(fragments)), key=lambda i: (_is_retrieved(fragments[i]), -fragments[i].value)):
        said = one_line(fold(fragments[i].text))
        if said in seen or (_is_retrieved(fragments[i]) and _spoken(fragments[i].text) in spoken):
            out.append(i)
        seen.add(said)
    return _without(content, "volatile", sorted(out))


def _spoken(line: str) -> tuple[str, str]:
    """Who says what in the line of an item, in a form that can be compared."""
    who, _, said = line.removeprefix("- ").partition(": ")
    return provider_name(who) or who, one_line(fold(said))


def _sayings(message: BaseMessage) -> set[tuple[str, str]]:
    """Who says what in a message, with the date that may stand above it and without."""
    text = fences.as_data(plain_text(message))
    who = speaker(message)
    return {(provider_name(who) or who, one_line(fold(said))) for said in (text, _DATE_ABOVE.sub("", text))}


# History


def _newer_half(content: Content, counter: TokenCounter) -> Reduced:
    """The newest exchanges that cost half of the history together, the last one in any case."""
    costs = [group_tokens(group, counter) for group in content.history]
    newest = len(costs) - newest_that_fit(costs, sum(costs) // 2)
    first = next((i for i in _questions(content.history) if i >= newest), _last_question(content.history))
    return Reduced(replace(content, history=content.history[first:]))


def _last_exchange(content: Content, _counter: TokenCounter) -> Reduced:
    """The history from its last human message on; one without any stays."""
    return Reduced(replace(content, history=content.history[_last_question(content.history) :]))


def _questions(groups: Sequence[Group]) -> list[int]:
    """Where a human speaks: cut there, a history begins as providers want it."""
    return [i for i, group in enumerate(groups) if has_human([group])]


def _last_question(groups: Sequence[Group]) -> int:
    return max(_questions(groups), default=0)


def _clipped_results(content: Content, counter: TokenCounter) -> Reduced:
    def clipped(message: BaseMessage) -> BaseMessage:
        if not isinstance(message, ToolMessage):
            return message
        shorter = clip_message(
            message, counter.count_message, counter.count_text, CLIPPED_RESULT_TOKENS, reference=message.id
        )
        return shorter or message

    return Reduced(replace(content, history=_each_message(content.history, clipped)))


def _middle_out(content: Content, _counter: TokenCounter) -> Reduced:
    """The groups that have one of the first 2 or of the last 6 messages."""
    ends = list(accumulate(len(group.messages) for group in content.history))
    total = ends[-1] if ends else 0
    kept = tuple(
        group
        for group, end in zip(content.history, ends, strict=True)
        if end - len(group.messages) < FIRST_MESSAGES or end > total - LAST_MESSAGES
    )
    return Reduced(replace(content, history=kept))


def _brief_entities(content: Content, counter: TokenCounter) -> Reduced:
    """The first sentence of what is known about each entity."""
    return Reduced(replace(content, volatile=tuple(_brief(f, counter) for f in content.volatile)))


def _brief(fragment: Fragment, counter: TokenCounter) -> Fragment:
    name, colon, known = fragment.text.removesuffix("\n").partition(": ")
    parts = sentences(known)
    if not _is_entity(fragment) or len(parts) < 2:  # noqa: PLR2004 - one sentence is brief
        return fragment
    text = f"{name}{colon}{parts[0]}{ELLIPSIS}\n"
    tokens = counter.count_text(text)
    if tokens >= fragment.tokens:
        return fragment
    return replace(fragment, text=text, tokens=tokens, status=Status.SHRUNK, reason=Reason.COMPRESSED)


LADDER: tuple[Step, ...] = (
    Step("light", _in_turn(_simplified, _without_repetitions)),
    Step(
        "medium",
        _in_turn(_newer_half, _brief_entities, _keeping("volatile", _is_retrieved, _at_most(MEDIUM_ITEMS))),
    ),
    Step(
        "heavy",
        _in_turn(
            _last_exchange,
            _keeping("volatile", _is_entity, _at_most(HEAVY_ENTITIES)),
            _keeping("volatile", _is_retrieved, _at_most(HEAVY_ITEMS)),
            _keeping("summary", _is_item, _share(2)),
            _without_bare_frames,
        ),
    ),
    Step(
        "extreme",
        _in_turn(
            _last_exchange,
            _clipped_results,
            _keeping("summary", _is_item, _at_most(1)),
            _without_bare_frames,
            _keeping("arc", _is_item, _share(4)),
            _keeping("volatile", _is_entity, _at_most(EXTREME_ENTITIES)),
            _keeping("volatile", _is_retrieved, _at_most(EXTREME_ITEMS)),
        ),
    ),
    Step("middle-out", _middle_out),
    Step(
        "memory reduction",
        _in_turn(_keeping("preferences", _is_expendable, _at_most(0)), _keeping("preferences", _is_given, _share(2))),
    ),
    Step("memories left out", _keeping("preferences", _is_memory, _at_most(0))),
)
"""The steps, in the order in which they are taken."""
