"""The mode of a prompt: whether it extends the last one or is rebuilt, and why.

`decide` is the whole decision, as one pure function over a small frozen value. `growing.py`
measures that value and makes the prompt that was decided on.
"""

from dataclasses import dataclass
from enum import StrEnum

from langchain_ctxbudget.report import Cause, Mode


class Room(StrEnum):
    """How much room there is in a prompt that extends the last one.

    The room that is kept for its turn counts as taken.
    """

    FREE = "free"
    """There is room for the least background that a message gets."""
    TIGHT = "tight"
    """The prompt is within its limit, but would not be with that background."""
    OVER = "over"
    """The prompt is over its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the mode of a prompt depends on.

    Measuring takes time, so it goes on only while `decide` may still say that the last prompt is
    extended. What is not measured yet has its default, which speaks for that.
    """

    grows: bool = True
    """True if prompts with these settings only grow between two rebuilds."""
    without_last: Cause | None = None
    """Why there is no last prompt that could be extended; None if there is one."""
    is_cold: bool = False
    """True if no cache holds the last prompt any more."""
    turn_goes_on: bool = True
    """True if the turn can be sent as the last prompt has sent it, and more at its end."""
    change: Cause | None = None
    """What has changed before the messages since the last prompt; None if nothing has."""
    was_something_said: bool = True
    """False if nothing was said since the last rebuild."""
    is_in_loop: bool = False
    """True if the turn has results of calls, so that its background was chosen before."""
    room: Room = Room.FREE
    """The room if the last prompt is extended with all that was said since."""
    pays_for_rebuild: bool = False
    """True if what was saved so far pays for a rebuild."""
    can_lose_middle: bool = False
    """True if a middle can be left out that makes enough room."""
    room_if_clipped: Room = Room.OVER
    """The room if large messages since the rebuild are shown in short."""


Decision = tuple[Mode, Cause]


def decide(case: Case) -> Decision:
    """Returns the mode of a prompt, and why it has that mode."""
    cause = _cause_of_rebuild(case)
    if cause is not None:
        return Mode.REBUILT, cause
    if not case.was_something_said:
        return Mode.REPEATED, Cause.NOTHING_SAID
    if case.room is Room.FREE:
        return Mode.EXTENDED, Cause.HAS_ROOM
    if case.is_in_loop:
        return _decide_in_loop(case)
    return _decide_when_full(case)


def _cause_of_rebuild(case: Case) -> Cause | None:
    """Returns why the last prompt cannot be extended however much room there is; None if it can."""
    if not case.grows:
        return Cause.NOT_GROWING
    if case.without_last is not None:
        return case.without_last
    if case.is_cold:
        return Cause.COLD
    if not case.turn_goes_on:
        return Cause.TURN_OUTGROWN
    return case.change


def _decide_in_loop(case: Case) -> Decision:
    """Returns the mode within a loop of calls, which needs no room for another background."""
    if case.room is Room.TIGHT:
        return Mode.EXTENDED, Cause.HAS_ROOM
    if case.room_if_clipped is not Room.OVER:
        return Mode.CLIPPED, Cause.FULL
    return Mode.REBUILT, Cause.FULL


def _decide_when_full(case: Case) -> Decision:
    """Returns the mode where there is no room for a background."""
    if case.can_lose_middle:
        return Mode.SHORTENED, Cause.FULL
    if case.room is Room.TIGHT and not case.pays_for_rebuild:
        return Mode.EXTENDED, Cause.UNPAID
    if case.room is Room.OVER and _is_clipping_enough(case):
        return Mode.CLIPPED, Cause.FULL
    if case.pays_for_rebuild:
        return Mode.REBUILT, Cause.FULL
    return Mode.REBUILT, Cause.UNPAID


def _is_clipping_enough(case: Case) -> bool:
    """Tells whether showing large messages in short makes enough room.

    Where a rebuild is paid for, it must make room for a background, too.
    """
    if case.pays_for_rebuild:
        return case.room_if_clipped is Room.FREE
    return case.room_if_clipped is not Room.OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The mode of a prompt, and what follows from it for its size."""

    mode: Mode = Mode.REBUILT
    cause: Cause | None = None
    """Why it has that mode; None where somebody else has decided it and does not say why."""
    is_cold: bool = True
    """True if no cache holds the last prompt any more, so that a rebuild costs nothing."""
    is_given: bool = False
    """True if the mode was decided before: by another node, or for another budget."""
    level_tokens: int = 0
    """The most that a rebuilt prompt may cost, so that the next ones have room to grow; 0 where it
    may cost as much as the limit."""
    afforded_tokens: int | None = None
    """What a rebuild may cost, in effective tokens: what was saved so far, and what extending the
    last prompt would cost. None until it is known."""
    most_background_tokens: int = 0
    """The most tokens for the background of a prompt that extends the last one."""
    tools: tuple[str, ...] | None = None
    """The names of the tools to bind, where another node has chosen them."""
