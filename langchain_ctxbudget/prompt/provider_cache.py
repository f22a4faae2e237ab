"""Caches of providers: what two prompts have in common, and marks for Anthropic's cache."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.messages import fingerprint
from langchain_ctxbudget.tokens import TokenCounter

MOST_MARKERS = 4
"""The most marks that Anthropic takes in a request."""


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


def with_cache_markers(
    messages: Sequence[BaseMessage], stable: int, most: int = MOST_MARKERS
) -> list[BaseMessage]:
    """Marks for Anthropic's cache where a prompt, its stable zone and its system message end.

    The given messages are not changed, and what the application has marked itself counts: `most` is
    the provider's limit. A mark goes to the last text of its message; a message that only calls
    tools, thinks or shows something has none, and the one before it is tried.
    """
    marked = list(messages)
    marks_left = most - sum(map(_marks_in, marked))
    for end in (len(marked), stable, 1):
        position = min(end, len(marked)) - 1
        content = None
        while position >= 0:
            content = _marked_content(marked[position])
            if content is not None:
                break
            position -= 1
        if content is not None and marks_left > 0 and not _marks_in(marked[position]):
            marked[position] = marked[position].model_copy(update={"content": content})
            marks_left -= 1
    return marked


def _marks_in(message: BaseMessage) -> int:
    return sum(isinstance(block, dict) and "cache_control" in block for block in message.content)


def _marked_content(message: BaseMessage) -> list[Any] | None:
    """Returns the content of a message with a mark on its last text that is not empty.

    None if it can have none.
    """
    if isinstance(message, AIMessage) and message.response_metadata.get("output_version") == "v1":
        return None  # out of LangChain's standard content `langchain-anthropic` makes new blocks
    content = message.content
    blocks: list[Any] = [content] if isinstance(content, str) else list(content)
    for number in reversed(range(len(blocks))):
        block = blocks[number]
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        if block.get("type") == "text" and str(block.get("text") or "").strip():
            blocks[number] = {**block, "cache_control": {"type": "ephemeral"}}
            return blocks
    return None
