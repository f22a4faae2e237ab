"""Ranking of texts for a message: relevance, worth per token (docs/internals/retrieval.md).

And filling a budget.
"""

import re
from bisect import bisect_right
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import (
    STOP_WORDS,
    fold,
    sentences,
    terms,
    vocabulary,
    without_mentions,
)
from langchain_ctxbudget.settings import Source

Scores: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = NDArray[np.int32]
Places: TypeAlias = NDArray[np.intp] | slice
ALL = slice(None)
Alike: TypeAlias = Callable[[NDArray[np.intp], Scores], Scores]
"""Takes a few texts, by number and weight, and returns how like them every text is."""
NEIGHBOURHOOD = 2
"""Texts before and after that lend a text their score."""
RELEVANCE_OFFSET = 0.2
LENGTH_OFFSET = 4.0
"""The worth of the least relevant text beside the most relevant one; about the tokens of a line
besides its text."""
PER_DEVIATION = 0.2
"""What a deviation of relevance adds to its logarithm: so a text that stands out may be long."""
SHORT_SESSION = 8.0
FIRST_FOUND = 10
"""Texts per session up to which it is about one thing; the best texts, which show what others look
like."""
NEGLIGIBLE = 0.01
"""Where sessions are so long, feedback says next to nothing and is not asked for."""
SHORTEST_NAME = 4
NEARLY = 0.75
"""A name of so many letters may be meant by a word that is so much like it, as `difflib` has it."""
LONGEST_ASKED = 2_000
"""In a text of more characters names are not corrected."""
NEAR_DAYS = 3.0
DAYS_OF_MONTH = 31
LEAP_YEAR = 2024
"""So many days from a named one, a text counts for a third (1 / e) of one of the day."""
ROLES = frozenset(
    {"user", "assistant", "human", "ai", "bot", "system", "tool", "function", "developer", "model"}
)
"""Names that say what a speaker does and not who it is."""
_ENGLISH = vocabulary("search")
MONTHS = _ENGLISH["months"].split()
WEEKDAYS = _ENGLISH["weekdays"].split()
_FIRST_PERSON = frozenset(_ENGLISH["first_person"].split())
_SPELLED_OUT = {"between": r"\1to", "day_to_day": r"\1 \3\2", "to_day": r"\1\2\3\1 "}


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each part of a key, as docs/internals/retrieval.md explains them.

    0 switches a part off.
    """

    lexical: float = 0.2
    dense: float = 0.4
    neighbours: float = 0.1
    session_best: float = 0.25
    session: float = 0.7
    session_alike: float = 0.6
    relevance: float = 1.5
    length: float = 0.8
    variety: float = 0.5
    speaker_length: float = 0.3
    speaker: float = 1.0
    first_person: float = 2.5
    date: float = 1.5
    opening: float = 1.2
    recency: float = 0.25


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class Texts:
    """Circumstances of every text, in the order of time; each array has shape `(texts,)`."""

    session: Numbers
    """From 0 and never falling, as `place` among all texts, of which these may be some."""
    costs: Numbers
    distinct: Numbers
    """The number of its different terms."""
    speaker: Numbers
    """-1 where there is none."""
    first_person: NDArray[np.float32]
    """Words of the first person, as a share of all."""
    day: Numbers
    """Year * 10,000 + month * 100 + day, 0 where there is none."""
    place: NDArray[np.intp]
    opens: NDArray[np.bool_]
    """It is the first one of its session."""

    def __len__(self) -> int:
        return len(self.session)


NamedDate: TypeAlias = tuple[int, int, int]
"""Year, month and day that a message names; 0 where year or day is left open."""
Span: TypeAlias = tuple[NamedDate, NamedDate]
"""The first and the last of some days or months; where one is named alone, it is both."""


@dataclass(frozen=True, slots=True)
class Question:
    """The terms and speakers of a message, and the dates that it asks about.

    One that asks nothing has none.
    """

    terms: tuple[str, ...]
    speakers: frozenset[int] = frozenset()
    """The numbers of the speakers whom it names."""
    dates: tuple[Span, ...] = ()
    text: str = ""
    is_small_talk: bool = False
    """It asks nothing, names nobody, and has words of courtesy and of time alone: "ok, talk to you
    on Monday"."""

    @property
    def is_broad(self) -> bool:
        """It asks for a summary, an order, a list or a number of times.

        Some of everything answers it, not the best.
        """
        return bool(_ENGLISH.everything.search(self.text))

    def refers_to(self, known: Container[str]) -> bool:
        """Tells whether it asks about those who speak, or a thing with a known term.

        "my flight", "the flight".
        """
        is_known = any(
            term in known for term in terms(" ".join(_ENGLISH.definite.findall(self.text)))
        )
        is_theirs = is_known or _ENGLISH.personal.search(_ENGLISH.how_to.sub(" ", self.text))
        return bool(is_theirs and _ENGLISH.asks.search(self.text))

    @classmethod
    def of(cls, text: str, names: Sequence[str] = (), today: date | None = None) -> "Question":
        """Reads a message; where one name is part of another, the longest one is meant."""
        known = [
            (" ".join(fold(name).split()), number)
            for number, own in enumerate(called(names))
            for name in own
        ]
        named = set[int]()
        rest = fold(text)
        for name in sorted({name for name, _ in known}, key=len, reverse=True):
            if (without := without_mentions(rest, name)) != rest:
                named |= {number for own, number in known if own == name}
                rest = without
        if re.search(_ENGLISH["asks"], text):
            return cls(tuple(terms(text)), frozenset(named), named_dates(text, today), text)
        said = terms(_ENGLISH.hour.sub(" ", _ENGLISH.courtesy.sub(" thanks ", text)))
        is_polite = bool(said) and _terms_in("courtesies").issuperset(about(said))
        is_small_talk = is_polite and not named and not _ENGLISH.matter.search(text)
        return cls(tuple(terms(text)), frozenset(named), (), text, is_small_talk)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The worth of every text; each array has shape `(texts,)`."""

    keys: Scores
    """The order of packing: higher is a better use of a token."""
    relevance: Scores
    """Its likeness to the question, whatever it costs."""
    components: Mapping[str, Scores] = field(default_factory=dict)
    """The parts that keys and relevance are sums of."""

    def scores(self, number: int) -> dict[str, float]:
        """Returns what every part says of a text."""
        return {name: round(float(part[number]), 3) for name, part in self.components.items()}

    def with_part(self, name: str, part: Scores) -> "Ranking":
        """Returns the ranking with one part more in its keys."""
        return replace(self, keys=self.keys + part, components={**self.components, name: part})


def is_courtesy(text: str) -> bool:
    """Tells whether a text has words of courtesy alone, or none.

    "Noted.", "Thanks, talk to you on Monday!".
    """
    return not terms(text) or Question.of(text).is_small_talk


def is_name(name: str) -> bool:
    """Tells whether a speaker's name says who it is, and not what it does."""
    return bool(name.strip()) and fold(name).strip() not in ROLES


def called(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns what a text may call each of some speakers.

    The whole name, or a first name of nobody else.
    """
    words = [_ENGLISH.word.findall(name) if is_name(name) else [] for name in names]
    first_names = Counter(fold(own[0]) for own in words if own)
    result: list[tuple[str, ...]] = []
    for given, own in zip(names, words, strict=True):
        first = fold(own[0]) if len(own) > 1 else ""
        unique = len(first) > 1 and first_names[first] == 1 and first not in STOP_WORDS
        result.append((given, " ".join(own), *(own[:1] if unique else [])) if own else ())
    return result


def spelled(text: str, names: Sequence[str], known: Container[str]) -> str:
    """Returns a text with the names of speakers that are spelled nearly so.

    `known` terms are other words.
    """
    parts = {
        fold(part): part for name in names if is_name(name) for part in _ENGLISH.word.findall(name)
    }
    if not parts or len(text) > LONGEST_ASKED:
        return text

    def meant(match: re.Match[str]) -> str:
        word = match[0]
        is_plain = len(word) < SHORTEST_NAME or not word[0].isupper()
        if is_plain or fold(word) in parts or any(term in known for term in terms(word)):
            return word
        return (
            parts[close[0]] if (close := get_close_matches(fold(word), parts, 1, NEARLY)) else word
        )

    return _ENGLISH.word.sub(meant, text)


def first_person(text: str, *, from_user: bool = False) -> float:
    """Returns the share of words of the first person.

    1 of a user's instruction that is to hold from now on.
    """
    if from_user and _ENGLISH.standing.search(text):
        return 1.0
    words = _ENGLISH.word.findall(text.lower())
    return sum(map(_FIRST_PERSON.__contains__, words)) / len(words) if words else 0.0


def day_number(iso_date: str | None) -> int:
    """Returns a date `YYYY-MM-DD` as a number, 0 where there is none."""
    return int(iso_date.replace("-", "")) if iso_date else 0


def named_dates(text: str, today: date | None = None) -> tuple[Span, ...]:
    """Returns the months and days that a text names, "4 to 6 March" as one span.

    Last week is as seen from `today`.
    """
    text = _seen_from(today, text) if today else text
    text = _ENGLISH.iso.sub(
        lambda it: f"{it[3] or ''} {MONTHS[int(it[2]) - 1].title()} {it[1]}", text
    )
    for pattern, spelled_out in _SPELLED_OUT.items():
        text = re.sub(_ENGLISH[pattern], spelled_out, text)
    spans = list[Span]()
    end = 0
    for it in _ENGLISH.month.finditer(text):
        day = int(it["before"] or it["after"] or 0)
        year = int(it["year"] or 0)
        before = text[end : it.start()]
        first = last = year, MONTHS.index(it["month"].lower()) + 1, day
        ends = (
            spans and re.fullmatch(_ENGLISH["until"], before) and bool(spans[-1][0][2]) == bool(day)
        )
        is_meant = (
            day or year or ends or it["to"] is not None or re.search(_ENGLISH["of_month"], before)
        )
        if not is_meant or day > monthrange(year or LEAP_YEAR, last[1])[1]:
            continue
        if ends:
            first = spans.pop()[0]
            turns = first[1:] > last[1:]  # of a year
            first = first[0] or max(0, last[0] - turns), *first[1:]
            last = last[0] or (first[0] and first[0] + turns), *last[1:]
        spans.append((first, last))
        end = it.end()
    return tuple(dict.fromkeys(spans))


def _seen_from(today: date, text: str) -> str:
    """Returns a text with the dates of yesterday, and of all of last week or of its days."""
    monday = today - timedelta(today.weekday() + 7)
    days = {name: str(monday + timedelta(number)) for number, name in enumerate(WEEKDAYS)}
    text = re.sub(_ENGLISH["yesterday"], str(today - timedelta(1)), text)
    week = _ENGLISH["last_week"]
    dated = (
        re.sub(_ENGLISH["weekday"], lambda it: days[it[1].lower()], text)
        if re.search(week, text)
        else text
    )
    return re.sub(week, f"{monday} to {monday + timedelta(6)}", text) if dated == text else dated


def highest(numbers: NDArray[np.intp], scores: NDArray[Any], most: int) -> NDArray[np.intp]:
    """Returns those of some numbers that have the highest scores, the highest first.

    Of equal ones, the first.
    """
    chosen = scores[numbers]
    columns = 4 * most
    if len(numbers) > most > 0:  # of many, the best one of each column tells as well what is enough
        rows = chosen[: len(chosen) // columns * columns].reshape(-1, columns)
        best = rows.max(axis=0) if len(rows) > 1 else chosen
        enough = chosen >= np.partition(best, len(best) - most)[len(best) - most]
        numbers = numbers[enough]
        chosen = chosen[enough]
    return numbers[np.argsort(-chosen, kind="stable")][:most]


def z_scores(scores: Scores, sample: Places = ALL, of: Places = ALL) -> Scores:
    """Returns scores by the mean and the standard deviation of those that stand for all.

    Zeros where all are alike.
    """
    some = scores[sample]
    asked = scores[of]
    if not some.size or np.ptp(some) == 0:  # a deviation of rounding errors is none
        return np.zeros_like(asked)
    found: Scores = (asked - some.mean()) / some.std()
    return found


def rank(
    texts: Texts,
    question: Question,
    words: Scores,
    meaning: Scores | None = None,
    sessions: Scores | None = None,
    *,
    alike: Alike | None = None,
    short: float | None = None,
    sample: Places = ALL,
    weights: Weights = DEFAULT,
) -> Ranking:
    """Returns the worth of every text to a question, from z-scores of its words, its meaning and its session's words.

    Where no meaning is known, the words count for it; `short` and the `sample` stand for all where
    texts are some.
    """
    if not len(texts):
        return Ranking(np.zeros(0), np.zeros(0))
    short = shortness(texts.session) if short is None else short
    meaning = words if meaning is None else meaning
    own = words + meaning
    starts = np.flatnonzero(np.diff(texts.session, prepend=texts.session[:1] - 1))
    lengths = np.diff(starts, append=len(texts))
    within = np.repeat(weights.session_best * np.maximum.reduceat(own, starts), lengths)
    within += weights.session * (0.0 if sessions is None else sessions)
    parts = {
        "lexical": weights.lexical * words,
        "dense": weights.dense * meaning,
        "neighbours": weights.neighbours * _lent(texts, own),
        "session": short * within,
    }
    if alike is not None and short > NEGLIGIBLE:
        relevance = np.add.reduce([*parts.values()])
        best = highest(np.arange(len(texts)), relevance, FIRST_FOUND)
        likeness = alike(best, np.exp(relevance[best] - relevance[best].max()))
        of_session = np.repeat(np.add.reduceat(likeness, starts) / lengths, lengths)
        parts["session"] += weights.session_alike * short * z_scores(of_session, sample)
    relevance = np.add.reduce([*parts.values()])
    worth = _worth(texts, question, relevance, weights, short)
    worth["relevance"] += weights.relevance * PER_DEVIATION * z_scores(relevance, sample)
    return Ranking(np.add.reduce([*worth.values()]), relevance, {**parts, **worth})


def _lent(texts: Texts, own: Scores) -> Scores:
    """Returns what the scores of its neighbours in its session add up to for every text."""
    lent = np.zeros_like(own)
    for step in range(1, NEIGHBOURHOOD + 1):
        near = texts.place[step:] - texts.place[:-step] <= NEIGHBOURHOOD
        near &= texts.session[step:] == texts.session[:-step]
        lent[step:] += own[:-step] * near
        lent[:-step] += own[step:] * near
    return lent


def _worth(
    texts: Texts, question: Question, relevance: Scores, weights: Weights, short: float
) -> dict[str, Scores]:
    """Returns the parts of a key: what speaks for spending tokens on a text."""
    scaled = (relevance - relevance.min()) / (np.ptp(relevance) or 1.0)
    speakers = texts.speaker + 1
    counts = np.bincount(speakers)
    longer = np.log(
        np.bincount(speakers, texts.costs) / np.maximum(counts, 1) + 1
    )  # than the texts of others
    longer -= longer[counts > 0].mean()
    back = np.log1p((texts.session[-1] - texts.session).astype(np.float64))
    costs = np.log(texts.costs + LENGTH_OFFSET)
    said = (
        np.isin(texts.speaker, list(question.speakers))
        if len(question.speakers) == 1
        else np.zeros(len(texts))
    )
    return {
        "relevance": weights.relevance * np.log(scaled + RELEVANCE_OFFSET),
        "length": -weights.length * costs,
        "variety": weights.variety * np.log1p(texts.distinct.astype(np.float64)),
        "speaker_length": -weights.speaker_length * longer[speakers],
        "speaker": weights.speaker * said,
        "first_person": weights.first_person * texts.first_person.astype(np.float64),
        "date": weights.date * dated(texts.day, question.dates),
        "opening": weights.opening * short * texts.opens,
        "recency": -weights.recency * short * back,
    }


def shortness(session: Numbers) -> float:
    """Returns 1 where sessions are short and about one thing, less the longer they are."""
    return min(1.0, SHORT_SESSION * (int(session[-1]) - int(session[0]) + 1) / len(session)) ** 2


def dated(day: Numbers, spans: Iterable[Span]) -> Scores:
    """Returns 1 for texts of a month that is named, and up to 1 more for those of days that are, or near them."""
    result = np.zeros(len(day))
    for first, last in spans:
        low, high = (year * 12 + month for year, month, _ in (first, last))
        months = day // 100 % 100 + (day // 10_000 * 12 if first[0] else 0)
        days = months * DAYS_OF_MONTH + day % 100
        turns = not first[0] and low > high  # of a year: what is after the first or before the last
        both, further = (np.logical_or, np.minimum) if turns else (np.logical_and, np.maximum)
        away = further(
            low * DAYS_OF_MONTH + first[2] - days, days - high * DAYS_OF_MONTH - last[2]
        ).clip(0)
        near = np.exp(-away / NEAR_DAYS) if first[2] else 0.0
        result = np.maximum(result, (day > 0) * (both(low <= months, months <= high) + near))
    return result


# Ranks are relative; what counts here is absolute. Two logistic regressions on RealMem's
# conversations (Apache-2.0): of 212 evidence turns, and of 341 questions against small talk and
# general knowledge (docs/internals/decisions.md).

BASE = -6.3
PER_RANK = -1.1
PER_WORDS = 1.7
PER_TERM = -0.7
PER_CHANGE = 2.0
PER_LENGTH = 0.3
BEST = 10
NEWEST = 6
NEWEST_BEST = 2
"""Texts that show what there is; newest messages, which the message may go on with; the best of
these."""
RELATED = -10.5
PER_SHARED = 4.3
PER_COSINE = 6.5
"""A message has to do with what was said by the words that its best text shares, and the cosine of
its nearest."""
TYPICAL_COSINE = 0.4
TYPICAL_TEXTS = 600
"""Where no cosine is known; and a conversation's length where the weight of words is as it is."""
NAMED_WORDS = 0.5
ALL_WORDS = 0.9
LEAST_WEIGHT = 8.0
"""A document that has so much of the message by the weight of its words is what the message is
about; so is any text, however long, that has all of it, or about half of it and two rare words or
more."""
FULL = 0.5
"""How likely a text is needed that alone has all that the message is about."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for quoting anything at all for a message, and for quoting each text."""

    strength: Scores
    """Of the message, in log-odds: what speaks for texts of other conversations is what was said
    there; `(texts,)`."""
    distinct: Scores
    """How likely each is needed as it has words of the message, or is of a day, that few others
    are; `(texts,)`."""
    is_weak: bool
    """Hardly anything that was said has to do with the message."""
    asked_for: NDArray[np.bool_]
    """True for texts of a day that the message names, or of a month."""

    @classmethod
    def of(
        cls,
        asked: Iterable[str],
        words: Scores,
        covered: Scores,
        weight: float,
        cosines: Scores | None,
        *,
        documents: NDArray[np.bool_],
        elsewhere: NDArray[np.bool_],
        days: Scores,
        is_certain: bool,
        searched: int = 0,
    ) -> "Evidence":
        """Weighs the terms that a message asks for against texts in the order of time, the newest messages last.

        `words` are BM25 scores for the terms, `covered` shares of their `weight` that texts have, `days` from `dated`.
        The texts are those that may be worth it of so many that were `searched`, if that is more.
        """
        older = max(0, len(words) - NEWEST)
        per_word = np.log1p(TYPICAL_TEXTS) / np.log1p(
            max(1, searched, len(words))
        )  # a rare word weighs more among many texts
        newest = 0.0 if cosines is None else _best(cosines[older:], NEWEST_BEST)
        asked = dict.fromkeys(asked)

        def strength(texts: Places) -> float:
            shared = np.log1p(_best(words[:older][texts], BEST))
            change = (
                0.0
                if cosines is None or not older
                else _best(cosines[:older][texts], BEST) - newest
            )
            return float(
                BASE + PER_WORDS * shared + PER_TERM * np.log1p(len(asked)) + PER_CHANGE * change
            )

        share = np.minimum(words / weight, 1.0) if weight > 0 else np.zeros(len(words))
        has_rare = (covered >= NAMED_WORDS) & (covered * weight * per_word >= LEAST_WEIGHT)
        share = np.where(has_rare, np.maximum(covered, share), share)
        alike = len(share) - np.searchsorted(
            np.sort(share), share
        )  # texts with as much of the message, or more
        nearest = TYPICAL_COSINE if cosines is None else cosines[:older].max(initial=0.0)
        related = (
            RELATED
            + PER_SHARED * np.log1p(per_word * words[:older].max(initial=0.0))
            + PER_COSINE * nearest
        )
        of_days = days >= max(1.0, days.max(initial=0.0))
        is_named = (share[documents] >= NAMED_WORDS).any() or (covered >= ALL_WORDS).any()
        return cls(
            strength=np.where(
                elsewhere, strength(np.flatnonzero(elsewhere[:older])), strength(ALL)
            ),
            distinct=FULL
            * np.maximum(
                share**2 / np.where(documents, alike, alike**2), of_days / max(1, of_days.sum())
            ),
            is_weak=not (is_certain or related > 0 or is_named or of_days.any() or has_rare.any()),
            asked_for=of_days,
        )

    def probabilities(self, order: NDArray[np.intp], costs: NDArray[np.int32]) -> Scores:
        """Returns how likely texts are needed, given in the order of their worth.

        Costs are in tokens.
        """
        ranks = np.log1p(np.arange(len(order)))
        lengths = np.log(np.maximum(costs, 1))
        odds = self.strength[order] + PER_RANK * ranks + PER_LENGTH * lengths
        likely: Scores = np.maximum(1 / (1 + np.exp(-odds)), self.distinct[order])
        return likely


def about(question: Sequence[str]) -> list[str]:
    """Returns the terms of a message that are about something."""
    return [term for term in question if term not in _terms_in("phatic")]


@cache
def _terms_in(words: str) -> frozenset[str]:
    return frozenset(terms(_ENGLISH[words]))


def _best(scores: Scores, most: int) -> float:
    """Returns the mean of the highest scores; 0 of none."""
    if not len(scores):
        return 0.0
    highest = np.partition(scores, len(scores) - most)[-most:] if len(scores) > most else scores
    return float(highest.mean())


# Texts from elsewhere, and filling a budget

Kind = Literal["core", "explicit", "fact", "project", "experience"]
PRIORITIES: dict[Kind, int] = {
    "core": 100,
    "explicit": 90,
    "fact": 80,
    "project": 75,
    "experience": 70,
}
"""The weight of each kind of text (seed 002)."""
ELLIPSIS = " …"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A text from outside the open conversation: of another conversation, a memory, a document."""

    id: str
    """Unique among all of a user: `conversation/message`, `document#chunk`."""
    source: Source
    text: str
    title: str = ""
    """A document's title or a conversation's id; parts of one stand under one heading."""
    label: str = ""
    """The title of the conversation, where that has one."""
    place: int = 0
    """Its place there, for the order."""
    speaker: str = ""
    """Empty for documents and memories."""
    from_user: bool = False
    """A human says it."""
    date: str | None = None
    """`YYYY-MM-DD`, where it is known."""
    kind: Kind = "experience"
    certainty: float = 1.0
    """Of a fact about the user, 0 to 1."""
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Of a document: what it was given with, and where in it this stands."""


def pack(costs: Mapping[int, int], budget_tokens: int) -> list[int]:
    """Takes items in order as long as they fit, and returns the numbers of those taken.

    Others are skipped.
    """
    taken: list[int] = []
    for number, cost in costs.items():
        if cost <= budget_tokens:
            taken.append(number)
            budget_tokens -= cost
    return taken


def shrink_to(
    text: str,
    count: Callable[[str], int],
    budget_tokens: int,
    split: Callable[[str], list[str]] = sentences,
) -> str | None:
    """Returns the first sentences of a text that fit a budget, or None where not even one does."""
    if budget_tokens <= 0:
        return None  # nothing fits: not worth tokenizing
    if count(text) <= budget_tokens:
        return text
    parts = split(text)

    def first(number: int) -> str:
        return " ".join(parts[:number]) + ELLIPSIS

    fitting = bisect_right(
        range(1, len(parts) + 1), budget_tokens, key=lambda number: count(first(number))
    )
    return first(fitting) if fitting else None
