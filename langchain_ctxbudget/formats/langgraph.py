"""The state of a LangGraph thread: a snapshot, a checkpoint, or the answer of LangGraph Server."""

from __future__ import annotations

from langchain_ctxbudget.formats.document import Node
from langchain_ctxbudget.formats.messages import read_messages
from langchain_ctxbudget.formats.model import Draft


def is_state(value: dict[str, object]) -> bool:
    """Whether an object is a state: its values, or the channels of a checkpoint."""
    checkpoint = value.get("checkpoint")
    return (
        "values" in value
        or "channel_values" in value
        or (isinstance(checkpoint, dict) and "channel_values" in checkpoint)
    )


def read_conversation(node: Node) -> Draft:
    """The messages of a state, in any LangChain form or as OpenAI messages.

    The conversation's id is the thread's: `config.configurable.thread_id`, or the `thread_id` of
    `metadata`, of `checkpoint`, or of the object itself.

    Raises:
        ConversationFormatError: the state has no list of messages.
    """
    fields = node.fields()
    if "values" in fields:
        values = node.get("values")
    else:
        values = (node if "channel_values" in fields else node.get("checkpoint")).get("channel_values")
    messages = values.get("messages")
    if messages.value is None:
        raise messages.error("a list of messages")
    return Draft(format="langgraph", conversation_id=_thread(node), title=None, messages=read_messages(messages))


def _thread(node: Node) -> str | None:
    for path in (("config", "configurable"), ("metadata",), ("checkpoint",), ()):
        holder = node
        for key in path:
            if isinstance(holder.value, dict):
                holder = holder.get(key)
        if isinstance(holder.value, dict) and (thread := holder.get("thread_id").identifier()):
            return thread
    return None
