"""What is known of the last prompt: whether a cache holds it, and what has changed since."""

from datetime import datetime

from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.prompt.assembly import system_parts
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.report import Cause
from langchain_ctxbudget.stores import CutRecord


def is_cold(plan: Plan) -> bool:
    """Tells from what is stored whether no cache holds the last prompt any more.

    One may within a turn, and where the time is not known.
    """
    if not any(plan.cuts):
        return True
    now = plan.request.now
    sent_at = _last_sent_at(plan)
    if plan.fixed is not None or now is None or sent_at is None:
        return False
    seconds = (now - sent_at).total_seconds()
    return seconds > plan.request.cache_lifetime_seconds


def _last_sent_at(plan: Plan) -> datetime | None:
    """Returns when the last prompt like this was sent, as far as it is stored."""
    conversation = plan.conversation
    times = [cut.at for cut in plan.cuts if cut is not None]
    for position, background in conversation.backgrounds.items():
        if position < len(conversation.entries):
            times.append(background.at)
    return max((time for time in times if time is not None), default=None)


def prefix_of(plan: Plan) -> str:
    """Returns a digest of what stands before a prompt's messages, of its tools and of its model."""
    system = "".join(system_parts(plan.content))
    before = (system, plan.fixed_extras, plan.request.call.model)
    if plan.names_of_chosen_tools:
        return digest(repr((*before, plan.names_of_chosen_tools))).hex()
    return digest(repr(before)).hex()


def change_since(plan: Plan, record: CutRecord) -> Cause | None:
    """Returns what has changed before the messages since the last prompt; None if nothing has.

    What it was is known where this process has made it.
    """
    if prefix_of(plan) == record.prefix:
        return None
    last = plan.conversation.last
    if last is None:
        return Cause.OTHER_BEGINNING
    if last.sent_with.model != plan.sent_with.model:
        return Cause.OTHER_MODEL
    theirs = (last.sent_with.tools, last.sent_with.names_of_tools)
    if theirs != (plan.sent_with.tools, plan.sent_with.names_of_tools):
        return Cause.OTHER_TOOLS
    if last.sent_with.system_prompt != plan.sent_with.system_prompt:
        return Cause.OTHER_SYSTEM_PROMPT
    return Cause.ABOUT_USER
