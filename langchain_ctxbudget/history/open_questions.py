"""The questions that a conversation has left open: found by their look, closed by what is said later.

A later sentence answers a question when it is neither a question nor open nor a plan, and is about the same matter. The
more clearly it says that something is settled, the less of the matter it has to share. Closing a question wrongly
hides it, so doubt keeps it open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from langchain_ctxbudget.history.extractive import Kind, Line, Sentence, importance, is_question, kind_of
from langchain_ctxbudget.messages import terms, units

MOST_QUESTIONS = 50
"""So many open questions are kept; the oldest are dropped first."""
SHARED_BY_A_STATEMENT = 0.55
"""The share of a question's terms that a plain statement has when it answers it, at least two of them."""
SHARED_BY_A_DECISION = 1 / 3
"""The same for a sentence that says that something is decided, at least one."""
SAME_QUESTION = 0.6
"""Questions that share so many terms are one."""
REPLY_REACH = 3
"""Where a question is only pointed at ("Noted as open."), it was asked at most so many messages before."""

GENERIC_TERMS = frozenset(
    terms(
        "s t d m re ve ll don isn didn wasn haven hasn won open question questions decide decided decision need still "
        "we us let settle settled answer answered resolve resolved close closed agree agreed choose chose chosen pick "
        "picked note noted mark marked list put keep kept leave left write down yet unclear sure tbd figure find check "
        "checking whether want like know get go going take use using one ones thing things point issue undecided "
        "unresolved confirm confirmed wait waiting reply word remain remains stay stays final exactly really now today "
        "tomorrow yesterday later please also much many way it's that's what's i'm don't isn't ask asked make made say "
        "said tell told think look maybe says new should would could"
    )
)
"""Terms that any question and any decision may have."""
_CLOSED_MARK = re.compile(r"(?i)^\W{0,3}\[(?:closed|answered|resolved|decided|done|settled)\]")
_SETTLES = re.compile(
    r"(?i)\b(?:(?:is|are|was|were|been|has|have|just|now) answered|answered(?:[:,]| that| the| this| our| my)"
    r"|resolved|settled|decided|closed|clarified|solved|agreed|approved|confirmed|chosen|picked|reversed"
    r"|(?:chose|went with|opted for|goes? with|going with|got an answer|ha[ds] an answer|have an answer"
    r"|the answer (?:is|was))|(?:let's|we'll|we will) (?:go with|use|take)|final(?:ly|ised|ized)?:"
    r"|(?:that|this|which) (?:closes|settles|answers)|clos(?:es|ed) the|mystery solved)\b"
)
# "We decided to rename the service" settles something else than the question about the service.
_DECIDES_TO_DO = re.compile(
    r"(?i)\b(?:decided|agreed|opted|chose) (?:not )?to"
    r" (?!(?:use|go|take|pick|choose|keep|stay|have|hold|book|buy|call|name|make it)\b)"
)
_POINTS_BACK = re.compile(
    r"(?i)\b(?:that|this|it|which)(?:'s| is| was| has been)? (?:now )?(?:closes|settles|answers|solves|answered"
    r"|resolved|settled|solved|closed)\b"
    r"|^(?:question )?(?:answered|resolved|settled|closed|decided|solved)\W*$|\bmystery solved\b|^\W{0,3}\[\w+\]\W*$"
)
_POINTS_BACK_AS_OPEN = re.compile(
    r"(?i)\b(?:it|that|this)(?:'s| is| stays| remains)? (?:an? |still |down )?(?:as )?open\b"
)
# Talk about a matter that settles nothing: plans, doubts, conditions, options.
_UNSETTLED = re.compile(
    r"(?i)\b(?:not|never|no (?:idea|answer|decision|news)|\w+n't|maybe|perhaps|might|(?-i:may)|could|should|would"
    r"|shall|if|unless|until|whether|depends?|wait(?:ing|s)?|ask(?:ed|ing|s)?|talk(?:ed|ing|s)?|spoke"
    r"|discuss(?:ed|ing|es|ion)?|wonder\w*|think(?:ing)?|thought|look(?:ed|ing)? (?:at|into|for)|consider\w*|suggest\w*"
    r"|propos\w*|option\w*|either|or|let me|let's (?!go with|use|take)|need\w*|must|hope\w*|hoping|worr\w*|remind\w*"
    r"|mention\w*|try\w*|tried|later|postpon\w*|(?<!that we )park(?:ed)?|revisit\w*|still|yet|pending"
    r"|I'll (?!go with|use|take)|we'll (?!go with|use|take)|will (?:check|ask|see|know|decide|find|tell)|want\w*"
    r"|unclear|unsure|depending|about the|changed my mind)\b"
)
# These words do not unsettle a sentence that says that something is settled.
_STILL_SETTLED = re.compile(
    r"(?i)\b(?:not|should|would|will|or|think|need\w*|about the|want\w*|I'll|we'll|must|still|may|thought|ask(?:ed)?"
    r"|discuss(?:ed|ion)?)\b"
)
_NOT_SETTLED = re.compile(
    r"(?i)\b(?:not|never|nothing|nobody|no one|\w+n't|to be|yet to be|needs? to be|must be|should be|will be|can be"
    r"|cannot be|being) (?:\w+ ){0,2}"
    r"(?:answered|resolved|settled|decided|closed|clarified|solved|agreed|approved|confirmed|chosen|picked)\b"
)
_ASKS_A_NUMBER = re.compile(
    r"(?i)\b(?:when|what (?:date|day|time|price|budget)|which (?:date|day|week|month|year|version)"
    r"|how (?:much|many|long|often|far|big|large)|date|deadline|budget|price|cost|costs)\b"
)
_NUMBER = re.compile(
    r"(?i)\d|\b(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|june|july"
    r"|august|september|october|november|december|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty"
    r"|hundred|thousand|million|no(?:thing| cost)|free|daily|weekly|monthly|yearly|today|tomorrow|tonight)\b"
)
_HEADING = re.compile(r":\W*$")
_LIST_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s")


@dataclass(frozen=True, slots=True)
class _Asked:
    """An open question and the terms of its matter."""

    question: Sentence
    matter: frozenset[str]


@dataclass(frozen=True, slots=True)
class OpenQuestions:
    """The questions that are open after some messages, each message read once.

    A value: `read` returns the questions that are open after more messages.

    Example:
        >>> asked = OpenQuestions().read([Line(0, "Ada", None, "Open question: which database?", from_user=True)])
        >>> [question.text for question in asked.alive()]
        ['Open question: which database?']
        >>> asked.read([Line(1, "Bob", None, "We settled on Redis as the database.", from_user=False)]).alive()
        ()
    """

    read_until: int = 0
    """The position behind the last message that was read."""
    _open: tuple[_Asked, ...] = ()
    _questions: tuple[Sentence, ...] = ()
    """Plain questions of the last few messages, at most one of each: "Noted as open." means one of them."""
    _before: Line | None = None
    """The last message that was read."""

    def alive(self) -> tuple[Sentence, ...]:
        """Returns the questions that are open, the newest last."""
        return tuple(asked.question for asked in self._open)

    def read(self, lines: Iterable[Line]) -> OpenQuestions:
        """Returns the questions that are open after the next messages; those before `read_until` are passed over."""
        now = self
        for line in lines:
            if line.position >= now.read_until:
                now = now._after(line)
        return now

    def _after(self, line: Line) -> OpenQuestions:
        opened, questions, before = self._open, self._questions, self._before
        heading = False
        items: frozenset[str] | None = None  # of the message's lists, once there is a heading
        for order, text in enumerate(units(line.text)):
            kind = kind_of(text)
            if heading and items and text in items:
                kind = Kind.OPEN
            elif heading:
                heading = False
            if _CLOSED_MARK.match(text):
                opened = _closed(opened, text, before, marked=True)
            elif kind is Kind.OPEN:
                if not _matter(text):
                    heading = bool(_HEADING.search(text))
                    items = _listed(line.text) if heading and items is None else items
                opened = _asked(opened, _sentence(line, order, text), questions)
            elif is_question(text):
                earlier = (question for question in questions if question.position != line.position)
                questions = (*earlier, _sentence(line, order, text))
            elif opened:
                opened = _closed(opened, text, before, speaker=line.speaker)
        questions = tuple(question for question in questions if question.position > line.position - REPLY_REACH)
        return OpenQuestions(line.position + 1, opened, questions, line)


def answers(question: str, text: str) -> bool:
    """Returns True if a text that was said later answers a question.

    Example:
        >>> answers("Which venue do we book?", "We decided on the Kulturhaus as the venue.")
        True
        >>> answers("Which venue do we book?", "Do we still need to book a venue?")
        False
    """
    matter = _matter(question)
    for unit in units(text) if matter else ():
        said = frozenset(terms(unit))
        if _CLOSED_MARK.match(unit):
            if matter & said:
                return True
        elif not is_question(unit) and kind_of(unit) is not Kind.OPEN and _answered(question, matter, unit, said):
            return True
    return False


def same_matter(one: str, other: str) -> bool:
    """Returns True if two questions ask the same."""
    return _same(_matter(one), _matter(other))


def _asked(opened: tuple[_Asked, ...], question: Sentence, questions: tuple[Sentence, ...]) -> tuple[_Asked, ...]:
    """Returns the open questions with one more; one that is open already moves to the end."""
    matter = _matter(question.text)
    if questions and (not matter or (len(matter) == 1 and _POINTS_BACK_AS_OPEN.search(question.text))):
        question = questions[-1]  # "Noted as open.", "It's an open question.": what was asked before
        matter = _matter(question.text)
    if not matter:
        return opened
    same = [asked for asked in opened if _same(asked.matter, matter)]
    # A shorter way to ask the same again tells less than the first.
    new = next((asked for asked in reversed(same) if asked.matter > matter), _Asked(question, matter))
    return (*(asked for asked in opened if asked not in same), new)[-MOST_QUESTIONS:]


def _closed(
    opened: tuple[_Asked, ...], text: str, before: Line | None, *, marked: bool = False, speaker: str | None = None
) -> tuple[_Asked, ...]:
    """Returns the questions that a sentence leaves open.

    It closes all that it answers in full, else the one that it shares most with.
    """
    said = frozenset(terms(text))
    answered = [
        (len(asked.matter & said) / len(asked.matter), asked)
        for asked in opened
        if not asked.matter.isdisjoint(said) and (marked or _answered(asked.question.text, asked.matter, text, said))
    ]
    answered = answered or _pointed_at(opened, text, before, speaker)
    if not answered:
        return opened
    best = max(share for share, _ in answered)
    closed = [asked for share, asked in answered if share == best]
    return tuple(asked for asked in opened if asked not in (closed if best == 1 else closed[-1:]))


def _pointed_at(
    opened: tuple[_Asked, ...], text: str, before: Line | None, speaker: str | None
) -> list[tuple[float, _Asked]]:
    """Returns what a sentence closes that shares no term with it: the matter of the message before it."""
    if before is None:
        return []
    asked_there = [asked for asked in opened if asked.question.position == before.position]
    points_back = bool(_POINTS_BACK.search(text))
    if not (asked_there or points_back) or _NOT_SETTLED.search(text):
        return []
    if asked_there:  # a direct reply
        decided = points_back or kind_of(text) is Kind.DECISION
        replied = speaker is not None and speaker != before.speaker and decided and not _doubts(text)
        return [(0.5, asked_there[-1])] if replied and len(asked_there) == 1 else []
    there = frozenset(terms(before.text))
    shares = [(len(asked.matter & there) / len(asked.matter), asked) for asked in opened]
    return [(share, asked) for share, asked in shares if share >= SHARED_BY_A_DECISION]


def _answered(question: str, matter: frozenset[str], text: str, said: frozenset[str]) -> bool:
    """Returns True if a statement answers a question, by what they share and by what the statement claims."""
    shared = matter & said
    share = len(shared) / len(matter)
    # What is quickly seen comes first: most sentences are about something else.
    if share < SHARED_BY_A_DECISION or _NOT_SETTLED.search(text):
        return False
    if (_SETTLES.search(text) or kind_of(text) is Kind.DECISION) and not _doubts(text):
        return share == 1 or not _DECIDES_TO_DO.search(text)
    if share < SHARED_BY_A_STATEMENT or not said - matter - GENERIC_TERMS or _UNSETTLED.search(text):
        return False
    return bool(_NUMBER.search(text)) if _ASKS_A_NUMBER.search(question) else len(shared) > 1


def _doubts(text: str) -> bool:
    """Returns True if a sentence that speaks of a decision takes it back, or puts it off."""
    return bool(_UNSETTLED.search(_STILL_SETTLED.sub("", text)))


def _matter(question: str) -> frozenset[str]:
    return frozenset(terms(question)) - GENERIC_TERMS


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Returns True if two questions are one: most terms in common, or all of the shorter one's."""
    common = len(one & other)
    return common > 0 and (common >= SAME_QUESTION * len(one | other) or common == min(len(one), len(other)))


def _listed(text: str) -> frozenset[str]:
    return frozenset(unit for row in text.split("\n") if _LIST_MARK.match(row) for unit in units(row))


def _sentence(line: Line, order: int, text: str) -> Sentence:
    score = importance(text, from_user=line.from_user)
    return Sentence(line.position, order, line.speaker, line.date, text, score, Kind.OPEN)
