"""Fills a budget with the found texts that are worth most per token, in the order of time, one line each."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.history import Conversation, Entry, saying
from langchain_ctxbudget.messages import (
    fences,
    head_end,
    one_line,
    replaced,
    sentences,
    terms,
    vocabulary,
)
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.retrieval.contradicted import contradiction
from langchain_ctxbudget.retrieval.pool import Other, Pool
from langchain_ctxbudget.search import Scores, highest, most_about, z_scores
from langchain_ctxbudget.settings import RetrievalSettings

SMALLEST_ITEM_TOKENS = 8
CANDIDATES = 256
TOKENS_PER_CANDIDATE = 8
MOST_WORTH = 2_048
"""As many of the best are looked at, or one for so many tokens, if that is more; so many may be
worth their tokens."""
LONG_TOKENS = 160
LONG_SHARE = 0.125
PASSAGE_TOKENS = 64
"""For a part of the most relevant text, where it takes so many and this share of the room, so many
are kept free."""
STANDS_OUT_Z = 7.0
BEHIND_PER_Z = 0.05
MOST_BEHIND = 0.2
"""A text stands out by so many standard deviations; for each one more, others must have so much
more of its relevance. LoCoMo at 4,096 tokens: a quarter of the prompts get half as long, and a
hundredth of what they find goes."""
REPLY_SHARE = 0.1
REPLY_CHARACTERS = (20, 70, 160)
LOOKED_THROUGH = 400
LONG_WORD = 4
"""A question comes with a sentence of its reply, if possible a short one, or with all of a short
reply; a reply, with a short question. Sentences and questions that come so take this share of the
budget at most."""
MOST_NUMBERS = 6
"""A message with more numbers, each behind a word, is not about one thing of many: it quotes
something."""
NAMED_SHARE = 0.6
MEMORY_SHARE = 0.4
"""The most that a named document takes, and memories while anything else has use for it (DESIGN: 60
and 40 %)."""
OWN_SECTION = "## Said earlier in this conversation\n"
MIXED_SECTION = "## Found for this message\n"
HERE = "[in this conversation]\n"
"""Stands above a message without a date where it could seem to be a part of what comes from
elsewhere."""
_MOST_CHARACTERS_PER_TOKEN = 16
_MOST_TITLE_CHARACTERS = 80
_IDENTIFIER = re.compile(r"\d+")
_YEAR = re.compile(r"(19|20)\d\d")
_HEADING = re.compile("#{1,6} ")
_RELATIVE = re.compile(vocabulary("search")["relative"], re.IGNORECASE)
_NO_HEADING = str.maketrans("[]", "()")


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Items in the order in which they stand, and the account of the rest."""

    fragments: tuple[Fragment, ...] = ()
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    scores: Callable[[str, str], dict[str, float]] = lambda *_: {}
    """Tells what every part of the ranking says of an item, by source and id; nothing of one that
    was not ranked."""
    omitted: Callable[[], tuple[ReportItem, ...]] = tuple
    """Tells the best of those left out, and about what each would have cost; only a report decodes
    them."""


def select(
    conversation: Conversation,
    pool: Pool,
    end: int,
    budget_tokens: int,
    *,
    shown: Collection[int] = (),
    given: Collection[str] = (),
    in_short: Collection[int] = (),
    prices: tuple[float, float] = (0.0, 0.0),
    transient_tokens: int = 0,
    numbered: bool = False,
    limits: RetrievalSettings,
) -> Retrieved:
    """Fills a budget with the texts that are worth most per token, and at least their price.

    Prices are least probabilities for each token: of a text, and of one of another conversation.
    Messages from `end` on, those `shown` and texts `given` stand in the prompt already, of
    `in_short` ones a part. What is taken with the last `transient_tokens` of the budget stands
    behind the rest, and only in this prompt.
    """
    quotable = pool.searched.quotable
    stands = np.zeros(len(quotable), np.bool_)
    stands[end:] = stands[[position for position in shown if position < end]] = True
    stands[[*in_short]] = False
    above = np.flatnonzero(stands & quotable)
    first = len(pool.others)  # the number of the first message; before it are texts from elsewhere
    new = pool.folded != saying("", pool.question.text)[1]
    free = pool.meant & np.concatenate((np.ones(first, np.bool_), ~stands[pool.places]))
    most_items = len(pool.meant) if limits.most_items is None else limits.most_items
    selection = _Selection(
        conversation, pool, budget_tokens, free & new, most_items, numbered, transient_tokens
    )
    named = selection.take_named()
    whole = {part.id for part in named if part.status is Status.INCLUDED}
    gone = [other.id in given or other.id.rpartition("#")[0] in whole for other in pool.others]
    free[:first] &= ~np.array(gone, np.bool_)
    all_free = int(np.count_nonzero(free[:first]) + np.count_nonzero(quotable)) - len(above)
    free_before = np.count_nonzero(free)
    free &= not pool.question.is_small_talk
    if (
        not pool.question.is_broad
    ):  # such a message is about each text, however little they have in common
        free &= _is_near_best(pool.ranking.relevance) | pool.evidence.asked_for
        free &= _is_worth(pool, prices, limits.min_relevance)
        if pool.evidence.is_weak:
            free[:first] &= np.array(
                [other.source != "conversations" for other in pool.others], np.bool_
            )
    too_weak = int(free_before - np.count_nonzero(free))
    best = highest(np.flatnonzero(free), pool.ranking.keys, MOST_WORTH)
    best = _each_said_once(pool, best[new[best]], pool.searched.index.sayings.values[above])
    best = _without_siblings(pool, best)
    numbers = best[
        : limits.candidates or max(CANDIDATES, budget_tokens // TOKENS_PER_CANDIDATE)
    ].tolist()
    selection.fill(numbers)
    selection.mark_replaced(above.tolist())
    dates = {
        number: pool.text(number).date or "" if number >= first else ""
        for number in selection.chosen
    }
    chosen = sorted(
        selection.chosen.items(),
        key=lambda it: (it[1].transient, it[0] >= first, dates[it[0]], it[0]),
    )
    listed = [number for number in numbers if number not in selection.chosen][:LISTED_OMISSIONS]
    more = all_free - len(chosen) - len(listed)
    too_weak = min(too_weak, more)  # a reply is quoted for its question, however weak it is
    omitted = {Reason.RANKED_LOWER: more - too_weak, Reason.LOW_RELEVANCE: too_weak}
    numbers_of = {(part.source, part.id): number for number, part in chosen}

    def left_out(number: int) -> ReportItem:
        text = pool.text(number)
        scores = pool.ranking.scores(number)
        about: dict[str, Any] = {
            "source": _source(text),
            "scores": scores,
            "preview": preview(text.text),
        }
        tokens = int(pool.costs[number])
        return ReportItem(
            id=text.id, tokens=tokens, status=Status.OMITTED, reason=Reason.RANKED_LOWER, **about
        )

    return Retrieved(
        fragments=(*named, *(part for _, part in chosen)),
        more_omitted={reason: number for reason, number in omitted.items() if number},
        scores=lambda *of: pool.ranking.scores(numbers_of[of]) if of in numbers_of else {},
        omitted=lambda: tuple(map(left_out, listed)),
    )


def _is_near_best(relevance: Scores) -> NDArray[np.bool_]:
    """Returns which texts are not far behind the best one.

    The further that stands out, the closer they must be.
    """
    scores = z_scores(relevance)
    best = scores.max(initial=0.0)
    share = min(MOST_BEHIND, BEHIND_PER_Z * (best - STANDS_OUT_Z))
    near: NDArray[np.bool_] = scores >= (best * share if share > 0 else -np.inf)
    return near


def _is_worth(pool: Pool, prices: tuple[float, float], relevance: float) -> NDArray[np.bool_]:
    """Returns which texts are needed with a probability of `relevance`, and of at least their price for each token."""
    least = np.full(len(pool.meant), prices[0])
    least[: len(pool.others)][[other.source == "conversations" for other in pool.others]] = prices[
        1
    ]
    worth: NDArray[np.bool_] = np.maximum(least, relevance) <= 0
    if not worth.all():
        order = highest(np.flatnonzero(pool.meant), pool.ranking.keys, MOST_WORTH)
        costs = pool.costs[order]
        worth[order] = pool.evidence.probabilities(order, costs) >= np.maximum(
            least[order] * costs, relevance
        )
    return worth


def _each_said_once(
    pool: Pool, numbers: NDArray[np.intp], said_above: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Leaves out texts that the prompt says already, and all but the first one of those that say the same."""
    said = pool.said[numbers]
    firsts = np.sort(np.unique(said, return_index=True)[1])
    return numbers[firsts[~np.isin(said[firsts], said_above)]]


def _without_siblings(pool: Pool, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Leaves out texts about other numbers if the message names one and there are like texts for each number.

    "Where is item 12?" wants the line about item 12, not those that say the same of 200 others;
    "items 12 to 20", "after item 12" and "20 items" want others, too. So one text has to have all
    numbers, each behind the same word.
    """
    pairs = pairwise(pool.question.terms)
    wanted = {
        pair for pair in pairs if _IDENTIFIER.search(pair[1]) and not _YEAR.fullmatch(pair[1])
    }
    if not 0 < len(wanted) <= MOST_NUMBERS or _RELATIVE.search(pool.question.text):
        return numbers

    def share(of: Iterable[str]) -> Scores:
        words = dict.fromkeys(of, 1.0)
        lexical = pool.searched.index.lexical
        return np.concatenate((pool.shelf.covered(words), lexical.covered(words, pool.places)))[
            numbers
        ]

    def read(some: NDArray[np.bool_]) -> list[str]:
        return [pool.text(number).text for number in numbers[some].tolist()]

    covered = share(term for pair in wanted for term in pair)
    like = numbers < len(pool.others)
    whole = [text for text in read(covered == 1) if wanted.issubset(pairwise(terms(text)))]
    for plain in {
        frozenset(term for term in terms(text) if not _IDENTIFIER.search(term)) for text in whole
    }:
        like |= share(plain) == 1 if plain else True  # siblings have all terms without a number
    shape = partial(_IDENTIFIER.sub, "0")
    times = Counter(map(shape, read(like & (covered > 0))))
    if all(times[shape(text)] == 1 for text in whole):  # no other text is decoded
        return numbers
    near = numbers[covered > 0]
    said = read(covered > 0)
    shapes = [*map(shape, said)]
    named = [wanted.intersection(pairwise(terms(text))) for text in said]
    answered = {shape for shape, found in zip(shapes, named, strict=True) if found}
    gone = [shape in answered and not found for shape, found in zip(shapes, named, strict=True)]
    return numbers[~np.isin(numbers, near[gone])]


@dataclass
class _Selection:
    """Texts that were taken, and the room that is left.

    A text is known by its number in the pool.
    """

    conversation: Conversation
    pool: Pool
    left: int
    may_come: NDArray[np.bool_]
    most_items: int
    numbered: bool
    transient_tokens: int
    above: set[tuple[bool, str]] = field(default_factory=set)
    """The headings that are paid, above transient texts and above others."""
    chosen: dict[int, Fragment] = field(default_factory=dict)
    threads: dict[str, list[str]] = field(default_factory=dict)
    """The other conversations that are quoted, by their titles: of several without one, or with the
    same, each gets a number."""

    def __post_init__(self) -> None:
        self.memories_left, self.replies_left = (
            int(self.left * MEMORY_SHARE),
            int(self.left * REPLY_SHARE),
        )
        self.mixed = bool(self.pool.others or self.pool.named)
        self.count = self.conversation.counter.count_text

    def take_named(self) -> list[Fragment]:
        """Takes the documents that a message names first: whole, or as their summary."""
        value = float(self.pool.ranking.keys.max(initial=0.0)) + 1
        taken: list[Fragment] = []
        for whole, summary in self.pool.named:
            for other, most in ((whole, int(self.left * NAMED_SHARE)), (summary, self.left)):
                if other is None or not other.text.strip():
                    continue
                line = fences.item("", other.text)
                status = Status.INCLUDED if other is whole else Status.SHRUNK
                part = self._fragment(other, line, self.count(line), value, status)
                if (price := part.tokens + self.count(part.heading)) <= most:
                    self.left -= price
                    taken.append(replace(part, reason=Reason.DETECTED))
                    break
        return taken

    def fill(self, numbers: Sequence[int]) -> None:
        """Takes texts in their order, and a part of the most relevant one where it is too long to be taken whole."""
        best = highest(np.array(numbers, np.intp), self.pool.ranking.relevance, 1).tolist()
        share = int(self.left * LONG_SHARE)
        is_long = bool(best) and self.pool.costs[best[0]] >= max(LONG_TOKENS, share)
        kept = min(PASSAGE_TOKENS, share) if is_long else 0
        self.left -= kept
        self._take(numbers)
        self.left += kept
        if is_long and best[0] not in self.chosen and len(self.chosen) < self.most_items:
            self._take_passage(best[0])
        self.memories_left = self.left
        self._take(numbers)

    def mark_replaced(self, shown: Iterable[int]) -> None:
        """Says on a user's statements that later ones replace them, in place of the texts that are worth least."""
        marks, needed = self._marks_of_this_conversation(shown)
        marks |= self._marks_of_other_conversations()
        needed |= marks.keys()
        spare = [number for number in self.chosen if number not in needed]
        for number, mark in marks.items():
            part = self.chosen[number]
            text = f"{part.text.rstrip()} ({mark})\n"
            marked = replace(part, text=text, tokens=self.count(text), reason=Reason.SUPERSEDED)
            missing = marked.tokens - part.tokens - self.left
            while missing > 0 and spare:
                self.left += self.chosen.pop(spare.pop()).tokens
                missing = marked.tokens - part.tokens - self.left
            if missing <= 0:
                self.left = -missing
                self.chosen[number] = marked
            elif number < len(self.pool.others):  # without its mark, it would be taken for true
                self.left += self.chosen.pop(number).tokens

    def _marks_of_this_conversation(self, shown: Iterable[int]) -> tuple[dict[int, str], set[int]]:
        """Returns the marks of quotes that a later statement here replaces, and the quotes that such a pair has.

        `shown` are the positions of messages that stand in the prompt word for word.
        """
        entries = self.conversation.entries
        is_human = self.conversation.table.human.values
        first = len(self.pool.others)
        quoted = {
            int(self.pool.places[number - first]): number
            for number in self.chosen
            if number >= first
        }
        told = {at: entries[at] for at in {*shown, *quoted} if is_human[at]}
        marks: dict[int, str] = {}
        needed: set[int] = set()
        for older, newer, about in replaced(
            {at: (entry.speaker, entry.text) for at, entry in told.items()}
        ):
            needed |= {quoted[at] for at in (older, newer) if at in quoted}
            if older in quoted:
                date = f" on {told[newer].date}" if told[newer].date else ""
                marks[quoted[older]] = f"superseded{date}: {about}"
        return marks, needed

    def _marks_of_other_conversations(self) -> dict[int, str]:
        """Returns the marks of quotes from other conversations that this one, or a later one, says otherwise."""
        marks: dict[int, str] = {}
        for number in sorted(self.chosen):
            if number >= len(self.pool.others):
                break
            other = self.pool.others[number]
            if other.source != "conversations" or not other.from_user:
                continue
            if mark := contradiction(other, self.conversation, self.pool):
                marks[number] = mark
        return marks

    def _take(self, numbers: Sequence[int]) -> None:
        """Takes the texts that fit, and are not taken whole yet, in their order.

        One that does not fit is skipped.
        """
        for number in numbers:
            if self.left < SMALLEST_ITEM_TOKENS or len(self.chosen) >= self.most_items:
                return
            part = self.chosen.get(number)
            if part is not None and part.status is Status.INCLUDED:
                continue
            room = self.left + (part.tokens if part else 0)
            if (tokens := self._cost(number, room)) is None:
                continue
            text = self.pool.text(number)
            price = tokens + self._price_of(self._heading(text))
            is_memory = _source(text) == "memories"
            if price > (min(room, self.memories_left) if is_memory else room):
                continue
            self.memories_left -= price if is_memory else 0
            self._add(number, self._line(number), tokens)
            self._take_exchange(number)

    def _take_exchange(self, number: int) -> None:
        """Takes what replies to a question, all of it or a sentence, and the short question that a text replies to."""
        if self._is_exchange(number):
            reply = self.pool.text(number + 1)
            at = self.pool.position(number + 1)
            if len(reply.text) <= REPLY_CHARACTERS[1]:
                self._take_beside(number + 1, self._line(number + 1))
            elif said := _answering(self.pool.text(number).text, reply.text):
                line = fences.item(
                    reply.speaker, f"{said} …", f"#{(at or 0) + 1} " if self.numbered else ""
                )
                self._take_beside(number + 1, line, self.replies_left, Status.SHRUNK)
        if (
            self._is_exchange(number - 1)
            and len(self.pool.text(number - 1).text) <= REPLY_CHARACTERS[1]
        ):
            self._take_beside(number - 1, self._line(number - 1), self.replies_left // 2)

    def _is_exchange(self, asked: int) -> bool:
        """Tells whether a text is a question of the conversation, and the next one is somebody's reply to it."""
        at = asked - len(self.pool.others)
        places = self.pool.places
        index = self.pool.searched.index
        if not 0 <= at < len(places) - 1 or places[at + 1] != places[at] + 1:
            return False
        return bool(
            index.asks.values[places[at]] and np.ptp(index.speaker.values[places[at : at + 2]])
        )

    def _take_beside(
        self, number: int, line: str, most_tokens: int | None = None, how: Status = Status.INCLUDED
    ) -> None:
        """Takes a line that goes with another one, where there is room.

        Of all, or of so much that is kept for such.
        """
        position = self.pool.position(number)
        tokens = self.count(line)
        said = self.pool.said
        if position is None or not self.may_come[number] or said[number] in said[[*self.chosen]]:
            return
        room = self.left if most_tokens is None else min(self.left, most_tokens)
        fits = tokens + self._price_of(self._heading(self.pool.text(number))) <= room
        if fits and len(self.chosen) < self.most_items:
            self.replies_left -= 0 if most_tokens is None else tokens
            self._add(number, line, tokens, how)

    def _take_passage(self, number: int) -> None:
        """Takes what a message says from where it has most words of the query on, as much as there is room for."""
        text = self.pool.text(number)
        position = self.pool.position(number)
        start = most_about(text.text, self.pool.question.terms)
        if position is None or start is None:
            return
        room = self.left - self._price_of(self._heading(text))
        rest = text.text[start:][: _MOST_CHARACTERS_PER_TOKEN * max(room, 0)]

        def line(size: int) -> str:
            said = (
                rest
                if size == len(rest)
                else f"{rest[: head_end(rest[: size + 1], size)].rstrip()} …"
            )
            return fences.item(text.speaker, f"{'… ' if start else ''}{said}", f"#{position + 1} ")

        if size := bisect_right(
            range(1, len(rest) + 1), room, key=lambda size: self.count(line(size))
        ):
            self._add(number, line(size), self.count(line(size)), Status.SHRUNK)

    def _add(self, number: int, line: str, tokens: int, status: Status = Status.INCLUDED) -> None:
        """Takes a text, or a part of it, and pays for it; the whole takes the place of a part."""
        value = float(self.pool.ranking.keys[number])
        is_transient = self.left < self.transient_tokens
        before = self.chosen.get(number)
        fragment = self._fragment(self.pool.text(number), line, tokens, value, status)
        self.left -= tokens + self._price_of(fragment.heading) - (before.tokens if before else 0)
        if not isinstance(text := self.pool.text(number), Entry) and text.source == "conversations":
            same = self.threads.setdefault(text.label, [])
            if text.title not in same:
                same.append(text.title)
        self.above.add((is_transient, fragment.heading))
        self.chosen[number] = replace(fragment, transient=is_transient)

    def _fragment(
        self, text: Other | Entry, line: str, tokens: int, value: float, status: Status
    ) -> Fragment:
        return Fragment(
            layer=Layer.RETRIEVAL,
            id=text.id,
            text=line,
            tokens=tokens,
            reason=Reason.RELEVANT,
            status=status,
            section=MIXED_SECTION if self.mixed else OWN_SECTION,
            heading=self._heading(text),
            value=value,
            source=_source(text),
        )

    def _line(self, number: int) -> str:
        if (position := self.pool.position(number)) is not None:
            return self.conversation.quoted(position, numbered=self.numbered)
        return fences.item(self.pool.others[number].speaker, self.pool.others[number].text)

    def _cost(self, number: int, most_tokens: int) -> int | None:
        """Returns the cost of a text's line.

        None where it is more than so much, which is not counted.
        """
        if (position := self.pool.position(number)) is not None:
            return self.conversation.count_quote(position, most_tokens, numbered=self.numbered)
        is_long = len(self.pool.others[number].text) > _MOST_CHARACTERS_PER_TOKEN * most_tokens
        return None if is_long else self.count(self._line(number))

    def _price_of(self, heading: str) -> int:
        return (
            0 if (self.left < self.transient_tokens, heading) in self.above else self.count(heading)
        )

    def _heading(self, text: Other | Entry) -> str:
        """Returns the line that texts of one place or messages of one day stand under."""
        if isinstance(text, Entry):
            return f"[{text.date}]\n" if text.date else HERE if self.mixed else ""
        if text.source == "memories":
            return "[known about the user]\n"
        if text.source == "documents":
            title = one_line(text.title)[:_MOST_TITLE_CHARACTERS].translate(_NO_HEADING)
            return (
                f"[document: {fences.as_data(title)}{', ' if text.date else ''}{text.date or ''}]\n"
            )
        same = self.threads.get(text.label, [])
        number = same.index(text.title) if text.title in same else len(same)
        return (
            f"[{_other_heading(text)}]\n"
            if number == 0
            else f"[{_other_heading(text)} ({number + 1})]\n"
        )


def _other_heading(text: Other) -> str:
    """Returns what stands above the messages of a day of another conversation.

    The day, and its title if it has one.
    """
    title = fences.as_data(one_line(text.label)[:_MOST_TITLE_CHARACTERS].translate(_NO_HEADING))
    day = f"{text.date}, " if text.date else ""
    return f"{day}in another conversation: {title}" if title else f"{day}in another conversation"


def _answering(question: str, reply: str) -> str:
    """Returns one of the first sentences of a reply, with most words of the question, or else the shortest one."""
    words = {word for word in question.lower().split() if len(word) >= LONG_WORD}
    least, short, most = REPLY_CHARACTERS
    found = sentences(reply[:LOOKED_THROUGH])[: None if len(reply) <= LOOKED_THROUGH else -1]
    whole = [one for one in found if least < len(one) <= most and not _HEADING.match(one)]
    shared = {
        one: len(words.intersection(one.lower().split())) if len(one) <= short else -len(one)
        for one in whole
    }
    return max(whole, key=lambda one: (len(one) <= short, shared[one]), default="")


def _source(text: Other | Entry) -> str:
    return "messages" if isinstance(text, Entry) else text.source
