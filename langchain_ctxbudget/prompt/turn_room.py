"""The room of the current turn in its prompt, and what is sent of the turn.

A share of the prompt is kept free for calls and results, so that nothing before the turn changes
while an agent loops. A turn that outgrows its room gets a larger one, stage by stage; in the last
stage, older rounds give way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import BaseMessage

from langchain_ctxbudget import errors
from langchain_ctxbudget.history import Conversation, late_calls, work_state
from langchain_ctxbudget.layers import group_tokens
from langchain_ctxbudget.prompt.assembly import has_human
from langchain_ctxbudget.prompt.fitting import JOIN_TOKENS, advice, floors
from langchain_ctxbudget.prompt.large_media import TurnMedia
from langchain_ctxbudget.prompt.plan import FittedTurn, GivenTurn, Plan, PlannedTurn, TurnWork
from langchain_ctxbudget.prompt.turn import (
    TURN_POLICY,
    GrowingTurn,
    TurnLimits,
    key_in_turn,
)
from langchain_ctxbudget.prompt.turn_memory import memory_of
from langchain_ctxbudget.stores import CutRecord

RECENT_MESSAGES = 6
"""How many of the newest messages of a conversation show what it is about now.

If there are calls among them, the next turn is expected to have some, too. They are also searched
for names of documents, for people whom a message may still mean, and for lines of files worth
showing."""
LONGEST_WALK = 1_000
"""The most of a conversation's newest messages that are looked at for calls and exchanges."""
FRAME_FACTOR = 1.1
"""About how much more texts cost with their headings, as a factor."""
FRAME_TOKENS = 64
"""About the tokens of the fences around such texts."""


@dataclass(frozen=True, slots=True)
class TurnRoom:
    """The tokens of a prompt that are planned for its turn."""

    tokens: int
    stage: int = 0
    """How many times the turn has outgrown its room."""
    groups: int = 0
    """How many groups the turn had when this larger room was planned; 0 for its usual room, and
    where prompts do not grow."""

    @property
    def is_last_stage(self) -> bool:
        """Tells whether the room cannot grow any more, so that older rounds give way."""
        return self.stage == TURN_POLICY.last_stage


def given_turn(plan: Plan, turn: Sequence[BaseMessage]) -> GivenTurn:
    """Returns a turn as it was given, in groups with their costs.

    The conversation remembers what was read of it at earlier calls, so only what is new is read.
    """
    conversation = plan.conversation
    memory = memory_of(conversation)
    calls = late_calls(conversation, turn, len(conversation.entries))
    memory.read = memory.read.read(turn, plan.counter, conversation.profile, calls)
    return _behind_compaction(conversation, memory.read.given)


def _behind_compaction(conversation: Conversation, turn: GivenTurn) -> GivenTurn:
    """Returns a turn without the rounds that the provider has compacted.

    What the user has said stays, although the provider reads its own summary of it.
    """
    end = len(conversation.entries)
    if not conversation.is_before_compaction(end):
        return turn
    shown = [
        (group, cost)
        for group, cost in zip(turn.groups, turn.costs, strict=True)
        if has_human([group]) or not conversation.is_before_compaction(end + group.start)
    ]
    groups = tuple(group for group, _ in shown)
    return replace(turn, groups=groups, costs=tuple(cost for _, cost in shown))


def planned_turn(plan: Plan, identity_tokens: int, framing_tokens: int) -> PlannedTurn:
    """Plans the room of the current turn, and fits the turn into it.

    If the turn is too large even for the last stage, older rounds give way, and a work state tells
    what was done in them. Raises an error if not even what must stay of the turn fits.
    """
    prompt_tokens = plan.limit_tokens - identity_tokens - framing_tokens - sum(plan.extras.values())
    whole = plan.turn.given
    plan = replace(plan, turn=replace(plan.turn, given=_with_fitting_media(plan, prompt_tokens)))
    room = _room_of_turn(plan, prompt_tokens)
    limits = _limits_of_turn(plan, room, prompt_tokens)
    given = plan.turn.given
    fitted: FittedTurn | int = FittedTurn(groups=given.groups)
    if limits.work_tokens or given.tokens > limits.budget_tokens:
        fitted = _fitted(plan, limits)
    if isinstance(fitted, int):
        needs = floors(identity_tokens, fitted, plan.extras, framing_tokens)
        raise errors.BudgetTooSmallError(plan.limit_tokens, needs, advice(plan))

    fitted = replace(fitted, clipped=fitted.clipped | _changed(whole, given))
    tokens = sum(group_tokens(group, plan.counter) for group in fitted.groups)
    note, note_tokens = _note(plan, fitted, prompt_tokens - tokens)
    tokens += note_tokens
    free_tokens = 0
    # A turn larger than the whole prompt is clipped. What that leaves is no room for more rounds.
    if given.tokens <= prompt_tokens or room.stage:
        free_tokens = max(0, limits.budget_tokens - tokens)
    return PlannedTurn(
        given=given,
        fitted=fitted,
        groups=fitted.groups,
        repairs=given.repairs,
        note=note,
        work=TurnWork(
            stored_tokens=_stored_work_tokens(plan, room, prompt_tokens),
            own_tokens=_own_work_tokens(fitted, limits, room.tokens - tokens),
        ),
        tokens=tokens,
        room_tokens=limits.budget_tokens,
        free_tokens=free_tokens,
        stage=room.stage,
    )


def _with_fitting_media(plan: Plan, prompt_tokens: int) -> GivenTurn:
    """Returns the turn with lines in place of media for which its prompt can never have room."""
    given = plan.turn.given
    conversation = plan.conversation
    names = _recall_names(given, len(conversation.entries))
    media = TurnMedia(
        given=given,
        counter=plan.counter,
        room_tokens=prompt_tokens,
        clips_words=plan.request.settings.oversized_message == "clip",
        recall_name=names if conversation.has_recall_tool else lambda _: None,
        kept=memory_of(conversation).without_media,
    )
    return media.fitting()


def _changed(whole: GivenTurn, shown: GivenTurn) -> frozenset[int]:
    """Returns the positions of the groups that are shown otherwise than they were given."""
    if shown is whole:
        return frozenset()
    pairs = zip(whole.groups, shown.groups, strict=True)
    return frozenset(group.start for group, as_shown in pairs if as_shown is not group)


# The room


def _room_of_turn(plan: Plan, prompt_tokens: int) -> TurnRoom:
    """Returns the room that the turn gets of the prompt's `prompt_tokens`.

    The usual room is for its human messages and the reserve for calls. A turn that has outgrown
    that gets a larger room, for its next rounds as well, and keeps it until they have filled it.
    """
    given_tokens = plan.turn.given.tokens
    usual_cut, long_cut = _cuts_of_turn(plan)
    if plan.growth.mode.extends_last and usual_cut is None and long_cut is None:
        # The rebuild was in an earlier turn, so this turn grows at the prompt's end as it can.
        return TurnRoom(given_tokens)

    planned = _room_of_cut(plan, long_cut)
    if planned is None:
        usual_tokens = plan.turn.given.human_tokens + _reserve_tokens(plan, prompt_tokens)
        if given_tokens <= usual_tokens:
            return TurnRoom(usual_tokens)
        return _larger_room(plan, prompt_tokens, first_stage=1)
    if plan.growth.mode.extends_last and (given_tokens <= planned.tokens or planned.is_last_stage):
        return planned
    return _larger_room(plan, prompt_tokens, first_stage=planned.stage)


def _cuts_of_turn(plan: Plan) -> list[CutRecord | None]:
    """Returns the cuts of a prompt with the turn's usual room, and with a larger room.

    Each is None if it was not made in this very turn.
    """
    end = len(plan.conversation.entries)
    cuts: list[CutRecord | None] = []
    for cut in plan.cuts:
        is_of_this_turn = cut is not None and cut.begun == end
        cuts.append(cut if is_of_this_turn else None)
    return cuts


def _room_of_cut(plan: Plan, cut: CutRecord | None) -> TurnRoom | None:
    """Returns the larger room that was planned at a cut; None if the turn does not keep it."""
    if cut is None or not plan.grows:
        return None
    was_cut_back = len(plan.turn.given.groups) < cut.turn_groups
    if was_cut_back:
        return None
    return TurnRoom(cut.turn_tokens, cut.long, cut.turn_groups)


def _reserve_tokens(plan: Plan, prompt_tokens: int) -> int:
    """Returns the tokens that are kept free for calls and results; 0 where none are expected."""
    expects_calls = (
        bool(plan.tools.given)
        or bool(plan.turn.given.round_costs)
        or estimated_calls(plan.conversation, RECENT_MESSAGES) > 0
    )
    if not expects_calls:
        return 0
    tokens_left = max(0, prompt_tokens - plan.turn.given.human_tokens)
    return int(tokens_left * plan.request.settings.tool_reserve)


def _larger_room(plan: Plan, prompt_tokens: int, first_stage: int) -> TurnRoom:
    """Returns the room of the first stage that has room for the turn and its next rounds.

    If none has, it is the room of the last stage, in which older rounds give way. Where prompts
    grow, the room of an earlier stage is no larger than needed: for the turn and its next rounds,
    or for one and a half times the turn if that is more.
    """
    turn = plan.turn.given
    next_tokens = 0
    if plan.grows:
        next_tokens = TURN_POLICY.next_rounds_tokens(turn.round_costs, prompt_tokens)
    other_tokens = _other_tokens(plan)
    stage = first_stage
    tokens = _stage_tokens(stage, prompt_tokens, other_tokens)
    while stage < TURN_POLICY.last_stage and turn.tokens + next_tokens > tokens:
        stage += 1
        tokens = _stage_tokens(stage, prompt_tokens, other_tokens)
    if plan.grows and stage < TURN_POLICY.last_stage:
        tokens = min(tokens, turn.tokens + max(next_tokens, turn.tokens // 2))
    groups = len(turn.groups) if plan.grows else 0
    return TurnRoom(tokens, stage, groups)


def _stage_tokens(stage: int, prompt_tokens: int, other_tokens: int) -> int:
    """Returns the tokens of a stage: its share of the prompt, and what other texts do not need."""
    shares = TURN_POLICY.stage_shares
    share = shares[min(stage, len(shares)) - 1]
    tokens_for_others = min(int(prompt_tokens * (1 - share)), other_tokens)
    return prompt_tokens - tokens_for_others


def _other_tokens(plan: Plan) -> int:
    """Returns about the tokens of all texts that could stand in the prompt beside the turn."""
    settings = plan.request.settings
    texts = (*settings.manner, *settings.preferences, *settings.memories)
    tokens = plan.conversation.total_tokens + sum(map(plan.counter.count_text, texts))
    tokens += sum(part.tokens for part in plan.fixed or ())
    return framed_tokens(tokens)


def framed_tokens(tokens: int) -> int:
    """Returns about what texts of so many tokens cost with their headings and fences."""
    if not tokens:
        return 0
    return int(tokens * FRAME_FACTOR) + FRAME_TOKENS


def estimated_calls(conversation: Conversation, messages: int = LONGEST_WALK) -> int:
    """Estimates how many calls there are in the newest messages.

    A conversation cannot be cut between a call and its result, so each such place counts as a call.
    """
    return list(conversation.safe[-messages:]).count(False)


def _limits_of_turn(plan: Plan, room: TurnRoom, prompt_tokens: int) -> TurnLimits:
    """Returns how large the turn may be in its room.

    In the last stage, parts of the room are kept for the work state and for lines of files.
    """
    settings = plan.request.settings
    budget_tokens = min(room.tokens, prompt_tokens)
    work_tokens = 0
    code_tokens = 0
    if room.is_last_stage:
        tokens_left = max(0, budget_tokens - plan.turn.given.human_tokens)
        # The same for any number of calls, so that it does not change with every call.
        work_tokens = work_state.most_tokens(LONGEST_WALK, tokens_left)
        code_tokens = TURN_POLICY.most_code_tokens(tokens_left)
    return TurnLimits(
        budget_tokens=budget_tokens,
        most_tokens=prompt_tokens,
        work_tokens=work_tokens,
        code_tokens=code_tokens,
        groups_at_rebuild=room.groups,
        clip_human=settings.oversized_message == "clip",
        has_recall_tool=plan.conversation.has_recall_tool,
        tool_kinds=tuple(sorted(settings.tool_kinds.items())),
    )


def _own_work_tokens(fitted: FittedTurn, limits: TurnLimits, tokens_left: int) -> int:
    """Returns the most that the turn's own work state may cost; 0 if there is no room for it."""
    tokens = limits.work_tokens
    if fitted.work_when_shortened is not None:
        tokens += fitted.work_when_shortened.code_tokens
    return tokens if tokens <= tokens_left else 0


def _stored_work_tokens(plan: Plan, room: TurnRoom, prompt_tokens: int) -> int:
    """Returns the most that the work state of the stored messages may cost.

    It is 0 if all these messages have room beside the turn, or the turn has a work state of its
    own.
    """
    conversation = plan.conversation
    if room.is_last_stage or conversation.total_tokens + room.tokens <= prompt_tokens:
        return 0
    return work_state.most_tokens(estimated_calls(conversation), plan.limit_tokens)


# What is sent


def _fitted(plan: Plan, limits: TurnLimits) -> FittedTurn | int:
    """Returns what is sent of the turn, or the tokens that it needs at least if it does not fit.

    The conversation remembers the state of the turn, so that the next call of a loop goes on there.
    """
    conversation = plan.conversation
    stored = len(conversation.entries)
    memory = memory_of(conversation)
    turn = memory.take((limits, stored))
    if turn is None:
        turn = GrowingTurn(
            plan.counter,
            limits,
            work_before=conversation.read_work(stored, plan.request.settings.tool_kinds),
            messages_before=[
                entry.sent_message for entry in conversation.entries[-RECENT_MESSAGES:]
            ],
        )
    turn.recall_name = _recall_names(plan.turn.given, stored)
    fitted = turn.fitted(plan.turn.given.groups)
    memory.keep((limits, stored), turn)
    return fitted


def _recall_names(turn: GivenTurn, stored: int) -> Callable[[BaseMessage], str | None]:
    """Returns a function that names messages of a turn for the recall tool.

    The names are their numbers, which go on behind those of the `stored` messages.
    """

    def recall_name(message: BaseMessage) -> str | None:
        place = turn.places.get(key_in_turn(message))
        return None if place is None else f"#{stored + 1 + place}"

    return recall_name


def _note(plan: Plan, fitted: FittedTurn, tokens_left: int) -> tuple[str, int]:
    """Returns the line that says how many rounds are left out, and its tokens.

    The line is empty if no rounds are, or if there is no room for it.
    """
    if not fitted.left_out or not has_human(fitted.groups):
        return "", 0
    note = (
        f"[Left out: {len(fitted.left_out)} of the steps taken for this message, calls with their "
        "results.]\n"
    )
    tokens = plan.counter.count_text(note) + JOIN_TOKENS
    if tokens > tokens_left:
        return "", 0
    return note, tokens
