"""A provider's own compaction: a cut in the conversation that somebody else has made.

What stands before the newest one is ignored by the provider that made it, so it is neither counted
nor sent to that provider, but for messages that are kept: these stand behind it. For any other
provider, and where the compaction is not sent, the conversation is whole.
"""

from collections.abc import Iterator, Sequence

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import compaction_by
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.cutting import group_around

LARGEST_SHARE = 0.5
"""The share of a prompt's budget that a compaction and its message may take. A larger one is not
sent as it is: its words are clipped as a text, and what stands before it comes back."""


def as_compacted(
    conversation: Conversation, budget_tokens: int, turn: Sequence[BaseMessage] = ()
) -> Conversation:
    """Returns a conversation as the model's provider reads it, if that has compacted it.

    Args:
        conversation: The conversation; it is not changed.
        budget_tokens: The budget of the prompt.
        turn: The current turn, which may hold a compaction, too.
    """
    maker = conversation.profile.compactions
    if not maker:
        return conversation
    whole = conversation.whole or conversation
    position = next(_newest_first(whole, turn, maker), None)
    if position is None:
        return whole
    compaction = _group_of(whole, position)
    tokens = _tokens_of(whole, position, turn)
    if tokens is None or tokens > budget_tokens * LARGEST_SHARE:
        return whole.without_compactions()
    return _compacted(whole, compaction, tokens)


def _newest_first(
    conversation: Conversation, turn: Sequence[BaseMessage], maker: str
) -> Iterator[int]:
    """Yields the positions of messages with a compaction of a provider, the newest first.

    The turn's messages count on from the stored ones.
    """
    end = len(conversation.entries)
    for number in reversed(range(len(turn))):
        if compaction_by(turn[number]) == maker:
            yield end + number
    compactions = conversation.table.compactions
    for position in sorted(compactions, reverse=True):
        is_sent = position < end and conversation.entries[position].preservation != "drop"
        if is_sent and compactions[position] == maker:
            yield position


def _group_of(conversation: Conversation, position: int) -> range:
    """Returns the positions of a message with a compaction and of the results of its calls."""
    end = len(conversation.entries)
    if position >= end:
        return range(position, position + 1)
    return range(position, group_around(conversation.safe, position, end).stop)


def _tokens_of(
    conversation: Conversation, position: int, turn: Sequence[BaseMessage]
) -> int | None:
    """Returns what a message with a compaction costs as it is; None where it is sent in short."""
    end = len(conversation.entries)
    if position >= end:
        return conversation.counter.count_message(turn[position - end])
    entry = conversation.entries[position]
    if entry.preservation == "summarize":
        return None
    return conversation.counter.count_message(entry.sent_message)


def _compacted(conversation: Conversation, compaction: range, tokens: int) -> Conversation:
    """Returns a conversation in which nothing before a compaction costs anything.

    Messages that are kept do, with those that must stay beside them.
    """
    end = len(conversation.entries)
    first = min(compaction.start, end)
    costs = conversation.cost_column.copy()
    costs[:first] = 0
    for position in conversation.kept_positions:
        if position >= first:
            break
        group = group_around(conversation.safe, position, first)
        costs[group.start : group.stop] = conversation.cost_column[group.start : group.stop]
    if first < end:
        costs[first] = tokens
    return conversation.behind_compaction(compaction, costs)
