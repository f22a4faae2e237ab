"""A summary made of the conversation's own sentences: deterministic, in order, attributed.

Messages are read in segments, every one of them. A segment's digest is a pure function of its messages; five digests
are merged into one of the next level, and so on, at a bounded size. A summary chooses from the digests' sentences.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from langchain_ctxbudget.history.digest import Digest, Line, Sentence
from langchain_ctxbudget.history.importance import Kind, importance, is_filler, kind_of
from langchain_ctxbudget.messages.prose import artifacts, begins_in_the_middle, units
from langchain_ctxbudget.messages.text import terms, word_count

KEPT_PER_SEGMENT = 16
"""The most sentences that a segment keeps."""
KEPT_PER_NODE = 24
"""The most sentences that a node of a higher level keeps."""
CHARACTERS_PER_NODE = 3_600
"""The most characters that these may have together, about 900 tokens."""
ARTIFACTS = 16
"""The most names that a digest keeps."""
POOL = 600
"""The most sentences that a summary chooses from; the most important ones of all segments."""
KIND_BONUS = {Kind.DECISION: 20.0, Kind.OPEN: 20.0, Kind.PLAIN: 0.0}
FEWEST_WORDS = 3
"""A sentence of fewer words is not kept, unless it decides something or leaves it open."""
LEANING_PENALTY, TOOL_PENALTY, QUOTED_PENALTY = 6.0, 8.0, 8.0
"""For what leans on the sentence before it, for what a tool returned, for code, tables and JSON."""
RECENCY_WEIGHT = 20.0
"""Points for the newest message of a conversation, less for older ones (seed 000)."""
ENDS_BONUS = 15.0
"""Points for the first and the last message of a conversation (seed 000)."""
RANK_UNIT = 60_060
"""The weight of the first name of a digest; a rank stands for how often a name is mentioned (Zipf's law)."""


def digest_messages(lines: Sequence[Line], first: int, end: int) -> Digest:
    """Returns the digest of a span of messages.

    Example:
        >>> line = Line(0, "Ada", None, "Hi there! We decided on Redis 7 in `cache.py`.", from_user=True)
        >>> digest = digest_messages([line], 0, 1)
        >>> [sentence.text for sentence in digest.sentences][-1], digest.artifacts
        ('We decided on Redis 7 in `cache.py`.', ('cache.py',))
    """
    names = artifacts(line.text for line in lines)[:ARTIFACTS]
    return Digest(first=first, end=end, level=1, sentences=keep_sentences(lines), artifacts=names)


def merge(children: Sequence[Digest]) -> Digest:
    """Returns one digest of several spans of one level in a row: by importance and coverage, no larger at any level."""
    pool = [sentence for child in children for sentence in child.sentences]
    picked = _ranked(pool, [len(sentence.text) for sentence in pool], CHARACTERS_PER_NODE, KEPT_PER_NODE)
    return Digest(
        first=children[0].first,
        end=children[-1].end,
        level=children[0].level + 1,
        sentences=tuple(pool[i] for i in sorted(picked)),
        artifacts=merged_artifacts(children, ARTIFACTS),
    )


def merged_artifacts(digests: Iterable[Digest], most: int) -> tuple[str, ...]:
    """Returns the names that rank high in many digests; of equal ones, those of the first digest."""
    weight: Counter[str] = Counter()
    for digest in digests:
        weight.update({name: RANK_UNIT // rank for rank, name in enumerate(digest.artifacts, start=1)})
    return tuple(name for name, _ in weight.most_common(most))


def keep_sentences(lines: Iterable[Line], limit: int = KEPT_PER_SEGMENT) -> tuple[Sentence, ...]:
    """Returns the sentences of a segment that are worth keeping, in order; of equal ones, the first."""
    ranked = sorted((candidate for line in lines for candidate in _candidates(line)), key=lambda found: found[:3])
    best: dict[str, Sentence] = {}
    for negative, position, order, text, kind, line in ranked:
        if len(best) == limit:
            break
        if text not in best:
            about = frozenset(terms(text))
            best[text] = Sentence(position, order, line.speaker, line.date, text, -negative, kind, about)
    return tuple(sorted(best.values(), key=lambda sentence: (sentence.position, sentence.order)))


def _candidates(line: Line) -> Iterator[tuple[float, int, int, str, Kind, Line]]:
    """Yields the sentences of a message, each with its worth below zero, so that the smallest is the best."""
    for order, text in enumerate(units(line.text)):
        words = word_count(text)
        if words < 2:  # noqa: PLR2004 - "x", of which a long text may have very many
            continue
        kind = kind_of(text)
        # "Thanks!" and "Let me know if I can help." say nothing later; "Decided: Flask." does.
        if kind is Kind.PLAIN and (words < FEWEST_WORDS or is_filler(text)):
            continue
        yield -_worth(text, words, kind, line), line.position, order, text, kind, line


def _worth(text: str, words: int, kind: Kind, line: Line) -> float:
    """Returns the importance of a sentence, corrected for how well it can be read alone."""
    worth = importance(text, from_user=line.from_user, words=words)
    if words > FEWEST_WORDS:  # "Agreed, then.", "Keep it open." say nothing by themselves
        worth += KIND_BONUS[kind]
    if begins_in_the_middle(text):
        worth -= LEANING_PENALTY
    if line.speaker.startswith("tool"):
        worth -= TOOL_PENALTY
    if text[0] == "[" and text[-1] in "]…":
        worth -= QUOTED_PENALTY
    return max(1.0, worth)


def choose(kept: Sequence[Sentence], costs: Sequence[int], budget_tokens: int) -> list[int]:
    """Returns the sentences to put into a summary, as indexes in order, within a budget.

    Greedy by importance and coverage per token: a sentence adds the weight of the terms that no chosen sentence has
    yet, times its importance squared, over its cost (after Lin and Bilmes 2010, summarisation by a submodular
    function; the square was measured: more decisions, and no fewer answers).
    """
    return sorted(_ranked(kept, costs, budget_tokens, len(kept)))


def _ranked(kept: Sequence[Sentence], costs: Sequence[int], budget: int, limit: int) -> list[int]:
    """Returns the indexes of at most `limit` sentences within a budget, in the order in which they were chosen."""
    pool = heapq.nsmallest(POOL, range(len(kept)), key=lambda i: (-kept[i].score, i))
    frequency = Counter(term for i in pool for term in kept[i].terms)
    weight = {term: math.log(1 + len(pool) / count) for term, count in frequency.items()}
    covered: set[str] = set()
    chosen: list[int] = []
    left = budget

    def gain(i: int) -> float:
        new = math.fsum(weight[term] for term in kept[i].terms - covered)  # exact: sets have no fixed order
        return new * kept[i].score ** 2 / max(1, costs[i])

    # Gains only fall, so a stale one is an upper bound: the top that is still the top when renewed is the best.
    queue = [(-gain(i), i) for i in pool]
    heapq.heapify(queue)
    while queue and len(chosen) < limit:
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
    return chosen


def key_messages(lines: Sequence[Line], costs: Sequence[int], budget_tokens: int, total: int) -> list[int]:
    """Returns the messages to show whole, as indexes in order, within a budget (seed 000, `selectKeyMessages`).

    The most important ones come first; one that does not fit is skipped and is not the end.
    """

    def score(line: Line) -> float:
        recency = line.position / max(1, total) * RECENCY_WEIGHT
        ends = ENDS_BONUS if line.position in (0, total - 1) else 0.0
        return importance(line.text, from_user=line.from_user) + recency + ends

    scores = [score(line) for line in lines]
    left = budget_tokens
    chosen: list[int] = []
    for i in sorted(range(len(lines)), key=lambda i: -scores[i]):  # stable: of equals, the first
        if costs[i] <= left:
            chosen.append(i)
            left -= costs[i]
    return sorted(chosen)
