"""Filling a budget with what was found: what is worth most per token, in the order of time, one line an item."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.history import UNKNOWN, Conversation, Entry, saying
from langchain_ctxbudget.messages import fences, one_line, sentences
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.search import Candidate, Scores, passage, pieces

SMALLEST_ITEM_TOKENS, SMALLEST_PASSAGE_TOKENS, GOOD_PASSAGE_TOKENS = 8, 24, 64
UNLIKE_TOKENS, LINE_OVERHEAD_TOKENS = 24, 4
"""A message may cost so much more than its line (role, name, date), and a line so much more than its text."""
CANDIDATES, TOKENS_PER_CANDIDATE, MOST_TIMES = 256, 8, 8
"""As many of the best are looked at, or one for so many tokens, if that is more; where most say the same, more."""
MOST_WORTH = 2_048
"""As many of the best may be worth their tokens."""
PROMISING, PASSAGE_SHARE = 5, 0.04
"""Of so many of the most relevant messages, long ones that are not worth their tokens get this share for a part."""
STANDS_OUT, MOST_PASSAGE_SHARE = 1.0, 0.125
"""A message that is more relevant than every other by so much gets a good passage where that is this share at most."""
LONG_TOKENS, LONG_SHARE = 160, 0.05
"""The least that a long message costs, in tokens and of the budget."""
REPLY_SHARE, SHORTEST_QUESTION, REPLY_CHARACTERS, LOOKED_THROUGH, LONG_WORD = 0.05, 30, (20, 70), 400, 4
"""A question of so many characters comes with a sentence of so many of its reply, one of the first ones, or with all of
a reply that is no longer: without any it says little. Such sentences take this share of the budget at most."""
LONG_TURNS = 16
"""So many of the texts that do not fit are looked at for passages."""
NAMED_SHARE, MEMORY_SHARE = 0.6, 0.4
"""The most that a named document takes, and memories while anything else has use for it (DESIGN: 60 and 40 %)."""
OWN_MESSAGES = "messages"
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
    left_out: tuple[tuple[Candidate | Entry, int], ...] = ()
    """The best of those left out, and about what each would have cost."""
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    """The number of others left out, per reason."""
    scored: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The column of `parts` for every item and every one left out that was ranked, by source and id."""
    parts: Mapping[str, Scores] = field(default_factory=dict)
    """What every part of the ranking says of them."""

    def scores(self, source: str, name: str) -> dict[str, float]:
        """Returns what every part of the ranking says of an item; nothing of one that was not ranked."""
        column = self.scored.get((source, name))
        return {} if column is None else {part: round(float(row[column]), 3) for part, row in self.parts.items()}

    @property
    def omitted(self) -> tuple[ReportItem, ...]:
        """The best of those left out, as a report lists them."""
        return tuple(
            ReportItem(
                id=text.id,
                tokens=tokens,
                status=Status.OMITTED,
                reason=Reason.RANKED_LOWER,
                preview=preview(text.text),
                source=(source := _source(text)),
                scores=self.scores(source, text.id),
            )
            for text, tokens in self.left_out
        )


def select(
    conversation: Conversation,
    pool: Pool,
    end: int,
    budget_tokens: int,
    *,
    shown: Collection[int] = (),
    given: Collection[str] = (),
    in_short: Collection[int] = (),
    least: float = 0.0,
    numbered: bool = False,
) -> Retrieved:
    """Fills a budget with the texts that are worth most per token.

    Messages from `end` on and those at `shown` stand in the prompt already, of those `in_short` only head and tail.
    Texts from elsewhere that are `given`, by id, do, too. What is needed with a probability of less than `least` for
    each of its tokens stays out.
    `numbered` gives every message the number that the recall tool knows it by.
    """
    return _Selection(conversation, pool, budget_tokens, numbered=numbered).filled(
        end, shown, given, in_short, least=least
    )


class _Offer(NamedTuple):
    """A text that may be taken."""

    number: int
    """In the pool."""
    among: Sequence[Candidate | Entry]
    place: int
    """Where the text is; it is looked at when it may be taken."""
    position: int | None
    """In the conversation; None of what lies elsewhere."""
    source: str
    about: int
    """Its cost at least, about."""
    tokens: int = UNKNOWN
    """The cost of its line, where that was counted."""

    @property
    def text(self) -> Candidate | Entry:
        """The text."""
        return self.among[self.place]


class _Selection:
    def __init__(self, conversation: Conversation, pool: Pool, budget_tokens: int, *, numbered: bool) -> None:
        self.conversation, self.pool, self.numbered = conversation, pool, numbered
        self.mixed = bool(pool.others or pool.named)
        self.count = conversation.counter.count_text
        self.left, self.memories_left = budget_tokens, int(budget_tokens * MEMORY_SHARE)
        self.replies_left = int(budget_tokens * REPLY_SHARE)
        self.above: set[str] = set()
        """Headings that stand there already."""
        self.chosen: dict[int, tuple[_Offer, Fragment]] = {}
        self.replies: dict[int, int] = {}
        """The numbers of those of which there is a sentence, and its tokens, which the whole may have."""
        self.asked = saying("", pool.question.text)[1]
        self.said: NDArray[np.int64] = np.zeros(0, np.int64)
        """Digests of what stands in the prompt word for word, and who says it."""

    def filled(
        self, end: int, shown: Collection[int], given: Collection[str], in_short: Collection[int], *, least: float
    ) -> Retrieved:
        pool, first = self.pool, len(self.pool.others)
        named = self._named()
        whole = {part.id for part in named if part.status is Status.INCLUDED}
        quotable = pool.searched.quotable
        may_be_quoted = quotable.copy()
        may_be_quoted[end:] = False
        later = [position for position in in_short if position >= end]
        may_be_quoted[later] = quotable[later]
        before = [position for position in shown if position < end]
        may_be_quoted[before] = False
        verbatim = sorted({*before, *range(end, len(quotable))}.difference(in_short))
        self.said = pool.searched.index.sayings[[position for position in verbatim if quotable[position]]]
        free = pool.meant.copy()
        there = (other.id in given or other.id.rpartition("#")[0] in whole for other in pool.others)
        free[[number for number, is_there in enumerate(there) if is_there]] = False
        free[first:] = may_be_quoted[pool.places]
        all_free = int(np.count_nonzero(free[:first]) + np.count_nonzero(may_be_quoted))
        if least:
            free &= self._is_worth(least)
        too_weak = all_free - int(np.count_nonzero(free)) if least else 0
        most = max(CANDIDATES, self.left // TOKENS_PER_CANDIDATE)
        memories = [n for n in np.flatnonzero(free[:first]).tolist() if pool.others[n].source == "memories"]
        free[memories] = False
        free[_highest(np.array(memories, np.intp), pool.ranking.keys, int(most * MEMORY_SHARE))] = True
        offers = self._offers(self._candidates(free, most))
        self.may_reply = may_be_quoted
        promising, kept_free = self._promising(free)
        self.left -= kept_free
        self._take(offers)
        self.left += kept_free
        for offer in promising:
            self._add_passage(offer, kept_free // len(promising))
        self._take(offers)
        self.memories_left = self.left
        self._take([offer for offer in offers if offer.source == "memories"])
        too_long = (o for o in offers if o.position is not None and o.about > self.left and o.number not in self.chosen)
        for offer in list(too_long)[:LONG_TURNS]:
            if self.left < SMALLEST_PASSAGE_TOKENS:
                break
            self._add_passage(offer, self.left)
        listed = [offer for offer in offers if offer.number not in self.chosen][:LISTED_OMISSIONS]
        more = all_free - len(self.chosen) - len(listed)
        too_weak = min(too_weak, more)  # a reply is quoted for its question, however weak it is
        omitted = {Reason.RANKED_LOWER: more - too_weak, Reason.LOW_RELEVANCE: too_weak}
        chosen = sorted(self.chosen.values(), key=_place)
        ranked = [*(offer for offer, _ in chosen), *listed]
        numbers = [offer.number for offer in ranked]
        quoted = (offer.position for offer, part in chosen if part.status is Status.INCLUDED)
        return Retrieved(
            fragments=(*named, *(part for _, part in chosen)),
            positions=tuple(sorted(position for position in quoted if position is not None)),
            left_out=tuple((offer.text, self._price_about(offer)) for offer in listed),
            more_omitted={reason: number for reason, number in omitted.items() if number},
            scored={(offer.source, offer.text.id): column for column, offer in enumerate(ranked)},
            parts={name: part[numbers] for name, part in pool.ranking.components.items()},
        )

    def _is_worth(self, least: float) -> NDArray[np.bool_]:
        """Returns which texts are needed with a probability of at least so much for each of their tokens."""
        pool = self.pool
        order = _highest(np.flatnonzero(pool.meant), pool.ranking.keys, MOST_WORTH)
        elsewhere = np.array([len(other.text) // _CHARACTERS_PER_TOKEN for other in pool.others], np.int32)
        costs = np.concatenate((elsewhere, self.conversation.cost_column[pool.places]))[order] + LINE_OVERHEAD_TOKENS
        worth = np.zeros(len(pool.meant), np.bool_)
        worth[order] = pool.evidence.probabilities(order, costs) >= least * costs
        return worth

    def _candidates(self, free: NDArray[np.bool_], most: int) -> NDArray[np.intp]:
        """Returns about so many of the best, each text once; what the prompt says in any case is no longer free."""
        size, numbers = most, np.flatnonzero(free)
        while True:
            best = _highest(numbers, self.pool.ranking.keys, size)
            once = self._once(best)
            # Else "Go on.", said a hundred times, is all there is.
            if len(once) >= most // 2 or len(best) < size or size >= most * MOST_TIMES:
                free[best] = False
                free[once] = True
                return once
            size *= 2

    def _once(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Returns the first of all texts that say the same, and none that the prompt or the question says."""
        said = self.pool.said[numbers]
        first = np.zeros(len(numbers), np.bool_)
        first[np.unique(said, return_index=True)[1]] = True
        new: NDArray[np.bool_] = first & ~np.isin(said, self.said) & (self.pool.folded[numbers] != self.asked)
        return numbers[new]

    def _promising(self, free: NDArray[np.bool_]) -> tuple[list[_Offer], int]:
        """Returns long ones of the most relevant messages, and the tokens to keep for parts: one may be the answer."""
        relevance = self.pool.ranking.relevance
        best = self._offers(self._once(_highest(np.flatnonzero(free), relevance, PROMISING)))
        least = max(LONG_TOKENS, self.left * LONG_SHARE)
        long = [offer for offer in best if offer.position is not None and offer.about >= least]
        room = int(self.left * PASSAGE_SHARE)
        others = max((relevance[offer.number] for offer in best if offer not in long[:1]), default=-np.inf)
        if long and relevance[long[0].number] >= others + STANDS_OUT:
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
                line, heading = fences.item("", other.text), self._heading(other)
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

    def _offers(self, numbers: NDArray[np.intp]) -> list[_Offer]:
        """Returns texts with what is known of their price."""
        seen, others = self.conversation, self.pool.others
        own = self.pool.places[numbers[numbers >= len(others)] - len(others)]
        known = zip(own.tolist(), seen.least_costs(own), seen.quote_costs(own, numbered=self.numbered), strict=True)
        offers: list[_Offer] = []
        for number in numbers.tolist():
            if number < len(others):
                least = len(others[number].text) // _MOST_CHARACTERS_PER_TOKEN
                offers.append(_Offer(number, others, number, None, others[number].source, least))
            else:
                position, least, tokens = next(known)
                offers.append(_Offer(number, seen.entries, position, position, OWN_MESSAGES, least, tokens))
        return offers

    def _take(self, offers: Iterable[_Offer]) -> None:
        """Takes the texts that fit, and are not taken yet, in an order; one that does not fit is skipped."""
        for offer in offers:
            number, source, known = offer.number, offer.source, offer.tokens
            if self.left < SMALLEST_ITEM_TOKENS:
                return
            room = self.left + self.replies.get(number, 0)
            if max(offer.about - UNLIKE_TOKENS, known) > room or (number in self.chosen and number not in self.replies):
                continue  # what is too large by its message's cost is not worth tokenizing
            heading = self._heading(offer.text)
            tokens = self._count(offer) if known == UNKNOWN else known
            price = tokens + self._price_of(heading)
            if price > room or (source == "memories" and price > self.memories_left):
                continue
            self.memories_left -= price if source == "memories" else 0
            self.left += self.replies.pop(number, 0)
            self._add(offer, self._line(offer), tokens, heading)
            self._add_reply(offer)

    def _add_reply(self, asked: _Offer) -> None:
        """Takes what replies to a question of the conversation: all of it where it is short, else a sentence."""
        question, places, number = asked.text.text, self.pool.places, asked.number + 1
        if asked.position is None or len(question) <= SHORTEST_QUESTION or "?" not in question:
            return
        at, place = asked.position + 1, number - len(self.pool.others)
        if place == len(places) or places[place] != at or not self.may_reply[at] or number in self.chosen:
            return
        [offer] = self._offers(np.array([number]))
        reply, (least, most) = offer.text, REPLY_CHARACTERS
        if reply.speaker == asked.text.speaker or self.pool.said[number] in self.said:
            return
        line, status = self._line(offer), Status.INCLUDED
        if len(reply.text) > most:
            if self.replies_left < SMALLEST_ITEM_TOKENS:
                return
            words = {word for word in question.lower().split() if len(word) >= LONG_WORD}
            found = sentences(reply.text[:LOOKED_THROUGH])
            whole = found if len(reply.text) <= LOOKED_THROUGH else found[:-1]
            short = [(len(words.intersection(it.lower().split())), it) for it in whole if least < len(it) <= most]
            if not short:
                return
            said, reference = max(short, key=lambda one: one[0])[1], f"#{at + 1} " if self.numbered else ""
            line, status = fences.item(reply.speaker, f"{said} …", reference), Status.SHRUNK
        heading, tokens = self._heading(reply), self.count(line)
        is_part = status is Status.SHRUNK
        if tokens + self._price_of(heading) > self.left or (is_part and tokens > self.replies_left):
            return
        if is_part:
            self.replies[number] = tokens
            self.replies_left -= tokens
        self._add(offer, line, tokens, heading, status)

    def _add(self, offer: _Offer, line: str, tokens: int, heading: str, status: Status = Status.INCLUDED) -> None:
        """Takes a text, or a part of it, and pays for it."""
        self.left -= tokens + self._price_of(heading)
        self.above.add(heading)
        fragment = Fragment(
            layer=Layer.RETRIEVAL,
            id=offer.text.id,
            text=line,
            tokens=tokens,
            reason=Reason.RELEVANT,
            status=status,
            section=MIXED_SECTION if self.mixed else OWN_SECTION,
            heading=heading,
            value=float(self.pool.ranking.keys[offer.number]),
            source=offer.source,
        )
        self.chosen[offer.number] = offer, fragment

    def _price_of(self, heading: str) -> int:
        return 0 if heading in self.above else self.count(heading)

    def _add_passage(self, offer: _Offer, most_tokens: int) -> None:
        """Takes the part of a message that has the words of the query, where it has any."""
        text, position = offer.text, offer.position
        if offer.number in self.chosen or position is None:
            return
        heading = self._heading(text)
        room = min(self.left, most_tokens) - self._price_of(heading)
        characters = _CHARACTERS_PER_TOKEN * room
        parts = pieces(text.text) if room > 0 else ()
        for _ in range(_TRIES):
            if (part := passage(parts, self.pool.question.terms, characters)) is None:
                return
            start, end = part
            before, after = "… " if start else "", " …" if end < len(text.text) else ""
            said = f"{before}{text.text[start:end].strip()}{after}"
            tokens = self.count(line := fences.item(text.speaker, said, f"#{position + 1} "))
            if tokens <= room:
                self._add(offer, line, tokens, heading, Status.SHRUNK)
                return
            characters = int(characters * room / tokens * 0.95)

    # Texts

    def _line(self, offer: _Offer) -> str:
        if offer.position is not None:
            return self.conversation.quoted(offer.position, numbered=self.numbered)
        return fences.item(offer.text.speaker, offer.text.text)

    def _count(self, offer: _Offer) -> int:
        if offer.position is not None:
            return self.conversation.count_quote(offer.position, numbered=self.numbered)
        return self.count(self._line(offer))

    def _heading(self, text: Candidate | Entry) -> str:
        """Returns the line that texts of one place or messages of one day stand under."""
        if isinstance(text, Entry):
            return text.date_heading or (HERE if self.mixed else "")
        if text.source == "memories":
            return "[known about the user]\n"
        if text.source == "documents":
            title = one_line(text.title)[:_MOST_TITLE_CHARACTERS].translate(_NO_HEADING)
            return f"[document: {fences.as_data(title)}{', ' if text.date else ''}{text.date or ''}]\n"
        return f"[{text.date or ''}{', ' if text.date else ''}in another conversation]\n"

    def _price_about(self, offer: _Offer) -> int:
        if offer.position is None:
            return len(offer.text.text) // _CHARACTERS_PER_TOKEN + LINE_OVERHEAD_TOKENS
        return self.conversation.costs[offer.position] + LINE_OVERHEAD_TOKENS


def _place(chosen: tuple[_Offer, Fragment]) -> tuple[int, str, int]:
    """Returns what items are sorted by; a merged log goes back and forth in time."""
    offer = chosen[0]
    return (0, "", offer.number) if offer.position is None else (1, offer.text.date or "", offer.number)


def _source(text: Candidate | Entry) -> str:
    return text.source if isinstance(text, Candidate) else OWN_MESSAGES


def _highest(numbers: NDArray[np.intp], scores: Scores, most: int) -> NDArray[np.intp]:
    """Returns the numbers with the highest scores, the highest first; of equal ones, the first."""
    chosen = scores[numbers]
    if len(numbers) > most:
        threshold = np.partition(chosen, len(chosen) - most)[len(chosen) - most]
        numbers, chosen = numbers[chosen >= threshold], chosen[chosen >= threshold]
    return numbers[np.argsort(-chosen, kind="stable")][:most]
