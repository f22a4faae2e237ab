"""Standing rules: what a user has laid down, in their own words, and what takes it back.

A rule is in force from the message that states it until the user lifts or replaces it. Which rules
of a conversation are in force follows from its messages alone. These are read in order: a sentence
that is a rule adds it, and one that takes something back removes the rule that it is most like,
with all others that say the same. One that names nothing ("I take that rule back") removes the rule
that was said last.
Three other kinds of rules join them: those of other conversations that hold everywhere for the user
(`records.RuleRecord`), those that were added by hand, and those of the application, which nobody
lifts.
"""

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.history import MessageTable
from langchain_ctxbudget.knowledge.games import is_suspended
from langchain_ctxbudget.knowledge.own_messages import OwnMessage, names_of_user, own_messages
from langchain_ctxbudget.knowledge.records import BY_RULES, BY_USER, RuleRecord
from langchain_ctxbudget.messages import cached_until_forgotten, digest, one_line, terms, time_of
from langchain_ctxbudget.sentences import (
    ComparedTexts,
    Label,
    Said,
    likeness,
    share_said_by,
    takes_back_last_rule,
)
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.worker import new_mutex

BY_APPLICATION = "application"
"""The value of `made_by` for rules that the application gives."""
BY_HAND = "by hand"
"""Stands in the id of a rule where others have that of their message."""
NO_POSITIONS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePolicy:
    """Which rules count, when a sentence takes one back, and how much room rules get."""

    most_share: float = 0.1
    """The share of the budget that all rules together take at most."""
    lifted_at: float = 0.02
    """A sentence takes a rule back where its probability of taking something back, times its
    likeness to the rule, is at least this."""
    least_alike: float = 0.03
    """Two texts of less likeness are about different things."""
    about_at: float = 0.1
    """A sentence is about a rule from this likeness on, and about one of less likeness only where
    they share words."""
    fewest_shared_words: int = 2
    """So many words they share then. A single one may be "first" or "use"."""
    sure_at: float = 0.8
    """The reader is sure of a rule from this probability on. Where not all rules fit their share of
    the budget, these come first."""
    most_doubtful: int = 12
    """Of the rules of which the reader is not sure, only so many count, the most certain ones: the
    longer a chat is, the more of its sentences are taken for rules and are none."""
    same_at: float = 0.9
    """Two rules say the same from this likeness on."""
    same_words_share: float = 0.85
    """Two rules say the same, too, where each has this share of its words in the other one, marks
    such as commas aside."""
    perhaps_same_at: float = 0.35
    """Rules of less likeness are not compared word by word: they are about different things."""
    same_share: float = 0.7
    """What takes a rule back takes another one back, too, that has at least this share of its words
    in the first one, and this share of what the sentence and the first one have in common."""


RULE_POLICY = RulePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRule:
    """A rule that is in force.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> chat = ContextPipeline().conversation("c1", user_id="ada")
        >>> _ = chat.add(HumanMessage("Never push to main without asking me first."))
        >>> [rule.text for rule in chat.rules()]
        ['Never push to main without asking me first.']
    """

    id: str
    text: str
    """The sentence that states it, in the user's own words, on one line."""
    since: datetime | None = None
    """When that was said; None if it is not known."""
    day: str = ""
    """The day on which it was said, `YYYY-MM-DD`; empty if it is not known."""
    conversation_id: str = ""
    """The conversation that has its message; empty where there is none."""
    message_id: str = ""
    digest: str = ""
    """Fingerprint of its message's text."""
    holds_everywhere: bool = False
    """True if it holds in all conversations of the user."""
    certainty: float = 1.0
    """How sure the reader is that it is a rule, as a probability."""
    made_by: str = BY_RULES
    """Who has read it, or given it: `rules`, `user`, `application`, or the name of a model."""
    position: int | None = None
    """The position of its message in the conversation that is open; None elsewhere."""
    added_behind: int | None = None
    """The position of the last message there was in this conversation when it was added by hand;
    None if it was not, or elsewhere."""

    def __hash__(self) -> int:
        """Returns the hash of its id: a long conversation has thousands, which are looked up."""
        return hash(self.id)

    @property
    def is_given(self) -> bool:
        """True if the application gives it, so that no user lifts it."""
        return self.made_by == BY_APPLICATION

    @property
    def is_doubtful(self) -> bool:
        """True if the reader is not sure that it is a rule."""
        return self.certainty < RULE_POLICY.sure_at


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEvent:
    """A sentence of the user that may add a rule, or take one back."""

    said: Said
    """What the reader takes the sentence for."""
    rule: StandingRule
    """The sentence as a rule. One that only takes a rule back is none: then only its words and its
    place are read."""
    message_text: str = ""
    """What the user says in its message, in their own words."""
    noted_at: datetime | None = None
    """When it was first read, where its message tells no time and that is stored."""

    def __hash__(self) -> int:
        """Returns the hash of its rule."""
        return hash(self.rule)

    @property
    def states_rule(self) -> bool:
        """True if it is a rule."""
        return self.said.label in (Label.RULE, Label.USER_RULE)

    @property
    def at(self) -> datetime | None:
        """When it was said or, where that is not known, first read."""
        return self.rule.since or self.noted_at

    @property
    def points_to_last_rule(self) -> bool:
        """True if it takes back the rule that was said last, without naming it."""
        return self.said.label is Label.LIFTING and takes_back_last_rule(self.rule.text)


_LAID_DOWN = Said(Label.RULE, begin=0, end=0, certainty=1.0)
"""Stands for the sentence of a rule that was laid down elsewhere, or by hand."""


@dataclass(frozen=True, slots=True)
class Lifting:
    """A sentence of the user that takes a rule back."""

    rule: StandingRule
    """What is taken back."""
    sentence: StandingRule
    """The sentence with its day and place; a rule itself where it replaces the other one."""


_Reading: TypeAlias = tuple[int | None, frozenset[str] | None]
"""Up to which position messages are read, and which rules from elsewhere count; None: all."""


@dataclass(frozen=True)
class StandingRules:
    """All that is known of rules in one conversation."""

    events: tuple[RuleEvent, ...] = ()
    """The user's sentences about rules, in order."""
    elsewhere: tuple[StandingRule, ...] = ()
    """Rules that hold everywhere, from other conversations."""
    by_hand: tuple[StandingRule, ...] = ()
    """Rules that were added by hand."""
    given: tuple[StandingRule, ...] = ()
    """Rules of the application."""
    lifted_ids: frozenset[str] = field(default_factory=frozenset)
    """Ids of rules that were lifted by hand, or in another conversation."""

    def in_force(
        self, until: int | None = None, shown_elsewhere: Iterable[str] | None = None
    ) -> list[StandingRule]:
        """Returns the rules in force, those of the application first, then in order of time.

        Args:
            until: Only messages before this position are read; None for all.
            shown_elsewhere: Ids of the rules from other conversations that count; None for all.
        """
        ids = None if shown_elsewhere is None else frozenset(shown_elsewhere)
        known = self._in_force_by_reading.get((until, ids))
        if known is None:
            known = tuple(self._in_force_of(self._outcome_until(until, ids)))
            self._in_force_by_reading[until, ids] = known
        return list(known)

    @cached_property
    def _in_force_by_reading(self) -> dict[_Reading, tuple[StandingRule, ...]]:
        """The rules in force that were asked for.

        A prompt asks several times, and a long conversation has thousands of sentences about rules.
        """
        return {}

    def _outcome_until(self, until: int | None, ids: frozenset[str] | None) -> "_Outcome":
        """Returns what has become of the rules before a position; see `in_force`."""
        learned = self.elsewhere
        if ids is not None:
            learned = tuple(rule for rule in learned if rule.id in ids)
        events = self.events
        if until is not None:
            events = events[: bisect_left(events, until, key=_position_of)]
        return _outcome_of(events, (*learned, *self.by_hand))

    def _in_force_of(self, outcome: "_Outcome") -> list[StandingRule]:
        """Returns the rules in force once some sentences were read."""
        standing: Sequence[StandingRule] = outcome.standing
        if self.lifted_ids:
            standing = [rule for rule in standing if rule.id not in self.lifted_ids]
        return [*self.given, *_rules_that_count(standing)]

    @cached_property
    def _outcome(self) -> "_Outcome":
        """What has become of the rules after all messages."""
        return _outcome_of(self.events, (*self.elsewhere, *self.by_hand))

    @cached_property
    def all_in_force(self) -> tuple[StandingRule, ...]:
        """The rules in force after all messages."""
        return tuple(self._in_force_of(self._outcome))

    @cached_property
    def liftings(self) -> tuple[Lifting, ...]:
        """What this conversation takes back, also of rules from elsewhere, in order of time."""
        return self._outcome.liftings

    @cached_property
    def taken_back_here(self) -> frozenset[str]:
        """The ids of the rules, also of those from elsewhere, that this conversation takes back."""
        return frozenset(lifting.rule.id for lifting in self.liftings)

    @cached_property
    def lifted_beside(self) -> tuple[StandingRule, ...]:
        """The rules that messages of this conversation state as if they held.

        They were lifted by hand, or taken back or replaced in another conversation, and no message
        of this one says so.
        """
        standing = self._outcome.standing
        holding = [rule for rule in standing if rule.id not in self.lifted_ids]
        lifted = [rule for rule in standing if rule.id in self.lifted_ids]
        return tuple(
            rule
            for rule in lifted
            if rule.position is not None and not _is_said_by(holding, rule.text)
        )

    def is_in_force_again(self, rule: StandingRule) -> bool:
        """Tells whether a rule that says the same as one that was taken back is in force."""
        return _is_said_by(self.all_in_force, rule.text)

    def said_between(self, begin: int, end: int) -> list[StandingRule]:
        """Returns the sentences about rules that must not be lost with some messages, in order.

        These are rules in force, and what takes back a rule that was stated before them.

        Args:
            begin: The position of the first of the messages.
            end: The position behind the last one.
        """
        there = range(begin, end)
        said = [rule for rule in self.all_in_force if rule.position in there]
        for lifting in self.liftings:
            is_taken_back_there = lifting.sentence.position in there
            if is_taken_back_there and lifting.rule.position not in there:
                said.append(lifting.sentence)
        by_id = {sentence.id: sentence for sentence in said}
        return sorted(by_id.values(), key=lambda sentence: sentence.position or 0)


NO_RULES = StandingRules()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What has become of rules once all sentences about them are read in order."""

    standing: tuple[StandingRule, ...]
    """The rules that stand, in order of time."""
    liftings: tuple[Lifting, ...]
    """What took others back, in order of time."""


def _rules_that_count(rules: Sequence[StandingRule]) -> list[StandingRule]:
    """Returns the rules that count, in order: all but the least certain of the doubtful ones."""
    doubtful = [rule for rule in rules if rule.is_doubtful]
    if len(doubtful) <= RULE_POLICY.most_doubtful:
        return [*rules]
    doubtful.sort(key=lambda rule: rule.certainty)
    ignored = {rule.id for rule in doubtful[: -RULE_POLICY.most_doubtful]}
    return [rule for rule in rules if rule.id not in ignored]


_NEVER = 2**62
"""Stands for the number of a sentence where there is none."""


def _outcome_of(events: tuple[RuleEvent, ...], others: tuple[StandingRule, ...]) -> _Outcome:
    """Returns which rules stand in the end, and which were taken back.

    Args:
        events: The user's sentences about rules in a conversation, in order.
        others: Rules from other conversations, and by hand.
    """
    in_order = _in_order(events, others)
    if not in_order:
        return _Outcome((), ())
    conversation_id = events[0].rule.conversation_id if events else ""
    return _rules_beginning_with(in_order[0], conversation_id).outcome_of(in_order)


@cached_until_forgotten(64)
def _rules_beginning_with(_first: RuleEvent, _conversation_id: str) -> "_RulesInOrder":
    """Returns what was read of a conversation's sentences about rules, by the first of them."""
    return _RulesInOrder()


class _RulesInOrder:
    """Sentences about rules in order of time, and which rules stood after each of them.

    A sentence is compared once with all before it, so that a long conversation does not compare
    thousands with each other whenever one more is said.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._forget()

    def _forget(self) -> None:
        self._events: list[RuleEvent] = []
        self._texts = ComparedTexts()
        self._ended_at = np.zeros(0, np.int64)
        """The number of the sentence that ended each rule, `_NEVER` where none did. A sentence that
        is no rule is ended by itself."""
        self._lifted: list[int] = []
        """The numbers of the rules that were taken back."""
        self._lifted_at: list[int] = []
        """The number of the sentence that took back each of them."""

    def outcome_of(self, in_order: Sequence[RuleEvent]) -> "_Outcome":
        """Returns which rules stand after some sentences, and which were taken back.

        They are those that were read before, the first of them, or these and more. Others are read
        anew.
        """
        with self._mutex:
            known = min(len(in_order), len(self._events))
            if in_order[:known] != self._events[:known]:
                self._forget()
            try:
                self._read(in_order[len(self._events) :])
            except BaseException:  # it may have read half of them
                self._forget()
                raise
            return self._outcome_after(len(in_order))

    def _outcome_after(self, count: int) -> "_Outcome":
        """Returns the outcome after the first sentences."""
        standing = np.flatnonzero(self._ended_at[:count] >= count).tolist()
        liftings = [
            Lifting(self._events[lifted].rule, self._events[at].rule)
            for lifted, at in zip(self._lifted, self._lifted_at, strict=True)
            if at < count
        ]
        return _Outcome(tuple(self._events[number].rule for number in standing), tuple(liftings))

    def _read(self, events: Sequence[RuleEvent]) -> None:
        """Reads the sentences that come next."""
        first = len(self._events)
        self._events += events
        self._texts.add([event.rule.text for event in events])
        self._ended_at = np.append(self._ended_at, np.arange(first, len(self._events)))
        for number, event in enumerate(events, first):
            is_standing = self._ended_at[:number] == _NEVER
            alike = self._texts.with_earlier(number)
            if event.said.lifting >= RULE_POLICY.lifted_at:  # no likeness is over 1
                alike_message = self._texts.with_text(event.message_text, number)
                alike_either = np.maximum(alike, alike_message)
                for lifted in self._lifted_by(event, alike_either, is_standing):
                    is_standing[lifted] = False
                    self._ended_at[lifted] = number
                    self._lifted.append(lifted)
                    self._lifted_at.append(number)
            if event.states_rule:
                candidates = np.flatnonzero(is_standing & (alike >= RULE_POLICY.perhaps_same_at))
                for other in candidates.tolist():
                    same = alike[other] >= RULE_POLICY.same_at
                    if same or _has_same_words(self._events[other].rule.text, event.rule.text):
                        self._ended_at[other] = number
                self._ended_at[number] = _NEVER

    def _lifted_by(
        self, event: RuleEvent, alike: NDArray[np.float64], is_standing: NDArray[np.bool_]
    ) -> list[int]:
        """Returns the numbers of the rules that a sentence takes back.

        These are the rule that is most like the sentence or its whole message, of equals the
        newest, and all that say the same. A sentence that says again what took a rule back takes
        nothing back.

        Args:
            event: The sentence.
            alike: How alike it is to each rule before it.
            is_standing: Which of these stand.
        """
        standing = np.flatnonzero(is_standing)
        if not len(standing):
            return []
        newest_first = standing[::-1]
        best = int(newest_first[np.argmax(alike[newest_first])])
        is_likely = event.said.lifting * alike[best] >= RULE_POLICY.lifted_at
        is_about_best = is_likely and _is_about(event.rule, self._events[best].rule, alike[best])
        if event.points_to_last_rule:
            best = int(newest_first[0])
        elif not is_about_best or self._is_about_lifted_rule(alike, best):
            return []
        rule = self._events[best].rule
        others = standing[standing != best].tolist()
        same = [
            number
            for number in others
            if _goes_with(self._events[number].rule, rule, event.rule.text)
        ]
        return [best, *same]

    def _is_about_lifted_rule(self, alike: NDArray[np.float64], best: int) -> bool:
        """Tells whether a sentence is about a rule that is taken back already.

        It is more like that rule than any that stands. What was laid down after that rule was taken
        back may have come in its place.

        Args:
            alike: How alike the sentence is to each rule before it.
            best: The number of the rule, of those that stand, that it is most like.
        """
        for lifted, at in zip(self._lifted, self._lifted_at, strict=True):
            if best < at and alike[lifted] > alike[best]:
                return True
        return False


def _is_about(sentence: StandingRule, rule: StandingRule, alike: float) -> bool:
    """Tells whether a sentence that takes something back is about a rule.

    Args:
        sentence: The sentence.
        rule: The rule.
        alike: How alike the sentence or its whole message is to the rule.
    """
    if alike >= RULE_POLICY.about_at:
        return True
    if alike < RULE_POLICY.least_alike:
        return False
    shared_words = set(terms(sentence.text)).intersection(terms(rule.text))
    return len(shared_words) >= RULE_POLICY.fewest_shared_words


def _goes_with(other: StandingRule, lifted: StandingRule, sentence: str) -> bool:
    """Tells whether a sentence that takes a rule back takes another one back, too.

    That is so where the other one says the same, perhaps for this conversation alone, or says it
    for all of them, and the sentence speaks of both alike.
    """
    share = RULE_POLICY.same_share
    says_the_same = share_said_by(other.text, lifted.text) >= share
    if not says_the_same and other.holds_everywhere and not lifted.holds_everywhere:
        says_the_same = share_said_by(lifted.text, other.text) >= share
    if not says_the_same:
        return False
    if likeness(sentence, lifted.text) < RULE_POLICY.least_alike:  # it names neither
        return True
    return share_said_by(sentence, other.text, within=lifted.text) >= share


def _in_order(events: Sequence[RuleEvent], others: Iterable[StandingRule]) -> list[RuleEvent]:
    """Returns the sentences of a conversation and rules from elsewhere in one order of time."""
    others_before: dict[int, list[RuleEvent]] = {}
    for rule in others:
        place = _place_of(rule, events)
        others_before.setdefault(place, []).append(RuleEvent(said=_LAID_DOWN, rule=rule))
    in_order: list[RuleEvent] = []
    before = 0
    for place in sorted(others_before):
        in_order += events[before:place]
        in_order += sorted(others_before[place], key=lambda other: other.rule.day)
        before = place
    return [*in_order, *events[before:]]


def _place_of(rule: StandingRule, events: Sequence[RuleEvent]) -> int:
    """Returns how many sentences of a conversation were said before a rule from elsewhere.

    Where their times are not known, all count as said after it.
    """
    if rule.added_behind is not None:
        return bisect_left(events, rule.added_behind + 1, key=_position_of)
    if rule.since is None or not rule.holds_everywhere:
        return 0
    place = 0
    for number, event in enumerate(events, 1):
        # What is read at the same moment may be what takes the rule back.
        if event.at is not None and event.at < rule.since:
            place = number
    return place


def says_the_same_rule(rule: StandingRule, text: str) -> bool:
    """Tells whether a rule says the same as a text."""
    return likeness(rule.text, text) >= RULE_POLICY.same_at or _has_same_words(rule.text, text)


@cached_until_forgotten(4_096)
def _has_same_words(first: str, second: str) -> bool:
    """Tells whether two rules consist of nearly the same words, marks aside."""
    shares = (share_said_by(first, second), share_said_by(second, first))
    return min(shares) >= RULE_POLICY.same_words_share


def _is_said_by(rules: Iterable[StandingRule], text: str) -> bool:
    """Tells whether one of some rules says the same as a text."""
    return any(says_the_same_rule(rule, text) for rule in rules)


# Where rules come from


def rules_of(
    events: Iterable[RuleEvent],
    records: Iterable[RuleRecord],
    conversation_id: str,
    given: Sequence[str] = (),
    positions: Mapping[str, int] = NO_POSITIONS,
) -> StandingRules:
    """Returns what is known of rules in a conversation.

    Args:
        events: What the user has said about rules in it.
        records: What is stored about the user's rules.
        conversation_id: The conversation.
        given: The rules of the application.
        positions: The positions of the conversation's messages, by id.
    """
    elsewhere: list[StandingRule] = []
    by_hand: list[StandingRule] = []
    lifted: set[str] = set()
    noted_at: dict[str, datetime | None] = {}
    for record in records:
        if record.conversation_id == conversation_id:
            noted_at[record.id] = record.since
        # A sentence of this conversation takes effect where it stands.
        if record.lifted_at is not None and record.lifted_in != conversation_id:
            lifted.add(record.id)
        elif record.made_by == BY_USER:
            if record.conversation_id in ("", conversation_id):
                rule = stored_rule(record)
                by_hand.append(replace(rule, added_behind=positions.get(record.added_behind)))
        elif record.holds_everywhere and record.conversation_id != conversation_id:
            elsewhere.append(stored_rule(record))
    return StandingRules(
        events=tuple(_with_times(events, noted_at)),
        elsewhere=tuple(elsewhere),
        by_hand=tuple(by_hand),
        given=tuple(
            StandingRule(id=f"rule given {number}", text=text, made_by=BY_APPLICATION)
            for number, text in enumerate(given, 1)
        ),
        lifted_ids=frozenset(lifted),
    )


def _with_times(
    events: Iterable[RuleEvent], noted_at: Mapping[str, datetime | None]
) -> Iterable[RuleEvent]:
    """Returns sentences with the times at which they were read, where their messages tell none."""
    if not noted_at:
        return events
    return [_with_time(event, noted_at.get(event.rule.id)) for event in events]


def _with_time(event: RuleEvent, at: datetime | None) -> RuleEvent:
    """Returns a sentence with the time at which it was read, where its message tells none."""
    if at is None or event.rule.since is not None:
        return event
    return replace(event, noted_at=at)


def _position_of(event: RuleEvent) -> int:
    """Returns the position of the message of a sentence."""
    return event.rule.position or 0


def stored_rule(record: RuleRecord) -> StandingRule:
    """Returns a rule as it is stored."""
    return StandingRule(
        id=record.id,
        text=record.text,
        since=record.since,
        day=record.since.date().isoformat() if record.since else "",
        conversation_id=record.conversation_id,
        message_id=record.message_id,
        digest=record.digest,
        holds_everywhere=record.holds_everywhere,
        made_by=record.made_by,
    )


def own_events(events: Iterable[RuleEvent], not_own: Collection[str]) -> tuple[RuleEvent, ...]:
    """Returns sentences about rules without those of other speakers.

    Args:
        events: Sentences about rules.
        not_own: The ids of the messages that others have said.
    """
    if not not_own:
        return tuple(events)
    return tuple(event for event in events if event.rule.message_id not in not_own)


_ABOUT_RULES = frozenset({Label.RULE, Label.USER_RULE, Label.LIFTING})


@dataclass(frozen=True, slots=True)
class _ReadEvents:
    """What was read of a conversation's messages about rules; each message is read once."""

    scope: Scope
    names: frozenset[str]
    """The names under which its user writes."""
    until: int
    """The position of the last message, which is read again, or of the first that is not read."""
    events: tuple[RuleEvent, ...]


_read_events: WeakKeyDictionary[MessageTable, _ReadEvents] = WeakKeyDictionary()
"""By the tables, which say the same of a message as long as they are there."""


def events_of(table: MessageTable, scope: Scope) -> tuple[RuleEvent, ...]:
    """Returns the sentences of a conversation's user that are about rules, in order.

    What is said in a game, or supposed, is not among them. What guests say in the user's thread is;
    `own_events` leaves it out.
    """
    by_position = table.readings.by_position
    names = names_of_user(table, scope)
    read = _read_events.get(table)
    if read is None or (read.scope, read.names) != (scope, names):
        read = _ReadEvents(scope, names, until=0, events=())
    positions = sorted(position for position in by_position if position >= read.until)
    events: list[RuleEvent] = []
    for message in own_messages(table, scope, positions, _ABOUT_RULES):
        if is_suspended(table, scope, message.position):
            continue
        for said in message.sentences:
            if said.label in _ABOUT_RULES:
                rule = _rule_in(message, scope.conversation_id, said)
                events.append(RuleEvent(said=said, rule=rule, message_text=message.text))
    # The reply to the last message may show that it begins a game, so that one is read again.
    last = max(len(table) - 1, 0)
    settled = [event for event in events if _position_of(event) < last]
    kept = (*read.events, *settled) if settled else read.events
    _read_events[table] = replace(read, until=last, events=kept)
    if len(events) == len(settled):
        return kept
    return (*kept, *events[len(settled) :])


def speaks_of_rules(table: MessageTable, first: int) -> bool:
    """Tells whether a message from a position on lays down a rule, or takes something back."""
    by_position = table.readings.by_position
    return any(
        said.label in _ABOUT_RULES
        for position in range(first, len(table))
        for said in by_position.get(position, ())
    )


def _rule_in(message: OwnMessage, conversation_id: str, said: Said) -> StandingRule:
    """Returns the rule that a sentence states."""
    words = one_line(said.words_in(message.text))
    entry = message.entry
    return StandingRule(
        id=_id_of(conversation_id, entry.id, words),
        text=words,
        since=time_of(entry.message),
        day=entry.date or "",
        conversation_id=conversation_id,
        message_id=entry.id,
        digest=entry.fingerprint,
        holds_everywhere=said.label is Label.USER_RULE,
        certainty=said.certainty,
        position=message.position,
    )


def _id_of(conversation_id: str, message_id: str, text: str) -> str:
    """Returns the id of a rule; the same rule has another one in a fork of its conversation."""
    place = f"{conversation_id}\0{message_id or BY_HAND}\0{one_line(text)}"
    return f"rule/{digest(place, 8).hex()}"


# What is stored


def records_of(
    rules: StandingRules, known: Iterable[RuleRecord], conversation_id: str, now: datetime
) -> tuple[RuleRecord, ...]:
    """Returns what is to be stored about the user's rules once a conversation was read.

    Its rules that hold everywhere are stored for other conversations. Those that hold everywhere
    and were taken back in it are lifted, as long as it has the message that does so. Of what takes
    a rule back without a time of its own, the time is stored: it must not take back what the user
    lays down elsewhere later.

    Args:
        rules: The rules of the conversation.
        known: What is stored so far.
        conversation_id: The conversation.
        now: The time at which it was read.
    """
    here = {rule.id: rule for rule in rules.all_in_force if rule.position is not None}
    stored: dict[str, RuleRecord] = {}
    for record in known:
        was_read_here = record.conversation_id == conversation_id and record.made_by == BY_RULES
        if not was_read_here:
            stored[record.id] = _marked(record, rules.taken_back_here, conversation_id, now)
        elif record.lifted_at is not None or record.id in here:
            stored[record.id] = record
    for rule in here.values():
        if rule.holds_everywhere and rule.id not in stored:
            stored[rule.id] = _record_of(replace(rule, since=rule.since or now))
    for sentence in (lifting.sentence for lifting in rules.liftings):
        if sentence.since is None and sentence.id not in stored:
            stored[sentence.id] = _record_of_lifting(sentence, conversation_id, now)
    return tuple(stored.values())


def _marked(
    record: RuleRecord, taken_back: Container[str], conversation_id: str, now: datetime
) -> RuleRecord:
    """Returns the record of a rule from elsewhere, lifted as long as a conversation takes it back.

    Args:
        record: The record.
        taken_back: The ids of the rules that the conversation takes back.
        conversation_id: The conversation.
        now: The time at which it was read.
    """
    if not record.holds_everywhere:
        return record
    if record.id in taken_back:
        if record.lifted_at is not None:
            return record
        return record.model_copy(update={"lifted_at": now, "lifted_in": conversation_id})
    if record.lifted_in == conversation_id:
        return record.model_copy(update={"lifted_at": None, "lifted_in": ""})
    return record


def _record_of(rule: StandingRule) -> RuleRecord:
    return RuleRecord(
        id=rule.id,
        text=rule.text,
        since=rule.since,
        conversation_id=rule.conversation_id,
        message_id=rule.message_id,
        digest=rule.digest,
        holds_everywhere=rule.holds_everywhere,
        made_by=rule.made_by,
    )


def _record_of_lifting(sentence: StandingRule, conversation_id: str, now: datetime) -> RuleRecord:
    """Returns the record that tells when a sentence was read which takes a rule back."""
    record = _record_of(replace(sentence, since=now, holds_everywhere=False))
    return record.model_copy(
        update={
            "conversation_id": conversation_id,
            "lifted_at": now,
            "lifted_in": conversation_id,
        }
    )


def rule_by_hand(
    text: str, conversation_id: str, now: datetime, added_behind: str = ""
) -> RuleRecord:
    """Returns the record of a rule that is added by hand.

    Args:
        text: The rule.
        conversation_id: The conversation in which it holds; empty if it holds everywhere.
        now: The time.
        added_behind: The id of the last message of the conversation that is open.
    """
    return RuleRecord(
        id=_id_of(conversation_id, "", text),
        text=text,
        since=now,
        conversation_id=conversation_id,
        holds_everywhere=not conversation_id,
        made_by=BY_USER,
        added_behind=added_behind,
    )


def records_with_lifted(
    known: Iterable[RuleRecord], rule: StandingRule, now: datetime
) -> tuple[RuleRecord, ...]:
    """Returns what is stored about rules once one of them is lifted by hand.

    Args:
        known: What is stored so far.
        rule: The rule.
        now: The time.
    """
    others = [record for record in known if record.id != rule.id]
    if rule.made_by == BY_USER:
        return tuple(others)
    return (*others, _record_of(rule).model_copy(update={"lifted_at": now}))


def record_without_words(rule: StandingRule) -> RuleRecord:
    """Returns what stays stored of a rule once all that is known of its user is forgotten.

    The record has no words, and keeps the rule from being learned for other conversations again. In
    its own conversation the rule still holds, as its message still stands.
    """
    return _record_of(replace(rule, text="", holds_everywhere=False))


def records_once_forgotten(
    known: Iterable[RuleRecord], stated: Iterable[RuleRecord]
) -> tuple[RuleRecord, ...]:
    """Returns what stays stored of all rules once all that is known of their user is forgotten.

    What was lifted stays lifted, without its words; what was added by hand goes.

    Args:
        known: What is stored so far.
        stated: The rules that conversations state, without their words.
    """
    kept = {record.id: record for record in stated}
    for record in known:
        if record.lifted_at is not None and record.made_by != BY_USER:
            kept[record.id] = record.model_copy(update={"text": ""})
    return tuple(kept.values())


def rules_everywhere(records: Iterable[RuleRecord]) -> list[StandingRule]:
    """Returns the stored rules that hold in all conversations of the user, in order of time."""
    rules = [
        stored_rule(record)
        for record in records
        if record.holds_everywhere and record.lifted_at is None
    ]
    return sorted(rules, key=lambda rule: (rule.day, rule.id))


def changed_beside(records: Iterable[RuleRecord], conversation_id: str) -> tuple[RuleRecord, ...]:
    """Returns the records of a conversation's rules of whose change none of its messages tells.

    They were added or lifted by hand, or another conversation takes them back. The latter count as
    lifted by hand: they are for a fork or a new owner, for whom no message takes them back.
    """
    return tuple(
        record.model_copy(update={"lifted_in": ""})
        for record in records
        if record.conversation_id == conversation_id
        and (record.is_changed_by_hand or record.is_lifted_elsewhere)
    )


def record_in_fork(record: RuleRecord, conversation_id: str) -> RuleRecord:
    """Returns the record of the same rule in a fork of its conversation."""
    rule_id = _id_of(conversation_id, record.message_id, record.text)
    changes = {"id": rule_id, "conversation_id": conversation_id}
    return record.model_copy(update=changes)
