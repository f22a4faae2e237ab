"""The arc of a conversation (`llmArc` of seed 000)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from langchain_ctxbudget.history.extractive import Digest, Kind, Line, Sentence, keep_sentences, merged_artifacts
from langchain_ctxbudget.history.open_questions import GENERIC_TERMS, answers, same_matter
from langchain_ctxbudget.history.rendering import Count
from langchain_ctxbudget.messages import fences, one_line, terms
from langchain_ctxbudget.stores import EXTRACTION, SummaryLine

Density = Literal["light", "rich", "dense"]
DENSITY: dict[str, Density] = {"windowed": "light", "compacted": "rich", "multi_level": "dense"}
"""The density for a strategy: the less of the messages is visible, the more the arc says (seed 000)."""
NARRATIVE, DECISIONS, OPEN, FOCUS, ARTIFACTS, WHO = SECTIONS = (
    "# So far\n",
    "# Decisions\n",
    "# Open questions\n",
    "# Current focus\n",
    "# Artifacts\n",
    "# Who\n",
)
"""The headings of the arc, in the order in which they stand."""
NARRATIVE_LINES = {"light": 1, "rich": 3}
"""Lines of the story; a dense arc has one for every span."""
LIGHT_ITEMS = 5
"""A light arc has so many decisions and so many open questions at most; the others have all that fit."""
FOCUS_MESSAGES = 10
"""The newest messages before the cut, which tell what the conversation had come to."""
SHORTEST_TOPIC = 3
"""Letters of a topic, in a script of letters."""
TOPICS, FOCUS_TERMS, ARTIFACT_NAMES = 4, 6, 12
"""The most terms that name a span's topics and the focus, and the most artifacts."""
SAME_DECISION = 0.6
"""Decisions that share so many of their terms are one; the newer one stands."""
REPEATED_DECISION, REVERSED_DECISION = 2 / 3, 1 / 3
"""Of the older one's terms, at least two, the share that a newer one repeats: anyway, and where it takes back."""
_EMPTY = frozenset(
    terms(
        "one two three four five six seven eight nine ten twelve first second third half every each back day days week "
        "weeks month months year years hour hours minute minutes time times always never ever maybe perhaps really "
        "quite rather even nothing something anything everything everyone somebody anybody nobody person people mr mrs "
        "ms dr well right good great fine nice better best bad little big small long short high low old last next "
        "another per due two's lot bit come came goes going went see saw seen give gave given use used run ran call "
        "called work works show shows help tell done does start starts started stop mean means let's yes okay ok thank "
        "thanks sure sorry please since around may might must shall however though although while without within "
        "whether also still yet already soon today tonight monday tuesday wednesday thursday friday saturday sunday "
        "january february march april june july august september october november december"
    )
)
"""Terms that are no topic."""
_REVERSES = re.compile(
    r"(?i)\b(?:revers\w+|instead of|no longer|rather than|not the|changed (?:our|my|their) mind|after all|scrap\w*"
    r"|new \w+(?: \w+)?:|back to|drop(?:ped)?|replac\w+|mov(?:e|ed) (?:\w+ ){1,4}to)\b"
)
# The values of an arc's lines, most valuable first; what varies within a section adds up to ten points.
_FIRST, _FOCUS, _OPEN, _REQUEST, _ARTIFACTS, _DECISION, _STORY, _WHO = 100.0, 95.0, 82.0, 81.0, 80.0, 70.0, 60.0, 50.0
_SPREAD = 10.0


def arc_of(
    digests: Sequence[Digest],
    strategy: str,
    *,
    open_questions: Sequence[Sentence],
    focus: Sequence[Line],
    recent: Sequence[Line],
    count: Count,
    budget_tokens: int,
) -> tuple[list[SummaryLine], frozenset[str]]:
    """Returns the arc's lines within a budget, and the texts of the questions before the cut that are open.

    `focus` are the newest messages before the cut, `recent` those behind it; digests and questions are oldest first.
    """
    alive = frozenset(question.text for question in open_questions)
    if digests and (asked := digests[-1].open_questions):
        left = tuple(question for question in asked if not any(answers(question, line.text) for line in recent))
        digests = [*digests[:-1], replace(digests[-1], open_questions=left)]
        alive |= set(left)
    lines = arc_lines(digests, DENSITY[strategy], open_questions=open_questions, focus=focus)
    return choose_arc(lines, count, budget_tokens), alive


def arc_lines(
    digests: Sequence[Digest], density: Density, *, open_questions: Sequence[Sentence], focus: Sequence[Line]
) -> list[SummaryLine]:
    """Returns every line that an arc may have, the most valuable first.

    Where a model wrote the newest digest, its own open questions stand for the time up to that digest's end.
    """
    if not digests:
        return []
    last = digests[-1]
    opened, decided = _open_questions(digests, open_questions, focus), _decisions(digests)
    if density == "light":
        opened, decided = opened[:LIGHT_ITEMS], decided[:LIGHT_ITEMS]
    lines = [*_narrative(digests, density), *opened, *decided]
    # Names, or who took part, tell nothing of a message, so those lines have no span.
    if density != "light":
        lines += _focus(digests, focus)
        if names := merged_artifacts(reversed(digests), ARTIFACT_NAMES):
            lines.append(_line(ARTIFACTS, ", ".join(names), last.end - 1, _ARTIFACTS, last.made_by))
    if density == "dense":
        decisions: Counter[str] = Counter()  # how many are in whose words
        for digest in digests:
            decisions.update({s.speaker: 0 for s in digest.sentences})
            decisions.update(s.speaker for s in digest.sentences if s.kind is Kind.DECISION)
        decisions.update({line.speaker: 0 for line in focus})
        made = ((name, f" ({n} decision{'s' if n > 1 else ''})" if n else "") for name, n in decisions.items() if name)
        if who := ", ".join(f"{name}{told}" for name, told in made):
            lines.append(_line(WHO, who, last.end - 1, _WHO, last.made_by))
    return sorted(lines, key=lambda line: -line.value)


def choose_arc(lines: Sequence[SummaryLine], count: Count, budget_tokens: int) -> list[SummaryLine]:
    r"""Returns the lines that fit into a budget with the headings they need, in the order in which they stand.

    Example:
        >>> line = SummaryLine(position=3, heading="# Decisions\n", text="- Ada: We decided on Redis.\n", value=70.0)
        >>> choose_arc([line], len, 39), choose_arc([line], len, 40) == [line]
        ([], True)
    """
    left = budget_tokens
    headed: set[str] = set()
    chosen: list[SummaryLine] = []
    for line in lines:
        cost = count(line.text) + (0 if line.heading in headed else count(line.heading))
        if cost <= left:
            left -= cost
            headed.add(line.heading)
            chosen.append(line)
    return sorted(chosen, key=lambda line: (SECTIONS.index(line.heading), line.position))


def _line(
    section: str, text: str, position: int, value: float, maker: str, *, span: tuple[int, int] = (0, 0)
) -> SummaryLine:
    return SummaryLine(
        position=position,
        heading=section,
        text=f"- {fences.as_data(one_line(text))}\n",
        first=span[0],
        end=span[1],
        made_by=maker,
        value=value,
    )


def _narrative(digests: Sequence[Digest], density: Density) -> list[SummaryLine]:
    """Returns the story: a model's as far as it goes, then the topics of each part of the conversation."""
    told = max((i for i, digest in enumerate(digests) if digest.narrative), default=-1)
    lines = []
    if told >= 0:
        first, last = digests[0].first, digests[told]
        lines.append(_line(NARRATIVE, last.narrative, first, _FIRST, last.made_by, span=(first, last.end)))
    untold = digests[told + 1 :]
    # About as many digests in each part; none is empty.
    number = max(0, min(NARRATIVE_LINES.get(density, len(digests)) - len(lines), len(untold)))
    edges = [len(untold) * i // number for i in range(number + 1)] if number else []
    shares = ([s for digest in untold[start:end] for s in digest.sentences] for start, end in pairwise(edges))
    parts = [part for part in shares if part]
    counts = [Counter(term for s in part for term in s.terms) for part in parts]
    everywhere = Counter(term for count in counts for term in count)
    speakers = frozenset(term for digest in digests for s in digest.sentences for term in terms(s.speaker))
    for at, (part, count) in enumerate(zip(parts, counts, strict=True)):
        weights = {
            term: number * math.log(1 + len(parts) / everywhere[term])
            for term, number in count.items()
            if number > 1 and _is_topic(term) and term not in speakers
        }
        topics = _surface(weights, TOPICS, part)
        about = f"Topics: {', '.join(topics)}. " if topics else ""
        # The newest part first: it is what the conversation comes from.
        newest = at == len(parts) - 1 and not lines
        value = _FIRST if newest else _STORY + _SPREAD * at / len(parts)
        text = f"{_dates(part)}{about}{_said(_typical(part, weights))}"
        first, end = part[0].position, part[-1].position + 1
        lines.append(_line(NARRATIVE, text, first, value, _maker(digests, first), span=(first, end)))
    return lines


def _typical(part: Sequence[Sentence], weights: Mapping[str, float]) -> Sentence:
    """Returns the sentence that says most about the topics of its part, of those that have no section of their own."""

    def fit(s: Sentence) -> tuple[bool, float, int, int]:
        topical = 1 + math.fsum(weights.get(term, 0.0) for term in s.terms)  # exact: sets have no fixed order
        return s.kind is Kind.PLAIN, s.score * topical / math.sqrt(len(s.text) + 1), -s.position, -s.order

    return max(part, key=fit)


def _decisions(digests: Sequence[Digest]) -> list[SummaryLine]:
    """Returns the decisions, the most valuable first; of decisions on one matter only the newest."""
    made = [(s, digest) for digest in digests for s in digest.sentences if s.kind is Kind.DECISION]
    standing: list[tuple[Sentence, Digest]] = []
    matters: list[tuple[frozenset[str], bool]] = []
    for sentence, digest in sorted(made, key=lambda pair: (pair[0].position, pair[0].order), reverse=True):
        # Without numbers, since these are what a new decision changes.
        matter = frozenset(term for term in sentence.terms - GENERIC_TERMS if not term[0].isdigit())
        if matter and not any(_supersedes(newer, matter, reverses=takes_back) for newer, takes_back in matters):
            standing.append((sentence, digest))
            matters.append((matter, bool(_REVERSES.search(sentence.text))))
    top = max((s.score for s, _ in standing), default=0.0) or 1.0
    lines = []
    for rank, (s, digest) in enumerate(standing):
        # A sentence stands for its message, or for the whole span where a model wrote it.
        span = (s.position, s.position + 1) if s.speaker else (digest.first, digest.end)
        value = _DECISION + _SPREAD / 2 * (s.score / top + (len(standing) - rank) / len(standing))
        lines.append(
            _line(DECISIONS, _dates([s]) + _said(s), s.position, value, _maker(digests, s.position), span=span)
        )
    return sorted(lines, key=lambda line: -line.value)


def _supersedes(newer: frozenset[str], older: frozenset[str], *, reverses: bool) -> bool:
    """Returns True if a newer decision is on the same matter: says the same, says it all, or takes it back."""
    common = len(newer & older)
    if common >= SAME_DECISION * len(newer | older):
        return True
    return common > 1 and common >= (REVERSED_DECISION if reverses else REPEATED_DECISION) * len(older)


def _open_questions(
    digests: Sequence[Digest], open_questions: Sequence[Sentence], focus: Sequence[Line]
) -> list[SummaryLine]:
    """Returns the open questions, the most valuable first: the newest."""
    newest = digests[-1]
    found: list[tuple[str, int, tuple[int, int]]] = []
    if newest.narrative or newest.open_questions:
        later = "\n".join(line.text for line in focus if line.position >= newest.end)
        still = (_marked(question) for question in newest.open_questions if not answers(question, later))
        found = [(question, newest.end - 1, (newest.first, newest.end)) for question in still]
        open_questions = [
            question
            for question in open_questions
            if question.position >= newest.end
            and not any(same_matter(question.text, other) for other in newest.open_questions)
        ]
    for s in open_questions:
        text = f"{_dates([s])}{_said(replace(s, text=_marked(s.text)))}"
        found.append((text, s.position, (s.position, s.position + 1)))
    lines = [
        _line(OPEN, text, at, _OPEN + _SPREAD * rank / len(found), _maker(digests, at), span=span)
        for rank, (text, at, span) in enumerate(found, 1)
    ]
    return lines[::-1]


def _focus(digests: Sequence[Digest], focus: Sequence[Line]) -> list[SummaryLine]:
    """Returns the most characteristic terms of the newest messages, and the user's last weighty sentence."""
    if not focus:
        return []
    first = focus[0].position
    kept = keep_sentences(focus)
    here = Counter(term for s in kept for term in s.terms)
    before = Counter(term for digest in digests for s in digest.sentences if s.position < first for term in s.terms)
    speakers = frozenset(term for line in focus for term in terms(line.speaker))
    weights = {
        term: number / (1 + math.log(1 + before[term]))
        for term, number in here.items()
        if _is_topic(term) and term not in speakers
    }
    names = _surface(weights, FOCUS_TERMS, kept)
    lines = [_line(FOCUS, ", ".join(names), first, _FOCUS, _maker(digests, first))] if names else []
    asked = next((best for line in reversed(focus) if line.from_user and (best := keep_sentences([line], 1))), ())
    return lines + [_line(FOCUS, _said(s), s.position, _REQUEST, _maker(digests, s.position)) for s in asked]


def _maker(digests: Sequence[Digest], position: int) -> str:
    return next((digest.made_by for digest in digests if digest.first <= position < digest.end), EXTRACTION)


def _is_topic(term: str) -> bool:
    named = term not in _EMPTY and term not in GENERIC_TERMS and not term[0].isdigit()
    return named and (len(term) >= SHORTEST_TOPIC or not term.isascii())


def _surface(weights: Mapping[str, float], most: int, kept: Iterable[Sentence]) -> list[str]:
    """Returns the terms of the greatest weight, of equal ones by the alphabet, as they are written most often.

    A term that is no word of the sentences stays as it is.
    """
    wanted = sorted(weights, key=lambda term: (-weights[term], term))[:most]
    forms: dict[str, Counter[str]] = {term: Counter() for term in wanted}
    for sentence in kept:
        if sentence.terms.isdisjoint(forms):
            continue
        for word in re.findall(r"\w+", sentence.text):
            stems = terms(word)
            if len(stems) == 1 and stems[0] in forms:
                forms[stems[0]][word] += 1
    return [forms[term].most_common(1)[0][0] if forms[term] else term for term in wanted]


def _said(sentence: Sentence) -> str:
    return f"{sentence.speaker}: {sentence.text}" if sentence.speaker else sentence.text


def _marked(question: str) -> str:
    return question if "[OPEN]" in question else f"[OPEN] {question}"


def _dates(sentences: Sequence[Sentence]) -> str:
    """Returns `[2024-05-01] ` or `[2024-05-01 to 2024-05-03] `; nothing without dates."""
    dates = [sentence.date for sentence in sentences if sentence.date]
    if not dates:
        return ""
    first, last = min(dates), max(dates)
    return f"[{first}] " if first == last else f"[{first} to {last}] "
