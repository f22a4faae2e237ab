"""How messages of a history look in a prompt of some budget, and what they cost there.

A message is clipped before it takes the room of all others.
"""

from collections.abc import Callable
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import only_answers
from langchain_ctxbudget.history.conversation import Conversation

Cost = Callable[[int], int]
"""Returns what the message at a position costs, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingPolicy:
    """How large a message may be in a prompt. Shares are of the prompt's budget."""

    least_share: float = 0.125
    """What a message, or the newest messages together, may take in a small budget.

    A tool result may take as much in any budget; anything else twice as much in a large one.
    """
    large_budget: int = 16_384
    """The budget, in tokens, from which on it is twice as much."""
    media_share: float = 0.4
    """What the media of the newest large messages may take together, besides their words."""
    newest_media_share: float = 0.6
    """What the media of the very newest of these messages may take."""
    most_large: int = 16
    """How many of the newest large messages are looked at for media."""
    least_tokens: int = 128
    """No message is clipped to fewer tokens; old tool results are clipped to half of it."""
    longest_clipped: int = 1_000
    """A conversation of at most so many messages may be shown whole but for its largest ones."""

    def message_tokens(self, budget_tokens: int, share: float) -> int:
        """Returns what a message may cost that may take a share of a budget, in tokens."""
        return max(self.least_tokens, int(budget_tokens * share))


CLIPPING = ClippingPolicy()


def keep_share(budget_tokens: int) -> float:
    """Returns the share of a budget that the newest messages keep.

    It is less in a small budget, where retrieval needs more.
    """
    return CLIPPING.least_share * (1 + min(1.0, budget_tokens / CLIPPING.large_budget))


def message_in_prompt(
    conversation: Conversation,
    position: int,
    budget_tokens: int,
    cleared: int = 0,
    media_from: int = 0,
) -> tuple[BaseMessage, int]:
    """Returns a message as a prompt shows it, and its cost in tokens.

    It is clipped to a limit that is the same in every turn: else the prompt would change with the
    turn.

    Args:
        conversation: The conversation.
        position: Where the message stands in it.
        budget_tokens: The budget of the prompt.
        cleared: Tool results before this position are clipped short.
        media_from: From this position on, media stay besides what the message may cost otherwise,
            as they cannot be shown in part.
    """
    is_result = only_answers(conversation.entries[position].message)
    if is_result and position < cleared:
        return conversation.clipped_message(position, CLIPPING.least_tokens // 2)

    share = CLIPPING.least_share if is_result else keep_share(budget_tokens)
    media_tokens = 0
    if position >= media_from:
        media_tokens = int(budget_tokens * CLIPPING.newest_media_share)
    return conversation.clipped_message(
        position, CLIPPING.message_tokens(budget_tokens, share), media_tokens
    )


def cost_in(
    conversation: Conversation, budget_tokens: int, cleared: int = 0, media_from: int | None = None
) -> Cost:
    """Returns a function of a position: what its message costs as a prompt of a budget shows it."""
    if media_from is None:
        media_from = first_with_media(conversation, budget_tokens)

    def cost(position: int) -> int:
        _, tokens = message_in_prompt(conversation, position, budget_tokens, cleared, media_from)
        return tokens

    return cost


def first_with_media(conversation: Conversation, budget_tokens: int) -> int:
    """Returns the position from which on large messages keep their media.

    From there on all media fit their share of the budget together. The newest message with media
    keeps what fits of them in any case.
    """
    end = len(conversation.entries)
    begin = max(0, end - CLIPPING.longest_clipped)
    limit = CLIPPING.message_tokens(budget_tokens, CLIPPING.least_share)
    [large] = (conversation.cost_column[begin:] > limit).nonzero()
    newest_large = (begin + large[-CLIPPING.most_large :]).tolist()

    tokens_left = int(budget_tokens * CLIPPING.media_share)
    first = end
    for position in reversed(newest_large):
        tokens = conversation.media_tokens(position)
        if tokens > tokens_left and first < end:
            break
        if tokens:
            tokens_left -= tokens
            first = position
    return first


def newest_costs(conversation: Conversation, messages: int, budget_tokens: int) -> list[int]:
    """Returns what the newest messages cost in a prompt of a budget, in tokens, oldest first."""
    first = max(0, len(conversation.entries) - messages)
    column = conversation.cost_column[first:]
    costs: list[int] = column.tolist()
    # Only messages over the least limit may be clipped.
    limit = CLIPPING.message_tokens(budget_tokens, CLIPPING.least_share)
    [large] = (column > limit).nonzero()
    cost = cost_in(conversation, budget_tokens)
    for offset in large.tolist():
        costs[offset] = cost(first + offset)
    return costs


def history_tokens(conversation: Conversation, budget_tokens: int) -> int:
    """Returns what a whole conversation costs; a short one with its largest messages clipped."""
    messages = len(conversation.entries)
    fits = conversation.total_tokens <= budget_tokens
    if fits or messages > CLIPPING.longest_clipped:
        return conversation.total_tokens
    return sum(newest_costs(conversation, messages, budget_tokens))
