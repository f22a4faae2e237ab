"""A summary made of the conversation's own sentences: deterministic, in order, attributed.

Messages are read in segments of a fixed size. What a segment keeps is a pure function of its messages, so it
is made once and kept for ever; a summary chooses from what the segments kept. Every message is read.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from langchain_ctxbudget.core.importance import Kind, importance, kind_of
from langchain_ctxbudget.core.text import one_line, sentences, terms, word_count

SEGMENT_MESSAGES = 20
"""Messages of a segment (seed 000: chunks of about 20)."""
KEPT_PER_SEGMENT = 16
"""The most sentences that a segment keeps."""
POOL = 600
"""The most sentences that a summary chooses from; the most important ones of all segments."""
MAX_SENTENCE_CHARACTERS = 400
"""A longer sentence (code, a table) is cut here, with an ellipsis."""


@dataclass(frozen=True, slots=True)
class Line:
    """A message as a summariser reads it."""

    position: int
    speaker: str
    date: str | None
    text: str
    from_user: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence worth keeping."""

    position: int
    """Which message it comes from."""
    order: int
    """Its place within that message."""
    speaker: str
    date: str | None
    text: str
    score: float
    kind: Kind
    terms: frozenset[str]


def keep_sentences(lines: Iterable[Line], limit: int = KEPT_PER_SEGMENT) -> tuple[Sentence, ...]:
    """The sentences of a segment that are worth keeping, in order.

    Args:
        lines: the segment's messages; every one of them is read.
        limit: how many sentences to keep at most.
    """
    candidates = (
        (-importance(flat, from_user=line.from_user), line.position, order, flat, line)
        for line in lines
        for order, flat in enumerate(map(_flat, sentences(line.text)))
        if word_count(flat) > 2  # noqa: PLR2004 - "Thanks!", "Sounds good." say nothing later
    )
    best = heapq.nsmallest(limit, candidates, key=lambda candidate: candidate[:3])
    return tuple(
        Sentence(
            position=line.position,
            order=order,
            speaker=line.speaker,
            date=line.date,
            text=flat,
            score=-negative,
            kind=kind_of(flat),
            terms=frozenset(terms(flat)),
        )
        for negative, _, order, flat, line in sorted(best, key=lambda candidate: candidate[1:3])
    )


def _flat(sentence: str) -> str:
    """A sentence on one line, cut where it is too long; what is scored is what is kept."""
    flat = one_line(sentence)
    if len(flat) > MAX_SENTENCE_CHARACTERS:
        return flat[: MAX_SENTENCE_CHARACTERS - 1].rstrip() + "…"
    return flat


def choose(kept: Sequence[Sentence], costs: Sequence[int], budget_tokens: int) -> list[int]:
    """Which sentences to put into a summary, as indexes in order, within a budget.

    Greedy by importance and coverage per token: what a sentence adds is the weight of the terms that no
    chosen sentence has yet (a rare term weighs more), times its importance, over the root of its cost.

    Args:
        kept: what the segments kept.
        costs: what each would cost in the prompt, in tokens.
        budget_tokens: what they may cost together.
    """
    pool = heapq.nsmallest(POOL, range(len(kept)), key=lambda i: (-kept[i].score, i))
    frequency = Counter(term for i in pool for term in kept[i].terms)
    weight = {term: math.log(1 + len(pool) / count) for term, count in frequency.items()}
    covered: set[str] = set()
    chosen: list[int] = []
    left = budget_tokens

    def gain(i: int) -> float:
        new = math.fsum(weight[term] for term in kept[i].terms - covered)  # exact: sets have no fixed order
        return new * kept[i].score / math.sqrt(max(1, costs[i]))

    # Gains only fall, so a stale one is an upper bound: the top that is still the top when renewed is the best.
    queue = [(-gain(i), i) for i in pool]
    heapq.heapify(queue)
    while queue:
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
