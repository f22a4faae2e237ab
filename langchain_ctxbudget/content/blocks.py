"""Content blocks as LangChain and the providers write them: the raw form of a part."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage

Block = str | dict[str, Any]
_CITATIONS = ("annotations", "citations")
"""Keys of a text under which its sources stand, of LangChain and OpenAI, and of Anthropic."""


def blocks_of(message: BaseMessage) -> list[Block]:
    """Returns the content of a message as a list of blocks."""
    content = message.content
    return [content] if isinstance(content, str) else content


def text_block(text: str) -> dict[str, Any]:
    """Returns a text as a block that every provider reads."""
    return {"type": "text", "text": text}


def fields_of(block: Block) -> dict[str, Any]:
    """Returns the fields of a block, of a provider's own without LangChain's wrapping.

    A text has no fields, nor has what is no block.
    """
    if not isinstance(block, dict):
        return {}
    if block.get("type") == "non_standard":
        value = block.get("value")
        if isinstance(value, dict):
            return value
    return block


def type_of(block: Block) -> str:
    """Returns the type of a block; empty for a text."""
    return str(fields_of(block).get("type", ""))


def text_of(block: Block) -> str | None:
    """Returns the text of a block that is text; None for any other."""
    if isinstance(block, str):
        return block
    if not isinstance(block, dict) or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def unreadable_in(message: BaseMessage) -> str:
    """Returns what in the content of a message is neither a text nor a block, and where it stands.

    Empty where there is none, as in all that LangChain's constructors let pass.
    """
    content: object = message.content
    if isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return f"content is a {type(content).__name__}, neither a text nor a list of blocks"
    for number, block in enumerate(content):
        if not isinstance(block, str | dict):
            return f"content[{number}] is a {type(block).__name__}, neither a text nor a dict"
    return ""


def readable_content(content: object) -> str | list[Block]:
    """Returns a content in which whatever is neither a text nor a block is its JSON as a text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json_text(content)
    return [block if isinstance(block, str | dict) else json_text(block) for block in content]


def citations_of(block: Block) -> Iterator[Mapping[str, Any]]:
    """Yields the sources of a text, each as the fields that its provider gives it."""
    fields = fields_of(block)
    for key in _CITATIONS:
        citations = fields.get(key)
        if isinstance(citations, list):
            yield from (citation for citation in citations if isinstance(citation, dict))


def with_text_in_front(message: BaseMessage, text: str) -> BaseMessage:
    """Returns a message with a text in front of its content; an empty text changes nothing."""
    if not text:
        return message
    content: str | list[Block]
    if isinstance(message.content, str):
        content = text + message.content
    else:
        content = [text_block(text), *message.content]
    return message.model_copy(update={"content": content})


def json_text(value: object) -> str:
    """Returns a value as JSON for a reader; what JSON cannot hold becomes a text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def says_something(block: Block) -> bool:
    """Tells if a content block holds more than white space."""
    if isinstance(block, dict) and block.get("type") != "text":
        return True
    text = text_of(block)
    return text is not None and bool(text.strip())
