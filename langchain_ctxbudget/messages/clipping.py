"""Clipping a text or a message that is too large: head and tail stay, a marker between them says how much is left out.

Head and tail get half of the characters each: a log tells at its start what was run and at its end how it went. The cut
moves to a line break, else to white space, where one is near. Only what was counted as a whole, marker included, is
returned, so the bound holds for any counter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.messages.calls import CALL_BLOCKS

MIN_TEXT_TOKENS = 16
"""Less text than this around a marker says nothing."""

Block = str | dict[str, Any]
Count = Callable[[str], int]

_SIZES = 4
"""Sizes that are tried; with the marker before them and the result after them, 6 calls of the counter."""
_NUMBER_TOKENS = 3
"""Kept free while sizes are tried: the marker's final number may have other digits."""
_AIM, _ENOUGH = 0.97, 0.9
"""Shares of the budget that a size aims at, and from which no better size is looked for."""
_CHARACTERS_PER_TOKEN = 6
"""No first try takes more, so that a text with a sparse middle is not tokenized at length; English has 4 to 5."""
_BYTES_PER_CHARACTER = 4
"""The most that UTF-8 has; no byte-level tokenizer makes more tokens than bytes."""
_NEAR = 1 / 8
"""Share of the head, and of the tail, that is given up for a cut at a line break or at white space."""
_ATTEMPTS = 3
_LONGEST_REFERENCE = 100
"""Characters; ids of LangChain and of providers have 36 to 70."""

_LINE_BREAK, _SPACE = re.compile(r"\r?\n|\r"), re.compile(r"\s")
_LONGEST_CHARACTER = 32
_JOINER = "\u200d"


def clip_text(text: str, count: Count, budget_tokens: int, *, reference: str | None = None) -> str | None:
    """Returns head and tail of a text around a marker that says how many tokens are left out, within a budget.

    The number may be a few tokens off, as head and tail are tokenized next to the marker. The marker names the
    reference under which the recall tool gives the whole, where there is room for it and it can be quoted.

    Returns:
        None where the marker and 16 tokens of text do not fit.
    """
    total_tokens = count(text)
    return text if total_tokens <= budget_tokens else _clipped(text, total_tokens, count, budget_tokens, reference)


def clip_message(
    message: BaseMessage,
    count_message: Callable[[BaseMessage], int],
    count: Count,
    budget_tokens: int,
    *,
    reference: str | None = None,
) -> BaseMessage | None:
    """Returns a message whose text is clipped so that it costs at most `budget_tokens`; None where that cannot be.

    Of several text blocks the largest are clipped and small ones stay whole; where they are too many for that, they are
    joined and clipped as one. Other blocks stay, except in a tool's result, where the largest ones are replaced by a
    note (`[image left out]`) as long as the message does not fit. The given message is not changed.
    """
    if count_message(message) <= budget_tokens:
        return message

    def fits(blocks: Sequence[Block], reference: str | None) -> BaseMessage | None:
        texts = {place: text for place, block in enumerate(blocks) if (text := _text_of(block))}
        bare = [_with_text(block, "") if place in texts else block for place, block in enumerate(blocks)]
        text_tokens = budget_tokens - count_message(_with_blocks(message, bare))
        for _ in range(_ATTEMPTS):  # the first one fits where a message costs what its parts cost
            clipped = _share(texts, count, text_tokens, reference)
            if clipped is None:
                return None
            parts = [_with_text(block, clipped.get(place, "")) for place, block in enumerate(blocks)]
            result = _with_blocks(message, parts)
            excess_tokens = count_message(result) - budget_tokens
            if excess_tokens <= 0:
                return result
            text_tokens -= excess_tokens
        return None

    shown = (reference, None) if reference else (None,)
    candidates = (fits(blocks, named) for blocks in _retreats(message, count_message) for named in shown)
    return next((clipped for clipped in candidates if clipped is not None), None)


def left_out(block: Block) -> Block:
    """Returns a note in place of a block: `[image left out]`."""
    kind = str(block.get("type", "content") if isinstance(block, dict) else "content")
    return {"type": "text", "text": f"[{kind.removeprefix('input_').removesuffix('_url')} left out]"}


def water_level(costs: Sequence[int], budget_tokens: int) -> int:
    """Returns the level to which costs are cut to fit a budget together; the largest of them where they fit."""
    left_tokens = budget_tokens
    for position, cost in enumerate(sorted(costs)):
        share = left_tokens // (len(costs) - position)
        if cost > share:
            return share
        left_tokens -= cost
    return max(costs)


def head_end(text: str, end: int) -> int:
    """Returns where to cut a text of which at most `end` characters are kept: at a line break, a space, a character."""
    nearest = end - int(end * _NEAR)
    for pattern in (_LINE_BREAK, _SPACE):
        if starts := [found.start() for found in pattern.finditer(text, nearest, end + 1)]:
            return starts[-1]
    return next((place for place in range(end, max(-1, end - _LONGEST_CHARACTER), -1) if _is_border(text, place)), end)


# Texts


class _Size(NamedTuple):
    """So many characters are kept, and cost so much with the marker."""

    characters: int
    tokens: int


def _marker(left_out_tokens: int, reference: str | None) -> str:
    recall = f'; all of it has the reference "{reference}"' if reference else ""
    return f"\n[… {left_out_tokens:,} tokens left out{recall} …]\n"


def _clipped(text: str, total_tokens: int, count: Count, budget_tokens: int, reference: str | None) -> str | None:
    """Clips a text that is over the budget: a guess from the whole text, corrected by what each try costs."""
    if reference and (len(reference) > _LONGEST_REFERENCE or '"' in reference or not reference.isprintable()):
        reference = None
    marker_tokens, sizes = count(_marker(total_tokens, reference)), _SIZES
    if reference and budget_tokens < marker_tokens + MIN_TEXT_TOKENS:
        # The plain marker is one more text to count, so one size fewer is tried.
        reference, marker_tokens, sizes = None, count(_marker(total_tokens, None)), _SIZES - 1
    if budget_tokens < marker_tokens + MIN_TEXT_TOKENS:
        return None
    limit_tokens = budget_tokens - _NUMBER_TOKENS
    expected = _marker(total_tokens - (limit_tokens - marker_tokens), reference)
    fits, exceeds = _Size(0, marker_tokens), _Size(len(text), total_tokens)
    for tries_left in reversed(range(sizes)):
        if tries_left or fits.characters:
            characters = _guess(fits, exceeds, marker_tokens, limit_tokens)
        else:  # nothing has fitted so far, but this does with every byte-level tokenizer
            characters = min(exceeds.characters - 1, (limit_tokens - marker_tokens) // _BYTES_PER_CHARACTER)
        if not fits.characters < characters < exceeds.characters:
            break
        size = _Size(characters, count(expected.join(_ends(text, characters))))
        if size.tokens > limit_tokens:
            exceeds = size
        else:
            fits = size
            if size.tokens >= _ENOUGH * budget_tokens:
                break
    ends = _ends(text, fits.characters)
    clipped = _marker(total_tokens - (fits.tokens - marker_tokens), reference).join(ends)
    return clipped if any(ends) and count(clipped) <= budget_tokens else None


def _guess(fits: _Size, exceeds: _Size, marker_tokens: int, limit_tokens: int) -> int:
    """Returns the characters that cost a little less than the limit, judging by a size that fits and one that does not.

    The text between the two is taken to cost the same everywhere, and not less than what fits.
    """
    aim_tokens = max(fits.tokens, int(_AIM * limit_tokens))
    between = (exceeds.characters - fits.characters) / (exceeds.tokens - fits.tokens)
    so_far = fits.characters / max(1, fits.tokens - marker_tokens) if fits.characters else _CHARACTERS_PER_TOKEN
    return fits.characters + max(1, int(min(between, so_far) * (aim_tokens - fits.tokens)))


def _ends(text: str, characters: int) -> tuple[str, str]:
    """Returns head and tail of a text, at most so many characters together."""
    tail_characters = characters // 2
    return text[: head_end(text, characters - tail_characters)], text[_tail_start(text, len(text) - tail_characters) :]


def _tail_start(text: str, start: int) -> int:
    furthest = start + int((len(text) - start) * _NEAR)
    for pattern in (_LINE_BREAK, _SPACE):
        if found := pattern.search(text, max(0, start - 1), furthest):
            return found.end()
    after = range(start, min(len(text) + 1, start + _LONGEST_CHARACTER))
    return next((place for place in after if _is_border(text, place)), start)


def _is_border(text: str, place: int) -> bool:
    """Tells if a cut here falls between two characters as a reader sees them: not before a mark, not in an emoji."""
    if place in (0, len(text)):
        return True
    before, after = text[place - 1], text[place]
    joined = _JOINER in (before, after) or "\U0001f3fb" <= after <= "\U0001f3ff" or "\udc00" <= after <= "\udfff"
    return not joined and unicodedata.category(after) not in ("Mn", "Mc", "Me")


# Messages


def _retreats(message: BaseMessage, count_message: Callable[[BaseMessage], int]) -> Iterator[list[Block]]:
    """Yields the blocks of a message; of a tool's result again with ever more notes in place of its dearest blocks.

    Last come the texts joined to one.
    """
    blocks: list[Block] = [message.content] if isinstance(message.content, str) else list(message.content)
    yield blocks
    if isinstance(message, ToolMessage):

        def cost(block: Block) -> int:
            return count_message(message.model_copy(update={"content": [block]}))

        notes = {place: left_out(block) for place, block in enumerate(blocks) if not _stays(block)}
        gains = {place: cost(blocks[place]) - cost(note) for place, note in notes.items()}
        for place in sorted(gains, key=gains.__getitem__, reverse=True):
            blocks = [*blocks[:place], notes[place], *blocks[place + 1 :]]
            yield blocks
    texts = list(filter(None, map(_text_of, blocks)))
    if len(texts) > 1:
        others = [block for block in blocks if _text_of(block) is None]
        yield [{"type": "text", "text": "\n".join(texts)}, *others]


def _stays(block: Block) -> bool:
    return _text_of(block) is not None or (isinstance(block, dict) and block.get("type") in CALL_BLOCKS)


def _text_of(block: Block) -> str | None:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else None


def _with_text(block: Block, text: str) -> Block:
    if isinstance(block, str):
        return text
    return {**block, "text": text} if _text_of(block) is not None else block


def _with_blocks(message: BaseMessage, blocks: Sequence[Block]) -> BaseMessage:
    return message.model_copy(update={"content": blocks[0] if isinstance(message.content, str) else list(blocks)})


def _share(texts: dict[int, str], count: Count, budget_tokens: int, reference: str | None) -> dict[int, str] | None:
    """Clips the largest texts to one level, so that all fit a budget; None where the level leaves too little of one."""
    costs = {place: count(text) for place, text in texts.items()}
    if sum(costs.values()) <= budget_tokens:
        return texts
    level_tokens = water_level(list(costs.values()), budget_tokens) if costs else 0
    shared: dict[int, str] = {}
    for place, text in texts.items():
        fits = costs[place] <= level_tokens
        clipped = text if fits else _clipped(text, costs[place], count, level_tokens, reference)
        if clipped is None:
            return None
        shared[place] = clipped
    return shared
