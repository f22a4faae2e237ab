"""Clipping a text or a message that is too large: head and tail stay, a marker between them says how much is left out.

Head and tail get half of the characters each: a log tells at its start what was run and at its end how it went. The cut
moves to a line break, else to white space, where one is near. Only what was counted as a whole, marker included, is
returned, so the bound holds for any counter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.messages.calls import CALL_BLOCKS, Block, blocks_of, text_of

MIN_TEXT_TOKENS = 16
"""Less text than this around a marker says nothing."""

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
_LONGEST_REFERENCE = 100
"""Characters; ids of LangChain and of providers have 36 to 70."""
_LINE_BREAK, _SPACE = re.compile(r"\r?\n|\r"), re.compile(r"\s")
_LONGEST_CHARACTER = 32
_JOINED = re.compile("[\u200d\U0001f3fb-\U0001f3ff\udc00-\udfff]")
"""Joiners of emoji, their skin tones, second halves of a surrogate pair."""


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

    Several texts are joined and clipped as one. Other blocks stay, except in a tool's result, where notes
    (`[image left out]`) replace them if the message does not fit with them. The given message is not changed.
    """
    if count_message(message) <= budget_tokens:
        return message
    candidates = [blocks_of(message)]
    if isinstance(message, ToolMessage):
        candidates.append([block if _stays(block) else left_out(block) for block in candidates[0]])
    for blocks in candidates:
        whole = "\n".join(text for block in blocks if (text := text_of(block)))
        others = [block for block in blocks if text_of(block) is None]
        for named in (reference, None) if reference else (None,):
            text_tokens = budget_tokens - count_message(_with_text(message, "", others))
            while (clipped := clip_text(whole, count, text_tokens, reference=named)) is not None:
                made = _with_text(message, clipped, others)
                if (excess_tokens := count_message(made) - budget_tokens) <= 0:
                    return made
                text_tokens -= excess_tokens  # a message may cost more than its parts
    return None


def _stays(block: Block) -> bool:
    return text_of(block) is not None or (isinstance(block, dict) and block.get("type") in CALL_BLOCKS)


def _with_text(message: BaseMessage, text: str, others: list[Block]) -> BaseMessage:
    if isinstance(message.content, str):
        return message.model_copy(update={"content": text})
    return message.model_copy(update={"content": [*([{"type": "text", "text": text}] if text else ()), *others]})


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
    for pattern in (_LINE_BREAK, _SPACE):
        if starts := [found.start() for found in pattern.finditer(text, end - int(end * _NEAR), end + 1)]:
            return starts[-1]
    return next((place for place in range(end, max(-1, end - _LONGEST_CHARACTER), -1) if _is_border(text, place)), end)


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
    return before != "\u200d" and not _JOINED.match(after) and unicodedata.category(after) not in ("Mn", "Mc", "Me")


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
            continue
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
