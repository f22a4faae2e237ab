"""What another budget would have given, from the candidates of an assembly that is done.

The same steps run again on a copy: no I/O, and a counter that looks up what was tokenized and estimates the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from langchain_ctxbudget.budgeting import compute_budget
from langchain_ctxbudget.core.estimate import estimate_tokens
from langchain_ctxbudget.core.ranking import Scores, relevance
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.filling import fill_history, fill_knowledge, fill_leftovers
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.steps import assemble

# Where a text can be taken apart so that its parts cost what the whole costs, see `core.fences`.
_BORDER = re.compile(r"(?<=\n)(?=[-\[#<])|(?<=</context>\n)")


class KnownCounter(TokenCounter):
    """The counts that another counter has made already; a text that it has not seen is estimated."""

    def __init__(self, inner: TokenCounter) -> None:
        super().__init__()
        self._inner = inner
        self.name, self.mode, self.framing = inner.name, inner.mode, inner.framing

    def _count(self, text: str) -> int:
        known = self._inner.known_tokens(text)
        if known is not None:
            return known
        parts = _BORDER.split(text)
        return sum(map(self._part, parts)) if len(parts) > 1 else self._part(text)

    def _part(self, text: str) -> int:
        if not text:
            return 0
        known = self._inner.known_tokens(text)
        if known is not None:
            return known
        shorter = text.rstrip("\n")
        known = self._inner.known_tokens(shorter) if shorter != text else None
        return estimate_tokens(text) if known is None else known + 1


@dataclass(frozen=True, slots=True)
class Rerun:
    """An assembly that can be run again at another budget."""

    draft: Draft
    """As it was finished."""

    def __call__(self, budget: int) -> ContextReport:
        """The report of the same assembly at another budget.

        Raises:
            BudgetTooSmallError: what must be sent does not fit into it.
            InputError: the conversation has been edited since.
            InvalidSettingsError: the budget is not a count.
        """
        before = self.draft
        conversation = _as_it_was(before)
        draft = Draft(
            conversation=conversation,
            target=replace(before.target, counter=conversation.counter),
            settings=before.settings.override({"max_context_tokens": budget}),
            settings_from=before.settings_from,
            system_prompt=before.system_prompt,
            turn=before.turn,
            tools=before.tools,
            response_format=before.response_format,
            detected=before.detected,
            own_items=before.own_items,
            failures=list(before.failures),
        )
        compute_budget(draft)
        fill_knowledge(draft)
        fill_history(draft)
        draft.relevances = _relevances(before, draft)
        fill_leftovers(draft)
        assemble(draft)
        assert draft.context is not None  # noqa: S101 - the step sets it
        return replace(draft.context.report, forecast=True, tokenizer_calls=0, rerun=self)


def _as_it_was(before: Draft) -> Conversation:
    """A copy of a conversation without what was appended since.

    Raises:
        InputError: it was edited since.
    """
    now, count = before.conversation, before.message_count
    if before.begun_with != (now.entries[count - 1].digest if 0 < count <= len(now.entries) else ""):
        raise InputError("The conversation has been edited since this prompt was made; assemble it again")
    counter = KnownCounter(before.counter)
    return replace(
        now,
        counter=counter,
        entries=[replace(entry) for entry in now.entries[:count]],
        costs=now.costs[:count],
        safe=now.safe[:count],
        total_tokens=sum(now.costs[:count]),
        segments=list(now.segments),
        cut=before.cut,
        previous=[],
    )


def _relevances(before: Draft, draft: Draft) -> Scores | None:
    """The relevance of every message before the new cut: as it was ranked, for the others by their words alone."""
    end = draft.history.cut
    if not end or not draft.turn_groups:
        return None
    known: Scores = before.relevances if before.relevances is not None else np.zeros(0)
    if end <= len(known):
        return known[:end]
    conversation = draft.conversation
    conversation.lexical = conversation.lexical.copy()
    conversation.index_until(end)
    lexical = relevance(conversation.lexical.scores(terms(draft.query))[:end], None)
    return np.concatenate([known, lexical[len(known) :]])
