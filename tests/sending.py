"""What a provider is sent of messages, and what was changed for that."""

from collections.abc import Sequence
from itertools import chain

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.providers import Profile, Repair, finished, grouped


def messages_of(groups: Sequence[Group]) -> list[BaseMessage]:
    """The messages of all groups, in order."""
    return list(chain.from_iterable(group.messages for group in groups))


def sent_with(
    messages: Sequence[BaseMessage], profile: Profile
) -> tuple[list[BaseMessage], list[Repair]]:
    """Messages as they are sent once they have met all requirements of a provider."""
    groups, repairs = grouped(messages, profile)
    sent, further_repairs = finished(messages_of(groups), profile)
    return sent, [*repairs, *further_repairs]
