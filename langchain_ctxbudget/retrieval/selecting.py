"""Filling a budget with what was found: what is worth most per token, in the order of time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget.layers import Fragment, Layer, Reason, Status
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.messages.text import fold, one_line
from langchain_ctxbudget.report.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.retrieval import quotes
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.quotes import Style
from langchain_ctxbudget.search.lexical import passage
from langchain_ctxbudget.search.packing import pack
from langchain_ctxbudget.search.ranking import Scores

SMALLEST_ITEM_TOKENS = 8
SMALLEST_PASSAGE_TOKENS = 24
UNLIKE_TOKENS = 24
"""A message may cost this much more than its line: role, name, a date above it."""
LINE_OVERHEAD_TOKENS = 4
"""About what a line costs on top of its message: the dash, the colon, the line break."""
CANDIDATES, TOKENS_PER_CANDIDATE = 256, 8
"""As many of the best are looked at, or one for so many tokens of the budget, if that is more."""
MOST_TIMES = 8
"""So many times as many are looked at where most of them say the same."""
PROMISING, PASSAGE_SHARE = 5, 0.04
"""Of so many of the most relevant messages, those that are long get this share of the budget for a part of them, where
the whole is not worth its tokens."""
GOOD_PASSAGE_TOKENS = 64
STANDS_OUT, MOST_PASSAGE_SHARE = 1.0, 0.125
"""A message that is more relevant than every other by so much gets a good passage where that is this share at most."""
LONG_TOKENS, LONG_SHARE = 160, 0.05
"""What a long message costs at least, in tokens and of the budget."""
LONG_TURNS = 16
"""So many of the texts that do not fit are looked at for passages."""
NAMED_SHARE = 0.6
"""What a document that a message names may take to stand there whole."""
MEMORY_SHARE = 0.4
"""What memories may take while anything else has use for it (DESIGN: 60 and 40 %)."""
OWN_MESSAGES = "messages"
"""The source of what the open conversation has said."""
_CHARACTERS_PER_TOKEN, _MOST_CHARACTERS_PER_TOKEN = 4, 16
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What was found, in the order in which it stands, and the account of the rest."""

    fragments: tuple[Fragment, ...] = ()
    positions: tuple[int, ...] = ()
    """Of the conversation's messages that are quoted whole."""
    omitted: tuple[ReportItem, ...] = ()
    """The best of those left out."""
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    """How many more were left out, per reason."""


def select(
    conversation: Conversation,
    pool: Pool,
    end: int,
    budget_tokens: int,
    *,
    shown: Collection[int] = (),
    in_short: Collection[int] = (),
    style: Style,
) -> Retrieved:
    """Fill a budget with the texts that are worth most per token.

    Args:
        conversation: an open conversation.
        pool: what there is, ranked.
        end: messages from here on stand in the prompt.
        budget_tokens: what the items and their headings may cost together.
        shown: positions of messages before that stand in it, too.
        in_short: positions of messages of which only head and tail stand in it.
        style: what stands beside the words.
    """
    return _Selection(conversation, pool, budget_tokens, style).filled(end, shown, in_short)


class _Selection:
    def __init__(self, conversation: Conversation, pool: Pool, budget_tokens: int, style: Style) -> None:
        self.conversation, self.pool = conversation, pool
        self.style = replace(style, mixed=bool(pool.others or pool.named))
        self.count = conversation.counter.count_text
        self.left, self.memories_left = budget_tokens, int(budget_tokens * MEMORY_SHARE)
        self.headings: set[str] = set()
        self.chosen: dict[int, Fragment] = {}
        self.named: list[Fragment] = []
        self.whole: set[str] = set()
        """Ids of the documents that stand there whole."""
        self.said: set[tuple[str, str]] = set()
        """What stands in the prompt word for word, each with who says it."""

    def filled(self, end: int, shown: Collection[int], in_short: Collection[int]) -> Retrieved:
        pool = self.pool
        self._take_named()
        free = pool.meant.copy()
        for number, other in enumerate(pool.others):
            free[number] &= other.id.rpartition("#")[0] not in self.whole
        later = [pool.number(position) for position in in_short if position >= end]
        meant = free[later]
        free[pool.number(end) :] = False
        free[later] = meant
        shown_before = [position for position in shown if position < end]
        free[[pool.number(position) for position in shown_before]] = False
        verbatim = {*shown_before, *range(end, pool.own)}.difference(in_short)
        self.said = {self._said(n) for n in map(pool.number, verbatim) if pool.meant[n]}
        all_free = int(np.count_nonzero(free))
        most = max(CANDIDATES, self.left // TOKENS_PER_CANDIDATE)
        memories = np.array([n for n in range(len(pool.others)) if free[n] and self._is_memory(n)], np.intp)
        free[memories] = False
        free[_highest(memories, pool.ranking.keys, int(most * MEMORY_SHARE))] = True
        order = self._candidates(free, most)
        promising, kept_free = self._promising(free)
        self.left -= kept_free
        self._take(order)
        self.left += kept_free
        for number in promising:
            self._add_passage(number, kept_free // len(promising))
        self._take([number for number in order if number not in self.chosen])
        self.memories_left = self.left
        self._take([number for number in order if self._is_memory(number) and number not in self.chosen])
        self._fill_with_passages(order)
        left_out = [number for number in order if number not in self.chosen]
        listed = left_out[:LISTED_OMISSIONS]
        more = all_free - len(self.chosen) - len(listed)
        whole = [pool.position(n) for n, part in sorted(self.chosen.items()) if part.status is Status.INCLUDED]
        return Retrieved(
            fragments=(*self.named, *(self.chosen[number] for number in sorted(self.chosen, key=self._place))),
            positions=tuple(position for position in whole if position is not None),
            omitted=tuple(self._omitted(number) for number in listed),
            more_omitted={Reason.RANKED_LOWER: more} if more else {},
        )

    def _candidates(self, free: NDArray[np.bool_], most: int) -> list[int]:
        """About so many of the best, each text once; what the prompt says in any case is no longer free."""
        size = most
        while True:
            best = _highest(np.flatnonzero(free), self.pool.ranking.keys, size)
            once = self._once(best)
            # Else "Go on.", said a hundred times, is all there is.
            if len(once) >= most // 2 or len(best) < size or size >= most * MOST_TIMES:
                free[best] = False
                free[once] = True
                return once
            size *= 2

    def _once(self, numbers: list[int]) -> list[int]:
        """The first of all texts that say the same, and none that the prompt has already."""
        said, once, asked = set(self.said), list[int](), _folded(self.pool.question.text)
        for number in numbers:
            saying = self._said(number)
            if saying not in said and saying[1] != asked:
                said.add(saying)
                once.append(number)
        return once

    def _said(self, number: int) -> tuple[str, str]:
        position = self.pool.position(number)
        item = self.pool.others[number] if position is None else self.conversation.entries[position]
        return item.speaker, _folded(item.text)

    def _buy(self, number: int) -> int:
        """What a text costs now, its heading included; where that is left, it is spent."""
        line, heading = self._line(number)
        about = self._about(number)
        if about - UNLIKE_TOKENS > self.left:
            return about  # too large by its message's cost: not worth tokenizing
        price = self.count(line) + (0 if heading in self.headings else self.count(heading))
        is_memory = self._is_memory(number)
        if is_memory and price > self.memories_left:
            return self.left + 1
        if price <= self.left:
            self.left -= price
            self.memories_left -= price if is_memory else 0
            self.headings.add(heading)
        return price

    def _take_named(self) -> None:
        """Documents that a message names come first: whole, or as their summary."""
        best = float(self.pool.ranking.keys.max(initial=0.0))
        for named in self.pool.named:
            for other in (named.whole, named.summary):
                if other is None or not other.text.strip():
                    continue
                line, heading = quotes.line(other, self.style), quotes.heading(other, self.style)
                price = self.count(line) + self.count(heading)
                if price > (int(self.left * NAMED_SHARE) if other is named.whole else self.left):
                    continue
                self.left -= price
                self.whole |= {named.id} if other is named.whole else set()
                self.named.append(
                    Fragment(
                        layer=Layer.RETRIEVAL,
                        id=named.id,
                        text=line,
                        tokens=self.count(line),
                        reason=Reason.DETECTED,
                        status=Status.INCLUDED if other is named.whole else Status.SHRUNK,
                        section=quotes.MIXED_SECTION,
                        heading=heading,
                        value=best + 1,
                        source=other.source,
                    )
                )
                break

    def _take(self, order: list[int]) -> None:
        for number in pack(order, self._buy, self.left, SMALLEST_ITEM_TOKENS):
            self.chosen[number] = self._fragment(number, *self._line(number))

    def _is_memory(self, number: int) -> bool:
        return self._source(number) == "memories"

    def _promising(self, free: NDArray[np.bool_]) -> tuple[list[int], int]:
        """Long messages among those that are most relevant, and what is kept free for parts: one may be the answer."""
        relevance = self.pool.ranking.relevance
        best = self._once(_highest(np.flatnonzero(free), relevance, PROMISING))
        least = max(LONG_TOKENS, self.left * LONG_SHARE)
        long = [n for n in best if self.pool.position(n) is not None and self._about(n) >= least]
        room = int(self.left * PASSAGE_SHARE)
        others = max((relevance[n] for n in best if n not in long[:1]), default=-np.inf)
        if long and relevance[long[0]] >= others + STANDS_OUT:
            room = max(room, min(GOOD_PASSAGE_TOKENS, int(self.left * MOST_PASSAGE_SHARE)))
        chosen = long[: room // GOOD_PASSAGE_TOKENS]
        return chosen, room if chosen else 0

    def _fill_with_passages(self, order: list[int]) -> None:
        """Fill what is left with the parts of texts that do not fit whole."""
        too_long = (n for n in order if n not in self.chosen and self._about(n) > self.left)
        own = [n for n in too_long if self.pool.position(n) is not None]
        for number in own[:LONG_TURNS]:
            if self.left < SMALLEST_PASSAGE_TOKENS:
                break
            self._add_passage(number, self.left)

    def _add_passage(self, number: int, most_tokens: int) -> None:
        """Take the part of a message that has the words of the query, where it has any."""
        position = self.pool.position(number)
        if position is None or number in self.chosen or not (part := self._passage(position, most_tokens)):
            return
        self.left -= part.tokens + (0 if part.heading in self.headings else self.count(part.heading))
        self.headings.add(part.heading)
        self.chosen[number] = part

    def _passage(self, position: int, most_tokens: int) -> Fragment | None:
        entry = self.conversation.entries[position]
        heading = quotes.message_heading(entry, self.style)
        room = min(self.left, most_tokens) - (0 if heading in self.headings else self.count(heading))
        if room <= 0:
            return None
        found = self.conversation.table.index.pieces(entry)
        characters = _CHARACTERS_PER_TOKEN * room
        for _ in range(_TRIES):
            part = passage(found, self.pool.question.terms, characters)
            if part is None:
                return None
            start, end = part
            before, after = "… " if start else "", " …" if end < len(entry.text) else ""
            text = f"{before}{entry.text[start:end].strip()}{after}"
            line = quotes.message_line(entry, position + 1, self.style, text)
            tokens = self.count(line)
            if tokens <= room:
                return self._fragment(self.pool.number(position), line, heading, Status.SHRUNK)
            characters = int(characters * room / tokens * 0.95)
        return None

    def _line(self, number: int) -> tuple[str, str]:
        """A text as an item, and what it stands under."""
        position = self.pool.position(number)
        if position is None:
            other = self.pool.others[number]
            return quotes.line(other, self.style), quotes.heading(other, self.style)
        entry = self.conversation.entries[position]
        return quotes.message_line(entry, position + 1, self.style), quotes.message_heading(entry, self.style)

    def _about(self, number: int) -> int:
        """What a text costs at least, about."""
        position = self.pool.position(number)
        if position is None:
            return len(self.pool.others[number].text) // _MOST_CHARACTERS_PER_TOKEN
        entry = self.conversation.entries[position]
        return self.conversation.costs[position] if isinstance(entry.message.content, str) else 0

    def _place(self, number: int) -> tuple[int, str, int]:
        """What items are sorted by; a merged log goes back and forth in time."""
        position = self.pool.position(number)
        return (0, "", number) if position is None else (1, self.conversation.entries[position].date or "", number)

    def _fragment(self, number: int, line: str, heading: str, status: Status = Status.INCLUDED) -> Fragment:
        return Fragment(
            layer=Layer.RETRIEVAL,
            id=self._identity(number),
            text=line,
            tokens=self.count(line),
            reason=Reason.RELEVANT,
            status=status,
            section=quotes.MIXED_SECTION if self.pool.others or self.pool.named else quotes.OWN_SECTION,
            heading=heading,
            value=float(self.pool.ranking.keys[number]),
            scores=self.pool.scores(number),
            source=self._source(number),
        )

    def _identity(self, number: int) -> str:
        position = self.pool.position(number)
        return self.pool.others[number].id if position is None else self.conversation.entries[position].id

    def _source(self, number: int) -> str:
        return self.pool.others[number].source if self.pool.position(number) is None else OWN_MESSAGES

    def _omitted(self, number: int) -> ReportItem:
        position = self.pool.position(number)
        if position is None:
            text = self.pool.others[number].text
            tokens = len(text) // _CHARACTERS_PER_TOKEN
        else:
            entry = self.conversation.entries[position]
            text, tokens = entry.text, self.conversation.costs[position]
        return ReportItem(
            id=self._identity(number),
            tokens=tokens + LINE_OVERHEAD_TOKENS,
            status=Status.OMITTED,
            reason=Reason.RANKED_LOWER,
            preview=preview(text),
            source=self._source(number),
            scores=self.pool.scores(number),
        )


def _folded(text: str) -> str:
    return one_line(fold(text))


def _highest(numbers: NDArray[np.intp], scores: Scores, most: int) -> list[int]:
    """The numbers with the highest scores, the highest first; of equal ones, the first."""
    chosen = scores[numbers]
    if len(numbers) > most:
        threshold = np.partition(chosen, len(chosen) - most)[len(chosen) - most]
        numbers, chosen = numbers[chosen >= threshold], chosen[chosen >= threshold]
    order: list[int] = numbers[np.argsort(-chosen, kind="stable")].tolist()
    return order[:most]
