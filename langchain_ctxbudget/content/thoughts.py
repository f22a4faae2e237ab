"""Thoughts of models: which block is one, and those that lead to nothing."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.content.blocks import Block, fields_of, type_of
from langchain_ctxbudget.content.calls import call_ids, is_call

THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
"""Types of blocks that hold thoughts, of all providers."""


def is_thought(block: Block) -> bool:
    """Tells if a block is reasoning of a model, in any provider's form."""
    return type_of(block) in THOUGHTS


def has_thoughts(message: BaseMessage) -> bool:
    """Tells if a message has reasoning of a model in its content."""
    if isinstance(message.content, str):
        return False
    return any(map(is_thought, message.content))


def without_trailing_thoughts(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Returns blocks of a message without the thoughts at their end, which lead to nothing.

    An answer was cut off there: the Responses API refuses reasoning without the item that it led
    to, and Anthropic a message that ends with thinking. But calls that stand in `tool_calls` alone
    are sent behind the content, so thoughts before them lead to these.
    """
    if not isinstance(message, AIMessage) or not _all_calls_in(blocks, message):
        return list(blocks)
    end = len(blocks)
    while end and is_thought(blocks[end - 1]):
        end -= 1
    return list(blocks[:end])


def _all_calls_in(blocks: Sequence[Block], message: BaseMessage) -> bool:
    """Tells if every call of a message has a block among these."""
    ids: set[str] = set()
    for block in filter(is_call, blocks):
        fields = fields_of(block)
        ids.add(str(fields.get("id")))
        ids.add(str(fields.get("call_id")))
    return ids.issuperset(call_ids(message))
