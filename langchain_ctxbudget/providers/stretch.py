"""Messages in a row that are made ready for a provider, and what is changed in them for that."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import call_ids, item_ids, only_answers
from langchain_ctxbudget.messages import Group

GOES_ON = "[The conversation goes on.]"
"""Stands between two messages where a turn is missing; it belongs to the group before it."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was changed in what is sent so that a provider accepts it."""

    kind: str
    """`orphan_result`, `replaced_result`, `missing_result`, `empty_message`, `empty_content`,
    `call_form`, `call_id`, `call_name`, `role`, `item_id`, `reasoning`, `foreign_reasoning`,
    `foreign_item`, `compaction`, `media`, `content_form`, `characters`, `name`, `first_message`,
    `system_in_history`, `turn_order` or `cache_mark`."""
    message_id: str
    detail: str


class Change(NamedTuple):
    """What is changed in a message so that a provider accepts it.

    A `Repair` is the same with the id of the message.
    """

    kind: str
    detail: str

    def repair_of(self, message: BaseMessage) -> Repair:
        """Returns this change as the repair of a message."""
        return Repair(self.kind, message.id or "", self.detail)


UNBOUND = Change("reasoning", "sent without reasoning, as what stood before it has changed since")
"""What is told of thoughts that the provider would refuse here; see `Profile.binds_thoughts`."""


class Placed(NamedTuple):
    """A message in the form in which it is sent."""

    message: BaseMessage
    position: int | None = None
    """The position of the message that it is sent for; None where it stands in for a missing
    one."""


@dataclass(frozen=True, slots=True)
class UsedIds:
    """The ids that messages have used so far. Those of further messages are added."""

    call_counts: dict[str, int] = field(default_factory=dict)
    """How often each id of a call was asked for."""
    item_ids: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, messages: Iterable[BaseMessage]) -> "UsedIds":
        """Returns the ids that messages have used."""
        used = cls()
        for message in messages:
            for call_id in call_ids(message):
                used.call_counts[call_id] = 1
            used.item_ids.update(item_ids(message))
        return used

    def copy(self) -> "UsedIds":
        """Returns a copy, so that further ids are not added to this one."""
        return UsedIds(dict(self.call_counts), set(self.item_ids))


@dataclass(frozen=True, slots=True)
class MarksBeside:
    """The marks for a provider's cache that a request has besides those in its messages."""

    count: int = 0
    is_short: bool = False
    """True if a mark of a tool is for five minutes. Anthropic reads tools before all messages."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages in a row while one requirement after another is met."""

    placed: Sequence[Placed]
    used: UsedIds = field(default_factory=UsedIds)
    """The ids that the messages before this stretch have used."""
    marks_beside: MarksBeside = MarksBeside()

    @classmethod
    def of(
        cls,
        messages: Sequence[BaseMessage],
        positions: Iterable[int | None] | None = None,
        used: UsedIds | None = None,
    ) -> "Stretch":
        """Returns messages at some positions, by default from 0 on."""
        at = range(len(messages)) if positions is None else positions
        placed = [Placed(*pair) for pair in zip(messages, at, strict=True)]
        return cls(placed, used or UsedIds())

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages without their positions."""
        return [placed.message for placed in self.placed]

    def groups(self) -> list[Group]:
        """Returns the messages in groups that are sent or left out together.

        A result belongs to the group of the message before it. So does the line that stands between
        an answer and calls.
        """
        groups: list[list[Placed]] = []
        for placed in self.placed:
            if groups and (only_answers(placed.message) or _stands_between(placed)):
                groups[-1].append(placed)
            else:
                groups.append([placed])
        return list(map(_group_of, groups))


def _stands_between(placed: Placed) -> bool:
    """Tells if a message is the line between an answer and calls."""
    message = placed.message
    return message.content == GOES_ON and not message.id


def _group_of(placed: Sequence[Placed]) -> Group:
    """Returns messages as a group; messages that stand in for missing ones have no position."""
    messages = [member.message for member in placed]
    positions = [member.position for member in placed if member.position is not None]
    return Group(tuple(messages), tuple(positions))


def joined_repairs(earlier: Iterable[Repair], later: Iterable[Repair]) -> list[Repair]:
    """Returns the repairs of two passes over the same messages, in order.

    If both passes gave the calls of a message other ids, only the repair of the later one is told.
    """
    earlier = list(earlier)
    later = list(later)
    if not (earlier and later):
        return earlier + later
    told_again = Counter(repair.message_id for repair in later if repair.kind == "call_id")
    joined: list[Repair] = []
    for repair in earlier:
        if repair.kind == "call_id" and told_again[repair.message_id] > 0:
            told_again[repair.message_id] -= 1
        else:
            joined.append(repair)
    return joined + later
