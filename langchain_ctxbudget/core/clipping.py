"""Clipping what is too large: its head and its tail stay, a marker between them says how much is left out.

Head and tail get half of the characters each, as in Codex and OpenHands: a log tells at its start what was run and at
its end how it went, and the question to a long paste stands in front of it or behind it. The cut moves to a line break,
else to white space, where one is near, and never falls inside a character that is written as several code points.

Tokens per character differ from place to place, so the size is searched: a guess from the whole text, corrected by what
each try costs. Only what was counted as a whole, marker included, is ever returned, so the bound holds for any counter.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.core.calls import CALL_BLOCKS
from langchain_ctxbudget.core.schema_cost import Count

MIN_TEXT_TOKENS = 16
"""Less text than this around a marker says nothing."""

Block = str | dict[str, Any]
T = TypeVar("T")

_SIZES = 4
"""How many sizes are tried; with the marker before them and the result after them, 6 calls of the counter."""
_NUMBER_TOKENS = 3
"""Kept free while sizes are tried: the marker's final number may have other digits."""
_AIM = 0.97
"""Share of the budget that a size aims at, so that a small error of the guess does not cost another try."""
_ENOUGH = 0.9
"""Share of the budget from which no better size is looked for."""
_CHARACTERS_PER_TOKEN = 6
"""No first try takes more, so that a text with a sparse middle is not tokenized at length; English has 4 to 5."""
_BYTES_PER_CHARACTER = 4
"""The most that UTF-8 has; no byte-level tokenizer makes more tokens than bytes."""
_NEAR = 1 / 8
"""Share of the head, and of the tail, that is given up for a cut at a line break or at white space."""
_ATTEMPTS = 3
_FEW = 2
_MANY_TEXTS_FACTOR = 4
"""Where more than two texts are clipped, each has so many times the least room: markers should not be most of it."""
_LONGEST_REFERENCE = 100
"""Characters; ids of LangChain and of providers have 36 to 70."""

_LINE_BREAK = re.compile(r"\r?\n|\r")
_SPACE = re.compile(r"\s")
_LONGEST_CHARACTER = 32
_ZERO_WIDTH_JOINER = "\u200d"
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def clip_text(text: str, count: Count, budget_tokens: int, *, reference: str | None = None) -> str | None:
    """The head and the tail of a text around a marker that says how many tokens are left out, within a budget.

    The number is what the whole text costs less what the result costs without its marker. It may be a few tokens off,
    as head and tail are tokenized next to the marker.

    Args:
        text: what to clip; where it fits, it is returned as it is.
        count: tokens of a text; asked for the whole text once, and at most six times for texts of about the
            budget's size.
        budget_tokens: what the result, its marker included, may cost.
        reference: under which the recall tool gives the whole; the marker names it where there is room for it, unless
            it is longer than 100 characters or would not stand plainly between quotation marks.

    Returns:
        None where the marker and 16 tokens of text do not fit.

    Example:
        >>> print(clip_text("first " * 40 + " last" * 40, lambda text: len(text.split()), 30))
        first first first first first first first first first
        [… 60 tokens left out …]
        last last last last last last last last last last last
    """
    total_tokens = count(text)
    if total_tokens <= budget_tokens:
        return text
    return _clipped(text, total_tokens, count, budget_tokens, _quotable(reference))


def clip_message(
    message: BaseMessage,
    count_message: Callable[[BaseMessage], int],
    count: Count,
    budget_tokens: int,
    *,
    reference: str | None = None,
) -> BaseMessage | None:
    """A message whose text is clipped so that it costs at most `budget_tokens`; None where that cannot be.

    Of several text blocks the largest is clipped first and small ones stay whole; where there are too many for that,
    the ones in the middle give way to one marker. Other blocks stay as they are, except in a tool's result, where the
    largest ones are replaced by a note (`[image left out]`) as long as the message does not fit. Everything else of
    the message is kept, and the given message is not changed.

    Args:
        message: any message; where it fits, it is returned as it is.
        count_message: tokens of a message, framing included.
        count: tokens of a text.
        budget_tokens: what the message may cost.
        reference: under which the recall tool gives the whole message; the markers name it, or, where there is no
            room for that, some or none of them do.

    Example:
        >>> from langchain_ctxbudget import EstimatingCounter
        >>> counter = EstimatingCounter()
        >>> result = ToolMessage("All is well. " * 1000, tool_call_id="call-1")
        >>> clipped = clip_message(result, counter.count_message, counter.count_text, 200)
        >>> counter.count_message(clipped) <= 200
        True
    """
    if count_message(message) <= budget_tokens:
        return message
    named = _quotable(reference)
    for blocks in _retreats(message, count_message):
        for shown in (named, None) if named else (None,):
            clipped = _with_clipped_texts(message, blocks, count_message, count, budget_tokens, reference=shown)
            if clipped is not None:
                return clipped
    return None


# Texts


class _Size(NamedTuple):
    """How many characters are kept, and what they cost with the marker."""

    characters: int
    tokens: int


def _marker(left_out_tokens: int, reference: str | None) -> str:
    recall = f'; all of it has the reference "{reference}"' if reference else ""
    return f"\n[… {left_out_tokens:,} tokens left out{recall} …]\n"


def _quotable(reference: str | None) -> str | None:
    """A reference that a marker can name, else None: an id may be of any length, and hold line breaks or quotes."""
    if not reference or len(reference) > _LONGEST_REFERENCE or '"' in reference or not reference.isprintable():
        return None
    return reference


def _clipped(text: str, total_tokens: int, count: Count, budget_tokens: int, reference: str | None) -> str | None:
    """Head, marker and tail of a text that is over the budget."""
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
    if not any(ends):
        return None
    clipped = _marker(total_tokens - (fits.tokens - marker_tokens), reference).join(ends)
    return clipped if count(clipped) <= budget_tokens else None


def _guess(fits: _Size, exceeds: _Size, marker_tokens: int, limit_tokens: int) -> int:
    """The characters that cost a little less than the limit, to judge by a size that fits and one that does not.

    What lies between the two is taken to cost the same everywhere, and not less than what fits.
    """
    aim_tokens = max(fits.tokens, int(_AIM * limit_tokens))
    between = (exceeds.characters - fits.characters) / (exceeds.tokens - fits.tokens)
    so_far = fits.characters / max(1, fits.tokens - marker_tokens) if fits.characters else _CHARACTERS_PER_TOKEN
    return fits.characters + max(1, int(min(between, so_far) * (aim_tokens - fits.tokens)))


def _ends(text: str, characters: int) -> tuple[str, str]:
    """Head and tail of a text, at most so many characters together, cut where it harms least."""
    tail_characters = characters // 2
    return text[: head_end(text, characters - tail_characters)], text[_tail_start(text, len(text) - tail_characters) :]


def head_end(text: str, end: int) -> int:
    """Where to cut a text of which at most `end` characters are kept: where it harms least; 0 where nothing does."""
    nearest = end - int(end * _NEAR)
    for pattern in (_LINE_BREAK, _SPACE):
        starts = [found.start() for found in pattern.finditer(text, nearest, end + 1)]
        if starts:
            return starts[-1]
    before = range(end, max(-1, end - _LONGEST_CHARACTER), -1)
    return next((place for place in before if _is_border(text, place)), end)


def _tail_start(text: str, start: int) -> int:
    furthest = start + int((len(text) - start) * _NEAR)
    for pattern in (_LINE_BREAK, _SPACE):
        if found := pattern.search(text, max(0, start - 1), furthest):
            return found.end()
    after = range(start, min(len(text) + 1, start + _LONGEST_CHARACTER))
    return next((place for place in after if _is_border(text, place)), start)


def _is_border(text: str, place: int) -> bool:
    """Whether a character, as a reader sees it, ends right before this place."""
    if place in (0, len(text)):
        return True
    before, after = text[place - 1], text[place]
    if _ZERO_WIDTH_JOINER in (before, after) or _continues(after):
        return False
    if before in _FLAG_LETTERS and after in _FLAG_LETTERS:  # two of them are one flag
        others = text[:place].rstrip(_FLAG_LETTERS)
        return (place - len(others)) % 2 == 0
    return True


def _continues(character: str) -> bool:
    """Marks and variation selectors, skin tones, tags (of flags), and the second half of a surrogate pair."""
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or "\udc00" <= character <= "\udfff"
    )


# Messages


def _retreats(message: BaseMessage, count_message: Callable[[BaseMessage], int]) -> Iterator[list[Block]]:
    """The blocks of a message; of a tool's result then again with ever more notes in place of its dearest blocks."""
    blocks: list[Block] = [message.content] if isinstance(message.content, str) else list(message.content)
    yield blocks
    if not isinstance(message, ToolMessage):
        return

    def cost(block: Block) -> int:
        return count_message(message.model_copy(update={"content": [block]}))

    notes = {place: left_out(block) for place, block in enumerate(blocks) if not _stays(block)}
    gains = {place: cost(blocks[place]) - cost(note) for place, note in notes.items()}
    for place in sorted(gains, key=gains.__getitem__, reverse=True):
        blocks = [*blocks[:place], notes[place], *blocks[place + 1 :]]
        yield blocks


def _stays(block: Block) -> bool:
    return _text_of(block) is not None or (isinstance(block, dict) and block.get("type") in CALL_BLOCKS)


def left_out(block: Block) -> Block:
    """A note in place of a block: `[image left out]`."""
    kind = str(block.get("type", "content") if isinstance(block, dict) else "content")
    return {"type": "text", "text": f"[{kind.removeprefix('input_').removesuffix('_url')} left out]"}


def _text_of(block: Block) -> str | None:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else None


def _with_text(block: Block, text: str) -> Block:
    return text if isinstance(block, str) else {**block, "text": text}


def _with_blocks(message: BaseMessage, blocks: Sequence[Block]) -> BaseMessage:
    content = blocks[0] if isinstance(message.content, str) else list(blocks)
    return message.model_copy(update={"content": content})


def _with_clipped_texts(
    message: BaseMessage,
    blocks: Sequence[Block],
    count_message: Callable[[BaseMessage], int],
    count: Count,
    budget_tokens: int,
    *,
    reference: str | None,
) -> BaseMessage | None:
    """A message with these blocks, the texts among them clipped to what the others leave."""
    texts = {place: text for place, block in enumerate(blocks) if (text := _text_of(block))}
    bare = [_with_text(block, "") if place in texts else block for place, block in enumerate(blocks)]
    text_tokens = budget_tokens - count_message(_with_blocks(message, bare))
    for _ in range(_ATTEMPTS):  # the first one fits where a message costs what its parts cost
        shared = _shared(list(texts.values()), count, text_tokens, reference)
        if shared is None:
            return None
        clipped: list[Block] = []
        parts = dict(zip(texts, shared, strict=True))
        for place, block in enumerate(blocks):
            text = parts.get(place)
            if text is not None:
                clipped.append(_with_text(block, text))
            elif place not in parts:
                clipped.append(block)
        result = _with_blocks(message, clipped)
        excess_tokens = count_message(result) - budget_tokens
        if excess_tokens <= 0:
            return result
        text_tokens -= excess_tokens
    return None


def _shared(texts: Sequence[str], count: Count, budget_tokens: int, reference: str | None) -> list[str | None] | None:
    """The texts within a budget that they share, or None where that cannot be.

    All are cut to the same level, so that the largest give way first. Where the level would be too low for markers
    and text between them, texts in the middle are left out: the first of them becomes a marker, the others None.
    """
    costs = [count(text) for text in texts]
    if sum(costs) <= budget_tokens:
        return list(texts)
    least_tokens = count(_marker(sum(costs), reference)) + MIN_TEXT_TOKENS

    def level(number: int) -> int:
        """What a text may cost where so many are kept; 0 where that is too little."""
        kept = _outer(costs, number)
        room_tokens = budget_tokens - (count(_marker(sum(costs) - sum(kept), reference)) if number < len(costs) else 0)
        tokens = water_level(kept, room_tokens)
        clipped = sum(cost > tokens for cost in kept)
        least = least_tokens * (_MANY_TEXTS_FACTOR if clipped > _FEW else 1)
        return tokens if not clipped or tokens >= least else 0

    number = bisect_left(range(1, len(texts) + 1), 1, key=lambda kept: level(kept) == 0)
    if number == 0:
        return None
    level_tokens = level(number)
    kept: list[str | None] = [
        text if cost <= level_tokens else _clipped(text, cost, count, level_tokens, reference)
        for text, cost in zip(_outer(texts, number), _outer(costs, number), strict=True)
    ]
    if None in kept:
        return None
    gap: list[str | None] = [None] * (len(texts) - number)
    if gap:
        gap[0] = _marker(sum(costs) - sum(_outer(costs, number)), reference)
    head = number - number // 2
    return [*kept[:head], *gap, *kept[head:]]


def _outer(items: Sequence[T], number: int) -> list[T]:
    """So many items from both ends, one more from the first end where the number is odd."""
    tail = number // 2
    return [*items[: number - tail], *items[len(items) - tail :]]


def water_level(costs: Sequence[int], budget_tokens: int) -> int:
    """The level to which costs are cut so that they fit a budget together; the largest of them where they fit."""
    left_tokens = budget_tokens
    for position, cost in enumerate(sorted(costs)):
        share = left_tokens // (len(costs) - position)
        if cost > share:
            return share
        left_tokens -= cost
    return max(costs)
