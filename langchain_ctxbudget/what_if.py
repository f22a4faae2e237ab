"""What another budget would have given, from the candidates of an assembly that is done.

The same steps run again on a copy: no I/O, and a counter that knows what was tokenized and estimates the rest.
"""

from __future__ import annotations

from dataclasses import replace

from langchain_ctxbudget.budgeting import compute_budget
from langchain_ctxbudget.core.calls import is_user
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.filling import fill_history, fill_knowledge, fill_leftovers, shrink_fixed
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.retrieval.pool import by_words
from langchain_ctxbudget.retrieval.selecting import Retrieved
from langchain_ctxbudget.steps import assemble


class Rerun:
    """An assembly that can be run again at another budget."""

    def __init__(self, draft: Draft) -> None:
        """Keep an assembly.

        Args:
            draft: as it was finished.
        """
        self.draft = draft

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
            remembered=before.remembered,
            knowledge=before.knowledge,
            own_items=before.own_items,
            block=before.block if before.fixed is not None else None,
            fixed=before.fixed_whole,
            retrieved=before.retrieved if before.fixed is not None else Retrieved(),
            failures=list(before.failures),
            tier=before.tier,
            usage=before.usage,
        )
        compute_budget(draft)
        fill_knowledge(draft)
        fill_history(draft)
        if draft.fixed is None:
            draft.pool = before.pool or by_words(draft.conversation, draft.query)
            fill_leftovers(draft)
        else:
            shrink_fixed(draft)
        assemble(draft)
        assert draft.context is not None  # noqa: S101 - the step sets it
        forecast = replace(draft.context.report, forecast=True, tokenizer_calls=0)
        return forecast.attach_candidates(self)


def _as_it_was(before: Draft) -> Conversation:
    """A copy of a conversation as it was counted then, without what was appended since.

    Raises:
        InputError: it was edited since.
    """
    entries = before.conversation.entries[: before.message_count]  # at once, as turns may go on meanwhile
    if before.begun_with != (entries[-1].digest if entries else "") or len(entries) < before.message_count:
        raise InputError("The conversation has been edited since this prompt was made; assemble it again")
    counted_anew = before.conversation.counter is not before.counter
    copy = Conversation(before.conversation.scope, before.counter.from_memory())
    copy.entries = [replace(entry) for entry in entries]
    copy.safe = [entry.safe_cut for entry in entries]
    copy.names, copy.cuts = set(before.conversation.names), dict(before.cuts)
    copy.kept = [position for position in before.conversation.kept if position < len(entries)]
    copy.dropped = [position for position in before.conversation.dropped if position < len(entries)]
    copy.exchanges = sum(is_user(entry.message) for entry in entries)
    copy.trees = {size: spans.copy() for size, spans in before.conversation.trees.items()}
    for spans in copy.trees.values():
        spans.truncate(len(entries))
    copy.made = before.conversation.made.copy()
    copy.clips = dict(before.conversation.clips)
    if before.conversation.questions.read_until <= len(entries):
        copy.questions = before.conversation.questions.copy()
    if counted_anew:
        copy.recount(copy.counter)
    else:
        copy.costs = [entry.tokens for entry in entries]
        copy.total_tokens = sum(copy.costs)
    return copy
