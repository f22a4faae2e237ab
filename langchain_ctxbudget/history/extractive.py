"""A summary made of a conversation's own sentences: deterministic, in order, attributed.

No sentence is cut.

A sentence is judged by its look alone (seed 000, `scoreMessageImportance`). A summary has zones by
strategy (seed 000): one if `windowed`; if `compacted` one for the older 40 of 75 messages, and one;
if `multi_level` one for every level.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from itertools import chain, groupby

from langchain_ctxbudget import messages
from langchain_ctxbudget.history.backgrounds import with_headings
from langchain_ctxbudget.messages import (
    Count,
    begins_in_the_middle,
    fences,
    remembering,
    terms,
    units,
    word_count,
)
from langchain_ctxbudget.settings import HistoryFormat
from langchain_ctxbudget.stores import EXTRACTION, SummaryLine

MOST_KEPT = 16
"""Sentences that a digest keeps, and names."""
CHARACTERS_PER_TOKEN = 4
"""About so many characters are one token."""
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
FEWEST_FOREIGN_WORDS = 5
"""A sentence of fewer words is not kept, unless it decides something or leaves it open; and in
other languages."""
BEGINNING = 1_000
ENGLISH_SHARE = 0.1
"""A message is English if common words are this share of the words at its beginning."""
PARTS = {"windowed": (1,), "compacted": (10, 25), "multi_level": (5, 10, 15)}
"""The parts of the room that each zone of a strategy may take, oldest first (seed 000)."""
OLDER_SHARE = 40 / 75
"""Of the compacted messages, those that have the smaller part of the room (seed 000)."""
ENGLISH = messages.vocabulary("history")
_POINTS = (
    (ENGLISH.fence, 7.5, math.inf),
    (ENGLISH.question_mark, 5, 15),
    (ENGLISH.decision, 10, math.inf),
    (ENGLISH.open, 10, 10),
    (ENGLISH.problem, 5, 15),
    (ENGLISH.list_item, 2, 10),
    (ENGLISH.number, 8, 8),
    (ENGLISH.capitalised, 4, 10),
    (ENGLISH.code, 4, 8),
)
"""The points that each match of a pattern adds to the importance of a text, and the most for all
(seed 000)."""


@cache
def generic_terms() -> frozenset[str]:
    """Returns terms of questions and decisions in general.

    The other terms are the matter of one.
    """
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
    def told(self) -> str:
        """The sentence with its date, and who said it."""
        date = f"[{self.date}] " if self.date else ""
        return f"{date}{f'{self.speaker}: ' if self.speaker else ''}{self.text}"


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
        sentences = (
            replace(sentence, position=sentence.position + shift) for sentence in self.sentences
        )
        return (
            replace(self, first=first, end=self.end + shift, sentences=tuple(sentences))
            if shift
            else self
        )


def kind_of(sentence: str) -> Kind:
    """Returns the kind of a sentence: it decides something, leaves something open, or neither."""
    lowered = sentence.lower()
    if opens := ENGLISH.open_words.search(lowered) and ENGLISH.open.search(sentence):
        conditional = ENGLISH.condition.search(sentence[: opens.start()])
        return (
            Kind.PLAIN if conditional or ENGLISH.asks_what_is_open.search(sentence) else Kind.OPEN
        )
    decides = ENGLISH.decision_words.search(lowered) and ENGLISH.decides.search(sentence)
    if not decides or is_question(sentence) or ENGLISH.supposes.search(sentence):
        return Kind.PLAIN
    before = sentence[: decides.start()]
    after = sentence[decides.end() :]
    told = f"{before} {after}" if decides[0].startswith(("was ", "were ", "been ")) else after
    has_object = not generic_terms().issuperset(terms(told))
    behind = after[5:] if ENGLISH.that.match(sentence, decides.end()) else after
    leans = ENGLISH.leans_behind.match(behind) or ENGLISH.leans_before.search(before)
    return (
        Kind.DECISION
        if has_object and not leans and not ENGLISH.condition.search(before[-80:])
        else Kind.PLAIN
    )


def is_question(sentence: str) -> bool:
    """Returns True if a sentence ends in a question mark of any script."""
    return bool(ENGLISH.asks.search(sentence))


def importance(text: str, *, from_user: bool) -> float:
    """Returns the seed's score of a text, without its terms for place, but for numbers, names and code artifacts."""
    score = min(25.0, math.log2(word_count(text) + 1) * 5)
    score += sum(
        min(most, points * len(pattern.findall(text))) for pattern, points, most in _POINTS
    )
    return score + (5 if from_user else 0)


def digest_messages(lines: Sequence[Line], first: int, end: int) -> Digest:
    """Returns the digest of a span of messages."""
    names = messages.artifacts(line.text for line in lines)[:MOST_KEPT]
    return Digest(first=first, end=end, level=1, sentences=keep_sentences(lines), artifacts=names)


def merge(children: Sequence[Digest]) -> Digest:
    """Returns one digest of several spans of one level in a row.

    By importance and coverage, no larger at any level.
    """
    pool = [sentence for child in children for sentence in child.sentences]
    picked = choose(pool, [len(sentence.text) for sentence in pool], CHARACTERS_PER_NODE, MOST_KEPT)
    return Digest(
        first=children[0].first,
        end=children[-1].end,
        level=children[0].level + 1,
        sentences=tuple(pool[i] for i in picked),
        artifacts=merged_artifacts(children, MOST_KEPT),
    )


def merged_artifacts(digests: Iterable[Digest], most: int | None = None) -> tuple[str, ...]:
    """Returns the names that rank high in many digests.

    Of equal ones, those of the first digest.
    """
    weights: defaultdict[str, float] = defaultdict(float)
    for digest in digests:
        for rank, name in enumerate(digest.artifacts, start=1):
            weights[name] += 1 / rank  # names are mentioned by Zipf's law
    return tuple(sorted(weights, key=lambda name: -weights[name])[:most])


def keep_sentences(lines: Iterable[Line], limit: int = MOST_KEPT) -> tuple[Sentence, ...]:
    """Returns the sentences of a span that are worth keeping, in order.

    Of equal ones, the first.
    """
    candidates = (sentence for line in lines for sentence in candidates_of(line))
    best: dict[str, Sentence] = {}
    for sentence in sorted(candidates, key=lambda s: (-s.score, s.position, s.order)):
        if len(best) == limit:
            break
        best.setdefault(sentence.text, sentence)
    return tuple(sorted(best.values(), key=lambda sentence: (sentence.position, sentence.order)))


@remembering(KNOWN_LINES)
def candidates_of(line: Line) -> tuple[Sentence, ...]:
    """Returns the sentences of a message that say something later."""
    found = list[Sentence]()
    beginning = line.text[:BEGINNING]
    is_foreign = len(ENGLISH.common.findall(beginning)) < word_count(beginning) * ENGLISH_SHARE
    for order, text in enumerate(units(line.text)):
        if (words := word_count(text)) < 2:  # noqa: PLR2004 - "x", of which a long text may have very many
            continue
        kind = kind_of(text)
        if (
            kind is Kind.DECISION
            and line.speaker == "assistant"
            and not ENGLISH.together.search(text)
        ):
            kind = Kind.PLAIN  # "We will use email" stands in many a text that it drafts
        # "Thanks!" and "Let me know if I can help." say nothing later; "Decided: Flask." does.
        if kind is Kind.PLAIN and words < FEWEST_WORDS:
            continue
        if (
            kind is Kind.PLAIN and line.speaker
        ):  # of a chat: it must be whole, of a matter, and to nobody alone
            says_all = (is_foreign or ENGLISH.of_us.search(text)) and text == line.text.strip()
            is_whole = ENGLISH.ends.search(text) or (
                line.from_user and (says_all or ENGLISH.speaks.search(text))
            )
            signs = (
                ENGLISH.of_us,
                ENGLISH.number,
                ENGLISH.capitalised,
                ENGLISH.code,
                ENGLISH.problem,
            )
            of_matter = (
                is_whole
                and text[-1] not in ":;,…"
                and (is_foreign or any(sign.search(text) for sign in signs))
            )
            if (
                not of_matter
                or is_question(text)
                or ENGLISH.reacts.search(text)
                or ENGLISH.leans_on.search(text)
            ):
                continue
            # "I did think about that." is about nothing.
            has_words = (
                words >= FEWEST_FOREIGN_WORDS if is_foreign else ENGLISH.verb.search(text.lower())
            )
            if not has_words or len(frozenset(terms(text)) - generic_terms()) < 2:  # noqa: PLR2004
                continue
        worth = importance(text, from_user=line.from_user)
        if words > FEWEST_WORDS:  # "Agreed, then.", "Keep it open." say nothing by themselves
            worth += KIND_BONUS if kind is not Kind.PLAIN else 0.0
        worth -= PENALTY if begins_in_the_middle(text) else 0.0
        worth -= PENALTY if line.speaker.startswith("tool") else 0.0
        found.append(
            Sentence(line.position, order, line.speaker, line.date, text, max(1.0, worth), kind)
        )
    return tuple(found)


def choose(
    kept: Sequence[Sentence], costs: Sequence[int], budget: int, most: int | None = None
) -> list[int]:
    """Returns the sentences to put into a summary, at most so many, as indexes in order, within a budget.

    Greedy by importance and coverage per token (after Lin and Bilmes 2010): a sentence adds the
    weight of the terms that no chosen sentence has yet, times its importance squared (measured:
    more decisions), over its cost.
    """
    pool = heapq.nsmallest(POOL, range(len(kept)), key=lambda i: (-kept[i].score, i))
    frequency = Counter(chain.from_iterable(kept[i].terms for i in pool))
    rarity = {count: math.log(1 + len(pool) / count) for count in {*frequency.values()}}
    weight = {term: rarity[count] for term, count in frequency.items()}
    covered: set[str] = set()
    chosen: list[int] = []
    left = budget

    def gain(i: int) -> float:
        new = math.fsum(
            map(weight.__getitem__, kept[i].terms - covered)
        )  # exact: sets have no fixed order
        return new * kept[i].score ** 2 / max(1, costs[i])

    # Gains only fall, so a stale one is an upper bound: the top that is still the top when renewed
    # is the best.
    queue = [(-gain(i), i) for i in pool]
    heapq.heapify(queue)
    while queue and len(chosen) != most:
        _, i = heapq.heappop(queue)
        if costs[i] > left:
            continue
        fresh = gain(i)
        if queue and fresh < -queue[0][0]:
            if fresh > 0:
                heapq.heappush(queue, (-fresh, i))
            continue
        if fresh <= 0:
            break
        chosen.append(i)
        covered |= kept[i].terms
        left -= costs[i]
    return sorted(chosen)


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
    """Returns the lines that stand for everything before the cut, but for what the arc has `said` or is not `alive`."""
    zones = [
        (zone, list(spans))
        for zone, spans in groupby(digests, lambda digest: zone_of(strategy, digest, cut))
    ]
    lines: list[SummaryLine] = []
    left = room_tokens
    parts = sum(PARTS[strategy][zone] for zone, _ in zones)
    for zone, spans in zones:
        told = [_lines_of(digest, said, alive, form) for digest in spans]
        chosen = _zone_lines(told, count, left * PARTS[strategy][zone] // parts)
        parts -= PARTS[strategy][zone]
        left -= sum(map(count, with_headings(chosen)))
        lines += chosen
    return lines


def zone_of(strategy: str, digest: Digest, cut: int) -> int:
    """Returns the zone of a strategy to which a span before the cut belongs.

    Levels from three on are one.
    """
    if strategy == "multi_level":
        return 3 - min(digest.level, 3)
    return int(strategy == "compacted" and digest.level == 1 and digest.first >= cut * OLDER_SHARE)


def _lines_of(
    digest: Digest, said: Sequence[str], alive: frozenset[str], form: HistoryFormat
) -> list[tuple[Sentence, SummaryLine]]:
    """Returns the sentences of a span that may be told, each with its line."""
    found: list[tuple[Sentence, SummaryLine]] = []
    for sentence in digest.sentences:
        is_open = sentence.kind is Kind.OPEN
        if (is_open and sentence.text not in alive) or any(sentence.text in line for line in said):
            continue
        mark = "[OPEN] " if is_open and "[OPEN]" not in sentence.text else ""
        line = SummaryLine(
            position=sentence.position,
            order=sentence.order,
            heading=f"[{sentence.date}]\n" if sentence.date and form.timestamps else "",
            text=f"- {form.line(sentence.speaker, mark + fences.as_data(sentence.text))}\n",
            first=digest.first,
            end=digest.end,
            made_by=digest.made_by,
            value=sentence.score,
        )
        found.append((sentence, line))
    return found


def _zone_lines(
    spans: Sequence[Sequence[tuple[Sentence, SummaryLine]]], count: Count, room_tokens: int
) -> list[SummaryLine]:
    """Returns sentences that fit with their headings.

    Of every span its best one, then what adds most.
    """
    sentences = [sentence for span in spans for sentence, _ in span]
    lines = [line for span in spans for _, line in span]
    best_first: list[list[int]] = []
    """Of every span that tells something, the places of its lines."""
    begin = 0
    for span in filter(None, spans):
        end = begin + len(span)
        best_first.append(sorted(range(begin, end), key=lambda i: -lines[i].value))
        begin = end
    costs = [count(line.text) for line in lines]
    room = room_tokens
    while room > 0:  # what the headings cost is known once sentences are chosen
        best = set[int]()
        left = room
        for waiting, own in reversed([*enumerate(best_first, 1)]):  # the newest span first
            if (whole := next((i for i in own if costs[i] <= left // waiting), None)) is not None:
                best.add(whole)
                left -= costs[whole]
        free = [0 if i in best else cost for i, cost in enumerate(costs)]
        found = [lines[i] for i in sorted(best.union(choose(sentences, free, left)))]
        if (over := sum(map(count, with_headings(found))) - room_tokens) <= 0:
            return found
        room -= over
    return []
