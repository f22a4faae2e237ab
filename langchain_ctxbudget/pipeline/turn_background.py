"""The background of a turn that is under way: what was chosen for it when it began."""

from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.errors import BudgetError, InputError
from langchain_ctxbudget.flow import Flow, with_fallback
from langchain_ctxbudget.history import Background, editing
from langchain_ctxbudget.prompt import STEPS, Access, Plan


def with_turn_background(plan: Plan, access: Access, in_state: object) -> Flow[Plan]:
    """Goes on with the background that was chosen when the turn began.

    Where an agent is in the middle of a turn, that is what the agent's state has, else what this
    process remembers, else what was stored as the prompt was rebuilt within the turn, else what is
    chosen for the human message alone, as when the turn began.
    """
    turn = plan.request.turn
    first = prompts.asking(turn)
    if first is None or first + 1 == len(turn):
        return plan

    candidates: list[Background | None] = []
    if in_state is not None:
        try:
            candidates.append(Background.from_dict(in_state))
        except InputError as error:  # derived: it is chosen again
            plan = plan.with_failures(str(error))
    last = plan.conversation.last
    if last and last.settings == plan.request.settings:
        candidates.append(last.background)

    background = _background_for(turn[first], plan, candidates)
    if background is None:
        problems: list[str] = []
        background = yield from _stored_or_chosen(plan, access, first, problems)
        plan = plan.with_failures(*problems)
    request = replace(plan.request, background=background)
    return replace(plan, request=request).with_background(background)


def _background_for(
    question: BaseMessage, plan: Plan, candidates: Sequence[Background | None]
) -> Background | None:
    """Returns the first background that was chosen for a message of this conversation."""
    digest = plan.conversation.digest
    for background in candidates:
        if background and background.is_for(question, digest):
            return background
    return None


def _stored_or_chosen(
    plan: Plan, access: Access, first: int, problems: list[str]
) -> Flow[Background]:
    """Returns the background that was stored for a turn, else the one that it began with.

    `first` is the place of the turn's human message.
    """
    turn = plan.request.turn
    began = yield from _plan_as_it_began(plan, access, first)
    position = len(plan.conversation.entries) + first
    reading = editing.sent_at(access.store, plan.conversation.scope, [position])
    what = "the turn's background not read"
    sent = yield from with_fallback(reading, None, what, problems)
    problems += began.failures

    stored = sent.get(position) if sent else None
    cut_keys = [cut.cut_key for cut in began.cuts if cut]
    digest = plan.conversation.digest
    if stored and stored.cut_key in cut_keys and stored.is_for(turn[first], digest):
        return stored
    if began.background is None:
        return Background.of(turn[first], digest, (), position=position)
    # Nobody knows whether the turn began with this very prompt.
    return replace(began.background, answers={})


def _plan_as_it_began(plan: Plan, access: Access, first: int) -> Flow[Plan]:
    """Returns the plan for a turn's human message alone."""
    request = replace(plan.request, turn=plan.request.turn[: first + 1], failures=())
    began = Plan.begin(plan.conversation, request)
    try:
        for step in STEPS.values():
            began = yield from step(began, access)
        return prompts.settle(began).plan
    except BudgetError:  # the prompt itself tells what it needs
        return replace(began, background=None)
