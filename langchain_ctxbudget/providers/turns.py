"""Puts a line of the user before an assistant's calls, where the provider wants a turn there.

An assistant's message with calls may stand right behind another message of an assistant: where two
agents speak one after the other, or where the user's message between them is left out. Gemini
refuses such calls.
"""

from dataclasses import replace

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget.content import call_ids
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import GOES_ON, Change, Placed, Repair, Stretch

_GOES_ON = Change("turn_order", f"{GOES_ON} stands before its calls, as an answer comes first")


def with_turns_before_calls(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Returns messages with a line between an answer and calls of an assistant right behind it."""
    if not profile.calls_follow_others:
        return stretch, []
    sent: list[Placed] = []
    repairs: list[Repair] = []
    before: BaseMessage | None = None
    for placed in stretch.placed:
        if isinstance(before, AIMessage) and call_ids(placed.message):
            sent.append(Placed(HumanMessage(GOES_ON)))
            repairs.append(_GOES_ON.repair_of(placed.message))
        sent.append(placed)
        before = placed.message
    return replace(stretch, placed=sent), repairs
