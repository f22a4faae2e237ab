"""The arc of a conversation: its story, what was decided, what is open, where it stands; as lines to choose from.

After seed 000 (`llmArc`): `light` is one sentence with decisions and open questions; `rich` adds two sentences, the
focus and the names of artifacts; `dense` tells the story span by span and who took part.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.digest import Digest, Line, Sentence
from langchain_ctxbudget.core.extractive import keep_sentences
from langchain_ctxbudget.core.importance import Kind
from langchain_ctxbudget.core.questions import GENERIC_TERMS, answers, same_matter
from langchain_ctxbudget.core.text import one_line, terms

Density = Literal["light", "rich", "dense"]
"""How much the arc tells."""

NARRATIVE, DECISIONS, OPEN, FOCUS, ARTIFACTS, WHO = SECTIONS = (
    "# So far\n",
    "# Decisions\n",
    "# Open questions\n",
    "# Current focus\n",
    "# Artifacts\n",
    "# Who\n",
)
"""The headings, in the order in which they stand."""

NARRATIVE_LINES = {"light": 1, "rich": 3}
"""Lines of the story; a dense arc has one for every span."""
LIGHT_ITEMS = 5
"""A light arc has so many decisions and so many open questions at most; the others have all that fit."""
_EMPTY = frozenset(
    terms(
        "one two three four five six seven eight nine ten twelve first second third half every each back day days "
        "week weeks "
        "month months year years hour hours minute minutes time times always never ever maybe perhaps really "
        "quite rather even "
        "nothing something anything everything everyone somebody anybody nobody person people mr mrs ms dr well "
        "right good "
        "great fine nice better best bad little big small long short high low old last next another per due two's "
        "lot bit "
        "come came goes going went see saw seen give gave given use used run ran call called work works show "
        "shows help tell "
        "done does start starts started stop mean means let's yes okay ok thank thanks sure sorry please since "
        "around may "
        "might must shall however though although while without within whether also still yet already soon today "
        "tonight "
        "monday tuesday wednesday thursday friday saturday sunday january february march april june july august "
        "september "
        "october november december"
    )
)
"""Terms that are no topic."""
SHORTEST_TOPIC = 3
"""Letters of a topic, in a script of letters."""
TOPICS, FOCUS_TERMS, ARTIFACT_NAMES = 4, 6, 12
"""How many terms name a span's topics and the focus, and how many artifacts are named."""
SAME_DECISION = 0.6
"""Decisions that share so many of their terms are one; the newer one stands."""
REPEATED_DECISION, REVERSED_DECISION = 2 / 3, 1 / 3
"""Of the older one's terms, at least two, the share that a newer one repeats: anyway, and where it takes back."""
_REVERSES = re.compile(
    r"\b(?:revers\w+|instead of|no longer|rather than|not the|changed (?:our|my|their) mind|after all|scrap\w*"
    r"|new \w+(?: \w+)?:"
    r"|back to|drop(?:ped)?|replac\w+|mov(?:e|ed) (?:\w+ ){1,4}to)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
# The values of lines, most valuable first; what varies within a section adds up to ten points.
_FIRST, _FOCUS, _OPEN, _REQUEST, _ARTIFACTS, _DECISION, _STORY, _WHO = 100.0, 95.0, 82.0, 81.0, 80.0, 70.0, 60.0, 50.0
_SPREAD = 10.0


@dataclass(frozen=True, slots=True)
class ArcLine:
    """One line of an arc."""

    section: str
    """The heading that it stands under."""
    text: str
    """An item: begins with `- `, ends in a line break."""
    position: int
    """Its place within the section: the message it comes from."""
    first: int
    """The position of the first message that it stands for."""
    end: int
    """The position behind the last one."""
    value: float
    """How much it is worth, compared with the others."""


def arc_lines(
    digests: Sequence[Digest], density: Density, *, open_questions: Sequence[Sentence], focus: Sequence[Line]
) -> list[ArcLine]:
    """Every line that an arc may have, the most valuable first.

    Args:
        digests: of the spans before the cut, oldest first; the work is bounded by their number.
        density: how much the arc is to tell.
        open_questions: what is open after all messages, oldest first. Where a model wrote the newest digest, its own
            list stands for the time up to that digest's end.
        focus: the newest messages before the cut.
    """
    if not digests:
        return []
    opened = _open_questions(digests, open_questions, focus)
    decided = _decisions(digests)
    if density == "light":
        opened, decided = opened[:LIGHT_ITEMS], decided[:LIGHT_ITEMS]
    lines = [*_narrative(digests, density), *opened, *decided]
    if density != "light":
        lines += [*_focus(digests, focus), *_artifacts(digests)]
    if density == "dense":
        lines += _who(digests, focus)
    return sorted(lines, key=lambda line: -line.value)


def choose_arc(lines: Sequence[ArcLine], count: Callable[[str], int], budget_tokens: int) -> list[ArcLine]:
    r"""The lines that fit into a budget with the headings they need, in the order in which they stand.

    Args:
        lines: the most valuable first; one that does not fit is skipped and is not the end.
        count: the tokens of a text.
        budget_tokens: what lines and headings may cost together.

    Example:
        >>> line = ArcLine("# Decisions\n", "- Ada: We decided on Redis.\n", 3, 3, 4, 70.0)
        >>> choose_arc([line], len, 39), choose_arc([line], len, 40) == [line]
        ([], True)
    """
    left = budget_tokens
    headed: set[str] = set()
    chosen: list[ArcLine] = []
    for line in lines:
        cost = count(line.text) + (0 if line.section in headed else count(line.section))
        if cost <= left:
            left -= cost
            headed.add(line.section)
            chosen.append(line)
    return sorted(chosen, key=lambda line: (SECTIONS.index(line.section), line.position))


def _narrative(digests: Sequence[Digest], density: Density) -> list[ArcLine]:
    """The story: a model's as far as it goes, then what each part of the conversation was about."""
    told = max((i for i, digest in enumerate(digests) if digest.narrative), default=-1)
    lines = []
    if told >= 0:
        end = digests[told].end
        lines.append(
            ArcLine(NARRATIVE, _item(digests[told].narrative), digests[0].first, digests[0].first, end, _FIRST)
        )
    most = NARRATIVE_LINES.get(density, len(digests)) - len(lines)
    parts = _parts(digests[told + 1 :], most)
    counts = [Counter(term for s in part for term in s.terms) for part in parts]
    everywhere = Counter(term for count in counts for term in count)
    speakers = frozenset(term for digest in digests for s in digest.sentences for term in terms(s.speaker))
    for at, (part, count) in enumerate(zip(parts, counts, strict=True)):
        weights = {
            term: number * math.log(1 + len(parts) / everywhere[term])
            for term, number in count.items()
            if number > 1 and _is_topic(term) and term not in speakers
        }
        topics = _surface(_heaviest(weights, TOPICS), part)
        about = f"Topics: {', '.join(topics)}. " if topics else ""
        text = _item(f"{_dates(part)}{about}{_said(_typical(part, weights))}")
        # The newest part first: it is what the conversation comes from.
        newest = at == len(parts) - 1 and not lines
        value = _FIRST if newest else _STORY + _SPREAD * at / len(parts)
        lines.append(ArcLine(NARRATIVE, text, part[0].position, part[0].position, part[-1].position + 1, value))
    return lines


def _typical(part: Sequence[Sentence], weights: Mapping[str, float]) -> Sentence:
    """The sentence that says most about the topics of its part, of those that have no section of their own."""

    def fit(s: Sentence) -> tuple[bool, float, int, int]:
        topical = 1 + math.fsum(weights.get(term, 0.0) for term in s.terms)  # exact: sets have no fixed order
        return s.kind is Kind.PLAIN, s.score * topical / math.sqrt(len(s.text) + 1), -s.position, -s.order

    return max(part, key=fit)


def _parts(digests: Sequence[Digest], most: int) -> list[list[Sentence]]:
    """The sentences of the digests, in at most so many parts of about as many digests each; none is empty."""
    number = max(0, min(most, len(digests)))
    edges = [len(digests) * i // number for i in range(number + 1)] if number else []
    parts = [[s for digest in digests[start:end] for s in digest.sentences] for start, end in pairwise(edges)]
    return [part for part in parts if part]


def _decisions(digests: Sequence[Digest]) -> list[ArcLine]:
    """What was decided, the most valuable first; of decisions on one matter only the newest."""
    made = [(s, digest) for digest in digests for s in digest.sentences if s.kind is Kind.DECISION]
    standing: list[tuple[Sentence, Digest, frozenset[str], bool]] = []
    for sentence, digest in sorted(made, key=lambda pair: (pair[0].position, pair[0].order), reverse=True):
        matter = _matter(sentence)
        if matter and not any(_supersedes(newer, reverses, matter) for _, _, newer, reverses in standing):
            standing.append((sentence, digest, matter, bool(_REVERSES.search(sentence.text))))
    top = max((s.score for s, *_ in standing), default=0.0) or 1.0
    lines = [
        _sentence_line(
            DECISIONS,
            sentence,
            digest,
            _DECISION + _SPREAD / 2 * (sentence.score / top + (len(standing) - rank) / len(standing)),
        )
        for rank, (sentence, digest, _, _) in enumerate(standing)
    ]
    return sorted(lines, key=lambda line: -line.value)


def _matter(sentence: Sentence) -> frozenset[str]:
    """What a decision is about: its terms without numbers, since these are what a new decision changes."""
    return frozenset(term for term in sentence.terms - GENERIC_TERMS if not term[0].isdigit())


def _supersedes(newer: frozenset[str], reverses: bool, older: frozenset[str]) -> bool:  # noqa: FBT001 - a plain fact
    """Whether a newer decision is on the same matter: says the same, says it all, or takes it back."""
    common = len(newer & older)
    if common >= SAME_DECISION * len(newer | older):
        return True
    return common > 1 and common >= (REVERSED_DECISION if reverses else REPEATED_DECISION) * len(older)


def _open_questions(
    digests: Sequence[Digest], open_questions: Sequence[Sentence], focus: Sequence[Line]
) -> list[ArcLine]:
    """What is open, the most valuable first: the newest."""
    newest = digests[-1]
    found: list[tuple[str, int, int, int]] = []
    if newest.narrative or newest.open_questions:
        later = "\n".join(line.text for line in focus if line.position >= newest.end)
        found = [
            (_item(_marked(question)), newest.end - 1, newest.first, newest.end)
            for question in newest.open_questions
            if not answers(question, later)
        ]
        known = newest.open_questions
        open_questions = [
            question
            for question in open_questions
            if question.position >= newest.end and not any(same_matter(question.text, other) for other in known)
        ]
    found += [(_item(_said(s, mark=True)), s.position, s.position, s.position + 1) for s in open_questions]
    lines = [
        ArcLine(OPEN, text, position, first, end, _OPEN + _SPREAD * (rank + 1) / len(found))
        for rank, (text, position, first, end) in enumerate(found)
    ]
    return lines[::-1]


def _focus(digests: Sequence[Digest], focus: Sequence[Line]) -> list[ArcLine]:
    """What the newest messages are about: their most characteristic terms, and the user's last weighty sentence."""
    if not focus:
        return []
    first, end = focus[0].position, focus[-1].position + 1
    kept = keep_sentences(focus)
    here = Counter(term for s in kept for term in s.terms)
    before = Counter(term for digest in digests for s in digest.sentences if s.position < first for term in s.terms)
    speakers = frozenset(term for line in focus for term in terms(line.speaker))
    weights = {
        term: number / (1 + math.log(1 + before[term]))
        for term, number in here.items()
        if _is_topic(term) and term not in speakers
    }
    names = _surface(_heaviest(weights, FOCUS_TERMS), kept)
    lines = [ArcLine(FOCUS, _item(", ".join(names)), first, first, end, _FOCUS)] if names else []
    asked = next((best for line in reversed(focus) if line.from_user and (best := keep_sentences([line], 1))), ())
    return lines + [ArcLine(FOCUS, _item(_said(s)), s.position, s.position, s.position + 1, _REQUEST) for s in asked]


def _artifacts(digests: Sequence[Digest]) -> list[ArcLine]:
    """The names of files and functions, those of newer and finer digests first where ranks are equal."""
    weight: Counter[str] = Counter()
    for digest in reversed(digests):
        for rank, name in enumerate(digest.artifacts, start=1):
            weight[name] += 60_060 // rank
    names = [name for name, _ in weight.most_common(ARTIFACT_NAMES)]
    last = digests[-1]
    return (
        [ArcLine(ARTIFACTS, _item(", ".join(names)), last.end - 1, digests[0].first, last.end, _ARTIFACTS)]
        if names
        else []
    )


def _who(digests: Sequence[Digest], focus: Sequence[Line]) -> list[ArcLine]:
    """Who took part, and how many of the decisions are in their words."""
    said: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for speaker, kind in [
        *((s.speaker, s.kind) for digest in digests for s in digest.sentences),
        *((line.speaker, Kind.PLAIN) for line in focus),
    ]:
        if speaker:
            said[speaker] += 1
            decided[speaker] += kind is Kind.DECISION
    names = [
        f"{name} ({decided[name]} decision{'s' if decided[name] > 1 else ''})" if decided[name] else name
        for name in said
    ]
    last = digests[-1]
    return [ArcLine(WHO, _item(", ".join(names)), last.end - 1, digests[0].first, last.end, _WHO)] if names else []


def _is_topic(term: str) -> bool:
    """Whether a term names something."""
    return (
        term not in _EMPTY
        and term not in GENERIC_TERMS
        and not term[0].isdigit()
        and (len(term) >= SHORTEST_TOPIC or not term.isascii())
    )


def _heaviest(weights: Mapping[str, float], most: int) -> list[str]:
    """The terms of the greatest weight; of equal ones, by the alphabet."""
    return sorted(weights, key=lambda term: (-weights[term], term))[:most]


def _surface(wanted: Sequence[str], kept: Iterable[Sentence]) -> list[str]:
    """Terms as they are written in the sentences, most often so; a term that is no word of them stays as it is."""
    forms: dict[str, Counter[str]] = {term: Counter() for term in wanted}
    for sentence in kept:
        if sentence.terms.isdisjoint(forms):
            continue
        for word in _WORD.findall(sentence.text):
            stems = terms(word)
            if len(stems) == 1 and stems[0] in forms:
                forms[stems[0]][word] += 1
    return [forms[term].most_common(1)[0][0] if forms[term] else term for term in wanted]


def _sentence_line(section: str, sentence: Sentence, digest: Digest, value: float) -> ArcLine:
    """A line for a sentence: it stands for its message, or for the whole span where a model wrote it."""
    first, end = (sentence.position, sentence.position + 1) if sentence.speaker else (digest.first, digest.end)
    return ArcLine(section, _item(_dates([sentence]) + _said(sentence)), sentence.position, first, end, value)


def _said(sentence: Sentence, *, mark: bool = False) -> str:
    """A sentence with who said it; as an open question, with its mark and its date."""
    speaker = f"{sentence.speaker}: " if sentence.speaker else ""
    return f"{_dates([sentence])}{speaker}{_marked(sentence.text)}" if mark else f"{speaker}{sentence.text}"


def _marked(question: str) -> str:
    return question if "[OPEN]" in question else f"[OPEN] {question}"


def _dates(sentences: Sequence[Sentence]) -> str:
    """`[2024-05-01] ` or `[2024-05-01 to 2024-05-03] `; empty without dates."""
    dates = [sentence.date for sentence in sentences if sentence.date]
    if not dates:
        return ""
    first, last = min(dates), max(dates)
    return f"[{first}] " if first == last else f"[{first} to {last}] "


def _item(text: str) -> str:
    """A text as one line of an arc, as data; empty for an empty text."""
    flat = one_line(text)
    return f"- {fences.as_data(flat)}\n" if flat else ""
