"""Contents as they are sent: blocks that providers read, and none that says nothing.

| as it is given | as it is sent |
|---|---|
| a text that is white space | nothing |
| an image, a file, a sound or a video in an AI message | `[image left out]`; a file of plain text as text |
| a text in a list that is no block | a text block |
| plain texts that follow each other in an AI message | one text, a line break between them |
| `id`, `index` and `annotations` of a user's text block, which are LangChain's | nothing |

OpenAI and Anthropic refuse media of an assistant. Those that a model of Google or the Responses API made stay, as these
read them again, and so do media in the results of tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.messages.calls import listed_calls, says_something
from langchain_ctxbudget.messages.clipping import Block, left_out

_IMAGES = frozenset({"image", "image_url", "input_image"})
_MEDIA = _IMAGES | {"audio", "input_audio", "video", "media", "file", "input_file", "document", "text-plain"}
"""Types of blocks with media, of LangChain and of the providers."""
_NOT_SENT = frozenset({"id", "index", "annotations"})
_RESPONSES_IMAGE = "ig_"
_READS_ITS_OWN_MEDIA = "google"


class Change(NamedTuple):
    """A repair of a content: its kind, and what to say of it."""

    kind: str
    detail: str


def sendable(message: BaseMessage) -> BaseMessage:
    """Returns a message with its content as it is sent; the message itself where nothing changes."""
    for _, form in _FORMS:
        message = form(message)
    return message


def content_changes(message: BaseMessage) -> Iterator[Change]:
    """Yields the changes that `sendable` makes in a message."""
    for change, form in _FORMS:
        formed = form(message)
        if formed is not message:
            yield change
        message = formed


def _without_blanks(message: BaseMessage) -> BaseMessage:
    """Takes out texts that are white space, where a message has something else."""
    content = message.content
    if not isinstance(content, str):
        kept = [block for block in content if says_something(block)]
        if len(kept) == len(content) and (kept or not isinstance(message, ToolMessage)):
            return message
        return message.model_copy(update={"content": kept or ""})
    if content and not content.strip() and listed_calls(message):
        return message.model_copy(update={"content": ""})
    return message


def _without_media(message: BaseMessage) -> BaseMessage:
    """Puts text in place of media in an AI message."""
    if not isinstance(message, AIMessage):
        return message
    if str(message.response_metadata.get("model_provider")).startswith(_READS_ITS_OWN_MEDIA):
        return message
    return _with_each(message, lambda block: _as_text(block) if _is_foreign_media(block) else block)


def _is_foreign_media(block: Block) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") in _MEDIA
        and not str(block.get("id")).startswith(_RESPONSES_IMAGE)
    )


def _as_text(block: dict[str, Any]) -> Block:
    """Returns a document that is text as that text, else a note."""
    text = block.get("text")
    return {"type": "text", "text": text} if isinstance(text, str) and text.strip() else left_out(block)


def _with_text_blocks(message: BaseMessage) -> BaseMessage:
    def formed(block: Block) -> Block:
        if isinstance(block, str):
            return {"type": "text", "text": block}
        if isinstance(message, HumanMessage) and block.get("type") == "text" and not _NOT_SENT.isdisjoint(block):
            return {key: value for key, value in block.items() if key not in _NOT_SENT}
        return block

    return _with_joined_texts(_with_each(message, formed))


def _with_joined_texts(message: BaseMessage) -> BaseMessage:
    """Joins plain texts that follow each other: each would be a message of its own to Responses."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    content: list[Any] = message.content
    blocks: list[Any] = []
    for is_plain, run in groupby(content, _is_plain_text):
        same = list(run)
        joined = is_plain and len(same) > 1
        blocks += [{"type": "text", "text": "\n".join(block["text"] for block in same)}] if joined else same
    return message if len(blocks) == len(message.content) else message.model_copy(update={"content": blocks})


def _is_plain_text(block: Mapping[str, Any]) -> bool:
    return block.keys() == {"type", "text"} and block["type"] == "text" and isinstance(block["text"], str)


def _with_each(message: BaseMessage, change: Callable[[Any], Block]) -> BaseMessage:
    """Changes each block of a message; returns the message itself where nothing changes."""
    if isinstance(message.content, str):
        return message
    blocks = [change(block) for block in message.content]
    same = all(one is other for one, other in zip(blocks, message.content, strict=True))
    return message if same else message.model_copy(update={"content": blocks})


_FORMS: tuple[tuple[Change, Callable[[BaseMessage], BaseMessage]], ...] = (
    (Change("empty_content", "sent without the parts of its content that are empty"), _without_blanks),
    (Change("media", "sent with text in place of its images and other media"), _without_media),
    (Change("content_form", "its texts are sent as blocks that every provider reads"), _with_text_blocks),
)
