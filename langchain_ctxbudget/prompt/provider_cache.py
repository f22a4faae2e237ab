"""What two prompts have in common, which a provider's cache knows already."""

from bisect import bisect_left
from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.messages import fingerprint
from langchain_ctxbudget.tokens import TokenCounter


def common_prefix(
    messages: Sequence[BaseMessage],
    costs: Sequence[int],
    previous: Sequence[BaseMessage],
    counter: TokenCounter,
) -> tuple[int, int]:
    """Returns the tokens, and the number of whole messages, with which two prompts begin alike."""
    tokens = same = 0
    for message, cost, before in zip(messages, costs, previous, strict=False):
        if message is not before and fingerprint(message) != fingerprint(before):
            return tokens + _common_text_tokens(message, before, counter), same
        tokens += cost
        same += 1
    return tokens, same


def _common_text_tokens(message: BaseMessage, other: BaseMessage, counter: TokenCounter) -> int:
    """Returns the tokens with which the texts of two messages begin alike."""
    text = message.content
    other_text = other.content
    if not isinstance(text, str) or not isinstance(other_text, str):
        return 0
    # Comparing slices is far faster than comparing characters.
    sizes = range(1, min(len(text), len(other_text)) + 1)
    same = bisect_left(sizes, 1, key=lambda size: text[:size] != other_text[:size])
    return counter.count_text(text[:same])
