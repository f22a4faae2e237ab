"""Exports of Claude: conversations, and the projects and the memory beside them.

Anthropic does not publish the format. It was read from Sinity/polylogue
(`docs/providers/claude-ai.md`), withLinda/claude-conversation-exporter and files that other public
parsers test with (2025 and 2026).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from langchain_ctxbudget.readers.base import (
    GroupReader,
    JsonObject,
    ReadConversation,
    id_of_beginning,
)
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
from langchain_ctxbudget.readers.pieces import (
    beside,
    document,
    file_line,
    words_with_documents,
)
from langchain_ctxbudget.readers.trees import branches, conversation_of, transcript_of

PLACEHOLDER = "This block is not supported on your current device yet."
"""What an export has in the place of a call of a tool, mostly as a block of code."""
ARTIFACTS = "artifacts"
"""The tool that writes documents beside the conversation; its calls hold their texts."""
ARTIFACT_TEXTS = ("content", "new_str")
CALL = "tool_use"
RESULT = "tool_result"
NOT_SAID = ("thinking", "redacted_thinking", "token_budget", "flag")
"""Types of blocks that nobody said."""


class Claude(GroupReader):
    """Reads one conversation a record, a list of messages that name their parents."""

    name: ClassVar[str] = "claude"
    accepts: ClassVar[str] = (
        'a data export of Claude: objects with "chat_messages", projects and memories'
    )

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a conversation, a project or a memory."""
        return (
            isinstance(record.get("chat_messages"), list)
            or _is_project(record)
            or _is_memory(record)
        )

    def read(self, records: Sequence[JsonObject]) -> ReadConversation:
        """Returns the conversation as the user last saw it, and its other branches."""
        [record] = records
        if _is_project(record):
            return _project(record)
        if _is_memory(record):
            return _memory(record)
        by_key = _messages_by_key(record)
        times = {key: seconds_at(message, "created_at") for key, message in by_key.items()}
        current = text_at(record, "current_leaf_message_uuid")
        said = {key: messages_of(message, key) for key, message in by_key.items()}
        transcripts = [
            transcript_of(branch, said) for branch in branches(_parents(by_key), times, current)
        ]
        return conversation_of(
            transcripts, conversation_id=id_at(record), title=text_at(record, *TITLE_KEYS)
        )


def _messages_by_key(record: JsonObject) -> dict[str, JsonObject]:
    """Returns the messages of a conversation by their ids; one without an id by its number."""
    by_key: dict[str, JsonObject] = {}
    for number, message in enumerate(objects_in(record["chat_messages"])):
        by_key[id_at(message, ("uuid",)) or f"message-{number}"] = message
    return by_key


def _parents(by_key: Mapping[str, JsonObject]) -> dict[str, str | None]:
    """Returns what each message follows: the one that it names, else the one before it."""
    parents: dict[str, str | None] = {}
    before: str | None = None
    for key, message in by_key.items():
        parents[key] = id_at(message, ("parent_message_uuid",)) or before
        before = key
    return parents


def messages_of(message: JsonObject, key: str) -> list[BaseMessage]:
    """Returns what one message of an export says: words and files; calls of tools, and results."""
    sender = message.get("sender")
    if sender not in ("human", "assistant"):
        raise ValueError(f"message {key!r} has the unknown sender {sender!r}")
    if sender == "human":
        return _of_user(message, key)
    pieces = _Answer(key=key, time=time_at(message))
    for block in _blocks_of(message):
        pieces.add(block)
    pieces.say("\n".join(_file_lines(message)))
    return pieces.finish()


def _of_user(message: JsonObject, key: str) -> list[BaseMessage]:
    words = [_text_of(block) for block in _blocks_of(message)]
    pasted: list[JsonObject] = []
    for attachment in objects_in(message.get("attachments")):
        text = text_at(attachment, "extracted_content")
        if text is not None:
            pasted.append(document(text, text_at(attachment, "file_name")))
    said = "\n\n".join(filter(str.strip, [*words, *_file_lines(message)]))
    content = words_with_documents(said, pasted)
    if not content:
        return []
    return [HumanMessage(content, **beside(key, time_at(message)))]


def _blocks_of(message: JsonObject) -> list[JsonObject]:
    """Returns the blocks of a message; of one that has none with words or calls, its text."""
    blocks = objects_in(message.get("content"))
    if any(block.get("type") in (CALL, RESULT) or _text_of(block) for block in blocks):
        return blocks
    return [{"type": "text", "text": message.get("text")}]


def _text_of(block: JsonObject) -> str:
    """Returns the words of a block without what stands there for what an export leaves out."""
    if block.get("type") in NOT_SAID:
        return ""
    text = "\n".join(texts_at(block, "title", "text"))
    for placeholder in (f"```\n{PLACEHOLDER}\n```", PLACEHOLDER):
        text = text.replace(placeholder, "")
    return text.strip()


def _file_lines(message: JsonObject) -> list[str]:
    """Returns a line for each file of which the export has the name only."""
    attachments = objects_in(message.get("attachments"))
    unread = [file for file in attachments if text_at(file, "extracted_content") is None]
    files = [*objects_in(message.get("files")), *objects_in(message.get("files_v2"))]
    return list(dict.fromkeys(map(_file_line, [*unread, *files])))


def _file_line(file: JsonObject) -> str:
    name = text_at(file, "file_name", "file_uuid")
    kind = text_at(file, "file_kind", "file_type")
    if kind == "image":
        return file_line("image", name)
    return file_line("file", name, kind)


@dataclass(slots=True, kw_only=True)
class _Answer:
    """The messages that an answer is made of: words and calls, then results, then words again."""

    key: str
    time: str | None
    messages: list[BaseMessage] = field(default_factory=list)
    _words: list[str] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)
    _unanswered: list[ToolCall] = field(default_factory=list)

    def add(self, block: JsonObject) -> None:
        """Takes the next block."""
        if block.get("type") == CALL:
            self._add_call(block)
        elif block.get("type") == RESULT:
            self._add_result(block)
        else:
            self.say(_text_of(block))

    def say(self, text: str) -> None:
        """Takes words; behind calls, they begin another message."""
        if not text:
            return
        if self._calls:
            self._finish_message()
        self._words.append(text)

    def finish(self) -> list[BaseMessage]:
        """Returns all messages."""
        self._finish_message()
        return self.messages

    def _add_call(self, block: JsonObject) -> None:
        name = text_at(block, "name") or "tool"
        arguments = object_at(block, "input")
        if name == ARTIFACTS:
            self.say(_artifact(arguments))
            return
        count = len(self.messages) + len(self._calls)
        call_id = id_at(block, ("id",)) or f"{self.key}-call-{count}"
        call = ToolCall(type="tool_call", name=name, args=arguments, id=call_id)
        self._calls.append(call)
        self._unanswered.append(call)

    def _add_result(self, block: JsonObject) -> None:
        """Adds the result of a call: the one that it names, else the oldest without a result."""
        if block.get("name") == ARTIFACTS:
            return
        text = _result_text(block)
        call = self._answered_by(block)
        if call is None:
            self.say(text)
            return
        self._unanswered.remove(call)
        self._finish_message()
        self.messages.append(
            ToolMessage(
                text,
                tool_call_id=str(call["id"]),
                name=call["name"],
                status="error" if block.get("is_error") is True else "success",
                **beside(None, self.time),
            )
        )

    def _answered_by(self, block: JsonObject) -> ToolCall | None:
        """Returns the call without a result that a result is of; None where there is none."""
        named = id_at(block, ("tool_use_id",))
        for call in self._unanswered:
            if named is None or call["id"] == named:
                return call
        return None

    def _finish_message(self) -> None:
        if not self._words and not self._calls:
            return
        message_id = self.key
        if self.messages:
            message_id = f"{self.key}-{len(self.messages)}"
        self.messages.append(
            AIMessage(
                "\n\n".join(self._words),
                tool_calls=self._calls,
                **beside(message_id, self.time),
            )
        )
        self._words = []
        self._calls = []


def _artifact(arguments: JsonObject) -> str:
    """Returns a document that Claude has written beside the conversation, or a change to it."""
    title = text_at(arguments, "title", "id") or "without a name"
    return "\n".join([f"[artifact: {title}]", *texts_at(arguments, *ARTIFACT_TEXTS)])


def _result_text(block: JsonObject) -> str:
    content = block.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, map(_text_of, objects_in(content))))


# Projects and memories


def _is_project(record: JsonObject) -> bool:
    return "prompt_template" in record or isinstance(record.get("docs"), list)


def _project(record: JsonObject) -> ReadConversation:
    """Returns the instructions of a project and its documents, as a conversation of their own."""
    messages: list[BaseMessage] = []
    instructions = text_at(record, "prompt_template")
    if instructions is not None:
        messages.append(SystemMessage(instructions))
    for file in objects_in(record.get("docs")):
        text = text_at(file, "content")
        if text is None:
            continue
        block = document(text, text_at(file, "filename"))
        messages.append(HumanMessage([block], **beside(id_at(file), time_at(file))))
    name = text_at(record, *TITLE_KEYS) or "without a name"
    return ReadConversation(
        conversation_id=id_at(record) or id_of_beginning(messages),
        title=f"Project {name}",
        messages=messages,
        is_dialogue=False,
    )


def _is_memory(record: JsonObject) -> bool:
    return "conversations_memory" in record or "project_memories" in record


def _memory(record: JsonObject) -> ReadConversation:
    """Returns what Claude has noted about the user, in its words."""
    notes = [text_at(record, "conversations_memory")]
    of_projects = object_at(record, "project_memories")
    notes += [text_at(of_projects, project) for project in of_projects]
    messages: list[BaseMessage] = [AIMessage(note) for note in notes if note is not None]
    account = id_at(record, ("account_uuid",)) or id_of_beginning(messages)
    return ReadConversation(
        conversation_id=f"memory-{account}",
        title="Memory of Claude",
        messages=messages,
        is_dialogue=False,
    )
