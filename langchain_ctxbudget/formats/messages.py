"""Lists of messages, OpenAI's or LangChain's, on their own or as the `messages` of an object."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.formats import langchain, openai
from langchain_ctxbudget.formats.document import Node
from langchain_ctxbudget.formats.model import Draft

_TRACE_KEYS = {"id", "messages", "dataset", "questions"}


def is_message(value: object) -> bool:
    """Whether a JSON value looks like a message."""
    return langchain.is_message(value) or openai.is_message(value)


def read_messages(messages: Node) -> list[BaseMessage]:
    """The messages of a list, each in its own form.

    Raises:
        ConversationFormatError: one of them is no message.
    """
    return [_read_message(node) for node in messages.items()]


def read_list(messages: Iterable[Node]) -> Draft:
    """One conversation from a list of messages."""
    nodes = list(messages)
    return Draft(
        format=_form(nodes),
        conversation_id=None,
        title=None,
        messages=[_read_message(node) for node in nodes],
    )


def read_object(node: Node) -> Draft:
    """A conversation from an object with `messages`: a request body, a training example, an agent's trace."""
    messages = node.get("messages")
    if messages.value is None:
        raise messages.error("a list of messages")
    form = _form(list(messages.items()))
    own_id = node.get("conversation_id").identifier() or node.get("id").identifier()
    is_trace = form == "openai" and own_id is not None and node.fields().keys() <= _TRACE_KEYS
    return Draft(
        format="evaluation" if is_trace else form,
        conversation_id=own_id,
        title=node.get("title").optional_text(),
        messages=read_messages(messages),
    )


def _form(nodes: list[Node]) -> str:
    return "langchain" if any(langchain.is_message(node.value) for node in nodes) else "openai"


def _read_message(node: Node) -> BaseMessage:
    if langchain.is_message(node.value):
        return langchain.read_message(node)
    if openai.is_message(node.value):
        return openai.read_message(node)
    raise node.error("a message with a role, or a type and content")
