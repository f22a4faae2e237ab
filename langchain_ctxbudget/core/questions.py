"""Which questions a conversation has left open: found by their look, closed by what is said later.

A later sentence answers a question when it is neither a question nor open nor a plan, and is about the same matter. How
much of the matter it has to share depends on how clearly it says that something is settled. Closing a question wrongly
hides it, so doubt keeps it open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from langchain_ctxbudget.core.digest import Line, Sentence
from langchain_ctxbudget.core.importance import Kind, importance, is_question, kind_of
from langchain_ctxbudget.core.prose import units
from langchain_ctxbudget.core.text import terms

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
        "s t d m re ve ll don isn didn wasn haven hasn won open question questions decide decided decision need "
        "still we us let settle settled answer answered resolve resolved "
        "close closed agree agreed choose chose chosen pick picked note noted mark marked list put keep kept "
        "leave left write "
        "down yet unclear sure tbd figure find check checking whether want like know get go going take use using "
        "one ones thing "
        "things point issue undecided unresolved confirm confirmed wait waiting reply word remain remains stay "
        "stays final "
        "exactly really now today tomorrow yesterday later please also much many way it's that's what's i'm don't "
        "isn't "
        "ask asked make made say said tell told think look maybe say says new should would could"
    )
)
"""Terms that any question and any decision may have."""
_CLOSED_MARK = re.compile(r"^\W{0,3}\[(?:closed|answered|resolved|decided|done|settled)\]", re.IGNORECASE)
_SETTLES = re.compile(
    r"\b(?:(?:is|are|was|were|been|has|have|just|now) answered|answered(?:[:,]| that| the| this| our| my)"
    r"|resolved|settled|decided|closed|clarified|solved|agreed|approved|confirmed|chosen|picked|reversed"
    r"|(?:chose|went with|opted for|goes? with|going with|got an answer|ha[ds] an answer|have an answer"
    r"|the answer (?:is|was))"
    r"|(?:let's|we'll|we will) (?:go with|use|take)|final(?:ly|ised|ized)?:|(?:that|this|which) (?:closes|settles"
    r"|answers)"
    r"|clos(?:es|ed) the|mystery solved)\b",
    re.IGNORECASE,
)
# "We decided to rename the service" settles something else than the question about the service.
_DECIDES_TO_DO = re.compile(
    r"\b(?:decided|agreed|opted|chose) (?:not )?to (?!(?:use|go|take|pick|choose|keep|stay|have|hold|book|buy"
    r"|call|name|make it)\b)",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"\b(?:that|this|it|which)(?:'s| is| was| has been)? (?:now )?(?:closes|settles|answers|solves|answered"
    r"|resolved|settled|solved|closed)\b"
    r"|^(?:question )?(?:answered|resolved|settled|closed|decided|solved)\W*$|\bmystery solved\b|^\W{0,3}\[\w+\]\W*$",
    re.IGNORECASE,
)
_POINTS_BACK_AS_OPEN = re.compile(
    r"\b(?:it|that|this)(?:'s| is| stays| remains)? (?:an? |still |down )?(?:as )?open\b", re.IGNORECASE
)
# Talk about a matter that settles nothing: plans, doubts, conditions, options.
_UNSETTLED = re.compile(
    r"\b(?:not|never|no (?:idea|answer|decision|news)|\w+n't|maybe|perhaps|might|(?-i:may)|could|should|would"
    r"|shall|if|unless|until"
    r"|whether|depends?|wait(?:ing|s)?|ask(?:ed|ing|s)?|talk(?:ed|ing|s)?|spoke|discuss(?:ed|ing|es|ion)?"
    r"|wonder\w*|think(?:ing)?"
    r"|thought|look(?:ed|ing)? (?:at|into|for)|consider\w*|suggest\w*|propos\w*|option\w*|either|or|let me"
    r"|let's (?!go with|use|take)"
    r"|need\w*|must|hope\w*|hoping|worr\w*|remind\w*|mention\w*|try\w*|tried|later|postpon\w*"
    r"|(?<!that we )park(?:ed)?|revisit\w*"
    r"|still|yet|pending|I'll (?!go with|use|take)|we'll (?!go with|use|take)|will (?:check|ask|see|know|decide"
    r"|find|tell)|want\w*"
    r"|unclear|unsure|depending|about the|changed my mind)\b",
    re.IGNORECASE,
)
# These words do not unsettle a sentence that says that something is settled.
_STILL_SETTLED = re.compile(
    r"\b(?:not|should|would|will|or|think|need\w*|about the|want\w*|I'll|we'll|must|still|may|thought|ask(?:ed)?"
    r"|discuss(?:ed|ion)?)\b",
    re.IGNORECASE,
)
_NOT_SETTLED = re.compile(
    r"\b(?:not|never|nothing|nobody|no one|\w+n't|to be|yet to be|needs? to be|must be|should be|will be|can be"
    r"|cannot be|being) "
    r"(?:\w+ ){0,2}(?:answered|resolved|settled|decided|closed|clarified|solved|agreed|approved|confirmed|chosen"
    r"|picked)\b",
    re.IGNORECASE,
)
_ASKS_A_NUMBER = re.compile(
    r"\b(?:when|what (?:date|day|time|price|budget)|which (?:date|day|week|month|year|version)|how (?:much|many"
    r"|long|often|far|big|large)"
    r"|date|deadline|budget|price|cost|costs)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|june|july"
    r"|august|september"
    r"|october|november|december|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|hundred|thousand"
    r"|million"
    r"|no(?:thing| cost)|free|daily|weekly|monthly|yearly|today|tomorrow|tonight)\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r":\W*$")
_LIST_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s")


@dataclass(frozen=True, slots=True)
class _Asked:
    """An open question and what it is about."""

    question: Sentence
    matter: frozenset[str]


class OpenQuestions:
    """The questions that are open after some messages, each message read once.

    Example:
        >>> ledger = OpenQuestions()
        >>> ledger.read([Line(0, "Ada", None, "Open question: which database?", from_user=True)])
        >>> [question.text for question in ledger.alive()]
        ['Open question: which database?']
        >>> ledger.read([Line(1, "Bob", None, "We settled on Redis as the database.", from_user=False)])
        >>> ledger.alive()
        ()
    """

    def __init__(self) -> None:
        self.read_until = 0
        """The position behind the last message that was read."""
        self._open: tuple[_Asked, ...] = ()
        self._questions: tuple[Sentence, ...] = ()
        """Plain questions of the last few messages, at most one of each: "Noted as open." means one of them."""
        self._said: Line | None = None
        """The last message, with what it says."""

    def copy(self) -> OpenQuestions:
        """The same ledger, to go on by itself."""
        twin = OpenQuestions()
        twin.read_until, twin._open = self.read_until, self._open
        twin._questions, twin._said = self._questions, self._said
        return twin

    def alive(self) -> tuple[Sentence, ...]:
        """The questions that are open, the newest last."""
        return tuple(asked.question for asked in self._open)

    def read(self, lines: Iterable[Line]) -> None:
        """Read the next messages, in order; those before `read_until` are passed over.

        Args:
            lines: messages by position.
        """
        for line in lines:
            if line.position >= self.read_until:
                self._read(line)
                self.read_until = line.position + 1

    def _read(self, line: Line) -> None:
        before = self._said
        heading = False
        asked_here: Sentence | None = None
        items: frozenset[str] | None = None  # of the message's lists, once there is a heading
        for order, text in enumerate(units(line.text)):
            kind = kind_of(text)
            if heading and items and text in items:
                kind = Kind.OPEN
            elif heading:
                heading = False
            if _CLOSED_MARK.match(text):
                self._close(text, before, marked=True)
            elif kind is Kind.OPEN:
                if not _matter(text):
                    heading = bool(_HEADING.search(text))
                    items = _listed(line.text) if heading and items is None else items
                self._ask(_sentence(line, order, text, kind))
            elif is_question(text):
                asked_here = _sentence(line, order, text, Kind.OPEN)
                self._questions = (*(q for q in self._questions if q.position != line.position), asked_here)
            elif self._open:
                self._close(text, before, marked=False, speaker=line.speaker)
        self._questions = tuple(q for q in self._questions if q.position > line.position - REPLY_REACH)
        self._said = line

    def _ask(self, question: Sentence) -> None:
        """Take in a question; one that is open already moves to the end."""
        matter = _matter(question.text)
        if self._questions and (not matter or (len(matter) == 1 and _POINTS_BACK_AS_OPEN.search(question.text))):
            question = self._questions[-1]  # "Noted as open.", "It's an open question.": what was asked before
            matter = _matter(question.text)
        if not matter:
            return
        kept = tuple(asked for asked in self._open if not _same(asked.matter, matter))
        # A shorter way to ask the same again tells less than the first.
        merged = [asked for asked in self._open if _same(asked.matter, matter) and asked.matter > matter]
        own = replace(merged[-1].question) if merged else question
        self._open = (*kept, _Asked(own, merged[-1].matter if merged else matter))[-MOST_QUESTIONS:]

    def _close(self, text: str, before: Line | None, *, marked: bool, speaker: str | None = None) -> None:
        """Close what a sentence answers: all that it answers in full, else the one that it shares most with."""
        said = frozenset(terms(text))
        touched = [asked for asked in self._open if not asked.matter.isdisjoint(said)]
        answered = [
            (len(asked.matter & said) / len(asked.matter), asked)
            for asked in touched
            if marked or _answered(asked.question.text, asked.matter, text, said)
        ]
        answered = answered or self._pointed_at(text, before, speaker)
        if not answered:
            return
        full = {asked for share, asked in answered if share == 1}
        best = max(share for share, _ in answered)
        closed = full or {next(asked for share, asked in reversed(answered) if share == best)}
        self._open = tuple(asked for asked in self._open if asked not in closed)

    def _pointed_at(self, text: str, before: Line | None, speaker: str | None) -> list[tuple[float, _Asked]]:
        """What a sentence closes that shares no term with it: what the message before it was about."""
        if before is None:
            return []
        asked_there = [asked for asked in self._open if asked.question.position == before.position]
        points_back = bool(_POINTS_BACK.search(text))
        if not (asked_there or points_back) or _NOT_SETTLED.search(text):
            return []
        if asked_there:  # a direct reply
            decided = points_back or kind_of(text) is Kind.DECISION
            replied = speaker is not None and speaker != before.speaker and decided and not _doubts(text)
            return [(0.5, asked_there[-1])] if replied and len(asked_there) == 1 else []
        there = frozenset(terms(before.text))
        shares = [(len(asked.matter & there) / max(1, len(asked.matter)), asked) for asked in self._open]
        return [(share, asked) for share, asked in shares if share >= SHARED_BY_A_DECISION]


def answers(question: Sentence | str, text: str) -> bool:
    """Whether a text that was said later answers a question.

    Args:
        question: an open question.
        text: one or more sentences.

    Example:
        >>> answers("Which venue do we book?", "We decided on the Kulturhaus as the venue.")
        True
        >>> answers("Which venue do we book?", "Do we still need to book a venue?")
        False
    """
    asked = question if isinstance(question, str) else question.text
    matter = _matter(asked)
    if not matter:
        return False
    for unit in units(text):
        said = frozenset(terms(unit))
        if _CLOSED_MARK.match(unit):
            if matter & said:
                return True
        elif not is_question(unit) and kind_of(unit) is not Kind.OPEN and _answered(asked, matter, unit, said):
            return True
    return False


def same_matter(one: str, other: str) -> bool:
    """Whether two questions ask the same."""
    return _same(_matter(one), _matter(other))


def _answered(question: str, matter: frozenset[str], text: str, said: frozenset[str]) -> bool:
    """Whether a statement answers a question, by what they share and by what the statement claims."""
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
    """Whether a sentence that speaks of a decision takes it back, or puts it off."""
    return bool(_UNSETTLED.search(_STILL_SETTLED.sub("", text)))


def _matter(question: str) -> frozenset[str]:
    """What a question is about: its terms, without those that any open question has."""
    return frozenset(terms(question)) - GENERIC_TERMS


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two questions are one: most terms in common, or all of the shorter one's."""
    common = len(one & other)
    return common > 0 and (common >= SAME_QUESTION * len(one | other) or common == min(len(one), len(other)))


def _listed(text: str) -> frozenset[str]:
    """The units of a text's list items."""
    return frozenset(unit for row in text.split("\n") if _LIST_MARK.match(row) for unit in units(row))


def _sentence(line: Line, order: int, text: str, kind: Kind) -> Sentence:
    return Sentence(
        position=line.position,
        order=order,
        speaker=line.speaker,
        date=line.date,
        text=text,
        score=importance(text, from_user=line.from_user),
        kind=kind,
        terms=frozenset(terms(text)),
    )
