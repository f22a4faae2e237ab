"""Fitting the current turn into its room.

The human message and the newest step of a turn stay (a step is an AI message with all its results);
older steps give way as old history does: first results that a later call made stale, then the
oldest. A turn that does not fit any more is brought down to `TARGET_SHARE` of its room at once, so
that between two such moments it only grows at its end. It follows from the steps alone, so a
process that goes on with a turn shows of it what the one before showed.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import messages
from langchain_ctxbudget.history import (
    TurnWorkState,
    WorkState,
    extractive,
    known_files,
    work_state,
)
from langchain_ctxbudget.messages import (
    Group,
    call_ids,
    clip_message,
    has_media,
    medium_of,
    remembering,
    shown_blocks,
    terms,
    water_level,
    without_media,
)
from langchain_ctxbudget.prompt.assembly import group_tokens, has_human
from langchain_ctxbudget.prompt.plan import PlannedTurn
from langchain_ctxbudget.settings import ToolKind
from langchain_ctxbudget.tokens import TokenCounter

NEWEST_SHARE = 0.75
"""The newest step's share of the room that the human message and the next steps leave, where not
all steps fit."""
NEXT_STEPS = 4
NEXT_SHARE = 0.3
SMALL_ROOM = 20_000
"""A turn that is too large keeps room for so many more steps, as large as its last ones, and at
least for half as many large ones, but never more than this share of its own. In a small room the share
is the room over so many tokens."""
LARGE_TOKENS = 1_500
"""The size that a large step is taken to have."""
NEW_SHARE = 0.35
"""A new step takes at most this share of what is left, while that is at least what an older result
gets; else older ones give way."""
WORDS_SHARE = 0.5
"""The share of the turn's budget for human messages, if they may be clipped and leave no room for a
step."""
OLD_RESULT_TOKENS = 256
"""The size of an older result before its whole step gives way."""
SMALLEST_CLIP_TOKENS = 64
NOTE_TOKENS = 40
"""The most that the line about steps that are left out costs."""
FOCUS_CHARACTERS = 8_000
"""How much of a message is read for words to look for in results."""
CHARACTERS_PER_TOKEN = 3
"""About how many characters of a line of a file cost a token, its number included."""
MOST_TURNS = 4
"""How many turns of a conversation are kept to go on with, one for each division of the room."""
AGAIN: Mapping[ToolKind, str] = {
    "read": "read again",
    "run": "run again",
    "search": "looked up again",
    "todo": "written anew",
    "write": "overwritten",
}
"""What a later call did that made an older result stale."""

Kinds = tuple[type[BaseMessage], ...]
Name = Callable[[BaseMessage], str | None]
"""Returns the reference under which the recall tool gives a message."""


class Rooms(NamedTuple):
    """The room of a turn, and what may be done to fit it in."""

    budget_tokens: int
    """The most that the turn may cost before older steps give way."""
    most_tokens: int
    """The most that it may cost in any case."""
    kept_tokens: int = 0
    """The part of the budget that is kept for the work state."""
    code_tokens: int = 0
    """The part of it that is kept for lines of files."""
    rebuilt_groups: int = 0
    """The number of groups of the turn when its prompt was written anew: they are fitted at once,
    as then."""
    clip_human: bool = False
    tool_kinds: tuple[tuple[str, ToolKind], ...] = ()
    """Kinds of tools by name, where arguments do not tell them."""


class ReadTurn(NamedTuple):
    """A turn in groups with their costs.

    While an agent loops, only the new messages at its end are read.
    """

    planned: PlannedTurn = PlannedTurn()
    seen: messages.SeenMessages = messages.SeenMessages()
    used: messages.Used = ({}, set())
    longest_call_id: int | None = None
    is_mended: bool = False
    """True where its sequence was repaired: what comes next may be what was missing."""

    def read(
        self, turn: Sequence[BaseMessage], counter: TokenCounter, longest_call_id: int | None = None
    ) -> "ReadTurn":
        """Returns a turn that goes on from this one, or is read anew where messages have changed or were repaired."""
        known = len(self.seen.messages)
        if self.longest_call_id != longest_call_id or self.is_mended or not self.seen.begin(turn):
            return ReadTurn(longest_call_id=longest_call_id).grown(turn, 0, counter)
        shortened, _ = messages.with_short_call_ids(turn[known:], longest_call_id)
        if any(getattr(message, "tool_call_id", None) in self.used[0] for message in shortened):
            return ReadTurn(longest_call_id=longest_call_id).grown(turn, 0, counter)
        return self.grown(turn, known, counter)

    def grown(self, turn: Sequence[BaseMessage], known: int, counter: TokenCounter) -> "ReadTurn":
        """Returns a turn that has read the messages from `known` on, too."""
        before = self.planned
        longest = self.longest_call_id
        new, shortenings = messages.with_short_call_ids(
            [*map(messages.as_sent, turn[known:])], longest
        )
        used: messages.Used = (dict(self.used[0]), set(self.used[1]))
        groups, repairs = messages.group(new, used, known, longest)
        costs = [group_tokens(part, counter) for part in groups]
        steps = [cost for part, cost in zip(groups, costs, strict=True) if not has_human([part])]
        planned = PlannedTurn(
            whole=(*before.whole, *groups),
            costs=(*before.costs, *costs),
            given_repairs=(*before.given_repairs, *messages.joined_repairs(shortenings, repairs)),
            steps=(*before.steps, *steps)[-NEXT_STEPS:],
            said_tokens=before.said_tokens + sum(costs) - sum(steps),
            places={
                **before.places,
                **{reference_of(message): at for at, message in enumerate(new, known)},
            },
        )
        return ReadTurn(planned, self.seen.grown(turn), used, longest, is_mended=bool(repairs))


def reference_of(message: BaseMessage) -> object:
    """Returns what tells a message of a turn from the others.

    Of several with the same, the last one counts.
    """
    return message.id or getattr(message, "tool_call_id", None)


def next_tokens(sizes: Sequence[int], room_tokens: int) -> int:
    """Returns about what the next steps of a turn will cost, by what its last ones cost whole."""
    if not sizes:
        return 0
    recent = [min(size, LARGE_TOKENS) for size in sizes[-NEXT_STEPS:]]
    most = int(room_tokens * min(NEXT_SHARE, room_tokens / SMALL_ROOM))
    return min(most, max(NEXT_STEPS // 2 * LARGE_TOKENS, NEXT_STEPS * sum(recent) // len(recent)))


class GrowingTurn:
    """The shown part of a turn, to which one step after the other is added.

    It can go on where a call left it.
    """

    def __init__(
        self,
        counter: TokenCounter,
        rooms: Rooms,
        name: Name = lambda _: None,
        before: WorkState | None = None,
        said_before: Sequence[BaseMessage] = (),
    ) -> None:
        self.counter = counter
        self.rooms = rooms
        self.name = name
        self.before = before or WorkState(dict(rooms.tool_kinds))
        self.said_before = said_before
        self.begin(())

    def begin(self, groups: Sequence[Group]) -> None:
        """Forgets all steps, and takes the words of the user from some groups."""
        self.whole: list[Group] = []
        self.human = {i: part for i, part in enumerate(groups) if has_human([part])}
        """The messages of the user, also those after the steps that are fitted so far."""
        self.shown: dict[int, Group] = {}
        self.costs: dict[int, int] = {}
        self.total = self.renewed = self.code_tokens = 0
        self.sizes: list[int] = []
        """What each step costs whole."""
        self.dropped = False
        """True where steps are left out, which a line will tell."""
        self.shortest: set[int] = set()
        """Steps that cannot be shortened any more."""
        self.newest_use: dict[tuple[str, ...], list[str]] = {}
        """The calls that looked at or did the same thing last, by their ids."""
        self.stale: dict[str, tuple[str, str]] = {}
        """Calls whose results are stale, by their ids: the call that came later, and what it
        did."""
        self.results: dict[str, ToolMessage] = {}
        self.work = self.before.copy()
        """What the calls of these steps, and those before the turn, have left behind."""
        self.work_when_shortened: TurnWorkState | None = None
        self.read_of: dict[str, str] = {}
        """The files that results show, by the ids of their calls."""
        self._worth: tuple[int, dict[str, known_files.Floats]] = (-1, {})
        self._given: list[Group] = []
        for number, part in self.human.items():
            self._put(number, part)

    def fitted(self, groups: Sequence[Group]) -> PlannedTurn | int:
        """Returns the part of a turn that is sent, or the tokens that it needs at least where these are over its room.

        Groups that it knows from the last time are not looked at again.
        """
        if not messages.same_beginning(self._given, groups) or has_human(
            groups[len(self._given) :]
        ):
            self.begin(groups)
        for number in range(len(self._given), len(groups)):
            self._given.append(groups[number])
            self.whole.append(groups[number])
            self.work.read(enumerate(groups[number].messages, self.work.read_until))
            if number not in self.human:
                self._add(number)
        shown = dict(self.shown)
        renewed = self.renewed
        work_when_shortened = self.work_when_shortened
        if self.total > self.rooms.most_tokens:
            needed = {
                i: groups[i] for i in sorted({*self.human, *_newest(groups, range(len(groups)))})
            }
            fitted = self._fitted_newest(needed)
            if isinstance(fitted, int):
                return fitted
            shown = fitted
            renewed = len(groups)
            work_when_shortened = None
        return PlannedTurn(
            whole=tuple(groups),
            groups=tuple(shown[i] for i in sorted(shown)),
            left_out=tuple(part for i, part in enumerate(groups) if i not in shown),
            clipped=frozenset(
                groups[i].positions[0] for i, part in shown.items() if part != groups[i]
            ),
            renewed=renewed,
            work_when_shortened=work_when_shortened,
        )

    def _fitted_newest(self, needed: Mapping[int, Group]) -> dict[int, Group] | int:
        """Returns the words of the user and the newest step, clipped.

        Or the tokens that these need at least.

        Media give way only where texts do not suffice, the oldest first. An answer is clipped as
        the last resort.
        """
        kinds: Kinds = (ToolMessage, HumanMessage) if self.rooms.clip_human else (ToolMessage,)
        steps_tokens = self.rooms.budget_tokens - self.rooms.kept_tokens - self.rooms.code_tokens
        with_media = self._without_older_media(needed)
        tried: list[tuple[Mapping[int, Group], Kinds, bool | None]] = [
            (one, kinds, True) for one in with_media
        ]
        tried += [(with_media[-1], kinds, None), (needed, (*kinds, AIMessage), None)]
        least = 0
        for groups, clips, keeps_media in tried:
            smallest = self._clipped(groups, 0, clips, keeps_media=keeps_media)
            least = sum(group_tokens(part, self.counter) for part in smallest.values())
            if least <= self.rooms.most_tokens:
                most = min(self.rooms.most_tokens, max(least, steps_tokens))
                return self._clipped(groups, most, clips, keeps_media=keeps_media)
        return least

    def _without_older_media(self, groups: Mapping[int, Group]) -> list[Mapping[int, Group]]:
        """Returns groups whose results have all their media, then without those of the oldest result, and so on.

        The newest result that has media keeps them in all of these.
        """
        results = [
            (number, at)
            for number, part in groups.items()
            for at, message in enumerate(part.messages)
            if isinstance(message, ToolMessage) and has_media(message)
        ]
        shown = dict(groups)
        made: list[Mapping[int, Group]] = [dict(shown)]
        for number, at in results[:-1]:
            said = list(shown[number].messages)
            said[at] = without_media(said[at], self.name(said[at]))
            shown[number] = Group(tuple(said), shown[number].positions)
            made.append(dict(shown))
        return made

    def _add(self, number: int) -> None:
        self._read_calls(number)
        self.sizes.append(group_tokens(self.whole[number], self.counter))
        self._grow(number)
        if self.total > self.rooms.most_tokens and self.rooms.clip_human:
            words_tokens = int(self.rooms.budget_tokens * WORDS_SHARE)
            for at, part in self._clipped(self.human, words_tokens, (HumanMessage,)).items():
                self._put(at, part)
            self._grow(number)

    def _put(self, number: int, part: Group) -> None:
        tokens = group_tokens(part, self.counter)
        self.total += tokens - self.costs.get(number, 0)
        self.shown[number], self.costs[number] = part, tokens

    def _grow(self, newest: int) -> None:
        """Shows a step, in short if that is enough; else older ones give way to it.

        The steps up to the one at which the prompt was written anew are fitted with that one.
        """
        self._put(newest, self.whole[newest])
        budget_tokens = self.rooms.budget_tokens - self.rooms.kept_tokens - self.code_tokens
        budget_tokens -= NOTE_TOKENS if self.dropped else 0
        said = sum(self.costs[at] for at in self.human)
        steps = self.rooms.rebuilt_groups
        ahead = next_tokens(self.sizes, self.rooms.budget_tokens - said)
        if newest < steps - 1 or (newest == steps - 1 and self.total <= budget_tokens - ahead):
            return
        if newest >= steps:
            left = budget_tokens - self.total + self.costs[newest]
            useful = OLD_RESULT_TOKENS
            most = max(int(left * NEW_SHARE), min(left, useful))
            if self.costs[newest] > most >= useful and len(self.sizes) > 1:
                # Once: what changed later would break a cache. Older media give way to the newest,
                # not these to them.
                self._shorten(newest, most, SMALLEST_CLIP_TOKENS, keeps_media=True)
            if self.total <= budget_tokens:
                return
            self._put(newest, self.whole[newest])
        self._give_way(newest, ahead)

    def _give_way(self, newest: int, ahead_tokens: int) -> None:
        """Shortens older steps, the oldest and stale ones first, and leaves out what has no room even so."""
        self.renewed = newest + 1
        older = sorted(i for i in self.shown if i != newest and i not in self.human)
        for number in older:
            self._tell_stale(number)
        self.code_tokens, own = self._divided_code(newest)
        budget_tokens = (
            self.rooms.budget_tokens - self.rooms.kept_tokens - ahead_tokens - self.code_tokens
        )
        budget_tokens -= NOTE_TOKENS if older or self.dropped else 0
        said = sum(self.costs[i] for i in self.human)
        most = int((budget_tokens - said - own) * NEWEST_SHARE) + own
        most = max(most, budget_tokens - said - sum(self.costs[i] for i in older))
        if self.costs[newest] > most:
            self._shorten(newest, max(0, most), SMALLEST_CLIP_TOKENS, keeps_media=True)
        target = max(budget_tokens, said + self.costs[newest])
        keep = _newest(self.shown, [*older, newest])
        calls = {number: {*call_ids(self.whole[number].messages[0])} for number in older}
        older.sort(
            key=lambda number: (not calls[number] or not calls[number] <= self.stale.keys(), number)
        )
        least = {number: self._least_tokens(number) for number in older}
        excess = self.total - sum(self.costs[i] for i in older) + sum(least.values()) - target
        for number in older:
            if excess > 0 and number not in keep:
                excess -= least[number]
                self._leave_out(number)
        for number in older:
            if self.total > target and number in self.shown and number not in self.shortest:
                self._shorten(number, self.costs[number] - (self.total - target), OLD_RESULT_TOKENS)
        for number in older:  # of some texts a clip is hardly shorter
            if self.total > target + ahead_tokens and number in self.shown and number not in keep:
                self._leave_out(number)
        self.code_tokens += max(0, target - self.total) if self.code_tokens else 0
        said_lines: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        for message in (one for part in self.shown.values() for one in part.messages):
            said_lines[self._file_of(message)] |= known_files.said_lines(message.text)
        count = self.counter.count_text
        most = self.code_tokens - self.counter.count_text(work_state.CODE)
        code = known_files.chosen_lines(self.work.texts, self._worth_now(), count, most, said_lines)
        self.work_when_shortened = TurnWorkState(self.work.copy(), self.code_tokens, code)

    def _leave_out(self, number: int) -> None:
        self.total -= self.costs.pop(number)
        del self.shown[number]
        self.dropped = True

    def _divided_code(self, newest: int) -> tuple[int, int]:
        """Returns what the lines of files get beside the steps, and what those get that the newest step shows."""
        shown = set(map(self._file_of, self.whole[newest].messages))
        texts = self.work.texts
        worth = self._worth_now()
        if not (texts and self.rooms.code_tokens):
            return 0, 0
        order = np.argsort(-np.concatenate([worth[path] for path in texts]), kind="stable")
        lines = (
            (path, len(line)) for path, file in texts.items() for line, _ in file.lines.values()
        )
        costs = np.array(
            [(path in shown, size // CHARACTERS_PER_TOKEN + 1) for path, size in lines]
        )[order]
        costs = costs[costs[:, 1].cumsum() <= self.rooms.code_tokens]
        own = int(costs[costs[:, 0] == 1, 1].sum())
        return int(costs[:, 1].sum()) - own, own

    def _least_tokens(self, number: int) -> int:
        """Returns what an older step costs once its results are in short."""
        least = self.costs[number]
        for result in self.shown[number].messages:
            if isinstance(result, ToolMessage):
                tokens = self.counter.count_message(result)
                without = (
                    self.counter.count_message(without_media(result))
                    if has_media(result)
                    else tokens
                )
                least -= tokens - min(tokens, without, OLD_RESULT_TOKENS)
        return least

    def _shorten(
        self,
        number: int,
        budget_tokens: int,
        smallest_tokens: int,
        *,
        keeps_media: bool | None = None,
    ) -> None:
        if self.costs[number] > smallest_tokens:
            whole = {number: self.whole[number]}
            focus = self._focus(number)
            kinds: Kinds = (ToolMessage,)
            part = self._clipped(
                whole, budget_tokens, kinds, smallest_tokens, focus, keeps_media=keeps_media
            )[number]
            if group_tokens(part, self.counter) < self.costs[number]:
                self._put(number, part)
        if (
            self.costs[number] > budget_tokens and not keeps_media
        ):  # its media may still give way to newer ones
            self.shortest.add(number)

    def _focus(self, number: int) -> frozenset[str]:
        """Returns what the results of a step are looked at for.

        The words of the user, and of the steps since.
        """
        steps = (*self.human.values(), *self.whole[number : max(self.renewed, number + 1)])
        said = (work_state.told_by(part.messages[:1])[:FOCUS_CHARACTERS] for part in steps)
        return frozenset().union(*map(_terms, said))

    def _read_calls(self, number: int) -> None:
        """Notes what the calls of a step look at or do, and which older results that makes stale."""
        first, *rest = self.whole[number].messages
        self.results |= {one.tool_call_id: one for one in rest if isinstance(one, ToolMessage)}
        for call in first.tool_calls if isinstance(first, AIMessage) else ():
            call_id = call["id"] or ""
            result = self.results.get(call_id)
            if result is None or result.status == "error":
                continue
            use = work_state.ToolUse.of(
                call["name"], call["args"], dict(self.rooms.tool_kinds)
            ).ended(result)
            reads = use.kind == "read"
            if use.kind not in AGAIN or (reads and extractive.ENGLISH.refused.search(result.text)):
                continue
            if reads:
                self.read_of[call_id] = next(iter(use.subjects), "")
            is_run = use.kind == "run"  # what describes a command may change
            said = (
                ("", *use.subjects)
                if is_run
                else (json.dumps(call["args"], sort_keys=True, default=str),)
            )
            same: list[tuple[str, ...]] = [("",) if use.kind == "todo" else (call["name"], *said)]
            of_file: list[tuple[str, ...]] = [(path,) for path in use.subjects]
            is_whole = use.kind == "write" or (
                reads and not known_files.reads_part(use.args, use.subjects)
            )
            replaced = of_file if is_whole else same
            noted = [] if use.kind == "write" else [*same, *of_file] if reads else same
            for key in replaced:
                for older in self.newest_use.pop(key, ()):
                    self.stale.setdefault(older, (call_id, AGAIN[use.kind]))
            for key in noted:
                self.newest_use.setdefault(key, []).append(call_id)

    def _tell_stale(self, number: int) -> None:
        """Puts a line in place of every longer result of a step that is stale, or whose file is told of."""
        self.whole[number] = self._without_stale(self.whole[number])
        if (shown := self._without_stale(self.shown[number])) is not self.shown[number]:
            self._put(number, shown)

    def _without_stale(self, part: Group) -> Group:
        said = list(part.messages)
        for place, message in (
            (at, one) for at, one in enumerate(said) if isinstance(one, ToolMessage)
        ):
            key = message.tool_call_id
            reference = self.name(message)
            why = (
                "lines of it may stand above"
                if self._file_of(message) and self.rooms.code_tokens
                else ""
            )
            if key in self.stale:
                newer, did = self.stale[key]
                see = self.name(self.results[newer])
                why = f'{did} later, see "{see}"' if see else f"{did} later"
            if why:
                whole = f'; all of it has the reference "{reference}"' if reference else ""
                line = message.model_copy(update={"content": f"[… left out: {why}{whole} …]"})
                if self.counter.count_message(line) < self.counter.count_message(message):
                    said[place] = line
        return part if said == list(part.messages) else Group(tuple(said), part.positions)

    def _file_of(self, message: BaseMessage) -> str:
        """Returns the path of the known file that a message shows as a result; else nothing."""
        path = self.read_of.get(getattr(message, "tool_call_id", ""), "")
        return path if path in self.work.texts else ""

    def _clipped(
        self,
        groups: Mapping[int, Group],
        budget_tokens: int,
        kinds: Kinds,
        smallest_tokens: int = SMALLEST_CLIP_TOKENS,
        focus: frozenset[str] = frozenset(),
        *,
        keeps_media: bool | None = None,
    ) -> dict[int, Group]:
        """Clips the largest messages of some kinds in groups, so that all fit a budget together if they can.

        Media of results give way where a message does not fit with them, unless it `keeps_media`;
        no others do.
        """
        counter = self.counter

        def clip(at: tuple[int, int], most_tokens: int) -> BaseMessage | None:
            message = sent[at]
            count = counter.count_message
            values = worth[at]
            said: dict[str, Any] = {
                "reference": self.name(message),
                "focus": focus,
                "worth": values,
            }
            said["keeps_media"] = keeps_media
            if values and isinstance(message.content, str):
                message = message.model_copy(
                    update={"content": known_files.PADDING.sub("", message.content)}
                )
            return clip_message(message, count, counter.count_text, most_tokens, **said)

        def shortest_of(at: tuple[int, int]) -> BaseMessage:
            message = sent[at]
            others_tokens = 0
            if keeps_media or not isinstance(message, ToolMessage):
                media = [block for block in shown_blocks(message) if medium_of(block) is not None]
                others_tokens = (
                    counter.count_message(message.model_copy(update={"content": media}))
                    if media
                    else 0
                )
            tries = (clip(at, others_tokens + smallest_tokens * times) for times in (1, 2, 4))
            return next(
                (shorter for shorter in tries if shorter), message
            )  # characters of many tokens need more

        sent = {
            (number, at): message
            for number, part in groups.items()
            for at, message in enumerate(part.messages)
        }
        costs = {at: counter.count_message(message) for at, message in sent.items()}
        worth = {at: self._worth_of(message) for at, message in sent.items()}
        tried = (
            (at, shortest_of(at)) for at, message in sent.items() if isinstance(message, kinds)
        )
        shortest = {at: shorter for at, shorter in tried if shorter is not sent[at]}
        least = {at: counter.count_message(message) for at, message in shortest.items()}
        left = budget_tokens - sum(cost for at, cost in costs.items() if at not in shortest)
        most = water_level([costs[at] for at in shortest], left, [*least.values()])
        clipped = {at: clip(at, most) for at in shortest if least[at] < min(most, costs[at])}
        sent |= {at: clipped.get(at) or part for at, part in shortest.items()}
        return {
            number: Group(
                tuple(sent[number, at] for at in range(len(part.messages))), part.positions
            )
            for number, part in groups.items()
        }

    def _worth_of(self, message: BaseMessage) -> tuple[float, ...]:
        """Returns what the lines of a result are worth that shows a known file.

        Nothing of any other message.
        """
        path = self._file_of(message)
        return (
            known_files.worth_of_lines(message.text, self.work.texts[path], self._worth_now()[path])
            if path
            else ()
        )

    def _worth_now(self) -> dict[str, known_files.Floats]:
        if self._worth[0] != len(self.whole):
            said = [one for part in self.whole for one in part.messages if not self._file_of(one)]
            self._worth = len(self.whole), self.work.worth(self.said_before, said)
        return self._worth[1]


def _newest(groups: Mapping[int, Group] | Sequence[Group], numbers: Sequence[int]) -> set[int]:
    """Returns the last of some groups, and the last of them that has calls."""
    return {*numbers[-1:], *[i for i in numbers if call_ids(groups[i].messages[0])][-1:]}


_terms = remembering(4_096)(lambda text: frozenset(terms(text)))
