"""Clipping a text or a message that is too large.

What says most stays, a marker says how much is left out.

What stays follows from the kind of the text (`outline.py`); of one whose lines are too long for its
room, head and tail get half of the characters each, cut at white space where some is near. Only
what was counted as a whole, marker included, is returned, so the bound holds for any counter.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from typing import Protocol

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import (
    Kind,
    Part,
    answered_ids,
    block_of_result,
    is_result,
    item_ids,
    only_text_of,
    parts_of,
    result_of,
    text_part,
    with_cited_texts_joined,
    with_parts,
    without_items,
)
from langchain_ctxbudget.messages.outline import outline_of
from langchain_ctxbudget.messages.placeholders import placeholder_of, readable_text_of

MIN_TEXT_TOKENS = 16
"""Less text than this around a marker says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingPolicy:
    """How the size of a clipped text is searched for, and what stands beside it."""

    tries: int = 4
    """The most sizes that are counted."""
    aimed_share: float = 0.98
    """The share of the room that a size aims at."""
    enough_share: float = 0.92
    """The share of the room from which no better size is looked for."""
    characters_per_token: int = 6
    """No first try takes more, so that a text with a sparse middle is not tokenized at length;
    English has 4 to 5."""
    bytes_per_character: int = 4
    """The most that UTF-8 has; no byte-level tokenizer makes more tokens than bytes."""
    longest_reference: int = 100
    """Characters; ids of LangChain and of providers have 36 to 70."""
    text_beside_media: int = 128
    """Tokens; media give way before so much of the text beside them does."""
    told_blocks: int = 3
    """Of more blocks beside a text that is clipped only their number is told."""


POLICY = ClippingPolicy()

Count = Callable[[str], int]
"""Returns the tokens of a text."""
ClipText = Callable[..., str | None]
"""Returns a text in at most `budget_tokens`, None where that cannot be; see `clip_text`."""


# Texts


def clip_text(
    text: str,
    count: Count,
    budget_tokens: int,
    *,
    reference: str | None = None,
    focus: frozenset[str] = frozenset(),
    worth: tuple[float, ...] = (),
) -> str | None:
    """Returns what says most of a text and a marker that says how many tokens are left out.

    Together they are within a budget. The number may be a few tokens off, as what stays is
    tokenized next to the marker.

    Args:
        text: What is too large; one that fits is returned as it is.
        count: Returns the tokens of a text.
        budget_tokens: The most that the result may have.
        reference: The marker names it where there is room for it and it can be quoted; under it
            the recall tool gives the whole.
        focus: Terms that the text was looked at for: lines with these say more.
        worth: What each line is worth, in place of what follows from its kind and the focus.

    Returns:
        None where the marker and 16 tokens do not fit.
    """
    total_tokens = count(text)
    if total_tokens <= budget_tokens:
        return text
    if reference and not _can_be_quoted(reference):
        reference = None
    room_tokens = budget_tokens - count(_marker(total_tokens, reference))
    if reference and room_tokens < MIN_TEXT_TOKENS:
        reference = None
        room_tokens = budget_tokens - count(_marker(total_tokens, reference))
    if room_tokens < MIN_TEXT_TOKENS:
        return None

    def mark(left_out_characters: int) -> str:
        return _marker(round(total_tokens * left_out_characters / len(text)), reference)

    def outline(characters: int) -> str:
        return outline_of(text, characters, focus, mark, worth)

    search = _SizeSearch(
        text_characters=len(text),
        text_tokens=total_tokens,
        marker_characters=len(mark(len(text))),
        budget_tokens=budget_tokens,
        room_tokens=room_tokens,
    )
    return search.largest_that_fits(outline, count)


def _can_be_quoted(reference: str) -> bool:
    """Tells if a reference can stand in a marker between quotation marks."""
    if len(reference) > POLICY.longest_reference:
        return False
    return '"' not in reference and reference.isprintable()


def _marker(left_out_tokens: int, reference: str | None) -> str:
    recall = f'; all of it has the reference "{reference}"' if reference else ""
    return f"\n[… {left_out_tokens:,} tokens left out{recall} …]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SizeSearch:
    """The search for the number of characters of a text that fill its room."""

    text_characters: int
    text_tokens: int
    marker_characters: int
    budget_tokens: int
    room_tokens: int
    """The tokens of the budget that the marker leaves."""

    def largest_that_fits(self, outline: Callable[[int], str], count: Count) -> str | None:
        """Returns the best outline within the budget after a few tries; None if none was."""
        best: str | None = None
        most = self.text_characters - 1
        characters = self._first_size()
        for tries_left in reversed(range(POLICY.tries)):
            if not tries_left and best is None:  # this fits with every byte-level tokenizer
                characters = min(characters, self.room_tokens // POLICY.bytes_per_character)
            candidate = outline(min(most, characters))
            tokens = count(candidate)
            is_fit = bool(candidate) and tokens <= self.budget_tokens
            if is_fit:
                best = candidate
            else:
                kept_characters = max(0, len(candidate) - self.marker_characters)
                most = min(most, characters, kept_characters) - 1

            kept_tokens = max(1, tokens - self.budget_tokens + self.room_tokens)
            is_enough = kept_tokens >= POLICY.enough_share * self.room_tokens
            if (best == candidate and is_enough) or most <= 0:
                break
            characters = int(characters * POLICY.aimed_share * self.room_tokens / kept_tokens)
        return best

    def _first_size(self) -> int:
        """Returns the characters of the room if every token of the text had equally many."""
        aimed_tokens = POLICY.aimed_share * self.room_tokens
        characters = aimed_tokens * self.text_characters / self.text_tokens
        return int(min(characters, self.room_tokens * POLICY.characters_per_token))


def water_level(costs: Sequence[int], budget_tokens: int, least: Sequence[int] = ()) -> int:
    """Returns the level to which costs are cut so that they fit together.

    No cost is cut below its least. If all fit, the level is the largest cost.
    """
    lowest = least or [0] * len(costs)
    bounds = list(zip(costs, lowest, strict=True))

    def total_at(level: int) -> int:
        return sum(max(low, min(cost, level)) for cost, low in bounds)

    levels = range(max(costs, default=0) + 1)
    levels_that_fit = bisect_right(levels, budget_tokens, key=total_at)
    return max(0, levels_that_fit - 1)


# Messages


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
    names_media: bool = True,
) -> BaseMessage | None:
    """Returns a message in short so that it costs at most `budget_tokens`.

    Its texts in a row are joined and clipped as one, also those inside search results and
    documents. Media cannot be shown in part: they stay whole, or lines such as `[image left out]`
    replace them: those that are too large even alone, then the first ones. Calls always stay.
    Thoughts, and ids of items of the Responses API, stay only where nothing else is changed that
    they belong to. Results of calls that are blocks of the message stay the results of these.

    Args:
        message: What is too large; it is not changed.
        count_message: Returns the tokens of a message.
        count: Returns the tokens of a text.
        budget_tokens: The most that the result may cost.
        reference: Under it the recall tool gives the whole.
        focus: Terms that the message was looked at for.
        worth: What each line of its text is worth.
        keeps_media: True if all media stay; by default those of a tool's result give way, and no
            others.
        names_media: True if the lines in place of media name the reference, too.

    Returns:
        None where no form is short enough.
    """
    if count_message(message) <= budget_tokens:
        return message
    is_result = isinstance(message, ToolMessage)
    if isinstance(message, HumanMessage) and answered_ids(message):
        clip = partial(
            clip_message,
            count_message=count_message,
            count=count,
            reference=reference,
            focus=focus,
            worth=worth,
            keeps_media=keeps_media,
            names_media=False,  # the recall tool shows media of tool messages alone
        )
        return _ClippedResults(message, count_message, clip).within(budget_tokens)
    if keeps_media is None:
        keeps_media = not is_result
    clipping = _MessageClipping(
        message=message,
        count_message=count_message,
        count=count,
        budget_tokens=budget_tokens,
        reference=reference,
        # The recall tool shows media of results alone.
        media_reference=reference if is_result and names_media else None,
    )
    for parts in clipping.shorter_forms(keeps_media=keeps_media):
        clipped = clipping.with_own_words(parts)
        if clipped is None:
            clipped = clipping.with_clipped_text(parts, focus, worth)
        if clipped is not None:
            return clipped
    return None


def with_joined_texts(message: BaseMessage) -> BaseMessage:
    """Returns a message in which texts in a row are one text, each on lines of its own."""
    parts = parts_of(message)
    return _with_texts(message, [run.text for run in _runs(parts)], parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageClipping:
    """A message that is too large, how it is counted, and the room for it."""

    message: BaseMessage
    count_message: Callable[[BaseMessage], int]
    count: Count
    budget_tokens: int
    reference: str | None
    media_reference: str | None
    """The reference that lines in place of media name."""

    def with_own_words(self, parts: Sequence[Part]) -> BaseMessage | None:
        """Returns the message with its own texts whole, and those for other parts clipped.

        None where there are not both, or where the own ones leave no room.
        """
        runs = _runs(parts)
        own_texts = [run.own_text for run in runs]
        inner_texts = [text for run in runs for text in run.inner_texts]
        if not any(own_texts) or not any(inner_texts):
            return None
        whole = _with_texts(self.message, [run.text for run in runs], parts)
        if self.count_message(whole) <= self.budget_tokens:
            return whole

        clip = partial(clip_text, count=self.count, reference=self.reference)

        def clipped_to(tokens: int) -> list[str] | None:
            clipped = _clipped_together(inner_texts, tokens, self.count, clip)
            if clipped is None:
                return None
            texts = iter(clipped)
            return [run.with_inner_texts(texts) for run in runs]

        return self._largest_that_fits(own_texts, parts, clipped_to)

    def with_clipped_text(
        self, parts: Sequence[Part], focus: frozenset[str], worth: tuple[float, ...]
    ) -> BaseMessage | None:
        """Returns the message with its texts clipped; None where that is too long, too.

        Texts in a row are clipped as one. Where the reference leaves no room, it is not named.
        """
        texts = self._own_texts_and_lines(parts)
        lines = sum(len(text.splitlines()) for text in texts)
        line_worth = worth if len(texts) == 1 and len(worth) == lines else ()
        references = (self.reference, None) if self.reference else (None,)
        no_texts = [""] * len(texts)
        for reference in references:
            clip = partial(
                clip_text, count=self.count, reference=reference, focus=focus, worth=line_worth
            )
            clipped_to = partial(_clipped_together, texts, count=self.count, clip=clip)
            clipped = self._largest_that_fits(no_texts, parts, clipped_to)
            if clipped is not None:
                return clipped
        return None

    def _own_texts_and_lines(self, parts: Sequence[Part]) -> list[str]:
        """Returns the own texts of a message in runs, with a line for each other part.

        A message without own texts has those inside its other parts.
        """
        runs = _runs(parts)
        if not any(run.own_text for run in runs):
            return [run.text for run in runs]
        texts: list[str] = []
        lines_left = POLICY.told_blocks
        for run in runs:
            lines = [placeholder_of(part, self.media_reference) for part in run.replaced]
            more = len(lines) - lines_left
            if more > 0:
                lines = [*lines[:lines_left], f"[{more} more left out]"]
            lines_left = max(0, -more)
            texts.append(_on_lines(run.own_text, *lines))
        return texts

    def _largest_that_fits(
        self,
        base_texts: Sequence[str],
        parts: Sequence[Part],
        clipped_to: Callable[[int], list[str] | None],
    ) -> BaseMessage | None:
        """Returns the message with the longest texts that fit; None where none do.

        Args:
            base_texts: What the texts cost is counted beside these.
            parts: What the texts stand among.
            clipped_to: Returns texts of at most so many tokens, None if there are none.
        """
        base_tokens = self.count_message(_with_texts(self.message, base_texts, parts))
        text_tokens = self.budget_tokens - base_tokens
        texts = clipped_to(text_tokens)
        while texts is not None:
            clipped = _with_texts(self.message, texts, parts)
            excess_tokens = self.count_message(clipped) - self.budget_tokens
            if excess_tokens <= 0:
                return clipped
            text_tokens -= excess_tokens  # a message may cost more than its parts
            texts = clipped_to(text_tokens)
        return None

    def shorter_forms(self, *, keeps_media: bool) -> Iterator[list[Part]]:
        """Yields the parts of the message with less and less beside its texts.

        What gives way has become a text, too.
        """
        parts = with_cited_texts_joined(parts_of(self.message))
        without_thoughts = [part for part in parts if part.kind is not Kind.REASONING]
        has_thoughts = len(without_thoughts) < len(parts)
        # An item of the Responses API and what led to it: both stay, or none.
        if has_thoughts and item_ids(self.message):
            yield self._readable_parts(without_thoughts, keeps_media=False)
            return
        yield parts
        if has_thoughts:
            yield without_thoughts
        as_text = self._readable_parts(without_thoughts, keeps_media=True)
        if any(part.in_place_of is not None for part in as_text):
            yield as_text
        if not keeps_media:
            yield from self._forms_without_media(as_text)

    def _forms_without_media(self, parts: Sequence[Part]) -> Iterator[list[Part]]:
        """Yields parts with as few lines in place of media as fit, then with lines for all."""
        costs = {at: self._cost_of(part) for at, part in enumerate(parts) if part.is_media}
        excess_tokens = self._least_tokens(parts) - self.budget_tokens
        most_tokens = sum(costs.values()) - excess_tokens
        # Those that do not fit even alone go first, and take no others with them.
        places = sorted(costs, key=lambda at: costs[at] <= most_tokens)
        in_order = [costs[at] for at in places]
        saved_tokens = accumulate(in_order, initial=0)  # without the lines in place of media
        fewest = sum(tokens < excess_tokens for tokens in saved_tokens)
        for number in range(fewest, len(places)):
            form = self._without_media(parts, places[:number])
            if self._least_tokens(form) <= self.budget_tokens:
                yield form
                break
        yield self._without_media(parts, places)

    def _readable_parts(self, parts: Sequence[Part], *, keeps_media: bool) -> list[Part]:
        """Returns parts with texts in place of all that is neither a text nor a call."""
        shown: list[Part] = []
        for part in parts:
            is_kept = keeps_media and part.is_media
            if is_kept or part.plain_text is not None or part.is_listed_call:
                shown.append(part)
            else:
                shown.append(self._readable(part))
        return shown

    def _without_media(self, parts: Sequence[Part], places: Sequence[int]) -> list[Part]:
        """Returns parts with lines in place of those at some places."""
        shown = list(parts)
        for at in places:
            shown[at] = self._readable(parts[at])
        return shown

    def _readable(self, part: Part) -> Part:
        """Returns the text that stands for a part."""
        return text_part(readable_text_of(part, self.media_reference), in_place_of=part)

    def _least_tokens(self, parts: Sequence[Part]) -> int:
        """Returns the tokens of the message with the least text that media leave room for."""
        text_tokens = self.count(_joined(parts))
        rest_tokens = self.count_message(_with_texts(self.message, [], parts))
        return rest_tokens + min(text_tokens, POLICY.text_beside_media)

    def _cost_of(self, part: Part) -> int:
        """Returns the tokens that a part adds to the message."""
        alone = with_parts(self.message, [part])
        empty = with_parts(self.message, [])
        return self.count_message(alone) - self.count_message(empty)


# Results that are blocks of a message


class ClipMessage(Protocol):
    """Returns a message in at most so many tokens, None where that cannot be."""

    def __call__(self, message: BaseMessage, *, budget_tokens: int) -> BaseMessage | None:
        """See `clip_message`."""


@dataclass(frozen=True, slots=True)
class _ClippedResults:
    """A message that has results of calls as blocks: clipped, they are results all the same."""

    message: BaseMessage
    count_message: Callable[[BaseMessage], int]
    clip: ClipMessage

    def within(self, budget_tokens: int) -> BaseMessage | None:
        """Returns the message with its largest results clipped; None where it does not fit.

        Words beside them stay whole if they leave half of the room.
        """
        words = self._words_within(budget_tokens // 2)
        results = [result_of(part.block, self.message) for part in self._parts_with_results]
        costs = [self.count_message(result) for result in results]
        results_tokens = budget_tokens - self.count_message(with_parts(self.message, words))
        while results_tokens > 0:
            level = water_level(costs, results_tokens)
            shorter = [
                self._clipped(result, cost, level)
                for result, cost in zip(results, costs, strict=True)
            ]
            shown = with_parts(self.message, [*shorter, *words])
            excess_tokens = self.count_message(shown) - budget_tokens
            if excess_tokens <= 0:
                return shown
            results_tokens -= excess_tokens
        return None

    @property
    def _parts_with_results(self) -> list[Part]:
        return [part for part in parts_of(self.message) if is_result(part.block)]

    def _words_within(self, budget_tokens: int) -> list[Part]:
        """Returns the parts beside the results; clipped where they are over a budget."""
        words = [part for part in parts_of(self.message) if not is_result(part.block)]
        clipped = self.clip(with_parts(self.message, words), budget_tokens=budget_tokens)
        return words if clipped is None else parts_of(clipped)

    def _clipped(self, result: ToolMessage, cost: int, most_tokens: int) -> Part:
        """Returns a result that is clipped; a marker stands for one that is too long even so."""
        clipped = self.clip(result, budget_tokens=most_tokens)
        if clipped is None:
            clipped = result.model_copy(update={"content": _marker(cost, None).strip()})
        return Part(block_of_result(result.model_copy(update={"content": clipped.content})))


# Parts of a message that is clipped


@dataclass(frozen=True, slots=True)
class _Run:
    """Texts of a message that stand in a row: its own, and those in place of other parts."""

    parts: Sequence[Part]

    @property
    def text(self) -> str:
        """All of them."""
        return _joined(self.parts)

    @property
    def own_text(self) -> str:
        """The message's own ones."""
        return _joined(part for part in self.parts if part.in_place_of is None)

    @property
    def inner_texts(self) -> list[str]:
        """Those in place of other parts, each with its neighbours that are such texts, too."""
        return [_joined(parts) for is_own, parts in self._stretches() if not is_own]

    def with_inner_texts(self, texts: Iterator[str]) -> str:
        """Returns all of them, with the next of other texts in place of each inner one."""
        shown: list[str] = []
        for is_own, parts in self._stretches():
            shown.append(_joined(parts) if is_own else next(texts))
        return _on_lines(*shown)

    def _stretches(self) -> Iterator[tuple[bool, Iterator[Part]]]:
        """Yields parts in a row that are the message's own texts, or none, and whether they are."""
        return groupby(self.parts, lambda part: part.in_place_of is None)

    @property
    def replaced(self) -> list[Part]:
        """These other parts."""
        return [part.in_place_of for part in self.parts if part.in_place_of is not None]


def _runs(parts: Sequence[Part]) -> list[_Run]:
    """Returns the texts among parts, as runs of those that stand in a row."""
    return [_Run(list(run)) for is_run, run in _stretches(parts) if is_run]


def _stretches(parts: Sequence[Part]) -> Iterator[tuple[bool, Iterator[Part]]]:
    """Yields parts in a row that are texts, or that are none, and whether they are."""
    return groupby(parts, lambda part: part.plain_text is not None)


def _joined(parts: Iterable[Part]) -> str:
    """Returns the texts among parts, each on a line of its own."""
    return _on_lines(*(part.plain_text or "" for part in parts))


def _on_lines(*texts: str) -> str:
    """Returns texts, each on a line of its own; empty ones have none."""
    return "\n".join(filter(None, texts))


def _clipped_together(
    texts: Sequence[str], tokens: int, count: Count, clip: ClipText
) -> list[str] | None:
    """Returns texts that are clipped to one size, so that they have so many tokens together.

    A marker alone stands for one that is too short for that; None where all are.
    """
    if len(texts) == 1:
        clipped = clip(texts[0], budget_tokens=tokens)
        return None if clipped is None else [clipped]
    costs = list(map(count, texts))
    level = water_level(costs, tokens)
    shorter = [clip(text, budget_tokens=level) for text in texts]
    if not any(shorter):
        return None
    return [
        _marker(cost, None).strip() if text is None else text
        for text, cost in zip(shorter, costs, strict=True)
    ]


def _with_texts(message: BaseMessage, texts: Sequence[str], parts: Sequence[Part]) -> BaseMessage:
    """Returns a message with one text in place of each run of texts among some parts.

    Each stands where its run stood; a run for which there is no text goes.
    """
    if only_text_of(message) is not None:
        return message.model_copy(update={"content": "".join(texts)})
    shown: list[Part] = []
    texts_left = iter(texts)
    for is_run, stretch in _stretches(parts):
        if not is_run:
            shown.extend(stretch)
            continue
        text = next(texts_left, "")
        if text:
            shown.append(text_part(text))
    changed = with_parts(message, shown)
    # An item of the Responses API that was changed has another id than the one that its reasoning
    # led to.
    return without_items(changed) if item_ids(message) else changed
