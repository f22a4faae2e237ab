"""A summary made of a conversation's own sentences: deterministic, in order, attributed.

No sentence is cut. A sentence is judged by its look alone. A summary has zones by strategy: one if
`windowed`; if `compacted` one for the older 40 of 75 messages, and one; if `multi_level` one for
every level.
"""

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from itertools import chain, groupby
from typing import NamedTuple

from langchain_ctxbudget import messages
from langchain_ctxbudget.history.backgrounds import with_headings
from langchain_ctxbudget.messages import (
    CHARACTERS_PER_TOKEN,
    Count,
    begins_in_the_middle,
    cached_until_forgotten,
    fences,
    terms,
    units,
    word_count,
)
from langchain_ctxbudget.settings import HistoryFormat
from langchain_ctxbudget.stores import EXTRACTION, SummaryLine

MOST_KEPT = 16
"""Sentences that a digest keeps, and names."""
CHARACTERS_PER_NODE = 900 * CHARACTERS_PER_TOKEN
"""Characters of the sentences that a digest of a higher level keeps."""
KNOWN_LINES = 256
"""Messages whose sentences are cached: at least those of the span that has not ended."""
POOL = 600
"""The most sentences that a summary chooses from; the most important ones of all spans."""
KIND_BONUS = 20.0
"""Points of a sentence that decides something or leaves it open."""
PENALTY = 8.0
"""Points that a sentence loses that leans on the one before it, or that a tool returned."""
FEWEST_WORDS = 3
"""Words of a sentence that is kept, unless it decides something or leaves it open."""
FEWEST_FOREIGN_WORDS = 5
"""Words of a plain sentence in another language that is kept."""
BEGINNING = 1_000
"""Characters of a message by which its language is known."""
ENGLISH_SHARE = 0.1
"""The share of common words in the beginning of a message that is English."""
PARTS = {"windowed": (1,), "compacted": (10, 25), "multi_level": (5, 10, 15)}
"""The parts of the room that each zone of a strategy may take, oldest first."""
OLDER_SHARE = 40 / 75
"""The share of the compacted messages that have the smaller part of the room."""
ENGLISH = messages.vocabulary("history")


class _Points(NamedTuple):
    """What the matches of a pattern add to the importance of a text."""

    pattern: re.Pattern[str]
    points: float
    """For each match."""
    most: float = math.inf
    """For all of them."""


@cache
def _points() -> tuple[_Points, ...]:
    """Returns the points of all patterns, which are compiled when they are first needed."""
    return (
        _Points(ENGLISH.fence, 7.5),
        _Points(ENGLISH.question_mark, 5, most=15),
        _Points(ENGLISH.decision, 10),
        _Points(ENGLISH.open, 10, most=10),
        _Points(ENGLISH.problem, 5, most=15),
        _Points(ENGLISH.list_item, 2, most=10),
        _Points(ENGLISH.number, 8, most=8),
        _Points(ENGLISH.capitalised, 4, most=10),
        _Points(ENGLISH.code, 4, most=8),
    )


@cache
def generic_terms() -> frozenset[str]:
    """Returns terms of questions and decisions in general; the other terms are their matter."""
    return frozenset(terms(ENGLISH["generic"]))


class Kind(StrEnum):
    """The part that a sentence plays in a conversation."""

    DECISION = "decision"
    OPEN = "open"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Line:
    """A message as a summariser reads it."""

    position: int
    speaker: str
    date: str | None
    text: str
    from_user: bool


@dataclass(frozen=True)
class Sentence:
    """A sentence worth keeping."""

    position: int
    """The message it comes from; of a model's sentence, the first message of its span."""
    order: int
    """Its place within that message, or within the model's summary."""
    speaker: str
    """Empty where a model wrote it."""
    date: str | None
    text: str
    score: float
    kind: Kind

    @cached_property
    def terms(self) -> frozenset[str]:
        """The stems of its words."""
        return frozenset(terms(self.text))

    @cached_property
    def matter(self) -> frozenset[str]:
        """The terms that it is about."""
        return self.terms - generic_terms()

    @property
    def attributed(self) -> str:
        """The sentence with its date, and who said it."""
        date = f"[{self.date}] " if self.date else ""
        speaker = f"{self.speaker}: " if self.speaker else ""
        return f"{date}{speaker}{self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The sentences and names of a span of messages that are worth keeping.

    Made once, kept under the span's hash.
    """

    first: int
    end: int
    level: int
    """1 for messages, 2 for five digests of level 1, and so on."""
    sentences: tuple[Sentence, ...]
    artifacts: tuple[str, ...] = ()
    """Names of files, functions and the like, the most mentioned first."""
    made_by: str = EXTRACTION
    """`extraction`, or the name of the model that wrote it."""
    open_questions: tuple[str, ...] = ()
    """A model's: everything that is open at the end of the span, also from before it."""

    def placed(self, first: int) -> "Digest":
        """Returns the digest of the same messages at another place of the conversation."""
        shift = first - self.first
        if not shift:
            return self
        sentences = tuple(
            replace(sentence, position=sentence.position + shift) for sentence in self.sentences
        )
        return replace(self, first=first, end=self.end + shift, sentences=sentences)


def kind_of(sentence: str) -> Kind:
    """Returns the kind of a sentence: it decides something, leaves something open, or neither."""
    lowered = sentence.lower()
    if ENGLISH.open_words.search(lowered):
        opening = ENGLISH.open.search(sentence)
        if opening:
            return Kind.OPEN if _leaves_open(sentence, opening) else Kind.PLAIN
    if ENGLISH.decision_words.search(lowered):
        decision = ENGLISH.decides.search(sentence)
        if decision and _decides(sentence, decision):
            return Kind.DECISION
    return Kind.PLAIN


def _leaves_open(sentence: str, opening: re.Match[str]) -> bool:
    is_conditional = ENGLISH.condition.search(sentence[: opening.start()])
    return not is_conditional and not ENGLISH.asks_what_is_open.search(sentence)


def _decides(sentence: str, decision: re.Match[str]) -> bool:
    """Returns True if a sentence says what was decided, and does not only suppose or ask it."""
    if is_question(sentence) or ENGLISH.supposes.search(sentence):
        return False
    before = sentence[: decision.start()]
    behind = sentence[decision.end() :]
    is_passive = decision[0].startswith(("was ", "were ", "been "))
    matter = f"{before} {behind}" if is_passive else behind
    if generic_terms().issuperset(terms(matter)):
        return False
    if ENGLISH.that.match(sentence, decision.end()):
        behind = behind[len(" that") :]
    if ENGLISH.leans_behind.match(behind) or ENGLISH.leans_before.search(before):
        return False
    return not ENGLISH.condition.search(before[-80:])


def is_question(sentence: str) -> bool:
    """Returns True if a sentence ends in a question mark of any script."""
    return bool(ENGLISH.asks.search(sentence))


def importance(text: str, *, from_user: bool) -> float:
    """Returns how important a text is by its look.

    Its place does not count, but numbers, names and code do.
    """
    score = min(25.0, math.log2(word_count(text) + 1) * 5)
    score += sum(
        min(most, points * len(pattern.findall(text))) for pattern, points, most in _points()
    )
    return score + (5 if from_user else 0)


def digest_messages(lines: Sequence[Line], first: int, end: int) -> Digest:
    """Returns the digest of a span of messages."""
    names = messages.artifacts(line.text for line in lines)[:MOST_KEPT]
    return Digest(first=first, end=end, level=1, sentences=keep_sentences(lines), artifacts=names)


def merge(children: Sequence[Digest]) -> Digest:
    """Returns one digest of several spans of one level in a row, no larger at any level.

    It has their sentences by importance and coverage.
    """
    pool = [*chain.from_iterable(child.sentences for child in children)]
    characters = [len(sentence.text) for sentence in pool]
    picked = choose(pool, characters, CHARACTERS_PER_NODE, MOST_KEPT)
    return Digest(
        first=children[0].first,
        end=children[-1].end,
        level=children[0].level + 1,
        sentences=tuple(pool[i] for i in picked),
        artifacts=merged_artifacts(children, MOST_KEPT),
    )


def merged_artifacts(digests: Iterable[Digest], most: int | None = None) -> tuple[str, ...]:
    """Returns the names that rank high in many digests; of equal ones, the first."""
    weights: defaultdict[str, float] = defaultdict(float)
    for digest in digests:
        for rank, name in enumerate(digest.artifacts, start=1):
            weights[name] += 1 / rank  # names are mentioned by Zipf's law
    return tuple(sorted(weights, key=lambda name: -weights[name])[:most])


def keep_sentences(lines: Iterable[Line], limit: int = MOST_KEPT) -> tuple[Sentence, ...]:
    """Returns the sentences of a span that are worth keeping, in order; of equal ones the first."""
    candidates = chain.from_iterable(map(candidates_of, lines))
    best: dict[str, Sentence] = {}
    for sentence in sorted(candidates, key=lambda s: (-s.score, s.position, s.order)):
        if len(best) == limit:
            break
        best.setdefault(sentence.text, sentence)
    return tuple(sorted(best.values(), key=lambda sentence: (sentence.position, sentence.order)))


@cached_until_forgotten(KNOWN_LINES)
def candidates_of(line: Line) -> tuple[Sentence, ...]:
    """Returns the sentences of a message that still say something later."""
    is_foreign = _is_foreign(line.text)
    candidates: list[Sentence] = []
    for order, text in enumerate(units(line.text)):
        words = word_count(text)
        if words < 2:  # noqa: PLR2004 - "x", of which a long text may have very many
            continue
        kind = _kind_in(line, text)
        if kind is Kind.PLAIN:
            # "Thanks!" and "Let me know if I can help." say nothing later; "Decided: Flask." does.
            if words < FEWEST_WORDS:
                continue
            if line.speaker and not _says_something(line, text, words, is_foreign=is_foreign):
                continue
        score = _score_of(line, text, words, kind)
        candidates.append(
            Sentence(
                position=line.position,
                order=order,
                speaker=line.speaker,
                date=line.date,
                text=text,
                score=score,
                kind=kind,
            )
        )
    return tuple(candidates)


def _is_foreign(text: str) -> bool:
    """Returns True if a text is in another language than English."""
    beginning = text[:BEGINNING]
    common_words = len(ENGLISH.common.findall(beginning))
    return common_words < word_count(beginning) * ENGLISH_SHARE


def _kind_in(line: Line, text: str) -> Kind:
    """Returns the kind of a sentence in a message."""
    kind = kind_of(text)
    is_draft = line.speaker == "assistant" and not ENGLISH.together.search(text)
    if kind is Kind.DECISION and is_draft:
        return Kind.PLAIN  # "We will use email" stands in many a text that it drafts
    return kind


def _says_something(line: Line, text: str, words: int, *, is_foreign: bool) -> bool:
    """Returns True if a plain sentence of a chat is whole, has a matter, and is to nobody alone."""
    if text[-1] in ":;,…" or not _is_whole(line, text, is_foreign=is_foreign):
        return False
    if not is_foreign and not _names_something(text):
        return False
    if is_question(text) or ENGLISH.reacts.search(text) or ENGLISH.leans_on.search(text):
        return False
    is_short = words < FEWEST_FOREIGN_WORDS if is_foreign else not _has_verb(text)
    if is_short:
        return False
    # "I did think about that." is about nothing.
    matter = frozenset(terms(text)) - generic_terms()
    return len(matter) > 1


def _has_verb(text: str) -> bool:
    return ENGLISH.verb.search(text.lower()) is not None


def _is_whole(line: Line, text: str, *, is_foreign: bool) -> bool:
    """Returns True if a text ends like a sentence, or is one of the user's without a full stop."""
    if ENGLISH.ends.search(text):
        return True
    if not line.from_user:
        return False
    if ENGLISH.speaks.search(text):
        return True
    is_all = text == line.text.strip()
    return is_all and (is_foreign or ENGLISH.of_us.search(text) is not None)


def _names_something(text: str) -> bool:
    """Returns True if a text has a word of the first person, a number, a name, code, a problem."""
    patterns = (
        ENGLISH.of_us,
        ENGLISH.number,
        ENGLISH.capitalised,
        ENGLISH.code,
        ENGLISH.problem,
    )
    return any(pattern.search(text) for pattern in patterns)


def _score_of(line: Line, text: str, words: int, kind: Kind) -> float:
    """Returns how much a sentence of a message is worth keeping, 1 at least."""
    score = importance(text, from_user=line.from_user)
    # "Agreed, then.", "Keep it open." say nothing by themselves.
    if kind is not Kind.PLAIN and words > FEWEST_WORDS:
        score += KIND_BONUS
    if begins_in_the_middle(text):
        score -= PENALTY
    if line.speaker.startswith("tool"):
        score -= PENALTY
    return max(1.0, score)


def choose(
    sentences: Sequence[Sentence], costs: Sequence[int], budget: int, most: int | None = None
) -> list[int]:
    """Returns the sentences to put into a summary within a budget, as indexes in order.

    Greedy by importance and coverage per token (after Lin and Bilmes 2010): a sentence adds the
    weight of the terms that no chosen sentence has yet, times its importance squared (measured:
    more decisions), over its cost.
    """
    pool = heapq.nsmallest(POOL, range(len(sentences)), key=lambda i: (-sentences[i].score, i))
    weights = _weights_of_terms([sentences[i] for i in pool])
    covered: set[str] = set()
    chosen: list[int] = []
    budget_left = budget

    def gain_of(i: int) -> float:
        # Summed up exactly: sets have no fixed order.
        gain = math.fsum(map(weights.__getitem__, sentences[i].terms - covered))
        return gain * sentences[i].score ** 2 / max(1, costs[i])

    # Gains only fall, so a stale one is an upper bound: the top that is still the top when renewed
    # is the best.
    queue = [(-gain_of(i), i) for i in pool]
    heapq.heapify(queue)
    while queue and len(chosen) != most:
        _, i = heapq.heappop(queue)
        if costs[i] > budget_left:
            continue
        gain = gain_of(i)
        if gain <= 0:
            continue
        if queue and gain < -queue[0][0]:
            heapq.heappush(queue, (-gain, i))
            continue
        chosen.append(i)
        covered |= sentences[i].terms
        budget_left -= costs[i]
    return sorted(chosen)


def _weights_of_terms(sentences: Sequence[Sentence]) -> dict[str, float]:
    """Returns what it is worth to cover each term of some sentences; more, the rarer it is."""
    frequency = Counter(chain.from_iterable(sentence.terms for sentence in sentences))
    weight_of = {times: math.log(1 + len(sentences) / times) for times in set(frequency.values())}
    return {term: weight_of[times] for term, times in frequency.items()}


def summary_lines(
    strategy: str,
    digests: Sequence[Digest],
    cut: int,
    count: Count,
    room_tokens: int,
    *,
    said: Sequence[str],
    alive: frozenset[str],
    form: HistoryFormat,
) -> list[SummaryLine]:
    """Returns the lines that stand for everything before the cut.

    What the arc has `said` is left out, and so are open questions that are not `alive`.
    """
    zones = [
        (zone, list(spans))
        for zone, spans in groupby(digests, lambda digest: zone_of(strategy, digest, cut))
    ]
    parts_of = PARTS[strategy]
    lines: list[SummaryLine] = []
    tokens_left = room_tokens
    parts_left = sum(parts_of[zone] for zone, _ in zones)
    for zone, spans in zones:
        room = tokens_left * parts_of[zone] // parts_left
        of_spans = [_lines_of(digest, said, alive, form) for digest in spans]
        chosen = _zone_lines(of_spans, count, room)
        parts_left -= parts_of[zone]
        tokens_left -= sum(map(count, with_headings(chosen)))
        lines += chosen
    return lines


def zone_of(strategy: str, digest: Digest, cut: int) -> int:
    """Returns the zone of a strategy to which a span before the cut belongs.

    Levels from three on are one.
    """
    if strategy == "multi_level":
        return 3 - min(digest.level, 3)
    if strategy == "compacted" and digest.level == 1:
        return int(digest.first >= cut * OLDER_SHARE)
    return 0


def _lines_of(
    digest: Digest, said: Sequence[str], alive: frozenset[str], form: HistoryFormat
) -> list[tuple[Sentence, SummaryLine]]:
    """Returns the sentences of a span that may be shown, each with its line."""
    pairs: list[tuple[Sentence, SummaryLine]] = []
    for sentence in digest.sentences:
        is_open = sentence.kind is Kind.OPEN
        if is_open and sentence.text not in alive:
            continue
        if any(sentence.text in line for line in said):
            continue
        text = fences.as_data(sentence.text)
        if is_open and "[OPEN]" not in sentence.text:
            text = f"[OPEN] {text}"
        has_heading = sentence.date and form.timestamps
        line = SummaryLine(
            position=sentence.position,
            order=sentence.order,
            heading=f"[{sentence.date}]\n" if has_heading else "",
            text=f"- {form.line(sentence.speaker, text)}\n",
            first=digest.first,
            end=digest.end,
            made_by=digest.made_by,
            value=sentence.score,
        )
        pairs.append((sentence, line))
    return pairs


def _zone_lines(
    spans: Sequence[Sequence[tuple[Sentence, SummaryLine]]], count: Count, room_tokens: int
) -> list[SummaryLine]:
    """Returns the lines of a zone that fit with their headings.

    Of every span the best one, then those that add most.
    """
    pairs = [*chain.from_iterable(spans)]
    sentences = [sentence for sentence, _ in pairs]
    lines = [line for _, line in pairs]
    costs = [count(line.text) for line in lines]
    ranked_by_span = _ranked_by_span([*map(len, spans)], lines)
    room = room_tokens
    while room > 0:  # what the headings cost is known once sentences are chosen
        best = _best_of_spans(ranked_by_span, costs, room)
        free = [0 if i in best else cost for i, cost in enumerate(costs)]
        tokens_left = room - sum(costs[i] for i in best)
        best.update(choose(sentences, free, tokens_left))
        chosen = [lines[i] for i in sorted(best)]
        excess = sum(map(count, with_headings(chosen))) - room_tokens
        if excess <= 0:
            return chosen
        room -= excess
    return []


def _ranked_by_span(lengths: Sequence[int], lines: Sequence[SummaryLine]) -> list[list[int]]:
    """Returns of every span that has lines their indexes, the best one first."""
    ranked: list[list[int]] = []
    first = 0
    for length in lengths:
        if length:
            indexes = range(first, first + length)
            ranked.append(sorted(indexes, key=lambda i: -lines[i].value))
        first += length
    return ranked


def _best_of_spans(
    ranked_by_span: Sequence[Sequence[int]], costs: Sequence[int], room_tokens: int
) -> set[int]:
    """Returns the best line of every span that fits its share of the room, newest span first."""
    best: set[int] = set()
    tokens_left = room_tokens
    spans_left = len(ranked_by_span)
    for indexes in reversed(ranked_by_span):
        fitting = next((i for i in indexes if costs[i] <= tokens_left // spans_left), None)
        if fitting is not None:
            best.add(fitting)
            tokens_left -= costs[fitting]
        spans_left -= 1
    return best
