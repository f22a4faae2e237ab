"""Exports of Open WebUI: chats as trees, answers with calls of tools as HTML in their text.

The format was read from open-webui/open-webui (`src/lib/components/chat/Chat.svelte`,
`backend/open_webui/utils/middleware.py`) and from exports that public parsers test with (2026).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from typing import Any, ClassVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from langchain_ctxbudget.readers.base import GroupReader, JsonObject, ReadConversation
from langchain_ctxbudget.readers.fields import (
    TITLE_KEYS,
    id_at,
    object_at,
    objects_in,
    seconds_at,
    text_at,
    time_at,
)
from langchain_ctxbudget.readers.message_forms import call_of, split_calls
from langchain_ctxbudget.readers.pieces import (
    beside,
    document,
    file_line,
    words_with_documents,
)
from langchain_ctxbudget.readers.trees import branches, conversation_of, transcript_of

_DETAILS = re.compile(
    r'<details type="(?P<kind>reasoning|tool_calls)"[^>]*>.*?</details>\n?', re.DOTALL
)
"""Thoughts and calls of tools, which Open WebUI writes into an answer."""


class OpenWebUI(GroupReader):
    """Reads one chat a record."""

    name: ClassVar[str] = "open-webui"
    accepts: ClassVar[str] = 'an export of Open WebUI: objects with "chat" and its "history"'

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record has a chat, as a tree or as a list of messages."""
        chat = _chat_in(record)
        has_tree = isinstance(object_at(chat, "history").get("messages"), dict)
        return has_tree or (chat is not record and isinstance(chat.get("messages"), list))

    def read(self, records: Sequence[JsonObject]) -> ReadConversation:
        """Returns the chat as the user last saw it, and its other branches."""
        [record] = records
        chat = _chat_in(record)
        history = object_at(chat, "history")
        nodes = _nodes_of_tree(history)
        parents = {key: id_at(node, ("parentId",)) for key, node in nodes.items()}
        if not nodes:
            nodes = _nodes_of_list(chat)
            parents = _parents_in_a_row(nodes)
        times = {key: seconds_at(node, "timestamp") for key, node in nodes.items()}
        said = {key: messages_of(node, key) for key, node in nodes.items()}
        transcripts = [
            transcript_of(branch, said)
            for branch in branches(parents, times, text_at(history, "currentId"))
        ]
        instructions = text_at(chat, "system") or text_at(object_at(chat, "params"), "system")
        if instructions is not None:
            system = SystemMessage(instructions)
            transcripts = [[system, *transcript] for transcript in transcripts]
        return conversation_of(
            transcripts,
            conversation_id=id_at(record),
            title=text_at(record, *TITLE_KEYS) or text_at(chat, *TITLE_KEYS),
        )


def _chat_in(record: JsonObject) -> JsonObject:
    return object_at(record, "chat") or record


def _nodes_of_tree(history: JsonObject) -> dict[str, JsonObject]:
    """Returns the messages of a chat that is a tree, by their keys in it."""
    messages = object_at(history, "messages")
    return {key: message for key, message in messages.items() if isinstance(message, dict)}


def _nodes_of_list(chat: JsonObject) -> dict[str, JsonObject]:
    """Returns the messages of a chat that is a list, by their numbers."""
    messages = objects_in(chat.get("messages"))
    return {str(number): message for number, message in enumerate(messages)}


def _parents_in_a_row(keys: Iterable[str]) -> dict[str, str | None]:
    """Returns the parents of messages of which each follows the one before it."""
    parents: dict[str, str | None] = {}
    before: str | None = None
    for key in keys:
        parents[key] = before
        before = key
    return parents


def messages_of(message: JsonObject, key: str) -> list[BaseMessage]:
    """Returns what one message of a chat says; an answer with calls of tools is several."""
    role = message.get("role")
    words = message.get("content")
    if not isinstance(words, str):
        words = ""
    own = beside(id_at(message, ("id",)) or key, time_at(message))
    match role:
        case "assistant":
            return list(_answer(words, own))
        case "system":
            return [SystemMessage(words, **own)] if words.strip() else []
        case "user":
            return _of_user(message, words, own)
        case _:
            raise ValueError(f"message {key!r} has the unknown role {role!r}")


def _of_user(message: JsonObject, words: str, own: dict[str, Any]) -> list[BaseMessage]:
    """Returns a user's message with its files; none where it says nothing."""
    lines, documents = _files_of(message)
    said = "\n\n".join(filter(str.strip, [words, *lines]))
    content = words_with_documents(said, documents)
    if not content:
        return []
    return [HumanMessage(content, **own)]


def _files_of(message: JsonObject) -> tuple[list[str], list[JsonObject]]:
    """Returns a line for each file whose text an export does not have, and the texts of others."""
    lines: list[str] = []
    texts: list[JsonObject] = []
    for file in objects_in(message.get("files")):
        name = text_at(file, *TITLE_KEYS) or text_at(object_at(file, "file"), "filename")
        text = text_at(object_at(object_at(file, "file"), "data"), "content")
        if text is not None:
            texts.append(document(text, name))
        else:
            lines.append(file_line(text_at(file, "type") or "file", name))
    return lines, texts


def _answer(text: str, own: dict[str, Any]) -> Iterator[BaseMessage]:
    """Yields an answer: words and a call, its result, and so on; thoughts are left out."""
    words = ""
    end = 0
    number = 0
    for match in _DETAILS.finditer(text):
        words += text[end : match.start()]
        end = match.end()
        if match["kind"] != "tool_calls":
            continue
        attributes = _attributes_of(match[0])
        call_id = attributes.get("id") or f"{own['id']}-call-{number}"
        call = call_of(attributes.get("name") or "tool", attributes.get("arguments"), call_id)
        yield _piece(words.strip(), own, number, call)
        yield ToolMessage(
            _plain_result(attributes.get("result") or ""),
            tool_call_id=call_id,
            additional_kwargs=own["additional_kwargs"],
        )
        words = ""
        number += 1
    words = (words + text[end:]).strip()
    if words:
        yield _piece(words, own, number)


def _piece(
    words: str, own: dict[str, Any], number: int, call: ToolCall | InvalidToolCall | None = None
) -> AIMessage:
    """Returns one message of an answer; all but the first have a number behind the answer's id."""
    fields = dict(own)
    if number:
        fields["id"] = f"{own['id']}-{number}"
    if call is None:
        return AIMessage(words, **fields)
    valid, invalid = split_calls([call])
    return AIMessage(words, **fields, tool_calls=valid, invalid_tool_calls=invalid)


class _FirstTag(HTMLParser):
    """Keeps the attributes of the first tag."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if self.attributes is None:
            self.attributes = {name: value or "" for name, value in attrs}


def _attributes_of(html: str) -> dict[str, str]:
    parser = _FirstTag()
    parser.feed(html)
    return parser.attributes or {}


def _plain_result(result: str) -> str:
    """Returns a result; one that is a text in quotation marks without them."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result
    return value if isinstance(value, str) else result
