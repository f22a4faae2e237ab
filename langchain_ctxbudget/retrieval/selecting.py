"""Filling a budget with what was found: what is worth most per token, in the order of time, one line an item."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.history import Conversation, Entry
from langchain_ctxbudget.messages import fences, fold, one_line
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.search import Candidate, Scores, pack, passage, pieces

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
"""The least that a long message costs, in tokens and of the budget."""
LONG_TURNS = 16
"""So many of the texts that do not fit are looked at for passages."""
NAMED_SHARE = 0.6
"""The most that a document takes that stands there whole because a message names it."""
MEMORY_SHARE = 0.4
"""The most that memories take while anything else has use for it (DESIGN: 60 and 40 %)."""
OWN_MESSAGES = "messages"
"""The source of what the open conversation has said."""
OWN_SECTION = "## Said earlier in this conversation\n"
MIXED_SECTION = "## Found for this message\n"
HERE = "[in this conversation]\n"
"""Stands above a message without a date where it could seem to be a part of what comes from elsewhere."""
_CHARACTERS_PER_TOKEN, _MOST_CHARACTERS_PER_TOKEN = 4, 16
_MOST_TITLE_CHARACTERS = 80
_NO_HEADING = str.maketrans("[]", "()")
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Items in the order in which they stand, and the account of the rest."""

    fragments: tuple[Fragment, ...] = ()
    positions: tuple[int, ...] = ()
    """Of the conversation's messages that are quoted whole."""
    omitted: tuple[ReportItem, ...] = ()
    """The best of those left out."""
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    """The number of others left out, per reason."""


def select(
    conversation: Conversation,
    pool: Pool,
    end: int,
    budget_tokens: int,
    *,
    shown: Collection[int] = (),
    in_short: Collection[int] = (),
    numbered: bool = False,
) -> Retrieved:
    """Fills a budget with the texts that are worth most per token.

    Messages from `end` on and those at `shown` stand in the prompt already, of those `in_short` only head and tail.
    `numbered` gives every message the number that the recall tool knows it by.
    """
    return _Selection(conversation, pool, budget_tokens, numbered=numbered).filled(end, shown, in_short)


class _Selection:
    def __init__(self, conversation: Conversation, pool: Pool, budget_tokens: int, *, numbered: bool) -> None:
        self.conversation, self.pool, self.numbered = conversation, pool, numbered
        self.mixed = bool(pool.others or pool.named)
        self.count = conversation.counter.count_text
        self.left, self.memories_left = budget_tokens, int(budget_tokens * MEMORY_SHARE)
        self.headings: set[str] = set()
        self.chosen: dict[int, Fragment] = {}
        self.said: set[tuple[str, str]] = set()
        """Texts that stand in the prompt word for word, each with who says it."""

    def filled(self, end: int, shown: Collection[int], in_short: Collection[int]) -> Retrieved:
        pool = self.pool
        named = self._named()
        whole = {part.id for part in named if part.status is Status.INCLUDED}
        free = pool.meant.copy()
        for number, other in enumerate(pool.others):
            free[number] &= other.id.rpartition("#")[0] not in whole
        later = [pool.number(position) for position in in_short if position >= end]
        shown_before = [position for position in shown if position < end]
        meant = free[later]
        free[pool.number(end) :] = False
        free[later] = meant
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
        self._take(order)
        self.memories_left = self.left
        self._take(n for n in order if self._is_memory(n))
        too_long = (n for n in order if n not in self.chosen and self._about(n) > self.left)
        for number in [n for n in too_long if pool.position(n) is not None][:LONG_TURNS]:
            if self.left < SMALLEST_PASSAGE_TOKENS:
                break
            self._add_passage(number, self.left)
        left_out = [number for number in order if number not in self.chosen]
        listed = left_out[:LISTED_OMISSIONS]
        more = all_free - len(self.chosen) - len(listed)
        quoted = [pool.position(n) for n, part in sorted(self.chosen.items()) if part.status is Status.INCLUDED]
        return Retrieved(
            fragments=(*named, *(self.chosen[number] for number in sorted(self.chosen, key=self._place))),
            positions=tuple(position for position in quoted if position is not None),
            omitted=tuple(map(self._omitted, listed)),
            more_omitted={Reason.RANKED_LOWER: more} if more else {},
        )

    def _candidates(self, free: NDArray[np.bool_], most: int) -> list[int]:
        """Returns about so many of the best, each text once; what the prompt says in any case is no longer free."""
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
        """Returns the first of all texts that say the same, and none that the prompt or the question says."""
        said, once, asked = set(self.said), list[int](), _folded(self.pool.question.text)
        for number in numbers:
            saying = self._said(number)
            if saying not in said and saying[1] != asked:
                said.add(saying)
                once.append(number)
        return once

    def _promising(self, free: NDArray[np.bool_]) -> tuple[list[int], int]:
        """Returns long ones of the most relevant messages, and the tokens to keep for parts: one may be the answer."""
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

    # Taking

    def _named(self) -> list[Fragment]:
        """Takes the documents that a message names first: whole, or as their summary."""
        value = float(self.pool.ranking.keys.max(initial=0.0)) + 1
        taken: list[Fragment] = []
        for named in self.pool.named:
            for other, most in ((named.whole, int(self.left * NAMED_SHARE)), (named.summary, self.left)):
                if other is None or not other.text.strip():
                    continue
                line, heading = _line(other), self._heading(other)
                tokens = self.count(line)
                if (price := tokens + self.count(heading)) <= most:
                    self.left -= price
                    taken.append(
                        Fragment(
                            layer=Layer.RETRIEVAL,
                            id=named.id,
                            text=line,
                            tokens=tokens,
                            reason=Reason.DETECTED,
                            status=Status.INCLUDED if other is named.whole else Status.SHRUNK,
                            section=MIXED_SECTION,
                            heading=heading,
                            value=value,
                            source=other.source,
                        )
                    )
                    break
        return taken

    def _take(self, order: Iterable[int]) -> None:
        """Takes the texts that fit, and are not taken yet, in an order."""
        rest = [number for number in order if number not in self.chosen]
        for number in pack(rest, self._buy, self.left, SMALLEST_ITEM_TOKENS):
            self.chosen[number] = self._fragment(number, self._whole_line(number))

    def _buy(self, number: int) -> int:
        """Pays for a text where there is room for it; returns its price."""
        if self._about(number) - UNLIKE_TOKENS > self.left:
            return self.left + 1  # too large by its message's cost: not worth tokenizing
        heading = self._heading(self._text(number))
        price = self.count(self._whole_line(number)) + self._price_of(heading)
        is_memory = self._is_memory(number)
        if is_memory and price > self.memories_left:
            return self.left + 1
        if price <= self.left:
            self.left -= price
            self.memories_left -= price if is_memory else 0
            self.headings.add(heading)
        return price

    def _price_of(self, heading: str) -> int:
        return 0 if heading in self.headings else self.count(heading)

    def _add_passage(self, number: int, most_tokens: int) -> None:
        """Takes the part of a message that has the words of the query, where it has any."""
        position = self.pool.position(number)
        if position is None or number in self.chosen:
            return
        entry = self.conversation.entries[position]
        price = self._price_of(heading := self._heading(entry))
        room = min(self.left, most_tokens) - price
        characters = _CHARACTERS_PER_TOKEN * room
        parts = pieces(entry.text) if room > 0 else ()
        for _ in range(_TRIES):
            if (part := passage(parts, self.pool.question.terms, characters)) is None:
                return
            start, end = part
            before, after = "… " if start else "", " …" if end < len(entry.text) else ""
            line = _line(entry, f"#{position + 1} ", f"{before}{entry.text[start:end].strip()}{after}")
            tokens = self.count(line)
            if tokens <= room:
                self.left -= tokens + price
                self.headings.add(heading)
                self.chosen[number] = self._fragment(number, line, Status.SHRUNK)
                return
            characters = int(characters * room / tokens * 0.95)

    # Texts

    def _text(self, number: int) -> Candidate | Entry:
        position = self.pool.position(number)
        return self.pool.others[number] if position is None else self.conversation.entries[position]

    def _is_memory(self, number: int) -> bool:
        return number < len(self.pool.others) and self.pool.others[number].source == "memories"

    def _said(self, number: int) -> tuple[str, str]:
        text = self._text(number)
        return text.speaker, _folded(text.text)

    def _about(self, number: int) -> int:
        """Returns what a text costs at least, about."""
        position = self.pool.position(number)
        if position is None:
            return len(self.pool.others[number].text) // _MOST_CHARACTERS_PER_TOKEN
        entry = self.conversation.entries[position]
        return self.conversation.costs[position] if isinstance(entry.message.content, str) else 0

    def _place(self, number: int) -> tuple[int, str, int]:
        """Returns what items are sorted by; a merged log goes back and forth in time."""
        position = self.pool.position(number)
        return (0, "", number) if position is None else (1, self.conversation.entries[position].date or "", number)

    def _whole_line(self, number: int) -> str:
        position = self.pool.position(number)
        return _line(self._text(number), f"#{position + 1} " if self.numbered and position is not None else "")

    def _heading(self, text: Candidate | Entry) -> str:
        """Returns the line that texts of one place or messages of one day stand under."""
        if isinstance(text, Entry):
            return f"[{text.date}]\n" if text.date else HERE if self.mixed else ""
        if text.source == "memories":
            return "[known about the user]\n"
        if text.source == "documents":
            title = one_line(text.title)[:_MOST_TITLE_CHARACTERS].translate(_NO_HEADING)
            return f"[document: {fences.as_data(title)}{', ' if text.date else ''}{text.date or ''}]\n"
        return f"[{text.date or ''}{', ' if text.date else ''}in another conversation]\n"

    def _fragment(self, number: int, line: str, status: Status = Status.INCLUDED) -> Fragment:
        text = self._text(number)
        return Fragment(
            layer=Layer.RETRIEVAL,
            id=text.id,
            text=line,
            tokens=self.count(line),
            reason=Reason.RELEVANT,
            status=status,
            section=MIXED_SECTION if self.mixed else OWN_SECTION,
            heading=self._heading(text),
            value=float(self.pool.ranking.keys[number]),
            scores=self.pool.scores(number),
            source=text.source if isinstance(text, Candidate) else OWN_MESSAGES,
        )

    def _omitted(self, number: int) -> ReportItem:
        text, position = self._text(number), self.pool.position(number)
        tokens = len(text.text) // _CHARACTERS_PER_TOKEN if position is None else self.conversation.costs[position]
        return ReportItem(
            id=text.id,
            tokens=tokens + LINE_OVERHEAD_TOKENS,
            status=Status.OMITTED,
            reason=Reason.RANKED_LOWER,
            preview=preview(text.text),
            source=text.source if isinstance(text, Candidate) else OWN_MESSAGES,
            scores=self.pool.scores(number),
        )


def _line(text: Candidate | Entry, reference: str = "", part: str | None = None) -> str:
    """Returns a text, or a part of it, as an item."""
    name = f"{text.speaker}: " if text.speaker else ""
    return f"- {reference}{name}{fences.as_item(text.text if part is None else part)}\n"


def _folded(text: str) -> str:
    return one_line(fold(text))


def _highest(numbers: NDArray[np.intp], scores: Scores, most: int) -> list[int]:
    """Returns the numbers with the highest scores, the highest first; of equal ones, the first."""
    chosen = scores[numbers]
    if len(numbers) > most:
        threshold = np.partition(chosen, len(chosen) - most)[len(chosen) - most]
        numbers, chosen = numbers[chosen >= threshold], chosen[chosen >= threshold]
    order: list[int] = numbers[np.argsort(-chosen, kind="stable")].tolist()
    return order[:most]
