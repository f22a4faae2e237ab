"""Where a provider is told that the prompt up to here comes again.

OpenAI caches prefixes by itself. Anthropic caches up to a block that carries `cache_control`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

EPHEMERAL = {"type": "ephemeral"}


def with_cache_marker(messages: Sequence[BaseMessage], stable: int) -> list[BaseMessage]:
    """Mark the end of the stable zone for Anthropic's prompt cache; the given messages are not changed.

    The marker goes to the last text block of the last stable message that has a text. A message that only calls tools,
    thinks or shows something has none, and the one before it is tried. If no message has one, nothing is marked.

    Args:
        messages: a prompt.
        stable: how many messages at its beginning are the same from turn to turn.
    """
    marked = list(messages)
    for position in reversed(range(min(stable, len(marked)))):
        message = marked[position]
        content = None if _is_translated(message) else _marked(message.content)
        if content is not None:
            marked[position] = message.model_copy(update={"content": content})
            break
    return marked


def _is_translated(message: BaseMessage) -> bool:
    """Whether an answer has LangChain's standard content, out of which `langchain-anthropic` makes new blocks."""
    return isinstance(message, AIMessage) and message.response_metadata.get("output_version") == "v1"


def _marked(content: str | list[Any]) -> list[Any] | None:
    """A content with the marker on its last text that is not empty; None if it has no text."""
    blocks: list[Any] = [content] if isinstance(content, str) else list(content)
    for number in reversed(range(len(blocks))):
        block = {"type": "text", "text": blocks[number]} if isinstance(blocks[number], str) else blocks[number]
        if block.get("type") == "text" and str(block.get("text") or "").strip():
            blocks[number] = {**block, "cache_control": dict(EPHEMERAL)}
            return blocks
    return None
