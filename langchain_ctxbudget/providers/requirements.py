"""What providers require of the messages that they are sent: one list, which every way out runs.

A requirement is one function `(stretch, profile) -> (stretch, repairs)`. It does nothing where the
messages meet it already. To add one, write the function and put it into `REQUIREMENTS`; `each`
makes one of a function of a single message.

Prompts, windows and histories run them in two stages: when stored messages and the turn are put
into groups, before anything is counted; and over the finished request, which is counted already: a
requirement of that stage must not change what a message costs, or the recount refuses the prompt.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.providers.cache_marks import with_accepted_marks
from langchain_ctxbudget.providers.call_ids import with_accepted_call_ids
from langchain_ctxbudget.providers.characters import with_sendable_characters
from langchain_ctxbudget.providers.foreign import with_own_items
from langchain_ctxbudget.providers.item_calls import with_calls_as_read
from langchain_ctxbudget.providers.media_limits import within_media_limits, without_refused_media
from langchain_ctxbudget.providers.names import accepted_speaker
from langchain_ctxbudget.providers.openai import without_response_id
from langchain_ctxbudget.providers.pairing import with_own_results
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.readable_media import with_readable_media
from langchain_ctxbudget.providers.result_media import with_media_behind_results
from langchain_ctxbudget.providers.roles import accepted
from langchain_ctxbudget.providers.stretch import (
    Change,
    MarksBeside,
    Placed,
    Repair,
    Stretch,
    UsedIds,
    joined_repairs,
)
from langchain_ctxbudget.providers.turns import (
    with_answers_behind_results,
    with_turns_before_calls,
)

Met = tuple[Stretch, list[Repair]]
Grouped = tuple[list[Group], list[Repair]]
NO_MARKS = MarksBeside()


class Stage(Enum):
    """When a requirement is met."""

    GROUPING = "when messages are put into groups, before they are counted"
    SENDING = "over the finished request"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that providers require of the messages that they are sent."""

    meet: Callable[[Stretch, Profile], Met]
    """Returns the messages as a provider accepts them, and what was changed."""
    stage: Stage = Stage.GROUPING
    holds_for_histories: bool = True
    """False where a whole history meets it already, as nothing of it is left out: `messages` of a
    chat history without `max_tokens`."""


def each(
    meet: Callable[[BaseMessage, Profile], tuple[BaseMessage | None, Sequence[Change]]],
) -> Callable[[Stretch, Profile], Met]:
    """Returns a requirement of single messages as one of all messages of a stretch.

    Args:
        meet: Returns a message as it is sent, or None if it is left out, and what was changed.
    """

    def meet_all(stretch: Stretch, profile: Profile) -> Met:
        sent: list[Placed] = []
        repairs: list[Repair] = []
        is_changed = False
        for placed in stretch.placed:
            message, changes = meet(placed.message, profile)
            if changes:
                repairs += [change.repair_of(placed.message) for change in changes]
            if message is placed.message:
                sent.append(placed)
            else:
                is_changed = True
                if message is not None:
                    sent.append(Placed(message, placed.position))
        if not is_changed:
            return stretch, repairs
        return replace(stretch, placed=sent), repairs

    return meet_all


REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(each(accepted_speaker)),
    Requirement(each(without_refused_media)),
    Requirement(with_calls_as_read),
    Requirement(each(with_own_items)),
    Requirement(with_accepted_call_ids),
    Requirement(each(accepted)),
    Requirement(each(with_readable_media)),
    Requirement(with_own_results),
    Requirement(with_turns_before_calls),
    Requirement(with_answers_behind_results),
    Requirement(each(without_response_id), Stage.SENDING, holds_for_histories=False),
    Requirement(with_media_behind_results, Stage.SENDING),
    Requirement(each(with_sendable_characters), Stage.SENDING),
    Requirement(with_accepted_marks, Stage.SENDING),
)
"""All of them, in the order in which they are met."""


def met(stretch: Stretch, profile: Profile, stage: Stage) -> Met:
    """Returns messages that meet all requirements of a stage, and the repairs for that."""
    repairs: list[Repair] = []
    for requirement in REQUIREMENTS:
        if requirement.stage is stage:
            stretch, further_repairs = requirement.meet(stretch, profile)
            repairs = joined_repairs(repairs, further_repairs)
    return stretch, repairs


def grouped(
    messages: Sequence[BaseMessage],
    profile: Profile,
    positions: Iterable[int | None] | None = None,
    used: UsedIds | None = None,
) -> Grouped:
    """Returns messages in groups that a provider accepts, in order, and the repairs.

    Args:
        messages: What is sent; it is not changed.
        profile: The provider.
        positions: The positions of the messages, by default from 0 on.
        used: The ids that earlier messages have used; those of these messages are added.
    """
    stretch, repairs = met(Stretch.of(messages, positions, used), profile, Stage.GROUPING)
    return stretch.groups(), repairs


def finished(
    messages: Sequence[BaseMessage], profile: Profile, beside: MarksBeside = NO_MARKS
) -> tuple[list[BaseMessage], list[Repair]]:
    """Returns the messages of a finished request as they are sent, and the last repairs.

    Args:
        messages: the messages of the request.
        profile: the provider.
        beside: the marks for the provider's cache that the request has besides.
    """
    request = replace(Stretch.of(messages), marks_beside=beside)
    stretch, repairs = met(request, profile, Stage.SENDING)
    return stretch.messages, repairs


def regrouped(groups: Sequence[Group], profile: Profile, used: UsedIds) -> Grouped:
    """Returns groups as they are sent behind other messages, and the repairs.

    Args:
        groups: The groups as they would be sent alone.
        profile: The provider.
        used: The ids that the messages before them have used.
    """
    messages = list(chain.from_iterable(group.messages for group in groups))
    changed, repairs = grouped(messages, profile, used=used)
    if not repairs:
        return list(groups), []
    in_place = [
        Group(after.messages, original.positions)
        for after, original in zip(changed, groups, strict=True)
    ]
    return in_place, repairs


def accepted_history(messages: Sequence[BaseMessage], profile: Profile) -> list[BaseMessage]:
    """Returns a whole history as a provider accepts it, for whoever sends it behind other messages.

    A chat history is sent by LangChain as it is. Messages that meet everything are the very objects
    that are given. System messages at the beginning stay. Calls of the last round that have no
    result yet stay open, since what comes next may answer them.
    """
    start = 0
    while start < len(messages) and isinstance(messages[start], SystemMessage):
        start += 1
    stretch = _met_by_history(messages[start:], profile, Stage.GROUPING)
    behind = _with_open_calls(stretch)
    sent = _met_by_history([*messages[:start], *behind], profile, Stage.SENDING).messages
    accepted_media, _ = within_media_limits(sent, profile)
    return accepted_media


def _met_by_history(messages: Sequence[BaseMessage], profile: Profile, stage: Stage) -> Stretch:
    """Returns messages that meet the requirements of a stage that hold for histories."""
    stretch = Stretch.of(messages)
    for requirement in REQUIREMENTS:
        if requirement.stage is stage and requirement.holds_for_histories:
            stretch, _ = requirement.meet(stretch, profile)
    return stretch


def _with_open_calls(stretch: Stretch) -> list[BaseMessage]:
    """Returns messages without stand-ins for missing results of the last round of calls."""
    placed = list(stretch.placed)
    end = len(placed)
    while end and isinstance(placed[end - 1].message, ToolMessage):
        end -= 1
    messages = [earlier.message for earlier in placed[:end]]
    messages += [result.message for result in placed[end:] if result.position is not None]
    return messages
