"""Exports of ChatGPT: `conversations.json`, and its shards `conversations-000.json` and so on.

OpenAI does not publish the format. It was read from the descriptions and parsers of
mohamed-chs/convoviz (`docs/dev/chatgpt-spec.md`, February 2026) and mitkury/chatgpt-export-parser.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.readers.base import GroupReader, JsonObject, ReadConversation
from langchain_ctxbudget.readers.chatgpt_content import (
    INSTRUCTIONS,
    THOUGHTS,
    instructions_in,
    text_of,
)
from langchain_ctxbudget.readers.citations import report_in
from langchain_ctxbudget.readers.fields import (
    TITLE_KEYS,
    id_at,
    object_at,
    objects_in,
    seconds_at,
    text_at,
    texts_at,
    time_at,
)
from langchain_ctxbudget.readers.message_forms import call_of
from langchain_ctxbudget.readers.pieces import beside
from langchain_ctxbudget.readers.trees import branches, conversation_of

CANVAS = "canmore"
"""The tool that writes documents beside the conversation; its calls hold their texts."""
MEMORY = "bio"
"""The tool that notes what to remember; its calls hold it."""
WRITERS = (CANVAS, MEMORY)
"""Tools whose calls are what is said, and whose results say only that it was done."""
TO_EVERYBODY = ("all", None, "")
"""The recipients of a message that is no call of a tool."""


class ChatGPT(GroupReader):
    """Reads one conversation a record, a tree of messages."""

    name: ClassVar[str] = "chatgpt"
    accepts: ClassVar[str] = 'a data export of ChatGPT: objects with "mapping"'

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record has a tree of messages."""
        return isinstance(record.get("mapping"), dict)

    def read(self, records: Sequence[JsonObject]) -> ReadConversation:
        """Returns the conversation as the user last saw it, and its other branches."""
        [record] = records
        nodes = {key: node for key, node in record["mapping"].items() if isinstance(node, dict)}
        messages = {key: object_at(node, "message") for key, node in nodes.items()}
        parents = {key: id_at(node, ("parent",)) for key, node in nodes.items()}
        times = {key: seconds_at(message, "create_time") for key, message in messages.items()}
        current = text_at(record, "current_node")
        said: dict[int, BaseMessage] = {}
        transcripts: list[list[BaseMessage]] = []
        for branch in branches(parents, times, current):
            path = [messages[key] for key in branch]
            transcripts.append(messages_of_path(path, said))
        notes: tuple[str, ...] = ()
        if current is not None and current not in nodes:
            notes = ("the message that was seen last is missing: the newest branch is read",)
        return conversation_of(
            transcripts,
            conversation_id=id_at(record),
            title=text_at(record, *TITLE_KEYS),
            notes=notes,
        )


def messages_of_path(path: Sequence[JsonObject], said: dict[int, BaseMessage]) -> list[BaseMessage]:
    """Returns what was said on one branch: words, instructions, calls of tools and their results.

    What is hidden from the user, or has no weight because it was replaced, was not said; nor were
    thoughts. A call whose result is not there is shown as the words of the call.

    Args:
        path: The messages of the branch.
        said: Messages that branches before it have made, by the identity of what they are made of:
            branches have most of them in common.
    """
    transcript = _Transcript(said)
    for number, message in enumerate(path, 1):
        transcript.add(message, number)
    return transcript.finish()


@dataclass(slots=True)
class _Transcript:
    """Messages that come from a branch, one after the other."""

    said: dict[int, BaseMessage]
    messages: list[BaseMessage] = field(default_factory=list)
    _call_place: int | None = None
    """Where the last call of a tool stands, until the user says something."""
    _unanswered: dict[str, str] = field(default_factory=dict)
    """The texts of calls without a result yet, by their ids."""

    def add(self, message: JsonObject, number: int) -> None:
        """Takes the next message of the branch, which is its message with this number."""
        content = object_at(message, "content")
        kind = content.get("content_type")
        if kind in INSTRUCTIONS:
            self._say(SystemMessage, instructions_in(content), message)
            return
        report = report_in(object_at(message, "metadata"))
        if report is not None:
            self._say(AIMessage, report, message)
            return
        if kind not in THOUGHTS and not _is_hidden(message):
            self._add_shown(message, number)

    def _add_shown(self, message: JsonObject, number: int) -> None:
        """Adds a message that the user saw, by who said it."""
        role = object_at(message, "author").get("role")
        if role == "user":
            self._call_place = None
            self._say(HumanMessage, text_of(message), message)
        elif role == "system":
            self._say(SystemMessage, text_of(message), message)
        elif role == "assistant":
            self._add_answer(message)
        elif role == "tool":
            self._add_result(message)
        elif text_of(message).strip():
            name = id_at(message, ("id",)) or number
            raise ValueError(f"message {name!r} has the unknown role {role!r}")

    def finish(self) -> list[BaseMessage]:
        """Returns all messages; calls that have no result are words."""
        return [self._without_open_call(message) for message in self.messages]

    def _without_open_call(self, message: BaseMessage) -> BaseMessage:
        text = self._unanswered.get(str(message.id))
        if text is None or not isinstance(message, AIMessage):
            return message
        return message.model_copy(update={"content": text, "tool_calls": []})

    def _say(self, kind: type[BaseMessage], text: str, message: JsonObject) -> None:
        if not text.strip():
            return
        made = self.said.get(id(message))
        if made is None:
            made = kind(content=text, **_beside(message))
            self.said[id(message)] = made
        self.messages.append(made)

    def _add_answer(self, message: JsonObject) -> None:
        """Adds what the assistant says, or its call of a tool."""
        text = text_of(message)
        recipient = message.get("recipient")
        if not isinstance(recipient, str) or recipient in TO_EVERYBODY:
            self._say(AIMessage, text, message)
        elif _is_writer(recipient):
            self._say(AIMessage, written_in(text, recipient), message)
        elif text.strip():
            call_id = id_at(message, ("id",)) or f"call-{len(self.messages)}"
            call = call_of(recipient, _arguments_in(text), call_id)
            answer = AIMessage("", tool_calls=[call], **_beside(message) | {"id": call_id})
            self.messages.append(answer)
            self._unanswered[call_id] = text
            self._call_place = len(self.messages) - 1

    def _add_result(self, message: JsonObject) -> None:
        """Adds the result of the last call; several results of one call become one."""
        tool = text_at(object_at(message, "author"), "name") or "tool"
        text = text_of(message)
        if _is_writer(tool) or not text.strip():
            return
        if self._call_place is None:
            # Without a call in front of it, it counts as the assistant's.
            self._say(AIMessage, text, message)
            return
        call_id = str(self.messages[self._call_place].id)
        place = self._call_place + 1
        if call_id in self._unanswered:
            del self._unanswered[call_id]
            result = ToolMessage(text, tool_call_id=call_id, name=tool, **_beside(message))
            self.messages.insert(place, result)
        else:
            known = self.messages[place]
            both = f"{known.content}\n\n{text}"
            self.messages[place] = known.model_copy(update={"content": both})


def _is_writer(tool: str) -> bool:
    return tool.partition(".")[0] in WRITERS


def _is_hidden(message: JsonObject) -> bool:
    metadata = object_at(message, "metadata")
    return bool(metadata.get("is_visually_hidden_from_conversation")) or message.get("weight") == 0


def _beside(message: JsonObject) -> dict[str, Any]:
    return beside(id_at(message, ("id",)), time_at(message))


def _arguments_in(text: str) -> JsonObject:
    """Returns what a tool is called with; code and queries are no JSON."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return {"input": text}
    if isinstance(value, dict):
        return value
    return {"input": text}


def written_in(text: str, recipient: str) -> str:
    """Returns what a call writes: a document of the canvas, changes to it, or a memory."""
    if recipient.startswith(MEMORY):
        return f"[memory: {text}]"
    call = _arguments_in(text)
    lines = [f"[canvas: {text_at(call, 'name') or 'the document'}]"]
    lines += texts_at(call, "content")
    for change in objects_in(call.get("updates")):
        lines += texts_at(change, "replacement")
    for comment in objects_in(call.get("comments")):
        lines += texts_at(comment, "comment")
    if len(lines) == 1:
        lines.append(text)
    return "\n".join(lines)
