"""An assistant's calls behind a turn of somebody else, where the provider wants that.

Two messages of an assistant in a row, the second one with calls, are one turn and another: of two
agents, or where the user's message between them is left out.
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
