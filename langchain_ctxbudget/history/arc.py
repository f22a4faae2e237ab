"""The arc of a conversation (`llmArc` of seed 000).

The story, what was decided, what is open, what it is about now.

It says what somebody has said, in whole sentences that stand by themselves; where there are none,
it says nothing. Closing a question wrongly hides it, so doubt keeps it open.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from langchain_ctxbudget.history import extractive
from langchain_ctxbudget.history.extractive import ENGLISH, Digest, Kind, Line, Sentence
from langchain_ctxbudget.messages import Count, begins_in_the_middle, fences, one_line, terms, units
from langchain_ctxbudget.stores import EXTRACTION, SummaryLine

SECTIONS = {
    "# So far\n": 60.0,
    "# Decisions\n": 70.0,
    "# Open questions\n": 82.0,
    "# Current focus\n": 81.0,
}
SECTIONS |= {"# Artifacts\n": 80.0}
"""The headings in the order in which they stand, and what their lines are worth."""
NARRATIVE, DECISIONS, OPEN, FOCUS, ARTIFACTS = SECTIONS
NEWEST_VALUE = 100.0
SPREAD = 10.0
"""The worth of the newest line of the story, and the most by which lines of one section differ."""
STORY_LINES = {"windowed": 1, "compacted": 3}
"""Lines of the story; where several levels are compacted, one for every span (seed 000)."""
FEWEST_TERMS = 3
"""The terms that a person's line of the story has at least."""
SMALLEST_STORY_TOKENS = 100
"""In less, extraction adds only decisions and open questions."""
LISTED = 5
"""Decisions and open questions of a windowed history at most; messages of the user that may be the
focus; names. Other histories have all decisions and open questions that fit."""
FOCUS_MESSAGES = 10
"""The newest messages before the cut, among which the focus is."""
MOST_QUESTIONS = 50
MOSTLY = 0.55
"""The share of the matter that is common to two sentences about one thing: a question and a plain
answer, two questions, two decisions."""
SHARED_BY_A_DECISION = 1 / 3
"""The share of a question's matter that an answer has which settles something."""
_ENDS = ".!。！»”"  # noqa: RUF001 - full-width ones


@dataclass(frozen=True, slots=True)
class OpenQuestions:
    """The questions that are open after some messages, each message read once."""

    read_until: int = 0
    """The position behind the last message that was read."""
    alive: tuple[Sentence, ...] = ()
    _before: Line | None = None
    digest: str = ""
    """A digest of the messages that were read."""

    def read(self, lines: Iterable[Line]) -> "OpenQuestions":
        """Returns the questions that are open after the next messages, which begin at `read_until`."""
        alive = self.alive
        before = self._before
        until = self.read_until
        for line in lines:
            reply_to = (
                frozenset(terms(before.text))
                if before and alive and before.speaker != line.speaker
                else None
            )
            for order, text in enumerate(units(line.text)):
                if extractive.kind_of(text) is Kind.OPEN:
                    score = extractive.importance(text, from_user=line.from_user)
                    said = Sentence(
                        line.position, order, line.speaker, line.date, text, score, Kind.OPEN
                    )
                    others = (
                        question for question in alive if not _same(question.matter, said.matter)
                    )
                    alive = (*others, said)[-MOST_QUESTIONS:] if said.matter else alive
                elif alive and not extractive.is_question(text):
                    alive = _left_open(alive, text, reply_to or frozenset())
            before = line
            until = line.position + 1
        return OpenQuestions(until, alive, before)


def _left_open(
    alive: tuple[Sentence, ...], text: str, before: frozenset[str]
) -> tuple[Sentence, ...]:
    """Returns the questions that a sentence leaves open.

    `before` are the terms of the message that it replies to.
    """
    shares = [_answered(question.matter, text, frozenset(terms(text))) for question in alive]
    if not any(shares) and before and _settles(text):
        shares = [_answered(question.matter, text, before) for question in alive]
    best = max(shares)
    return tuple(
        question for question, share in zip(alive, shares, strict=True) if not best or share < best
    )


def answers(question: str, text: str) -> bool:
    """Returns True if a text that was said later answers a question."""
    matter = frozenset(terms(question)) - extractive.generic_terms()
    told = (
        unit
        for unit in units(text)
        if not (extractive.is_question(unit) or extractive.kind_of(unit) is Kind.OPEN)
    )
    return bool(matter) and any(_answered(matter, unit, frozenset(terms(unit))) for unit in told)


def _answered(matter: frozenset[str], text: str, told: frozenset[str]) -> float:
    """Returns the share of a question's matter that an answer has; 0 for what answers it not."""
    share = len(matter & told) / len(matter)
    # What is quickly seen comes first: most sentences are about something else.
    if share < SHARED_BY_A_DECISION or ENGLISH.doubt.search(text):
        return 0.0
    says_more = (
        share >= MOSTLY and len(matter & told) > 1 and told - matter - extractive.generic_terms()
    )
    return share if _settles(text) or (says_more and not ENGLISH.plans.search(text)) else 0.0


def _settles(text: str) -> bool:
    says_so = ENGLISH.settles.search(text) or extractive.kind_of(text) is Kind.DECISION
    return bool(says_so) and not ENGLISH.doubt.search(text)


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Returns True if two questions are one: most terms in common, or all of the shorter one's."""
    common = len(one & other)
    return common > 0 and (
        common >= MOSTLY * len(one | other) or common == min(len(one), len(other))
    )


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
    most = LISTED if strategy == "windowed" else None
    alive = frozenset(question.text for question in open_questions)
    lines: list[SummaryLine] = []
    if digests:
        asked = _open(digests[-1], open_questions, [*focus, *recent])
        alive |= {
            text for text in digests[-1].open_questions if any(text in line.text for line in asked)
        }
        lines = [*_story(digests, strategy), *asked[:most], *_decisions(digests)[:most]]
        lines += _now(digests, focus) if strategy != "windowed" else []
    if (
        budget_tokens < SMALLEST_STORY_TOKENS
    ):  # words that were said serve a small room better where they are sought
        lines = [
            line
            for line in lines
            if line.made_by != EXTRACTION or line.heading in (DECISIONS, OPEN)
        ]
    left_tokens = budget_tokens
    shown = set[str]()
    chosen = list[SummaryLine]()
    for line in sorted(lines, key=lambda line: -line.value):
        cost = count(line.text) + (0 if line.heading in shown else count(line.heading))
        if cost <= left_tokens and line.text not in shown:
            left_tokens -= cost
            shown |= {line.heading, line.text}
            chosen.append(line)
    order = list(SECTIONS)
    return sorted(chosen, key=lambda line: (order.index(line.heading), line.position)), alive


def _line(
    section: str, text: str, at: int, maker: str, span: tuple[int, int], *, worth: float = 0
) -> SummaryLine:
    """Returns a line of a section; `worth` is 0 to 1 and ranks it among others of it."""
    return SummaryLine(
        position=at,
        heading=section,
        text=f"- {fences.as_data(one_line(text))}\n",
        first=span[0],
        end=span[1],
        made_by=maker,
        value=SECTIONS[section] + SPREAD * worth,
    )


def _stands_alone(sentence: Sentence) -> bool:
    """Returns whether a sentence is a whole one of a person's or a model's, which needs none before it."""
    text = sentence.text.removeprefix("[OPEN]").strip()
    is_whole = (
        bool(ENGLISH.begins.match(text))
        and text[-1] not in "…:,;"
        and not sentence.speaker.startswith("tool")
    )
    return is_whole and (extractive.is_question(text) or not begins_in_the_middle(text))


def _says_something(sentence: Sentence) -> bool:
    return sentence.kind is Kind.PLAIN and len(sentence.matter) > 1 and _stands_alone(sentence)


def _story(digests: Sequence[Digest], strategy: str) -> list[SummaryLine]:
    """Returns the story, a sentence of each part.

    A model's overview, else the best plain sentence.
    """
    # About as many digests in each part; none is empty.
    number = min(STORY_LINES.get(strategy, len(digests)), len(digests))
    lines = []
    for start, end in pairwise(len(digests) * i // number for i in range(number + 1)):
        part = digests[start:end]
        told = [s for digest in part for s in digest.sentences]
        often = Counter(chain.from_iterable(s.matter for s in told))
        shared = {s: sum(often[term] - 1 for term in s.matter) for s in told}
        plain = [s for s in told if _says_something(s) and s.text[-1] in _ENDS]
        written = [s for s in plain if not s.speaker]
        own = (
            s for s in plain if s.speaker not in ("", "assistant") and ENGLISH.of_us.search(s.text)
        )
        own = (s for s in own if len(s.matter) >= FEWEST_TERMS and shared[s] >= len(s.matter) / 2)
        overviews = [s for s in written if not s.order]
        if said := [*written, *own]:
            best = (
                overviews[-1]
                if overviews
                else max(said, key=lambda s: shared[s] * s.score / len(s.text) ** 0.5)
            )
            maker = next(digest.made_by for digest in part if best in digest.sentences)
            span = (part[0].first, part[-1].end)
            worth = start / len(digests)
            lines.append(_line(NARRATIVE, best.attributed, best.position, maker, span, worth=worth))
    if lines:
        lines[-1] = lines[-1].model_copy(update={"value": NEWEST_VALUE})
    return lines


def _now(digests: Sequence[Digest], focus: Sequence[Line]) -> list[SummaryLine]:
    """Returns what the conversation is about now.

    What the user wished for last, and the names that count most.
    """
    said = extractive.keep_sentences([line for line in focus if line.from_user][-LISTED:])
    wishes = (
        s
        for s in said
        if _says_something(s) and (s.text[-1] in _ENDS or ENGLISH.of_us.search(s.text))
    )
    wish = max(wishes, key=lambda s: (s.score, s.position), default=None)
    named = [
        name
        for name in extractive.merged_artifacts(reversed(digests))
        if ENGLISH.named_as_code.search(name)
    ]
    last = digests[-1]
    text = ", ".join(named[:LISTED])
    lines = [_line(FOCUS, wish.attributed, wish.position, EXTRACTION, (0, 0))] if wish else []
    # Names tell nothing of a message, so that line has no span.
    return [*lines, _line(ARTIFACTS, text, last.end - 1, last.made_by, (0, 0))] if named else lines


def _decisions(digests: Sequence[Digest]) -> list[SummaryLine]:
    """Returns the decisions, the newest first; of decisions on one matter only the newest."""
    made = [(s, digest) for digest in digests for s in digest.sentences if s.kind is Kind.DECISION]
    newer: list[Sentence] = []
    lines: list[SummaryLine] = []
    for s, digest in sorted(made, key=lambda pair: (pair[0].position, pair[0].order), reverse=True):
        if _stands_alone(s) and not any(_supersedes(other, s) for other in newer):
            newer.append(s)
            # A sentence stands for its message, or for the whole span where a model wrote it.
            span = (s.position, s.position + 1) if s.speaker else (digest.first, digest.end)
            worth = s.position / digests[-1].end
            lines.append(
                _line(DECISIONS, s.attributed, s.position, digest.made_by, span, worth=worth)
            )
    return lines


def _supersedes(newer: Sentence, older: Sentence) -> bool:
    # Without numbers, since these are what a new decision changes.
    one, other = ({term for term in s.matter if not term[0].isdigit()} for s in (newer, older))
    return one == other or len(one & other) >= max(2, MOSTLY * len(other))


def _open(
    last: Digest, open_questions: Sequence[Sentence], later: Sequence[Line]
) -> list[SummaryLine]:
    """Returns the open questions, the newest first.

    A model's stand for the time up to the end of its digest.
    """
    found: list[tuple[str, int, str, tuple[int, int]]] = []
    if last.made_by != EXTRACTION:
        told = "\n".join(line.text for line in later if line.position >= last.end)
        left = (question for question in last.open_questions if not answers(question, told))
        found = [
            (_marked(question), last.end - 1, last.made_by, (last.first, last.end))
            for question in left
        ]
        open_questions = [s for s in open_questions if s.position >= last.end]
    for s in filter(_stands_alone, open_questions):
        found.append(
            (
                replace(s, text=_marked(s.text)).attributed,
                s.position,
                EXTRACTION,
                (s.position, s.position + 1),
            )
        )
    return [
        _line(OPEN, *question, worth=rank / len(found)) for rank, question in enumerate(found, 1)
    ][::-1]


def _marked(question: str) -> str:
    return question if "[OPEN]" in question else f"[OPEN] {question}"
