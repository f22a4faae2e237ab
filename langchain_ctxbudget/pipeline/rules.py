"""The standing rules of a conversation: listed, added and lifted by an application."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, locked
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.knowledge import (
    Knowledge,
    StandingRule,
    StandingRules,
    events_of,
    known,
    lifted,
    own_events,
    rule_by_hand,
    rules_of,
)
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import merged_settings

MOST_CHARACTERS = 2_000
"""Characters of a rule that is added by hand."""


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
        """Adds a rule by hand, and returns it.

        Args:
            text: The rule.
            everywhere: Whether it holds in all conversations of the user.

        Raises:
            InputError: The text is empty or too long.
        """
        words = text.strip()
        if not 0 < len(words) <= MOST_CHARACTERS:
            raise InputError(
                f"a rule has 1 to {MOST_CHARACTERS:,} characters, not {len(words):,}: give its "
                "words, or put a longer text into the system prompt"
            )
        conversation_id = "" if everywhere else self.scope.conversation_id
        record = rule_by_hand(words, conversation_id, self.workspace.clock())

        def change(before: Knowledge) -> Knowledge:
            others = tuple(rule for rule in before.rules if rule.id != record.id)
            return replace(before, rules=(*others, record))

        yield from self._changing(change)
        rules = yield from self.in_force()
        return next(rule for rule in rules if rule.id == record.id)

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
            return replace(before, rules=lifted(before.rules, rule, now))

        yield from self._changing(change)

    def _rules(self) -> Flow[StandingRules]:
        """Returns all that is known of its rules."""
        workspace = self.workspace
        scope = self.scope
        knowledge = yield from known.read(workspace.store, scope.user_id)
        not_own = yield from stores.guests.read(workspace.store, scope)
        settings, _ = merged_settings(workspace.settings, {}, None, [])

        def body(conversation: OpenConversation) -> Flow[StandingRules]:
            yield from ()
            events = own_events(events_of(conversation.table, scope), not_own)
            return rules_of(events, knowledge.rules, scope.conversation_id, settings.rules)

        return (yield from workspace.recall(scope, body))

    def _changing(self, change: Callable[[Knowledge], Knowledge]) -> Flow[None]:
        """Changes what is stored about the user's rules while nobody else does."""
        user_id = self.scope.user_id
        rewriting = self.workspace.workers.learning.rewritten(user_id, change, edited=True)
        yield from locked(known.lock_of(self.workspace.store, user_id), rewriting)
