"""Compactions that a provider has made itself: what stands in place of all that was said before.

| provider | the block | what it holds |
|---|---|---|
| Anthropic | `{"type": "compaction", "content": "..."}` | a summary in words |
| OpenAI | `{"type": "compaction", "encrypted_content": "..."}` | what only OpenAI can read |

Either stands in an assistant's message, in front of what the model went on to say. An Anthropic
block without content tells of an attempt that has failed: it stands for nothing.
"""

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.content.blocks import Block, fields_of, type_of

COMPACTION = "compaction"
COMPACTION_TYPES = (COMPACTION, "compaction_summary")
"""Types of blocks that compact; OpenAI's endpoint for compaction once had a name of its own."""


def compaction_by(message: BaseMessage) -> str:
    """Returns whose compaction a message holds, such as `anthropic`; empty where it has none."""
    if isinstance(message.content, str) or not isinstance(message, AIMessage):
        return ""
    for block in message.content:
        maker = maker_of(block)
        if maker:
            return maker
    return ""


def maker_of(block: Block) -> str:
    """Returns whose compaction a block is; empty for any other block, and for one that failed."""
    if type_of(block) != COMPACTION:
        return ""
    if summary_of(block):
        return "anthropic"
    fields = fields_of(block)
    if "content" not in fields and fields.get("encrypted_content"):
        return "openai"
    return ""


def summary_of(block: Block) -> str:
    """Returns the words of a compaction; empty where nobody but its provider can read it."""
    content = fields_of(block).get("content")
    return content if isinstance(content, str) and content.strip() else ""
