"""Fitting the current turn into its room.

A turn's groups are human messages and *rounds*: an assistant's message with calls, and all their
results. The human messages and the newest round stay. Older rounds give way as old history does:
first results that a later call made stale, then the oldest. A round is as new as its newest result:
one may come long after its call, and it must be read then. A turn that does not fit any more is
brought down at once to what leaves room for its next rounds, so that between two such moments it
only grows at its end. All of it follows from the rounds alone, so a process that goes on with a
turn shows of it what the one before showed.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage

from langchain_ctxbudget import messages
from langchain_ctxbudget.content import (
    call_ids,
    has_media,
    has_more_than_text,
    media_count,
    only_answers,
)
from langchain_ctxbudget.history import (
    TurnWorkState,
    WorkState,
    known_files,
    with_calls_again,
    work_state,
)
from langchain_ctxbudget.layers import group_tokens
from langchain_ctxbudget.messages import (
    Group,
    cached_until_forgotten,
    terms,
    without_media,
)
from langchain_ctxbudget.prompt.assembly import has_human, messages_of
from langchain_ctxbudget.prompt.giving_way import Yielding, give_way
from langchain_ctxbudget.prompt.plan import FittedTurn, GivenTurn
from langchain_ctxbudget.prompt.shortening import (
    Kinds,
    Place,
    RecallName,
    Shortening,
    is_of_kinds,
    shortened_together,
    without_older_media,
    without_oldest_human_media,
)
from langchain_ctxbudget.prompt.stale import StaleResults
from langchain_ctxbudget.providers import (
    COMMON,
    Profile,
    Repair,
    UsedIds,
    grouped,
    sent_call_id,
    with_calls_as_shown,
)
from langchain_ctxbudget.settings import ToolKind
from langchain_ctxbudget.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class TurnPolicy:
    """How large the room of a turn is, and how its rounds share it."""

    stage_shares: tuple[float, ...] = (0.25, 0.5, 0.75)
    """What a turn that outgrows its room gets of the prompt, stage by stage. The system prompt does
    not count. The last stage has the last share, too."""
    code_share: float = 0.75
    """The largest share of a turn's room for lines of files, once older rounds give way."""
    next_rounds: int = 4
    """A turn that is shortened keeps room for so many more rounds, as large as its last ones."""
    next_share: float = 0.3
    """The largest share of its room that it keeps for them."""
    small_room_tokens: int = 20_000
    """In a small room these two shares are smaller: at most the room divided by this."""
    large_round_tokens: int = 1_500
    """What a round is taken to cost if it costs more; there is room for at least two of these."""
    newest_share: float = 0.75
    """The newest round's share of the room that the human messages and the next rounds leave, when
    rounds give way."""
    new_share: float = 0.35
    """A round that arrives is shortened to this share of what is left of the room, before older
    rounds give way to it."""
    useful_share: float = 0.025
    """It is not shortened below this share of the turn's budget. If less than that is left, older
    rounds give way."""
    words_share: float = 0.5
    """The share of the turn's budget to which human messages are clipped, if they may be and leave
    no room for a round."""
    old_result_tokens: int = 256
    """The size to which an older result is shortened, before its whole round is left out."""
    smallest_clip_tokens: int = 64
    """About the fewest tokens of a message in short."""
    note_tokens: int = 40
    """The most that the line about rounds that are left out costs."""
    focus_characters: int = 8_000
    """How much of a message is read for words to look for in results."""
    characters_per_code_token: int = 3
    """About how many characters of a line of code cost a token, its number included."""
    kept_turns: int = 4
    """How many states of turns a conversation keeps in memory to go on with, one for each
    `TurnLimits`."""

    @property
    def last_stage(self) -> int:
        """The stage in which the room cannot grow any more, and older rounds give way."""
        return len(self.stage_shares) + 1

    def most_code_tokens(self, room_tokens: int) -> int:
        """Returns the most that lines of files may take of a turn's room."""
        return int(room_tokens * min(self.code_share, room_tokens / self.small_room_tokens))

    def next_rounds_tokens(self, round_costs: Sequence[int], room_tokens: int) -> int:
        """Returns about what the next rounds of a turn will cost, by what its last ones cost whole.

        Returns 0 before the first round, as there may be none.
        """
        if not round_costs:
            return 0
        recent = [min(cost, self.large_round_tokens) for cost in round_costs[-self.next_rounds :]]
        expected = self.next_rounds * sum(recent) // len(recent)
        least = self.next_rounds // 2 * self.large_round_tokens
        share = min(self.next_share, room_tokens / self.small_room_tokens)
        return min(int(room_tokens * share), max(least, expected))


TURN_POLICY = TurnPolicy()


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """How large a turn may be, and what may be done to fit it in."""

    budget_tokens: int
    """The most that the turn may cost before older rounds give way."""
    most_tokens: int
    """The most that it may cost in any case."""
    work_tokens: int = 0
    """The part of the budget that is kept for the work state."""
    code_tokens: int = 0
    """The part of the budget that is kept for lines of files, beside that."""
    groups_at_rebuild: int = 0
    """How many groups the turn had when its prompt was rebuilt: these are fitted at once, as they
    were then."""
    clip_human: bool = False
    """True if human messages may be clipped."""
    has_recall_tool: bool = True
    """True if lines in place of media say how the model sees them again."""
    tool_kinds: tuple[tuple[str, ToolKind], ...] = ()
    """Kinds of tools by name, where arguments do not tell them."""


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """A turn that is read: its messages in groups, with their costs.

    It is kept between the calls of a loop, so that only the new messages at its end are read.
    """

    given: GivenTurn = field(default_factory=GivenTurn)
    seen_messages: messages.SeenMessages = field(default_factory=messages.SeenMessages)
    used_ids: UsedIds = field(default_factory=UsedIds)
    """The ids of its calls and items: those of later messages must differ."""
    profile: Profile = COMMON
    """What the provider accepts to which the turn is sent."""
    is_mended: bool = False
    """True if its sequence was repaired: what comes next may be what was missing."""

    def read(
        self,
        turn: Sequence[BaseMessage],
        counter: TokenCounter,
        profile: Profile = COMMON,
        calls_before: Mapping[str, ToolCall] = MappingProxyType({}),
    ) -> "ReadTurn":
        """Returns what is read of a turn, going on from what this one has read where it can.

        Where earlier messages have changed or were repaired, or where the turn has results of
        `calls_before` it, all of the turn is read anew.
        """
        if not calls_before and self._goes_on(turn, profile):
            return self.grown(turn, counter)
        unread = ReadTurn(given=GivenTurn(calls_before=calls_before), profile=profile)
        return unread.grown(turn, counter)

    def _goes_on(self, turn: Sequence[BaseMessage], profile: Profile) -> bool:
        """Tells whether a turn has the messages that are read, and only new groups behind them."""
        if self.profile != profile or self.is_mended or not self.seen_messages.begin(turn):
            return False
        seen = self.seen_messages.messages
        unread = turn[len(seen) :]
        if seen and unread and isinstance(seen[-1], AIMessage) and call_ids(unread[0]):
            return False  # what stands between an answer and such calls belongs to the answer
        # A result of an earlier call belongs into a group that is read already.
        calls_before = self.used_ids.call_counts
        return not any(sent_call_id(message, profile) in calls_before for message in unread)

    def grown(self, turn: Sequence[BaseMessage], counter: TokenCounter) -> "ReadTurn":
        """Returns what is read of a turn once its messages behind those read so far are, too."""
        read_until = len(self.seen_messages.messages)
        used_ids = self.used_ids.copy()
        unread = turn[read_until:]
        positions = range(read_until, len(turn))
        sent: Sequence[BaseMessage] = unread
        sent_positions: Sequence[int | None] = positions
        calls_before = self.given.calls_before
        if calls_before:
            sent, sent_positions = with_calls_again(unread, positions, calls_before)
        groups, repairs = grouped(sent, self.profile, sent_positions, used_ids)
        return ReadTurn(
            given=_with_groups(
                self.given,
                groups=groups,
                repairs=repairs,
                places=_places_of(unread, positions, self.profile),
                counter=counter,
            ),
            seen_messages=self.seen_messages.grown(turn),
            used_ids=used_ids,
            profile=self.profile,
            is_mended=bool(repairs or calls_before),
        )


def _with_groups(
    turn: GivenTurn,
    *,
    groups: Sequence[Group],
    repairs: Sequence[Repair],
    places: Mapping[object, int],
    counter: TokenCounter,
) -> GivenTurn:
    """Returns a turn as it was given, with more groups at its end."""
    costs = [group_tokens(group, counter) for group in groups]
    round_costs = [
        cost for group, cost in zip(groups, costs, strict=True) if not has_human([group])
    ]
    return GivenTurn(
        groups=(*turn.groups, *groups),
        costs=(*turn.costs, *costs),
        repairs=(*turn.repairs, *repairs),
        round_costs=(*turn.round_costs, *round_costs)[-TURN_POLICY.next_rounds :],
        human_tokens=turn.human_tokens + sum(costs) - sum(round_costs),
        places={**turn.places, **places},
        calls_before=turn.calls_before,
    )


def _places_of(
    unread: Sequence[BaseMessage], positions: Iterable[int], profile: Profile
) -> dict[object, int]:
    """Returns the positions of messages by their keys as they are sent."""
    places: dict[object, int] = {}
    for message, position in zip(unread, positions, strict=True):
        places[message.id or sent_call_id(message, profile)] = position
    return places


def key_in_turn(message: BaseMessage) -> object:
    """Returns the key of a message within its turn: its id, or the id of the call that it answers.

    Of several messages with the same key, the last one counts.
    """
    return message.id or getattr(message, "tool_call_id", None)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to make the messages that must stay fit."""

    groups: Mapping[int, Group]
    kinds: Kinds
    """The kinds of messages that are clipped."""
    keeps_media: bool | None = None
    """True if no media give way; see `Shortening`."""
    spared: int | None = None
    """The number of a group that stays whole."""


class GrowingTurn:
    """What is shown of a turn, to which one round after the other is added.

    It is kept between the calls of a loop, so that only new rounds are added.
    """

    def __init__(
        self,
        counter: TokenCounter,
        limits: TurnLimits,
        recall_name: RecallName = lambda _: None,
        work_before: WorkState | None = None,
        messages_before: Sequence[BaseMessage] = (),
    ) -> None:
        """Begins without groups. They are numbered as they arrive, see `places_by_arrival`.

        Args:
            counter: counts the messages.
            limits: the room of the turn.
            recall_name: returns the reference under which the recall tool gives a message.
            work_before: the work state before the turn.
            messages_before: the messages before the turn, whose words tell which lines of files
                are worth showing.
        """
        self.counter = counter
        self.limits = limits
        self.recall_name = recall_name
        self.work_before = work_before or WorkState(dict(limits.tool_kinds))
        self.messages_before = messages_before
        self._begin(())

    def _begin(self, groups: Sequence[Group]) -> None:
        """Forgets all rounds, and shows the human messages of a turn's groups."""
        self._groups_read: list[Group] = []
        """The groups that it has read, as they were given."""
        self.whole: list[Group] = []
        """The same groups, with a line for each result that was stale when rounds gave way last.
        What is shown in short is made from these."""
        self.human = {number: group for number, group in enumerate(groups) if has_human([group])}
        """The human messages by the numbers of their groups, also those not read so far."""
        self.shown_groups: dict[int, Group] = {}
        self.costs: dict[int, int] = {}
        self.total_tokens = 0
        """What the shown groups cost together."""
        self.round_costs: list[int] = []
        """What each round costs whole."""
        self.groups_when_shortened = 0
        """How many groups there were when older ones gave way last; 0 if none has."""
        self.left_out: set[int] = set()
        """Rounds that are left out, which a line will tell."""
        self.left_out_for_media: dict[int, Group] = {}
        """Those of them for which there was no room beside the media of a newer round, as they were
        shown before. They come back when these media give way."""
        self.fully_shortened: set[int] = set()
        """Rounds that cannot be shortened any more."""
        self.stale = StaleResults(dict(self.limits.tool_kinds))
        self.work = self.work_before.copy()
        """The work state: what the rounds read so far, and earlier turns, have done."""
        self.work_when_shortened: TurnWorkState | None = None
        self.code_tokens = 0
        """The tokens that lines of files get beside the rounds."""
        self._kept_worth: tuple[int, dict[str, known_files.Floats]] = (-1, {})
        """The result of `_worth_now`, behind the number of groups for which it was computed."""
        for number, group in self.human.items():
            self._show(number, group)

    def fitted(self, groups: Sequence[Group]) -> FittedTurn | int:
        """Returns what is sent of a turn; groups from earlier calls are not looked at again.

        Where even the human messages and the newest round do not fit, returns how many tokens these
        need at least.
        """
        places = places_by_arrival(groups)
        groups = [groups[place] for place in places]
        # Human messages are shown before all rounds: a new one begins anew.
        goes_on = messages.is_beginning_of(self._groups_read, groups)
        if not goes_on or has_human(groups[len(self._groups_read) :]):
            self._begin(groups)
        for number in range(len(self._groups_read), len(groups)):
            self._read(number, groups[number])

        if self.total_tokens <= self.limits.most_tokens:
            return _fitted(
                groups,
                places,
                self.shown_groups,
                groups_when_shortened=self.groups_when_shortened,
                work_when_shortened=self.work_when_shortened,
            )
        smallest = self._smallest(groups)
        if isinstance(smallest, int):
            return smallest
        return _fitted(groups, places, smallest, groups_when_shortened=len(groups))

    # Adding groups

    def _read(self, number: int, group: Group) -> None:
        """Reads the next group, and shows it if it is a round: human messages are shown already."""
        self._groups_read.append(group)
        self.whole.append(group)
        self.work.read(enumerate(group.messages, self.work.read_until))
        if number not in self.human:
            self.stale.read(group)
            self._add_round(number)

    def _add_round(self, number: int) -> None:
        """Shows one more round, and makes room for it.

        If human messages leave no room for it and may be clipped, they are, and it is tried again.
        """
        self._show(number, self.whole[number])
        self.round_costs.append(self.costs[number])
        self._make_room(number)
        if self.total_tokens > self.limits.most_tokens and self.limits.clip_human:
            self._clip_human()
            self._show(number, self.whole[number])
            self._make_room(number)

    def _clip_human(self) -> None:
        """Clips the human messages to their share of the budget, the newest only if it must be.

        Media of the newest one give way before its words do; a turn of one message keeps them.
        """
        words_tokens = int(self.limits.budget_tokens * TURN_POLICY.words_share)
        newest = self._newest_human
        attempts: list[_Attempt] = []
        if newest is not None:
            bare = {**self.human, newest: _without_media(self.human[newest])}
            attempts.append(_Attempt(self.human, (HumanMessage,), spared=newest))
            attempts.append(_Attempt(bare, (HumanMessage,), spared=newest))
        attempts.append(_Attempt(self.human, (HumanMessage,)))
        for attempt in attempts:
            clipped = self._clipped_as(attempt, words_tokens)
            if self._tokens_of(clipped) <= words_tokens:
                break
        for number, group in clipped.items():
            self._show(number, group)

    def _without_several_media(self, groups: Mapping[int, Group]) -> dict[int, Group]:
        """Returns groups with lines in place of media where a user's message has several.

        A single one stays: what is asked of it could not be answered without it.
        """
        shown = dict(groups)
        for number, group in self.human.items():
            if number in shown and _has_several_media(group):
                shown[number] = _without_media(shown[number])
        return shown

    @property
    def _newest_human(self) -> int | None:
        """The number of the group with the newest of several human messages; None without these."""
        return max(self.human) if len(self.human) > 1 else None

    def _tokens_of(self, groups: Mapping[int, Group]) -> int:
        """Returns what groups cost together, in tokens."""
        return sum(group_tokens(group, self.counter) for group in groups.values())

    def _show(self, number: int, group: Group) -> None:
        """Shows a group, in whole or in short, in place of what was shown of it."""
        group = with_calls_as_shown(group)
        tokens = group_tokens(group, self.counter)
        self.total_tokens += tokens - self.costs.get(number, 0)
        self.shown_groups[number] = group
        self.costs[number] = tokens
        self.left_out.discard(number)

    def _leave_out(self, number: int, _excess_tokens: int = 0) -> int:
        """Shows nothing of a round any more, and returns what it cost."""
        if number not in self.shown_groups:
            return 0
        tokens = self.costs.pop(number)
        self.total_tokens -= tokens
        del self.shown_groups[number]
        self.left_out.add(number)
        return tokens

    @property
    def _human_tokens(self) -> int:
        """The tokens of the human messages, as they are shown."""
        return sum(self.costs[number] for number in self.human)

    def _make_room(self, newest: int) -> None:
        """Makes room for the newest round, which is shown whole so far.

        It is shortened if that is enough; else older rounds give way to it. Rounds that the turn
        had when its prompt was rebuilt are fitted all at once, when the last of them is there.
        """
        limits = self.limits
        last_at_rebuild = limits.groups_at_rebuild - 1
        if newest < last_at_rebuild:
            return
        budget_tokens = limits.budget_tokens - limits.work_tokens - self.code_tokens
        if self.left_out:
            budget_tokens -= TURN_POLICY.note_tokens
        ahead_tokens = TURN_POLICY.next_rounds_tokens(
            self.round_costs, limits.budget_tokens - self._human_tokens
        )
        if newest == last_at_rebuild:
            if self.total_tokens > budget_tokens - ahead_tokens:
                self._give_way(newest, ahead_tokens)
            return

        self._shorten_arriving(newest, budget_tokens)
        if self.total_tokens > budget_tokens:
            self._show(newest, self.whole[newest])
            self._give_way(newest, ahead_tokens)

    def _shorten_arriving(self, newest: int, budget_tokens: int) -> None:
        """Shortens a round that arrives and would take too much of what is left.

        It is shortened now or, with others, when rounds give way: a change in between would break a
        cache. A round with more than text stays whole: older ones give way to it.
        """
        if any(map(has_more_than_text, self.whole[newest].messages[1:])):
            return
        tokens_left = budget_tokens - self.total_tokens + self.costs[newest]
        useful_tokens = int(budget_tokens * TURN_POLICY.useful_share)
        most_tokens = max(int(tokens_left * TURN_POLICY.new_share), min(tokens_left, useful_tokens))
        is_only_round = len(self.round_costs) == 1
        if self.costs[newest] > most_tokens >= useful_tokens and not is_only_round:
            self._shorten(newest, most_tokens, TURN_POLICY.smallest_clip_tokens, keeps_media=True)

    # Giving way

    def _give_way(self, newest: int, ahead_tokens: int) -> None:
        """Shortens rounds until there is room for the next ones: the newest, then older ones."""
        self.groups_when_shortened = newest + 1
        for number, group in self.left_out_for_media.items():
            self._show(number, group)
        shown_before = dict(self.shown_groups)
        older = sorted(
            number for number in self.shown_groups if number != newest and number not in self.human
        )
        for number in older:
            self._mark_stale(number)
        self.code_tokens, newest_code_tokens = self._divided_code_tokens(newest)

        limits = self.limits
        budget_tokens = limits.budget_tokens - limits.work_tokens - self.code_tokens - ahead_tokens
        if older or self.left_out:
            budget_tokens -= TURN_POLICY.note_tokens
        self._shorten_newest(newest, older, budget_tokens, newest_code_tokens)
        target_tokens = max(budget_tokens, self._human_tokens + self.costs[newest])
        self._shorten_older(older, newest, target_tokens, ahead_tokens)
        self.left_out_for_media = {}
        if any(map(has_media, self.whole[newest].messages)):
            gone = shown_before.keys() - self.shown_groups.keys()
            self.left_out_for_media = {number: shown_before[number] for number in gone}

        if self.code_tokens:  # lines of files get what the rounds leave
            self.code_tokens += max(0, target_tokens - self.total_tokens)
        self.work_when_shortened = self._work_now()

    def _shorten_newest(
        self, newest: int, older: Sequence[int], budget_tokens: int, code_tokens: int
    ) -> None:
        """Shortens the newest round to its share of the room, or to what older ones leave if more.

        `code_tokens` are for the lines of files that it shows, on top of the share.
        """
        room_tokens = budget_tokens - self._human_tokens
        share_tokens = int((room_tokens - code_tokens) * TURN_POLICY.newest_share) + code_tokens
        left_tokens = room_tokens - sum(self.costs[number] for number in older)
        most_tokens = max(share_tokens, left_tokens, 0)
        if self.costs[newest] > most_tokens:
            self._shorten(newest, most_tokens, TURN_POLICY.smallest_clip_tokens, keeps_media=True)

    def _shorten_older(
        self, older: Sequence[int], newest: int, target_tokens: int, ahead_tokens: int
    ) -> None:
        """Shortens older rounds until the turn is down to a target: stale ones, then the oldest.

        Media for which there is no room in any case give way before all of them. Rounds for which
        there is no room even in short are left out.
        """
        staying = _unread(self.shown_groups, [*older, newest])
        in_order = sorted(older, key=lambda number: (not self._is_stale(number), number))
        may_go = [number for number in in_order if number not in staying]
        self._leave_out_until_rest_can_fit(older, may_go, target_tokens)

        hopeless = self._with_hopeless_media(older, target_tokens)
        in_order.sort(key=lambda number: number not in hopeless)
        excess_tokens = give_way(
            _in_this_order(in_order, self._shrink), self.total_tokens - target_tokens
        )
        # Some texts are hardly shorter in short. What they cost more is taken from the next rounds
        # (`ahead_tokens`), as long as that is enough.
        give_way(_in_this_order(may_go, self._leave_out), excess_tokens - ahead_tokens)

    def _with_hopeless_media(self, older: Sequence[int], target_tokens: int) -> set[int]:
        """Returns the older rounds whose media have no room though all others are in short."""
        shown = [number for number in older if number in self.shown_groups]
        with_media = [
            number for number in shown if any(map(has_media, self.shown_groups[number].messages))
        ]
        if not with_media:
            return set()
        saved = {number: self.costs[number] - self._least_tokens(number) for number in shown}
        room_tokens = target_tokens - (self.total_tokens - sum(saved.values()))
        return {number for number in with_media if saved[number] > room_tokens}

    def _shrink(self, number: int, excess_tokens: int) -> int:
        """Shows a round in short, and returns by how many tokens it is smaller."""
        if number not in self.shown_groups or number in self.fully_shortened:
            return 0
        tokens = self.costs[number]
        self._shorten(number, tokens - excess_tokens, TURN_POLICY.old_result_tokens)
        return tokens - self.costs[number]

    def _leave_out_until_rest_can_fit(
        self, older: Sequence[int], may_go: Sequence[int], target_tokens: int
    ) -> None:
        """Leaves out older rounds until the turn can reach a target by shortening the others."""
        least = {number: self._least_tokens(number) for number in older}
        older_tokens = sum(self.costs[number] for number in older)
        excess_tokens = self.total_tokens - older_tokens + sum(least.values()) - target_tokens

        def leave_out(number: int, _excess_tokens: int) -> int:
            self._leave_out(number)
            return least[number]

        give_way(_in_this_order(may_go, leave_out), excess_tokens)

    def _is_stale(self, number: int) -> bool:
        """Tells whether later calls have made all results of a round stale."""
        return self.stale.are_all_stale(call_ids(self.whole[number].messages[0]))

    def _least_tokens(self, number: int) -> int:
        """Returns what an older round costs once its results are in short."""
        least_tokens = self.costs[number]
        for message in self.shown_groups[number].messages:
            if only_answers(message):
                tokens = self.counter.count_message(message)
                shorter_tokens = min(tokens, TURN_POLICY.old_result_tokens)
                if has_media(message):
                    bare_tokens = self.counter.count_message(without_media(message))
                    shorter_tokens = min(shorter_tokens, bare_tokens)
                least_tokens -= tokens - shorter_tokens
        return least_tokens

    def _mark_stale(self, number: int) -> None:
        """Puts a line in place of each result of a round that is stale, or that shows a known file.

        The lines of such a file are chosen for the work state.
        """
        self.whole[number] = self._without_stale(self.whole[number])
        shown = self._without_stale(self.shown_groups[number])
        if shown is not self.shown_groups[number]:
            self._show(number, shown)

    def _without_stale(self, group: Group) -> Group:
        """Returns a group with a line in place of each result that need not be shown."""
        kept = [
            self._stale_line(message) if isinstance(message, ToolMessage) else message
            for message in group.messages
        ]
        if kept == list(group.messages):
            return group
        return Group(tuple(kept), group.positions)

    def _stale_line(self, result: ToolMessage) -> ToolMessage:
        """Returns the line that stands for a result that need not be shown, if it is shorter.

        Else returns the result.
        """
        reason = self._reason_left_out(result)
        if not reason:
            return result
        reference = self.recall_name(result)
        whole = f'; all of it has the reference "{reference}"' if reference else ""
        line = result.model_copy(update={"content": f"[… left out: {reason}{whole} …]"})
        if self.counter.count_message(line) < self.counter.count_message(result):
            return line
        return result

    def _reason_left_out(self, result: ToolMessage) -> str:
        """Returns why a result need not be shown; empty where it must be."""
        if result.tool_call_id in self.stale.replaced_by:
            newer_id, done = self.stale.replaced_by[result.tool_call_id]
            newer = self.recall_name(self.stale.results[newer_id])
            return f'{done} later, see "{newer}"' if newer else f"{done} later"
        if self.limits.code_tokens and self._file_of(result):
            return "lines of it may stand above"
        return ""

    # Shortening

    def _media_name(self, message: BaseMessage) -> str | None:
        """Returns the reference of a message in lines in place of its media, if there is a tool."""
        return self.recall_name(message) if self.limits.has_recall_tool else None

    def _shorten(
        self,
        number: int,
        budget_tokens: int,
        smallest_tokens: int,
        *,
        keeps_media: bool | None = None,
    ) -> None:
        """Shows a round's results in short, if that costs less than what is shown of it.

        Args:
            number: the round.
            budget_tokens: what it may cost; it costs more where its shortest form does.
            smallest_tokens: about the fewest tokens of a result in short.
            keeps_media: True if its media stay.
        """
        if self.costs[number] > smallest_tokens:
            shorter = self._clipped(
                {number: self.whole[number]},
                budget_tokens,
                (ToolMessage,),
                smallest_tokens,
                focus=self._focus(number),
                keeps_media=keeps_media,
            )[number]
            if group_tokens(shorter, self.counter) < self.costs[number]:
                self._show(number, shorter)
        # With `keeps_media` it can become shorter later, when its media may give way.
        if self.costs[number] > budget_tokens and not keeps_media:
            self.fully_shortened.add(number)

    def _focus(self, number: int) -> frozenset[str]:
        """Returns the terms to look for in a round's results: those of the user and of the calls.

        These are its own calls, and later ones up to the time when rounds gave way last.
        """
        since = self.whole[number : max(self.groups_when_shortened, number + 1)]
        focus: set[str] = set()
        for group in (*self.human.values(), *since):
            text = work_state.text_with_calls(group.messages[:1])
            focus |= _terms(text[: TURN_POLICY.focus_characters])
        return frozenset(focus)

    def _clipped(
        self,
        groups: Mapping[int, Group],
        budget_tokens: int,
        kinds: Kinds,
        smallest_tokens: int = TURN_POLICY.smallest_clip_tokens,
        *,
        focus: frozenset[str] = frozenset(),
        keeps_media: bool | None = None,
        spared: int | None = None,
    ) -> dict[int, Group]:
        """Returns groups whose largest messages of some kinds are clipped to fit a budget.

        They are over it where even the shortest forms are. The group with the number `spared`
        stays whole.
        """
        shortenings: dict[Place, Shortening] = {}
        for number, group in groups.items():
            if number == spared:
                continue
            for at, message in enumerate(group.messages):
                if is_of_kinds(message, kinds):
                    shortenings[number, at] = Shortening(
                        message=message,
                        counter=self.counter,
                        reference=self.recall_name(message),
                        focus=focus,
                        line_worth=self._worth_of_lines(message),
                        keeps_media=keeps_media,
                        names_media=self.limits.has_recall_tool,
                    )
        return shortened_together(groups, shortenings, budget_tokens, smallest_tokens, self.counter)

    def _smallest(self, groups: Sequence[Group]) -> dict[int, Group] | int:
        """Returns the human messages and the rounds that nobody has read yet, clipped to fit.

        Where these do not fit, only the newest of the rounds; where that does not, returns what it
        needs at least, in tokens.
        """
        numbers = range(len(groups))
        smallest = self._smallest_with(groups, _unread(groups, numbers))
        if isinstance(smallest, int):
            return self._smallest_with(groups, _newest_and_last_call(groups, numbers))
        return smallest

    def _smallest_with(
        self, groups: Sequence[Group], rounds: Collection[int]
    ) -> dict[int, Group] | int:
        """Returns the human messages and some rounds, clipped to fit.

        Or what these need at least, in tokens. Media give way only where texts do not suffice:
        those of older results, then the user's but for the newest of the newest message, then
        those of the newest result. The user's words are clipped only then, if they may be, those of
        the newest message last; if they may be, several media of a message give way before. An
        assistant's words are the last resort.
        """
        needed = {number: groups[number] for number in sorted({*self.human, *rounds})}
        versions = without_older_media(needed, self._media_name)
        smallest = self._first_that_fits(
            _Attempt(version, (ToolMessage,), keeps_media=True) for version in versions
        )
        if not isinstance(smallest, int):
            return smallest
        excess_tokens = smallest - self.limits.most_tokens
        rest = without_oldest_human_media(versions[-1], self.counter, excess_tokens)
        whole = _Attempt(rest, (ToolMessage,), keeps_media=True)
        if not self.limits.clip_human:
            return self._first_that_fits(
                [
                    whole,
                    _Attempt(rest, (ToolMessage,)),
                    _Attempt(rest, (ToolMessage, AIMessage)),
                ]
            )
        newest = self._newest_human
        kinds: Kinds = (ToolMessage, HumanMessage)
        return self._first_that_fits(
            [
                whole,
                _Attempt(self._without_several_media(rest), (ToolMessage,), keeps_media=True),
                _Attempt(rest, kinds, keeps_media=True, spared=newest),
                _Attempt(rest, kinds, spared=newest),
                _Attempt(rest, kinds, keeps_media=True),
                _Attempt(rest, kinds),
                _Attempt(rest, (*kinds, AIMessage)),
            ]
        )

    def _first_that_fits(self, attempts: Iterable[_Attempt]) -> dict[int, Group] | int:
        """Returns the groups of the first attempt that fits; if none does, what the last needs."""
        limits = self.limits
        wanted_tokens = limits.budget_tokens - limits.work_tokens - limits.code_tokens
        least_tokens = 0
        for attempt in attempts:
            least_tokens = self._tokens_of(self._clipped_as(attempt, 0))
            if least_tokens <= limits.most_tokens:
                budget_tokens = min(limits.most_tokens, max(least_tokens, wanted_tokens))
                return self._clipped_as(attempt, budget_tokens)
        return least_tokens

    def _clipped_as(self, attempt: _Attempt, budget_tokens: int) -> dict[int, Group]:
        """Returns the groups of an attempt, clipped to fit a budget."""
        return self._clipped(
            attempt.groups,
            budget_tokens,
            attempt.kinds,
            keeps_media=attempt.keeps_media,
            spared=attempt.spared,
        )

    # Lines of files

    def _file_of(self, message: BaseMessage) -> str:
        """Returns the path of the known file that a message shows as a result; empty for others."""
        path = self.stale.paths_read.get(getattr(message, "tool_call_id", ""), "")
        return path if path in self.work.texts else ""

    def _worth_now(self) -> dict[str, known_files.Floats]:
        """Returns what the lines of each known file are worth, by its path.

        It is computed again only when there are more groups.
        """
        computed_for, _ = self._kept_worth
        if computed_for != len(self.whole):
            talk = [it for it in messages_of(self.whole) if not self._file_of(it)]
            self._kept_worth = len(self.whole), self.work.worth(self.messages_before, talk)
        return self._kept_worth[1]

    def _worth_of_lines(self, message: BaseMessage) -> tuple[float, ...]:
        """Returns what the lines of a message are worth that shows a known file; else nothing."""
        path = self._file_of(message)
        if not path:
            return ()
        file = self.work.texts[path]
        return known_files.worth_of_lines(message.text, file, self._worth_now()[path])

    def _divided_code_tokens(self, newest: int) -> tuple[int, int]:
        """Divides the tokens that the lines of files get which are worth most.

        Returns the tokens of lines for the work state, and of lines that the newest round shows.
        """
        texts = self.work.texts
        if not texts or not self.limits.code_tokens:
            return 0, 0
        paths_shown = {self._file_of(message) for message in self.whole[newest].messages}
        sizes: list[int] = []
        shown_flags: list[bool] = []
        for path, file in texts.items():
            for line, _ in file.lines.values():
                sizes.append(len(line))
                shown_flags.append(path in paths_shown)

        worth = self._worth_now()
        best_first = np.argsort(-np.concatenate([worth[path] for path in texts]), kind="stable")
        tokens = 1 + np.array(sizes)[best_first] // TURN_POLICY.characters_per_code_token
        is_shown = np.array(shown_flags)[best_first]
        has_room = tokens.cumsum() <= self.limits.code_tokens
        all_tokens = int(tokens[has_room].sum())
        shown_tokens = int(tokens[has_room & is_shown].sum())
        return all_tokens - shown_tokens, shown_tokens

    def _work_now(self) -> TurnWorkState:
        """Returns the work state, with those lines of files that are worth most and not shown."""
        lines_shown: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        for message in messages_of(self.shown_groups.values()):
            lines_shown[self._file_of(message)] |= known_files.said_lines(message.text)
        count = self.counter.count_text
        code = known_files.chosen_lines(
            self.work.texts,
            self._worth_now(),
            count,
            self.code_tokens - count(work_state.CODE.heading),
            lines_shown,
        )
        return TurnWorkState(self.work.copy(), self.code_tokens, code)


def _fitted(
    groups: Sequence[Group],
    places: Sequence[int],
    shown: Mapping[int, Group],
    *,
    groups_when_shortened: int,
    work_when_shortened: TurnWorkState | None = None,
) -> FittedTurn:
    """Returns a turn of which the groups in `shown` are sent, as they stand there.

    Args:
        groups: the groups as they have arrived; their numbers are those of `shown`.
        places: the place of each group in the turn.
        shown: what is sent.
        groups_when_shortened: see `FittedTurn`.
        work_when_shortened: see `FittedTurn`.
    """
    in_order = sorted(range(len(groups)), key=places.__getitem__)
    return FittedTurn(
        groups=tuple(shown[number] for number in in_order if number in shown),
        left_out=tuple(groups[number] for number in in_order if number not in shown),
        clipped=frozenset(
            groups[number].start for number, group in shown.items() if group != groups[number]
        ),
        groups_when_shortened=groups_when_shortened,
        work_when_shortened=work_when_shortened,
    )


def places_by_arrival(groups: Sequence[Group]) -> list[int]:
    """Returns the places of a turn's groups in the order in which their newest messages came.

    That is their own order, but for rounds whose results have come late. A group without a position
    is as new as the one before it.
    """
    newest: list[int] = []
    for group in groups:
        before = newest[-1] if newest else -1
        newest.append(_newest_position(group, before))
    return sorted(range(len(groups)), key=newest.__getitem__)


def _in_this_order(numbers: Iterable[int], shrink: Callable[[int, int], int]) -> list[Yielding]:
    """Returns rounds that give way in an order, each by `shrink`."""
    return [Yielding(priority, partial(shrink, number)) for priority, number in enumerate(numbers)]


def _without_media(group: Group) -> Group:
    """Returns a group with lines in place of its media."""
    return replace(group, messages=tuple(map(without_media, group.messages)))


def _has_several_media(group: Group) -> bool:
    """Tells if a message of a group has more than one medium."""
    return any(media_count(message) > 1 for message in group.messages)


def _newest_and_last_call(
    groups: Mapping[int, Group] | Sequence[Group], numbers: Sequence[int]
) -> set[int]:
    """Returns the last of some numbers of groups, and the last of them whose group has calls."""
    calling = [number for number in numbers if call_ids(groups[number].messages[0])]
    return {*numbers[-1:], *calling[-1:]}


def _unread(groups: Mapping[int, Group] | Sequence[Group], numbers: Sequence[int]) -> set[int]:
    """Returns the last of some numbers of groups, and the rounds with results that nobody has read.

    These have come behind the newest calls: they answer those, or earlier ones.
    """
    calling = [number for number in numbers if call_ids(groups[number].messages[0])]
    newest_calls = max((groups[number].start for number in calling), default=0)
    unread = [number for number in calling if _newest_position(groups[number]) >= newest_calls]
    return {*_newest_and_last_call(groups, numbers), *unread}


def _newest_position(group: Group, default: int = -1) -> int:
    """Returns the position of the newest message of a group; a default where it has none."""
    return max(group.positions, default=default)


@cached_until_forgotten(4_096)
def _terms(text: str) -> frozenset[str]:
    return frozenset(terms(text))
