"""Clipping a text or a message that is too large: what says most stays, a marker says how much is left out.

What stays follows from the kind of the text (`outline.py`); of one whose lines are too long for its room, head and tail
get half of the characters each, cut at white space where some is near. Only what was counted as a whole, marker
included, is returned, so the bound holds for any counter.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_ctxbudget.messages.calls import Block, blocks_of, text_of
from langchain_ctxbudget.messages.outline import outlined

MIN_TEXT_TOKENS = 16
"""Less text than this around a marker says nothing."""

Count = Callable[[str], int]
"""Returns the tokens of a text."""

_TRIES = 4
_AIM, _ENOUGH = 0.98, 0.92
"""Shares of the budget that a size aims at, and from which no better size is looked for."""
_CHARACTERS_PER_TOKEN = 6
"""No first try takes more, so that a text with a sparse middle is not tokenized at length; English has 4 to 5."""
_BYTES_PER_CHARACTER = 4
"""The most that UTF-8 has; no byte-level tokenizer makes more tokens than bytes."""
_LONGEST_REFERENCE = 100
"""Characters; ids of LangChain and of providers have 36 to 70."""


def clip_text(
    text: str,
    count: Count,
    budget_tokens: int,
    *,
    reference: str | None = None,
    focus: frozenset[str] = frozenset(),
    worth: tuple[float, ...] = (),
) -> str | None:
    """Returns what says most of a text, and a marker that says how many tokens are left out, within a budget.

    The number may be a few tokens off, as what stays is tokenized next to the marker. The marker names the
    reference under which the recall tool gives the whole, where there is room for it and it can be quoted.

    Lines with the terms that it was looked at for, `focus`, say more, or they are given what they are worth. None where
    the marker and 16 tokens do not fit.
    """
    total_tokens = count(text)
    if total_tokens <= budget_tokens:
        return text
    if reference and (len(reference) > _LONGEST_REFERENCE or '"' in reference or not reference.isprintable()):
        reference = None
    room_tokens = budget_tokens - count(_marker(total_tokens, reference))
    if reference and room_tokens < MIN_TEXT_TOKENS:
        reference, room_tokens = None, budget_tokens - count(_marker(total_tokens, None))
    if room_tokens < MIN_TEXT_TOKENS:
        return None

    def mark(left_out_characters: int) -> str:
        return _marker(round(total_tokens * left_out_characters / len(text)), reference)

    marker_length = len(mark(len(text)))
    best, most = None, len(text) - 1
    characters = int(min(_AIM * room_tokens * len(text) / total_tokens, room_tokens * _CHARACTERS_PER_TOKEN))
    for tries_left in reversed(range(_TRIES)):
        if not tries_left and best is None:  # this fits with every byte-level tokenizer
            characters = min(characters, room_tokens // _BYTES_PER_CHARACTER)
        made = outlined(text, min(most, characters), focus, mark, worth)
        tokens = count(made)
        if made and tokens <= budget_tokens:
            best = made
        else:
            most = min(most, characters, max(0, len(made) - marker_length)) - 1
        kept_tokens = max(1, tokens - budget_tokens + room_tokens)
        if (best == made and kept_tokens >= _ENOUGH * room_tokens) or most <= 0:
            break
        characters = int(characters * _AIM * room_tokens / kept_tokens)
    return best


def clip_message(
    message: BaseMessage,
    count_message: Callable[[BaseMessage], int],
    count: Count,
    budget_tokens: int,
    *,
    reference: str | None = None,
    focus: frozenset[str] = frozenset(),
    worth: tuple[float, ...] = (),
) -> BaseMessage | None:
    """Returns a message whose text is clipped so that it costs at most `budget_tokens`; None where that cannot be.

    Several texts are joined and clipped as one. Other blocks stay, except in a tool's result, where notes
    (`[image left out]`) replace them if the message does not fit with them. The given message is not changed.
    """
    if count_message(message) <= budget_tokens:
        return message
    candidates = [blocks_of(message)]
    if isinstance(message, ToolMessage):
        candidates.append([block if text_of(block) is not None else left_out(block) for block in candidates[0]])
    for blocks in candidates:
        whole = "\n".join(text for block in blocks if (text := text_of(block)))
        values = worth if len(worth) == len(whole.splitlines()) else ()
        others = [block for block in blocks if text_of(block) is None]
        for named in (reference, None) if reference else (None,):
            text_tokens = budget_tokens - count_message(_with_text(message, "", others))
            while (
                clipped := clip_text(whole, count, text_tokens, reference=named, focus=focus, worth=values)
            ) is not None:
                made = _with_text(message, clipped, others)
                if (excess_tokens := count_message(made) - budget_tokens) <= 0:
                    return made
                text_tokens -= excess_tokens  # a message may cost more than its parts
    return None


def _with_text(message: BaseMessage, text: str, others: list[Block]) -> BaseMessage:
    if isinstance(message.content, str):
        return message.model_copy(update={"content": text})
    return message.model_copy(update={"content": [*([{"type": "text", "text": text}] if text else ()), *others]})


def left_out(block: Block) -> Block:
    """Returns a note in place of a block: `[image left out]`."""
    kind = str(block.get("type", "content") if isinstance(block, dict) else "content")
    return {"type": "text", "text": f"[{kind.removeprefix('input_').removesuffix('_url')} left out]"}


def water_level(costs: Sequence[int], budget_tokens: int, least: Sequence[int] = ()) -> int:
    """Returns the level to which costs are cut, none below its least, to fit together; the largest if all fit."""
    bounds, levels = [*zip(costs, least or [0] * len(costs), strict=True)], range(max(costs, default=0) + 1)
    found = bisect_right(levels, budget_tokens, key=lambda top: sum(max(low, min(cost, top)) for cost, low in bounds))
    return max(0, found - 1)


def _marker(left_out_tokens: int, reference: str | None) -> str:
    recall = f'; all of it has the reference "{reference}"' if reference else ""
    return f"\n[… {left_out_tokens:,} tokens left out{recall} …]\n"
