"""The standing rules of a conversation: listed, added and lifted by an application."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, locked, with_fallback
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.knowledge import (
    Knowledge,
    RuleRecord,
    StandingRule,
    StandingRules,
    changed_beside,
    events_of,
    known,
    own_events,
    record_in_fork,
    records,
    records_with_lifted,
    rule_by_hand,
    rules_of,
    says_the_same_rule,
    stored_rule,
)
from langchain_ctxbudget.pipeline.beside import Stored
from langchain_ctxbudget.pipeline.users import saved_settings
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import merged_settings


@dataclass(frozen=True, slots=True)
class ConversationRules:
    """The rules of one conversation; every method returns the flow of one operation."""

    workspace: Workspace
    scope: stores.Scope

    def in_force(self) -> Flow[list[StandingRule]]:
        """Returns the rules in force."""
        rules = yield from self._rules()
        return list(rules.all_in_force)

    def add(self, text: str, *, everywhere: bool) -> Flow[StandingRule]:
        """Adds a rule by hand and returns it, or the one in force that says the same.

        Args:
            text: The rule.
            everywhere: Whether it holds in all conversations of the user.

        Raises:
            InputError: The text is empty or too long.
        """
        words = text.strip()
        most = records.MOST_CHARACTERS
        if not 0 < len(words) <= most:
            raise InputError(
                f"a rule has 1 to {most:,} characters, not {len(words):,}: give its words, or put "
                "a longer text into the system prompt"
            )
        for rule in (yield from self.in_force()):
            holds_as_widely = rule.holds_everywhere or not everywhere
            if not rule.is_given and holds_as_widely and says_the_same_rule(rule, words):
                return rule

        conversation_id = "" if everywhere else self.scope.conversation_id
        last_id = yield from self._last_message_id()
        record = rule_by_hand(words, conversation_id, self.workspace.clock(), last_id)
        yield from _adding(self.workspace, self.scope.user_id, [record])
        return stored_rule(record)

    def _last_message_id(self) -> Flow[str]:
        """Returns the id of the last message; empty where there is none."""

        def body(conversation: OpenConversation) -> Flow[str]:
            yield from ()
            return conversation.table.ids[-1] if conversation.table else ""

        return self.workspace.recall(self.scope, body)

    def lift(self, rule_id: str) -> Flow[None]:
        """Lifts a rule; nothing that was said before states it again.

        Raises:
            InputError: No rule of this id is in force, or the application gives it.
        """
        rules = yield from self.in_force()
        rule = next((rule for rule in rules if rule.id == rule_id), None)
        if rule is None:
            raise InputError(f"no rule {rule_id!r} is in force; `rules()` lists those that are")
        if rule.is_given:
            raise InputError(
                f"{rule_id!r} is given in the settings (`rules`): take it out there to lift it"
            )
        now = self.workspace.clock()

        def change(before: Knowledge) -> Knowledge:
            return replace(before, rules=records_with_lifted(before.rules, rule, now))

        yield from _changing(self.workspace, self.scope.user_id, change)

    def _rules(self) -> Flow[StandingRules]:
        """Returns all that is known of the conversation's rules."""
        workspace = self.workspace
        scope = self.scope
        yield from workspace.workers.learning.catch_up_with_rules(scope.user_id)
        knowledge = yield from known.read(workspace.store, scope.user_id)
        not_own = yield from stores.guests.read(workspace.store, scope)
        saved = yield from saved_settings(workspace, scope.user_id, None)
        settings, _ = merged_settings(workspace.settings, {"user": saved}, None, [])
        if not settings.learn:
            knowledge = knowledge.by_hand

        def body(conversation: OpenConversation) -> Flow[StandingRules]:
            yield from workspace.read_marks(conversation)
            table = conversation.table
            events = own_events(events_of(table, scope), not_own)
            return rules_of(
                events, knowledge.rules, scope.conversation_id, settings.rules, table.positions
            )

        return (yield from workspace.recall(scope, body))


def messages_in_force(workspace: Workspace, conversation: OpenConversation) -> Flow[frozenset[str]]:
    """Returns the ids of an open conversation's messages that lay down rules in force."""
    scope = conversation.scope
    events = events_of(conversation.table, scope)
    if not events:
        return frozenset()
    knowledge = yield from known.read(workspace.store, scope.user_id)
    not_own = yield from stores.guests.read(workspace.store, scope)
    rules = rules_of(
        own_events(events, not_own),
        knowledge.rules,
        scope.conversation_id,
        (),
        conversation.table.positions,
    )
    in_force = [rule for rule in rules.all_in_force if rule.position is not None]
    return frozenset(rule.message_id for rule in in_force)


def rules_in(
    workspace: Workspace, conversation: OpenConversation, stored: Stored, failures: list[str]
) -> Flow[StandingRules]:
    """Returns what is known of the user's rules in an open conversation.

    Args:
        workspace: The workspace.
        conversation: The conversation.
        stored: What is stored beside it.
        failures: Gets a line where it cannot be read who has said what.
    """
    scope = conversation.scope
    events = tuple(events_of(conversation.table, scope))
    if events:
        reading = stores.guests.read(workspace.store, scope)
        what = "who has said what in the thread not read"
        not_own = yield from with_fallback(reading, frozenset[str](), what, failures)
        events = own_events(events, not_own)
    return rules_of(
        events,
        stored.knowledge.rules,
        scope.conversation_id,
        stored.settings.rules,
        conversation.table.positions,
    )


def carry_into_fork(workspace: Workspace, scope: stores.Scope, fork_id: str) -> Flow[None]:
    """Gives a fork what has changed of its conversation's rules and stands in no message of it."""
    yield from workspace.workers.learning.catch_up_with_rules(scope.user_id)
    knowledge = yield from known.read(workspace.store, scope.user_id)
    changed = changed_beside(knowledge.rules, scope.conversation_id)
    if not changed:
        return
    changed_in_fork = [record_in_fork(record, fork_id) for record in changed]
    yield from _adding(workspace, scope.user_id, changed_in_fork)


def hand_over_rules(
    workspace: Workspace, conversation_ids: Iterable[str], from_user: str, to_user: str
) -> Flow[None]:
    """Gives new owners of conversations what has changed of their rules beside their messages."""
    knowledge = yield from known.read(workspace.store, from_user)
    changed: list[RuleRecord] = []
    for conversation_id in conversation_ids:
        changed += changed_beside(knowledge.rules, conversation_id)
    if changed:
        yield from _adding(workspace, to_user, changed)


def _adding(workspace: Workspace, user_id: str, added: Sequence[RuleRecord]) -> Flow[None]:
    """Adds records of rules to those that are stored of a user; those of the same ids go."""
    ids = {record.id for record in added}

    def change(before: Knowledge) -> Knowledge:
        others = [record for record in before.rules if record.id not in ids]
        return replace(before, rules=(*others, *added))

    yield from _changing(workspace, user_id, change)


def _changing(
    workspace: Workspace, user_id: str, change: Callable[[Knowledge], Knowledge]
) -> Flow[None]:
    """Changes what is stored about a user's rules, under the lock of what is known of them."""
    rewriting = workspace.workers.learning.rewritten(user_id, change, edited=True)
    yield from locked(known.lock_of(workspace.store, user_id), rewriting)
