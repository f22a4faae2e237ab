"""Media of a turn for which a prompt has no room, whatever else gives way.

They become lines before the turn gets its room: else a PDF that is larger than the whole prompt
would take the room of the other steps and of the history, and be left out all the same.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import answered_ids, has_media, parts_of, with_parts
from langchain_ctxbudget.layers import group_tokens
from langchain_ctxbudget.messages import Group, with_joined_texts, without_media
from langchain_ctxbudget.prompt.assembly import has_human, messages_of
from langchain_ctxbudget.prompt.plan import GivenTurn
from langchain_ctxbudget.prompt.shortening import (
    RecallName,
    Shortening,
    is_of_kinds,
    shortened_together,
    without_oldest_human_media,
)
from langchain_ctxbudget.prompt.turn import TURN_POLICY
from langchain_ctxbudget.providers import with_calls_as_shown
from langchain_ctxbudget.tokens import TokenCounter

MediumPlace = tuple[int, int]
"""The place of a message in its group, and the number of a medium in that message."""


@dataclass(frozen=True, slots=True)
class KeptForms:
    """Groups with lines in place of media, as earlier calls of a loop have shown them.

    They are the same objects at every call, so that a turn goes on where it was.
    """

    _forms: dict[int, tuple[Group, int, Group]] = field(default_factory=dict)
    """A group, the tokens that it was shown for, and what is shown, by its number in the turn."""

    def get(self, number: int, group: Group, tokens: int) -> Group | None:
        """Returns what is shown of a group for some tokens; None if it is not known."""
        kept = self._forms.get(number)
        if kept is None or kept[0] is not group or kept[1] != tokens:
            return None
        return kept[2]

    def keep(self, number: int, group: Group, tokens: int, shown: Group) -> None:
        """Keeps what is shown of a group."""
        self._forms[number] = (group, tokens, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMedia:
    """A turn whose media may be too large for its prompt."""

    given: GivenTurn
    counter: TokenCounter
    room_tokens: int
    """What the turn may cost in any case."""
    clips_words: bool
    """True if the user's words may be clipped."""
    recall_name: RecallName
    """Returns the reference that a line in place of a medium names."""
    kept: KeptForms

    def fitting(self) -> GivenTurn:
        """Returns the turn with lines in place of media for which there can never be room.

        What a round's results show may take the room of the user's older media, not that of the
        newest.
        """
        rounds = self._rounds_without_room()
        human = self._human
        media = messages_of([*human.values(), *(self.given.groups[number] for number in rounds)])
        if not rounds or not any(map(has_media, media)):
            return self.given
        round_room_tokens = self.room_tokens - self._least_human_tokens(human)
        shown: dict[int, Group] = {}
        for number in rounds:
            shown[number] = self._fitting_round(number, round_room_tokens)
        largest_tokens = max(map(self._least_tokens, shown.values()))
        shown |= self._human_beside(human, largest_tokens)
        return self._with_groups(shown)

    @property
    def _human(self) -> dict[int, Group]:
        """The user's messages, by the numbers of their groups."""
        groups = self.given.groups
        return {number: group for number, group in enumerate(groups) if has_human([group])}

    def _rounds_without_room(self) -> list[int]:
        """Returns the numbers of the rounds that do not fit beside the user's messages."""
        given = self.given
        most_tokens = self.room_tokens - given.human_tokens
        return [
            number
            for number, group in enumerate(given.groups)
            if given.costs[number] > most_tokens and not has_human([group])
        ]

    def _with_groups(self, shown: Mapping[int, Group]) -> GivenTurn:
        """Returns the turn with some of its groups as they are shown, and what these cost."""
        groups = tuple(shown.get(number, group) for number, group in enumerate(self.given.groups))
        costs = list(self.given.costs)
        for number, group in shown.items():
            costs[number] = group_tokens(group, self.counter)
        human_tokens = sum(costs[number] for number in self._human)
        round_costs = [cost for number, cost in enumerate(costs) if number not in self._human]
        return replace(
            self.given,
            groups=groups,
            costs=tuple(costs),
            human_tokens=human_tokens,
            round_costs=tuple(round_costs[-TURN_POLICY.next_rounds :]),
        )

    # Rounds

    def _fitting_round(self, number: int, room_tokens: int) -> Group:
        """Returns a round with lines in place of media of its results, until it can fit a room."""
        group = self.given.groups[number]
        shown = self.kept.get(number, group, room_tokens)
        if shown is None:
            shown = self._without_media_over(group, room_tokens)
            self.kept.keep(number, group, room_tokens, shown)
        return shown

    def _without_media_over(self, group: Group, room_tokens: int) -> Group:
        """Returns a round without the media that do not fit a room even alone, then the oldest."""
        costs = self._media_costs(group)
        if not costs or self._least_tokens(group) <= room_tokens:
            return group
        media_tokens = room_tokens - self._least_tokens(_bare(group))
        gone = [place for place, cost in costs.items() if cost > media_tokens]
        staying = [place for place in costs if place not in gone]
        shown = self._with_lines(group, gone)
        while staying and self._least_tokens(shown) > room_tokens:
            gone.append(staying.pop(0))
            shown = self._with_lines(group, gone)
        return shown

    def _media_costs(self, group: Group) -> dict[MediumPlace, int]:
        """Returns what each medium of a round's results costs, oldest first."""
        costs: dict[MediumPlace, int] = {}
        for at, message in enumerate(group.messages):
            if not answered_ids(message):
                continue
            empty_tokens = self.counter.count_message(with_parts(message, []))
            media = [part for part in parts_of(message) if part.is_media]
            for number, part in enumerate(media):
                tokens = self.counter.count_message(with_parts(message, [part]))
                costs[at, number] = tokens - empty_tokens
        return costs

    def _with_lines(self, group: Group, gone: Collection[MediumPlace]) -> Group:
        """Returns a round with lines in place of some of its media."""
        messages = list(group.messages)
        for at in {at for at, _ in gone}:
            numbers = [number for place, number in gone if place == at]
            reference = self.recall_name(messages[at])
            bare = without_media(messages[at], reference, only=numbers)
            messages[at] = with_joined_texts(bare)
        return with_calls_as_shown(replace(group, messages=tuple(messages)))

    def _least_tokens(self, group: Group) -> int:
        """Returns what a round costs once the texts of its results are in short."""
        return group_tokens(self._in_short(group, ToolMessage), self.counter)

    def _in_short(self, group: Group, kind: type[BaseMessage]) -> Group:
        """Returns a group with as few words of its messages of a kind as can be, and all media."""
        shortenings = {
            (0, at): Shortening(message=message, counter=self.counter, keeps_media=True)
            for at, message in enumerate(group.messages)
            if is_of_kinds(message, (kind,))
        }
        smallest_tokens = TURN_POLICY.smallest_clip_tokens
        shown = shortened_together({0: group}, shortenings, 0, smallest_tokens, self.counter)
        return shown[0]

    # The user's messages

    def _least_human_tokens(self, human: Mapping[int, Group]) -> int:
        """Returns what the user's messages cost at least, with the newest medium of the newest."""
        bare = without_oldest_human_media(human, self.counter, self.given.human_tokens)
        groups = list(bare.values())
        if self.clips_words:
            groups = [self._in_short(group, HumanMessage) for group in groups]
        return sum(group_tokens(group, self.counter) for group in groups)

    def _human_beside(self, human: Mapping[int, Group], round_tokens: int) -> dict[int, Group]:
        """Returns the user's messages with room for a round beside them.

        Where there is none, their older media give way, at once so many that the next rounds have
        room, too.
        """
        excess_tokens = self.given.human_tokens + round_tokens - self.room_tokens
        if excess_tokens <= 0:
            return {}
        share_tokens = int(self.room_tokens * TURN_POLICY.words_share)
        excess_tokens = max(excess_tokens, self.given.human_tokens - share_tokens)
        known = {
            number: self.kept.get(number, group, excess_tokens) for number, group in human.items()
        }
        shown = {number: group for number, group in known.items() if group is not None}
        if len(shown) < len(human):
            shown = without_oldest_human_media(human, self.counter, excess_tokens)
            for number, group in human.items():
                self.kept.keep(number, group, excess_tokens, shown[number])
        return shown


def _bare(group: Group) -> Group:
    """Returns a round without the media of its results, and without lines for them."""
    messages = list(group.messages)
    for at, message in enumerate(messages):
        if answered_ids(message):
            texts = [part for part in parts_of(message) if not part.is_media]
            messages[at] = with_parts(message, texts)
    return replace(group, messages=tuple(messages))
