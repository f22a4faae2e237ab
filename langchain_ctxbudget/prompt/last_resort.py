"""The last resort for a prompt over its budget: a table of steps, gentle ones first, taken as far as needed.

Order and numbers are those of seed 004's `compress_at_level` (light, medium, heavy, extreme), then of seed 001's two
stages (`stageOneTrimHistory`, `stageTwoReduceMemory`). Nothing is summarised here: older messages leave the prompt, and
the summary, the arc and the recall tool stand for them. System prompt and current turn are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.budget.layers import Fragment, Layer
from langchain_ctxbudget.messages.clipping import clip_message
from langchain_ctxbudget.messages.text import fold, one_line
from langchain_ctxbudget.messages.turns import Group, newest_that_fit
from langchain_ctxbudget.prompt.assembly import Content, group_tokens, has_human
from langchain_ctxbudget.tokens.counters import TokenCounter

FIRST_MESSAGES, LAST_MESSAGES = 2, 6
"""Messages that middle-out trimming keeps at both ends (seed 001)."""
CLIPPED_RESULT_TOKENS = 64
"""The most that a result in the history costs at the extreme level, framing included."""

Groups = tuple[Group, ...]
Fragments = tuple[Fragment, ...]

_CODE = re.compile(r"(?P<fence>`{3,}).*?(?:(?P=fence)|\Z)", re.DOTALL)
_BLANKS = ((re.compile(r"(?<![^\S\n])[^\S\n]++(?=\n)"), ""), (re.compile(r"\n{3,}"), "\n\n"))
_INNER_BLANKS = re.compile(r"(?<=\S)[^\S\n]{2,}")


# History


def _simpler(history: Groups, counter: TokenCounter) -> Groups:
    """Collapses blanks in the dialogue; in results of tools and in code they may mean something."""

    def simpler(message: BaseMessage) -> BaseMessage:
        if isinstance(message, ToolMessage) or not isinstance(message.content, str):
            return message
        changed = message.model_copy(update={"content": collapsed(message.content)})
        return changed if counter.count_message(changed) < counter.count_message(message) else message

    return _each(history, simpler)


def _newer_half(history: Groups, counter: TokenCounter) -> Groups:
    """Keeps the newest exchanges that cost half of the history together, the last one in any case."""
    costs = [group_tokens(group, counter) for group in history]
    newest = len(costs) - newest_that_fit(costs, sum(costs) // 2)
    return history[next((i for i in _questions(history) if i >= newest), _questions(history)[-1]) :]


def _last_exchange(history: Groups, _counter: TokenCounter) -> Groups:
    """Keeps the history from its last human message on; one without any stays."""
    return history[_questions(history)[-1] :]


def _last_exchange_clipped(history: Groups, counter: TokenCounter) -> Groups:
    """Keeps the last exchange, and clips its results."""

    def clipped(message: BaseMessage) -> BaseMessage:
        if not isinstance(message, ToolMessage):
            return message
        count = counter.count_message
        return clip_message(message, count, counter.count_text, CLIPPED_RESULT_TOKENS, reference=message.id) or message

    return _each(_last_exchange(history, counter), clipped)


def _middle_out(history: Groups, _counter: TokenCounter) -> Groups:
    """Keeps the groups that have one of the first 2 or of the last 6 messages."""
    ends = list(accumulate(len(group.messages) for group in history))
    return tuple(
        group
        for group, end in zip(history, ends, strict=True)
        if end - len(group.messages) < FIRST_MESSAGES or end > ends[-1] - LAST_MESSAGES
    )


def _questions(history: Groups) -> list[int]:
    """Returns where a human speaks: cut there, a history begins as providers want it."""
    return [i for i, group in enumerate(history) if has_human([group])] or [0]


def _each(groups: Groups, change: Callable[[BaseMessage], BaseMessage]) -> Groups:
    changed = (replace(group, messages=tuple(map(change, group.messages))) for group in groups)
    return tuple(group if new == group else new for group, new in zip(groups, changed, strict=True))


def collapsed(text: str) -> str:
    """Takes away blanks at the ends of lines, runs of them within lines, and runs of blank lines; not in code."""
    parts, end = [], 0
    for code in [*_CODE.finditer(text), None]:
        plain = text[end : code.start() if code else len(text)]
        for pattern, instead in (*_BLANKS, (_INNER_BLANKS, " ")):
            plain = pattern.sub(instead, plain)
        parts += [plain, code.group() if code else ""]
        end = code.end() if code else end
    return "".join(parts)


# Fragments


def _is_item(fragment: Fragment) -> bool:
    return fragment.text.startswith("- ")


def _is_retrieved(fragment: Fragment) -> bool:
    return fragment.layer == Layer.RETRIEVAL


def _is_entity(fragment: Fragment) -> bool:
    return fragment.layer == Layer.ENTITIES


def _is_given(fragment: Fragment) -> bool:
    return fragment.id.startswith("memory ")


def _is_memory(fragment: Fragment) -> bool:
    return _is_given(fragment) or fragment.id.startswith("fact/")


def _most_valuable(fragments: Fragments, belongs: Callable[[Fragment], bool], most: int, divisor: int = 0) -> Fragments:
    """Keeps the most valuable of those that belong, at most so many or such a share; the others stay."""
    those = [i for i, fragment in enumerate(fragments) if belongs(fragment)]
    number = -(-len(those) // divisor) if divisor else most
    out = set(sorted(those, key=lambda i: fragments[i].value)[: max(0, len(those) - number)])
    return tuple(fragment for i, fragment in enumerate(fragments) if i not in out)


def _distinct(fragments: Fragments) -> Fragments:
    """Keeps one of items that say the same: the one that is not retrieved, else the most valuable."""
    kept: dict[str, int] = {}
    for i in sorted(range(len(fragments)), key=lambda i: (_is_retrieved(fragments[i]), -fragments[i].value)):
        kept.setdefault(one_line(fold(fragments[i].text)), i)
    return tuple(fragments[i] for i in sorted(kept.values()))


def _without_bare_frames(summary: Fragments) -> Fragments:
    """Takes out marks of gaps, and titles (`# Messages 1-20`) with no item below them."""
    kept: list[Fragment] = []
    has_item = False
    for fragment in reversed(summary):
        is_title = fragment.text.startswith("#")
        if _is_item(fragment) or (is_title and has_item):
            kept.append(fragment)
        has_item = _is_item(fragment) or (has_item and not is_title)
    return tuple(reversed(kept))


# Steps


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the last resort: which history, and how many fragments of a kind stay."""

    name: str
    """As it stands in the report."""
    history: Callable[[Groups, TokenCounter], Groups] = lambda history, _: history
    kept: tuple[tuple[str, Callable[[Fragment], bool], int, int], ...] = ()
    """Fields, which of their fragments, how many of them stay, or the divisor of a share that stays."""


LADDER = (
    Step("light", _simpler),
    Step("medium", _newer_half, (("volatile", _is_retrieved, 3, 0),)),
    Step(
        "heavy",
        _last_exchange,
        (("volatile", _is_entity, 3, 0), ("volatile", _is_retrieved, 2, 0), ("summary", _is_item, 0, 2)),
    ),
    Step(
        "extreme",
        _last_exchange_clipped,
        (
            *(("volatile", _is_entity, 1, 0), ("volatile", _is_retrieved, 1, 0)),
            *(("summary", _is_item, 1, 0), ("arc", _is_item, 0, 4)),
        ),
    ),
    Step("middle-out", _middle_out),
    Step(
        "memory reduction",
        kept=(("preferences", lambda fragment: fragment.expendable, 0, 0), ("preferences", _is_given, 0, 2)),
    ),
    Step("memories left out", kept=(("preferences", _is_memory, 0, 0),)),
)
"""The steps, in the order in which they are taken."""


def reduce(
    content: Content, counter: TokenCounter, over: Callable[[Content], int]
) -> tuple[Content, tuple[str, ...], tuple[Fragment, ...]]:
    """Takes one step after the other until a content fits, or no step is left.

    Args:
        content: everything that was chosen for a prompt.
        counter: how tokens are counted.
        over: by how many tokens a prompt of a content is over its limit.

    Returns:
        the smaller content, the steps that changed something, and the fragments that were taken out.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import EstimatingCounter
        >>> history = tuple(Group((HumanMessage(f"Question {i}"),), (i,)) for i in range(4))
        >>> over = lambda content: len(content.history) - 2
        >>> reduce(Content(history=history), EstimatingCounter(), over)[1]
        ('medium',)
    """
    taken: list[str] = []
    gone: list[Fragment] = []
    for step in LADDER:
        if over(content) <= 0:
            break
        smaller = _smaller(content, step, counter)
        if smaller != content:
            taken.append(step.name)
            for field in ("preferences", "arc", "summary", "volatile"):
                stays = {id(fragment) for fragment in getattr(smaller, field)}
                gone += [fragment for fragment in getattr(content, field) if id(fragment) not in stays]
            content = smaller
    return content, tuple(taken), tuple(gone)


def _smaller(content: Content, step: Step, counter: TokenCounter) -> Content:
    changes: dict[str, Any] = {"history": step.history(content.history, counter)}
    for field, belongs, most, divisor in step.kept:
        fragments = changes.get(field, getattr(content, field))
        changes[field] = _most_valuable(fragments, belongs, most, divisor)
    if changes.get("summary", content.summary) != content.summary:
        changes["summary"] = _without_bare_frames(changes["summary"])
    if step.name == "light":
        changes["volatile"] = _distinct(content.volatile)
    return replace(content, **changes)
