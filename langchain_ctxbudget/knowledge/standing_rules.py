"""Standing rules: what a user has laid down, in their own words, and what takes it back.

A rule is in force from the message that states it until the user lifts or replaces it. Which rules
are in force in a conversation follows from its messages alone: they are gone through in order, a
rule is added, a lifting takes the rule away that it is most like. Beside these stand the rules that
hold everywhere for the user (learned in other conversations, see `records.RuleRecord`), those that
were added or lifted by hand, and those that the application gives, which nobody lifts.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from langchain_ctxbudget.history import Entry, MessageTable
from langchain_ctxbudget.knowledge.records import BY_RULES, BY_USER, RuleRecord
from langchain_ctxbudget.messages import digest, fold, one_line, own_words, time_of
from langchain_ctxbudget.sentences import Label, Said, likeness
from langchain_ctxbudget.stores import Scope

BY_APPLICATION = "application"
"""The value of `made_by` for rules that the application gives."""
BY_HAND = "by hand"
"""Stands in the id of a rule where others have that of their message."""
NO_POSITIONS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePolicy:
    """When a sentence takes a rule back, and how much room rules get."""

    most_share: float = 0.1
    """The share of the budget that all rules together take at most."""
    lifted_at: float = 0.02
    """A sentence takes a rule back from this product on: how likely it takes something back, by how
    alike the two are."""
    least_lifting: float = 0.02
    """A sentence that is about a rule takes it back with this probability at least."""
    least_alike: float = 0.03
    """Two texts that are less alike are about different things."""
    sure_at: float = 0.8
    """From this probability on the reader is sure of a rule: where not all fit their share of the
    budget, these come first."""
    most_doubtful: int = 12
    """Of the rules of which the reader is not sure, so many count, the most certain ones: in a long
    chat more of them are none than in a short one."""
    same_at: float = 0.9
    """Two rules that are as alike say the same."""


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
    """The sentence that states it, in the user's own words."""
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

    @property
    def is_given(self) -> bool:
        """True if the application gives it, so that no user lifts it."""
        return self.made_by == BY_APPLICATION


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEvent:
    """A sentence of the user that may add a rule, or take one back."""

    said: Said
    rule: StandingRule
    """The rule that it states, if it states one."""
    message_text: str = ""
    """What the user says in its message, in their own words."""

    @property
    def states_rule(self) -> bool:
        """True if it is a rule."""
        return self.said.label in (Label.RULE, Label.USER_RULE)

    def is_before(self, position: int) -> bool:
        """Tells whether its message stands before a position."""
        return self.rule.position is not None and self.rule.position < position


_LAID_DOWN = Said(Label.RULE, 0, 0, 1.0)
"""What a rule is that was laid down elsewhere, or by hand."""


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
        learned = self.elsewhere
        if shown_elsewhere is not None:
            ids = set(shown_elsewhere)
            learned = tuple(rule for rule in learned if rule.id in ids)
        events = self.events
        if until is not None:
            events = tuple(event for event in events if event.is_before(until))
        standing = _gone_through(events, (*learned, *self.by_hand)).standing
        not_lifted = [rule for rule in standing if rule.id not in self.lifted_ids]
        return [*self.given, *_believed(not_lifted)]

    @cached_property
    def all_in_force(self) -> tuple[StandingRule, ...]:
        """The rules in force after all messages."""
        return tuple(self.in_force())

    @cached_property
    def taken_back_here(self) -> frozenset[str]:
        """The ids of the rules, also of those from elsewhere, that this conversation takes back."""
        return _gone_through(self.events, (*self.elsewhere, *self.by_hand)).taken_back


NO_RULES = StandingRules()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What is left of rules once everything was gone through that was said about them."""

    standing: tuple[StandingRule, ...]
    """The rules that stand, in order of time."""
    taken_back: frozenset[str]
    """The ids of those that a sentence has taken back."""


def _believed(rules: Sequence[StandingRule]) -> list[StandingRule]:
    """Returns the rules that count, in order: those that are sure, and the most certain others."""
    doubtful = [rule for rule in rules if rule.certainty < RULE_POLICY.sure_at]
    doubtful.sort(key=lambda rule: rule.certainty)
    ignored = {rule.id for rule in doubtful[: -RULE_POLICY.most_doubtful]}
    return [rule for rule in rules if rule.id not in ignored]


def _gone_through(events: Sequence[RuleEvent], others: Iterable[StandingRule]) -> _Outcome:
    """Returns what is left of rules.

    Args:
        events: The user's sentences about rules in a conversation, in order.
        others: Rules from other conversations, and by hand.
    """
    standing: list[StandingRule] = []
    taken_back: set[str] = set()
    for event in _in_order(events, others):
        lifted = _lifted_by(event, standing)
        if lifted is not None:
            standing.remove(lifted)
            taken_back.add(lifted.id)
        if event.states_rule:
            standing = [rule for rule in standing if not says_the_same_rule(rule, event.rule.text)]
            standing.append(event.rule)
    return _Outcome(tuple(standing), frozenset(taken_back))


def _in_order(events: Sequence[RuleEvent], others: Iterable[StandingRule]) -> list[RuleEvent]:
    """Returns the sentences of a conversation and rules from elsewhere in one order of time."""
    others_before: dict[int, list[RuleEvent]] = {}
    for rule in others:
        place = _place_of(rule, events)
        others_before.setdefault(place, []).append(RuleEvent(said=_LAID_DOWN, rule=rule))
    in_order: list[RuleEvent] = []
    for place in range(len(events) + 1):
        in_order += sorted(others_before.get(place, []), key=lambda other: other.rule.day)
        in_order += events[place : place + 1]
    return in_order


def _place_of(rule: StandingRule, events: Sequence[RuleEvent]) -> int:
    """Returns how many sentences of a conversation were said before a rule was laid down elsewhere.

    Where no time tells that, all are taken to be said later.
    """
    if rule.added_behind is not None:
        return sum(event.is_before(rule.added_behind + 1) for event in events)
    if rule.since is None or not rule.holds_everywhere:
        return 0
    said = [event.rule.since for event in events]
    earlier = [number for number, time in enumerate(said, 1) if time and time <= rule.since]
    return max(earlier, default=0)


def says_the_same_rule(rule: StandingRule, text: str) -> bool:
    """Tells whether a rule says the same as a text."""
    return likeness(rule.text, text) >= RULE_POLICY.same_at


def _lifted_by(event: RuleEvent, standing: Iterable[StandingRule]) -> StandingRule | None:
    """Returns the rule that a sentence takes back; None if it takes none back.

    It is the one that is most like the sentence, or all of its message; of equals, the newest.
    """
    best: StandingRule | None = None
    best_likeness = RULE_POLICY.least_alike
    for rule in standing:
        alike = max(likeness(rule.text, event.rule.text), likeness(rule.text, event.message_text))
        if alike >= best_likeness:
            best = rule
            best_likeness = alike
    probability = event.said.lifting + RULE_POLICY.least_lifting
    return best if probability * best_likeness >= RULE_POLICY.lifted_at else None


# Where they come from


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
    for record in records:
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
        events=tuple(events),
        elsewhere=tuple(elsewhere),
        by_hand=tuple(by_hand),
        given=tuple(
            StandingRule(id=f"rule given {number}", text=text, made_by=BY_APPLICATION)
            for number, text in enumerate(given, 1)
        ),
        lifted_ids=frozenset(lifted),
    )


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


def own_events(events: Iterable[RuleEvent], not_own: Container[str]) -> tuple[RuleEvent, ...]:
    """Returns sentences about rules without those of messages that others have said."""
    return tuple(event for event in events if event.rule.message_id not in not_own)


_ABOUT_RULES = (Label.RULE, Label.USER_RULE, Label.LIFTING)


def events_of(table: MessageTable, scope: Scope) -> Iterator[RuleEvent]:
    """Yields the sentences of a conversation's user that are about rules, in order.

    Where others speak in the user's thread, those of others are among them.
    """
    readings = table.readings.by_position
    for position in sorted(readings):
        about_rules = [said for said in readings[position] if said.label in _ABOUT_RULES]
        if not about_rules:
            continue
        entry = table[position]
        if entry.preservation == "drop" or not is_of_user(entry, table, scope):
            continue
        text = own_words(entry.message)
        for said in about_rules:
            rule = _rule_in(entry, scope, position, said, text)
            yield RuleEvent(said=said, rule=rule, message_text=text)


def is_of_user(entry: Entry, table: MessageTable, scope: Scope) -> bool:
    """Tells whether the user says a message, and not somebody else in the same conversation.

    The user writes without a name, under the user's id, or under the one name that all have.
    """
    name = entry.message.name
    if not name or fold(name) == fold(scope.user_id):
        return True
    return table.only_speaker == name


def _rule_in(entry: Entry, scope: Scope, position: int, said: Said, text: str) -> StandingRule:
    """Returns the rule that a sentence states."""
    words = said.words_in(text)
    return StandingRule(
        id=_id_of(scope.conversation_id, entry.id, words),
        text=words,
        since=time_of(entry.message),
        day=entry.date or "",
        conversation_id=scope.conversation_id,
        message_id=entry.id,
        digest=entry.fingerprint,
        holds_everywhere=said.label is Label.USER_RULE,
        certainty=said.certainty,
        position=position,
    )


def _id_of(conversation_id: str, message_id: str, text: str) -> str:
    """Returns the id of a rule: a fork of its conversation has another rule."""
    place = f"{conversation_id}\0{message_id or BY_HAND}\0{one_line(text)}"
    return f"rule/{digest(place, 8).hex()}"


# What is stored


def records_of(
    rules: StandingRules, known: Iterable[RuleRecord], conversation_id: str, now: datetime
) -> tuple[RuleRecord, ...]:
    """Returns what is to be stored about the user's rules once a conversation was read.

    Its rules that hold everywhere are stored for other conversations. Those that hold everywhere
    and were taken back in it are lifted, as long as it has the message that does so.

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
        is_lifted = record.lifted_at is not None
        if was_read_here and not is_lifted and record.id not in here:
            continue
        stored[record.id] = record
        if was_read_here or not record.holds_everywhere:
            continue
        if record.id in rules.taken_back_here and not is_lifted:
            changes = {"lifted_at": now, "lifted_in": conversation_id}
            stored[record.id] = record.model_copy(update=changes)
        if record.id not in rules.taken_back_here and record.lifted_in == conversation_id:
            stored[record.id] = record.model_copy(update={"lifted_at": None, "lifted_in": ""})
    for rule in here.values():
        if rule.holds_everywhere and rule.id not in stored:
            stored[rule.id] = _record_of(replace(rule, since=rule.since or now))
    return tuple(stored.values())


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


def lifted(
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


def forgotten(rule: StandingRule) -> RuleRecord:
    """Returns what is left of a rule once all that is known of its user is forgotten.

    It has no words, and keeps the rule from being learned once more for other conversations. In its
    own the rule stands, as its message does.
    """
    return _record_of(replace(rule, text="", holds_everywhere=False))


def kept_forgotten(
    known: Iterable[RuleRecord], said: Iterable[RuleRecord]
) -> tuple[RuleRecord, ...]:
    """Returns what stays stored of rules once all that is known of their user is forgotten.

    What was lifted stays lifted, without its words; what was added by hand goes.

    Args:
        known: What is stored so far.
        said: What is left of the rules that conversations state.
    """
    kept = {record.id: record for record in said}
    for record in known:
        if record.lifted_at is not None and record.made_by != BY_USER:
            kept[record.id] = record.model_copy(update={"text": ""})
    return tuple(kept.values())


def holding_everywhere(records: Iterable[RuleRecord]) -> list[StandingRule]:
    """Returns the stored rules that hold in all conversations of the user, in order of time."""
    rules = [
        stored_rule(record)
        for record in records
        if record.holds_everywhere and record.lifted_at is None
    ]
    return sorted(rules, key=lambda rule: (rule.day, rule.id))


def of_conversation(records: Iterable[RuleRecord], conversation_id: str) -> tuple[RuleRecord, ...]:
    """Returns what was changed by hand of the rules of a conversation."""
    return tuple(
        record
        for record in records
        if record.conversation_id == conversation_id and record.is_changed_by_hand
    )


def in_fork(record: RuleRecord, conversation_id: str) -> RuleRecord:
    """Returns the record of the same rule in a fork of its conversation."""
    rule_id = _id_of(conversation_id, record.message_id, record.text)
    changes = {"id": rule_id, "conversation_id": conversation_id}
    return record.model_copy(update=changes)
