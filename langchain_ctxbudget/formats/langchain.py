"""LangChain messages as JSON, in the three forms that LangChain writes."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.formats.document import Node

_CLASSES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
}
_CLASSES_BY_NAME = {cls.__name__: cls for cls in _CLASSES.values()}
_NOT_ARGUMENTS = {"type", "tool_call_chunks", "chunk_position"}  # the last two: of chunks of a stream
_ESCAPED = "__lc_escaped__"  # how `dumps` marks a dict of the user's that has a key "lc"


def is_message(value: object) -> bool:
    """Whether a JSON value looks like a LangChain message in one of the three forms."""
    if not isinstance(value, dict):
        return False
    if value.get("type") == "constructor" and "lc" in value:
        return True
    return _class_of_type(value.get("type")) is not None and ("data" in value or "content" in value)


def read_message(node: Node) -> BaseMessage:
    """The message that a JSON value holds, chunks of a stream as whole messages.

    The forms are `messages_to_dict` (`{"type": "human", "data": {...}}`), `model_dump`
    (`{"type": "human", "content": ...}`) and `langchain_core.load.dumpd`
    (`{"lc": 1, "type": "constructor", "id": [..., "HumanMessage"], "kwargs": {...}}`). Only message classes
    are ever constructed.

    Raises:
        ConversationFormatError: it is none of the three, or its fields are not a message's.
    """
    fields = node.fields()
    if "lc" in fields:
        return _build(_class_by_name(node), node.get("kwargs"), escaped=True)
    cls = _class_of_type(fields.get("type"))
    if cls is None:
        raise node.get("type").error(f"one of {', '.join(_CLASSES)}")
    return _build(cls, node if "content" in fields else node.get("data"))


def _build(cls: type[BaseMessage], node: Node, *, escaped: bool = False) -> BaseMessage:
    node.fields()
    fields: dict[str, Any] = _unescaped(node.plain()) if escaped else node.plain()
    arguments = {key: value for key, value in fields.items() if key not in _NOT_ARGUMENTS}
    if "content" not in arguments:
        raise node.get("content").error("the content")
    if arguments["content"] is None:
        arguments["content"] = ""
    with node.building(cls.__name__):
        return cls(**arguments)


def _class_of_type(kind: object) -> type[BaseMessage] | None:
    if not isinstance(kind, str):
        return None
    return _CLASSES.get(kind) or _CLASSES_BY_NAME.get(kind.removesuffix("Chunk"))


def _class_by_name(node: Node) -> type[BaseMessage]:
    path = list(node.get("id").items())
    name = path[-1].text() if path else ""
    cls = _CLASSES_BY_NAME.get(name.removesuffix("Chunk"))
    if cls is None:
        raise node.get("id").complaint(f"expected one of {', '.join(_CLASSES_BY_NAME)}, saw {name!r}")
    return cls


def _unescaped(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return [_unescaped(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and _ESCAPED in value:
        return value[_ESCAPED]
    return {key: _unescaped(item) for key, item in value.items()}
