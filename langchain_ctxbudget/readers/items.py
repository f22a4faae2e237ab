"""Items of OpenAI's Responses API as messages. Codex keeps its sessions in the same form.

An answer of the model is several items there: thoughts, words, calls. A message of LangChain has
all of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
    convert_to_messages,
)

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.fields import id_at, text_at
from langchain_ctxbudget.readers.message_forms import (
    call_of,
    content_from,
    plain_content,
    split_calls,
)
from langchain_ctxbudget.readers.pieces import text_of_result, time_kwargs

UNREADABLE_ITEMS = ("compaction", "compaction_summary", "ghost_snapshot", "item_reference")
"""Types of items that say nothing to anybody but the provider."""
_CALL = "_call"
_OUTPUT = "_output"
_TEXT_TYPES = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def messages_of_items(items: Iterable[JsonObject]) -> list[BaseMessage]:
    """Returns the messages that items are the parts of.

    Raises:
        ValueError: An item is no item of the Responses API.
    """
    collector = ItemCollector()
    for item in items:
        collector.add(item)
    return collector.finish()


@dataclass(slots=True)
class ItemCollector:
    """Makes messages of items, one item after the other."""

    messages: list[BaseMessage] = field(default_factory=list)
    """The messages that are finished."""
    model: str | None = None
    """The model that answers from here on."""
    _content: list[Any] = field(default_factory=list)
    _calls: list[ToolCall | InvalidToolCall] = field(default_factory=list)
    _time: str | None = None
    _id: str | None = None

    def add(self, item: JsonObject, time: str | None = None) -> None:
        """Takes an item.

        Args:
            item: The item.
            time: When it was said, as ISO 8601.
        """
        item_type = text_at(item, "type") or "message"
        if item_type in UNREADABLE_ITEMS:
            return
        if item_type == "message" and item.get("role") != "assistant":
            self._finish_answer()
            self.messages += _of_somebody(item, time)
        elif item_type.endswith(_OUTPUT):
            self._finish_answer()
            self.messages.append(_result_in(item, time))
        else:
            self._add_to_answer(item, item_type, time)

    def finish(self) -> list[BaseMessage]:
        """Returns all messages."""
        self._finish_answer()
        return self.messages

    def last_answer(self) -> AIMessage | None:
        """Finishes the answer that has begun, and returns the last one."""
        self._finish_answer()
        for message in reversed(self.messages):
            if isinstance(message, AIMessage):
                return message
        return None

    def _add_to_answer(self, item: JsonObject, item_type: str, time: str | None) -> None:
        is_call = _is_call(item, item_type)
        if not is_call and (self._calls or self._has_words()):
            self._finish_answer()  # Thoughts or words behind words or calls are another answer.
        self._time = self._time or time
        if is_call:
            self._calls.append(_call_in(item, item_type))
        elif item_type == "message":
            self._id = self._id or id_at(item, ("id",))
            self._content += [_plain_block(block) for block in _blocks(item.get("content"))]
        else:
            self._content.append(item)

    def _has_words(self) -> bool:
        return any(block.get("type") == "text" for block in self._content)

    def _finish_answer(self) -> None:
        if not self._content and not self._calls:
            return
        metadata = {"model_provider": "openai"}
        if self.model is not None:
            metadata["model_name"] = self.model
        calls, invalid_calls = split_calls(self._calls)
        self.messages.append(
            AIMessage(
                content_from(self._content),
                id=self._id,
                tool_calls=calls,
                invalid_tool_calls=invalid_calls,
                additional_kwargs=time_kwargs(self._time),
                response_metadata=metadata,
            )
        )
        self._content = []
        self._calls = []
        self._time = None
        self._id = None


def _of_somebody(item: JsonObject, time: str | None) -> list[BaseMessage]:
    """Returns the message of a user, a developer or a system."""
    blocks = [_plain_block(block) for block in _blocks(item.get("content"))]
    if not blocks:
        return []
    fields = {"role": item["role"], "content": plain_content(blocks), "id": id_at(item, ("id",))}
    return convert_to_messages([fields | time_kwargs(time)])


def _blocks(content: Any) -> list[Any]:  # noqa: ANN401 - JSON
    if isinstance(content, list):
        return content
    if isinstance(content, str) and content:
        return [{"type": "text", "text": content}]
    return []


def _plain_block(block: Any) -> Any:  # noqa: ANN401 - JSON
    """Returns a block of text in LangChain's form, with its sources; any other as it is."""
    if not isinstance(block, dict) or block.get("type") not in _TEXT_TYPES:
        return block
    text: JsonObject = {"type": "text", "text": str(block.get("text") or "")}
    if block.get("annotations"):
        text["annotations"] = block["annotations"]
    return text


def _is_call(item: JsonObject, item_type: str) -> bool:
    """Tells if an item is a call that has a result; what the provider itself did has an action."""
    if not item_type.endswith(_CALL):
        return False
    return id_at(item, ("call_id",)) is not None or "action" not in item


def _call_in(item: JsonObject, item_type: str) -> ToolCall | InvalidToolCall:
    """Returns a call. A shell's is named after its type, and its action is what it is called with.

    Codex gives a call an empty namespace, or that of the server whose tool it is.
    """
    name = text_at(item, "name") or item_type.removesuffix(_CALL)
    arguments = item.get("arguments", item.get("input", item.get("action")))
    if item_type == "custom_tool_call":
        arguments = {"input": arguments}
    return call_of(name, arguments, id_at(item, ("call_id", "id")))


def _result_in(item: JsonObject, time: str | None) -> ToolMessage:
    """Returns the result of a call; earlier versions of Codex have it as an object."""
    output = item.get("output", item.get("tools"))
    failed = item.get("status") in ("failed", "incomplete")
    if isinstance(output, dict) and "content" in output:
        failed = output.get("success") is False
        output = output["content"]
    content = _content_of_output(output)
    call_id = id_at(item, ("call_id", "id"))
    if call_id is None:
        raise ValueError("the result of a call has no call_id")
    return ToolMessage(
        content,
        tool_call_id=call_id,
        status="error" if failed else "success",
        additional_kwargs=time_kwargs(time),
    )


def _content_of_output(output: Any) -> str | list[Any]:  # noqa: ANN401 - JSON
    """Returns what a call has returned: blocks, a text, or anything else as JSON."""
    if output is None:
        return ""
    if isinstance(output, list) and all(isinstance(block, dict) for block in output):
        return content_from([_plain_block(block) for block in output])
    return text_of_result(output)


def words_of(item: JsonObject) -> list[str]:
    """Returns the texts of a message."""
    blocks = [_plain_block(block) for block in _blocks(item.get("content"))]
    return [block["text"] for block in blocks if isinstance(block, dict) and "text" in block]


def text_of_instructions(value: Any) -> str | None:  # noqa: ANN401 - JSON
    """Returns instructions that are a text, or an object with one."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, dict):
        return text_at(value, "text")
    return None
