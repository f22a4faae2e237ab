"""The report of another budget, made of the candidates of a prompt that is finished; without any I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_ctxbudget.history.table import MessageIndex
from langchain_ctxbudget.prompt.budgeting import compute_budget
from langchain_ctxbudget.prompt.filling import (
    history_plan,
    with_bundles,
    with_history,
    with_leftovers,
    with_shrunk_block,
)
from langchain_ctxbudget.prompt.plan import Plan, Prompt
from langchain_ctxbudget.prompt.steps import assemble
from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.retrieval.pool import Searched, pooled


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A finished prompt, which can be asked for the report that another budget would have given."""

    prompt: Prompt

    def __call__(self, budget: int) -> ContextReport:
        """Returns the report of the same prompt at another budget.

        Raises:
            BudgetTooSmallError: what must be sent does not fit into it.
            InvalidSettingsError: the budget is not a count.
        """
        before, cut = self.prompt.plan, self.prompt.changes.cut
        cuts = {**before.conversation.cuts, **({cut.cut_key: cut} if cut else {})}
        request = replace(
            before.request,
            settings=before.request.settings.override({"max_context_tokens": budget}),
            remembered=before.preferences.remembered,
            block=before.block if before.fixed is not None else None,
            calls_before=before.conversation.counter.calls,
            failures=before.failures,
        )
        conversation = replace(before.conversation, cuts=cuts, last=None, clips=dict(before.conversation.clips))
        plan = Plan.begin(conversation, request).but(detected=before.detected, own_items=before.own_items)
        plan = with_bundles(compute_budget(plan))
        history = history_plan(plan)
        plan = with_history(plan, history.view(history.decide()))
        if plan.fixed is None:
            # Nobody holds the conversation's lock: an index of its own, and words alone.
            pool = before.pool or pooled(Searched.of(plan.conversation, MessageIndex()), plan.query)
            plan = with_leftovers(plan.but(pool=pool))
        else:
            plan = with_shrunk_block(plan)
        report = assemble(plan).context.report
        return replace(report, forecast=True).attach_candidates(self)
