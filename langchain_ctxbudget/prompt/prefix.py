"""What two prompts begin with alike: the part that a provider's prompt cache need not read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.messages.messages import fingerprint
from langchain_ctxbudget.tokens.counters import TokenCounter


class Shared(NamedTuple):
    """The common prefix of two prompts."""

    tokens: int
    messages: int
    """Those that are the same as a whole."""


def common_prefix(
    messages: Sequence[BaseMessage], costs: Sequence[int], previous: Sequence[BaseMessage], counter: TokenCounter
) -> Shared:
    """What a prompt and the one before it begin with alike.

    Of the first message that differs, only what its text begins with is counted, and nothing of its framing.

    Args:
        messages: the prompt.
        costs: what each of them costs, in tokens.
        previous: the prompt before it.
        counter: how tokens are counted.
    """
    tokens = same = 0
    for message, cost, before in zip(messages, costs, previous, strict=False):
        if message is not before and fingerprint(message) != fingerprint(before):
            if isinstance(message.content, str) and isinstance(before.content, str):
                tokens += counter.count_text(_common_text(message.content, before.content))
            break
        tokens += cost
        same += 1
    return Shared(tokens, same)


def _common_text(first: str, second: str) -> str:
    """What two texts begin with, found by halving: comparing slices is far faster than characters."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return first[:low]
