"""Clipping a text or a message that is too large.

What says most stays, a marker says how much is left out.

What stays follows from the kind of the text (`outline.py`); of one whose lines are too long for its
room, head and tail get half of the characters each, cut at white space where some is near. Only
what was counted as a whole, marker included, is returned, so the bound holds for any counter.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.messages.calls import (
    CALL_BLOCKS,
    THOUGHTS,
    Block,
    is_raw,
    item_ids,
    text_block,
    text_of,
    without_items,
)
from langchain_ctxbudget.messages.media import has_media, left_out, medium_of, shown_blocks, told
from langchain_ctxbudget.messages.outline import outlined

MIN_TEXT_TOKENS = 16
"""Less text than this around a marker says nothing."""
TEXT_BESIDE_MEDIA_TOKENS = 128
"""Media give way before so much of the text beside them does."""

Count = Callable[[str], int]
"""Returns the tokens of a text."""

_LINE = "line"
"""Key of a text that stands for a block of another type, with the line that may do so, too; it is
never sent."""
_MOST_LINES = 3
"""Of more blocks beside a text that is clipped only their number is told."""
_TRIES = 4
_AIM = 0.98
_ENOUGH = 0.92
"""Shares of the budget that a size aims at, and from which no better size is looked for."""
_CHARACTERS_PER_TOKEN = 6
"""No first try takes more, so that a text with a sparse middle is not tokenized at length; English
has 4 to 5."""
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

    The number may be a few tokens off, as what stays is tokenized next to the marker. The marker
    names the reference under which the recall tool gives the whole, where there is room for it and
    it can be quoted.

    Lines with the terms that it was looked at for, `focus`, say more, or they are given what they
    are worth. None where the marker and 16 tokens do not fit.
    """
    total_tokens = count(text)
    if total_tokens <= budget_tokens:
        return text
    if reference and (
        len(reference) > _LONGEST_REFERENCE or '"' in reference or not reference.isprintable()
    ):
        reference = None
    room_tokens = budget_tokens - count(_marker(total_tokens, reference))
    if reference and room_tokens < MIN_TEXT_TOKENS:
        reference = None
        room_tokens = budget_tokens - count(_marker(total_tokens, None))
    if room_tokens < MIN_TEXT_TOKENS:
        return None

    def mark(left_out_characters: int) -> str:
        return _marker(round(total_tokens * left_out_characters / len(text)), reference)

    marker_length = len(mark(len(text)))
    best = None
    most = len(text) - 1
    characters = int(
        min(_AIM * room_tokens * len(text) / total_tokens, room_tokens * _CHARACTERS_PER_TOKEN)
    )
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
    keeps_media: bool | None = None,
) -> BaseMessage | None:
    """Returns a message in short so that it costs at most `budget_tokens`.

    None where that cannot be.

    Its texts are joined and clipped as one, also those inside search results and documents. Media
    cannot be shown in part: they stay whole, or lines such as `[image left out]` replace them, the
    first ones first. With `keeps_media` all of them stay; by default those of a tool's result give
    way, and no others. Calls always stay.

    Thoughts, and ids of items of the Responses API, stay only where nothing else is changed that
    they belong to. The given message is not changed.
    """
    if count_message(message) <= budget_tokens:
        return message
    if keeps_media is None:
        keeps_media = not isinstance(message, ToolMessage)
    again = (
        reference if isinstance(message, ToolMessage) else None
    )  # the recall tool shows media of results alone
    for blocks in _shorter_forms(
        message, count_message, count, budget_tokens, again, keeps_media=keeps_media
    ):
        made = _with_own_words(
            message, blocks, count_message, count, budget_tokens, reference=reference
        )
        if made is not None:
            return made
        whole = _own_and_lines(blocks)
        values = worth if len(worth) == len(whole.splitlines()) else ()
        for named in (reference, None) if reference else (None,):
            text_tokens = budget_tokens - count_message(_with_text(message, "", blocks))
            while (
                clipped := clip_text(
                    whole, count, text_tokens, reference=named, focus=focus, worth=values
                )
            ) is not None:
                made = _with_text(message, clipped, blocks)
                if (excess_tokens := count_message(made) - budget_tokens) <= 0:
                    return made
                text_tokens -= excess_tokens  # a message may cost more than its parts
    return None


def _with_own_words(
    message: BaseMessage,
    blocks: Sequence[Block],
    count_message: Callable[[BaseMessage], int],
    count: Count,
    budget_tokens: int,
    *,
    reference: str | None,
) -> BaseMessage | None:
    """Returns a message with its own texts whole, and clipped behind them those that stand for its other blocks.

    All stand in their order where they fit. None where there are not both, or where the own ones
    leave no room.
    """
    own = _joined(block for block in blocks if not _was_inside(block))
    inside = _joined(block for block in blocks if _was_inside(block))
    if not own or not inside:
        return None
    whole = _with_text(message, _joined(blocks), blocks)
    if count_message(whole) <= budget_tokens:
        return whole
    left_tokens = budget_tokens - count_message(_with_text(message, own, blocks))
    while (clipped := clip_text(inside, count, left_tokens, reference=reference)) is not None:
        made = _with_text(message, f"{own}\n{clipped}", blocks)
        excess_tokens = count_message(made) - budget_tokens
        if excess_tokens <= 0:
            return made
        left_tokens -= excess_tokens
    return None


def _own_and_lines(blocks: Sequence[Block]) -> str:
    """Returns the own texts of a message and a line for each other block.

    Where there are none, the texts in these.
    """
    own = _joined(block for block in blocks if not _was_inside(block))
    if not own:
        return _joined(blocks)
    lines = [block[_LINE] for block in blocks if isinstance(block, dict) and _LINE in block]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"[{len(lines) - _MOST_LINES} more left out]"]
    return "\n".join((own, *lines))


def _joined(blocks: Iterable[Block]) -> str:
    return "\n".join(text for block in blocks if (text := text_of(block)))


def _was_inside(block: Block) -> bool:
    """Tells if a text stands for a block of another type."""
    return isinstance(block, dict) and _LINE in block


def _shorter_forms(
    message: BaseMessage,
    count_message: Callable[[BaseMessage], int],
    count: Count,
    budget_tokens: int,
    reference: str | None,
    *,
    keeps_media: bool,
) -> Iterator[list[Block]]:
    """Yields the blocks of a message with less and less beside its texts.

    What gives way has become a text, too.
    """
    blocks = shown_blocks(message)
    without_thoughts = [block for block in blocks if not _is_thought(block)]
    has_thoughts = len(without_thoughts) < len(blocks)
    if has_thoughts and item_ids(
        message
    ):  # an item of the Responses API and what led to it: both stay, or none
        yield [
            block if _is_text_or_call(block, message) else _told(block, reference)
            for block in without_thoughts
        ]
        return
    yield blocks
    if has_thoughts:
        yield without_thoughts
    as_text = [
        block
        if _is_text_or_call(block, message) or medium_of(block) is not None
        else _told(block, reference)
        for block in without_thoughts
    ]
    if as_text != without_thoughts:
        yield as_text
    if keeps_media:
        return
    places = [at for at, block in enumerate(as_text) if medium_of(block) is not None]
    costs = [_cost_of(as_text[at], message, count_message) for at in places]
    excess_tokens = _least_tokens(as_text, message, count_message, count) - budget_tokens
    fewest = sum(tokens < excess_tokens for tokens in accumulate(costs, initial=0))
    for number in range(fewest, len(places)):
        form = _without_media(as_text, places[:number], reference)
        if (
            _least_tokens(form, message, count_message, count) <= budget_tokens
        ):  # with the lines in place of media
            yield form
            break
    yield _without_media(as_text, places, reference)


def _without_media(
    blocks: Sequence[Block], places: Sequence[int], reference: str | None
) -> list[Block]:
    """Returns blocks with lines in place of those at some places."""
    return [_told(block, reference) if at in places else block for at, block in enumerate(blocks)]


def _least_tokens(
    blocks: Sequence[Block],
    message: BaseMessage,
    count_message: Callable[[BaseMessage], int],
    count: Count,
) -> int:
    """Returns what a message with these blocks costs with the least of its text that media leave room for."""
    text_tokens = count(_joined(blocks))
    return count_message(_with_text(message, "", blocks)) + min(
        text_tokens, TEXT_BESIDE_MEDIA_TOKENS
    )


def _is_text_or_call(block: Block, message: BaseMessage) -> bool:
    """Tells if a block is a text, or a call that is sent as one."""
    if text_of(block) is not None:
        return True
    return (
        isinstance(block, dict) and block.get("type") in CALL_BLOCKS and not is_raw(block, message)
    )


def _is_thought(block: Block) -> bool:
    return isinstance(block, dict) and block.get("type") in THOUGHTS


def _told(block: Block, reference: str | None) -> Block:
    """Returns the text that stands for a block, with the line that stands for it where there is no room for words."""
    return {"type": "text", "text": told(block, reference), _LINE: left_out(block, reference)}


def _cost_of(
    block: Block, message: BaseMessage, count_message: Callable[[BaseMessage], int]
) -> int:
    alone = message.model_copy(update={"content": [block]})
    return count_message(alone) - count_message(message.model_copy(update={"content": []}))


def _with_text(message: BaseMessage, text: str, blocks: Sequence[Block]) -> BaseMessage:
    """Returns a message with a text in place of the first of some blocks that is one, and without the other texts."""
    if isinstance(message.content, str) and not has_media(message):
        return message.model_copy(update={"content": text})
    content: list[Block] = []
    is_placed = not text
    for block in blocks:
        if text_of(block) is None:
            content.append(block)
        elif not is_placed:
            content.append(text_block(text))
            is_placed = True
    made = message.model_copy(update={"content": content})
    # An item of the Responses API that was changed has another id than the one that its reasoning
    # led to.
    return without_items(made) if item_ids(message) else made


def water_level(costs: Sequence[int], budget_tokens: int, least: Sequence[int] = ()) -> int:
    """Returns the level to which costs are cut, none below its least, to fit together.

    The largest if all fit.
    """
    bounds = [*zip(costs, least or [0] * len(costs), strict=True)]
    levels = range(max(costs, default=0) + 1)
    found = bisect_right(
        levels, budget_tokens, key=lambda top: sum(max(low, min(cost, top)) for cost, low in bounds)
    )
    return max(0, found - 1)


def _marker(left_out_tokens: int, reference: str | None) -> str:
    recall = f'; all of it has the reference "{reference}"' if reference else ""
    return f"\n[… {left_out_tokens:,} tokens left out{recall} …]\n"
