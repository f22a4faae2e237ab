"""Contents of messages: blocks that providers read, and none that says nothing.

OpenAI and Anthropic refuse media of an assistant. Those that a model of Google or the Responses API
made stay, as these read them again, and so do media in the results of tools.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import (
    Block,
    Part,
    blocks_of,
    is_raw,
    is_result,
    listed_calls,
    only_text_of,
    parts_of,
    raw_text,
    result_of,
    says_something,
    text_block,
    text_part,
    type_of,
    with_parts,
    without_items,
    without_trailing_thoughts,
)
from langchain_ctxbudget.messages import placeholder_of, readable_text_of
from langchain_ctxbudget.providers.models import profile_of_author
from langchain_ctxbudget.providers.stretch import Change

OLD_FORMS = frozenset(
    {"function_call", "reasoning", "tool_outputs", "__openai_function_call_ids__"}
)
"""Keys of `additional_kwargs` for calls of 2023, and for items of Responses before version 1 of
langchain-openai."""
_MEDIA = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "audio",
        "input_audio",
        "video",
        "media",
        "file",
        "input_file",
        "document",
        "text-plain",
    }
)
"""Types of blocks with media, of LangChain and of the providers."""
_NOT_SENT = frozenset({"id", "index", "annotations"})
"""Keys of a text that not every provider takes."""
_RESPONSES_IMAGE = "ig_"


_NO_EMPTY_PARTS = Change("empty_content", "sent without the parts of its content that are empty")
_CHANGES_OF_WORDS = {
    "audio": Change("media", "its sound is sent as the transcript"),
    "refusal": Change("content_form", "its refusal is sent as text"),
}
"""What the report says of words that stood beside the content, by their key there."""
_NO_OLD_FORMS = Change(
    "call_form", "sent without calls and items that older versions kept beside the content"
)


def in_readable_form(message: BaseMessage) -> tuple[BaseMessage, list[Change]]:
    """Returns a message with a content that every provider reads, and what was changed for that."""
    worded, word_changes = _with_words_in_content(message)
    if isinstance(worded.content, str):
        formed, changes = _with_readable_text(worded)
    else:
        formed, changes = _with_readable_blocks(worded)
    changes = [*word_changes, *changes]
    if isinstance(formed, AIMessage) and not OLD_FORMS.isdisjoint(formed.additional_kwargs):
        formed = _without_old_forms(formed)
        changes.append(_NO_OLD_FORMS)
    return formed, changes


def _with_words_in_content(message: BaseMessage) -> tuple[BaseMessage, list[Change]]:
    """Returns a message with what it says beside its content in the content, as text.

    Nobody sends a refusal again, and a sound can be sent for an hour only.
    """
    if only_text_of(message) is not None:
        return message, []
    parts = parts_of(message)
    beside = [part for part in parts if part.key in _CHANGES_OF_WORDS and part.plain_text]
    if not beside:
        return message, []
    said = [part.plain_text for part in parts if not part.key]
    shown: list[Part] = []
    for part in parts:
        if part not in beside:
            shown.append(part)
        elif part.plain_text not in said:
            shown.append(text_part(part.plain_text or ""))
    worded = with_parts(message, shown)
    if isinstance(message.content, str):
        texts = [part.plain_text or "" for part in shown if not part.key]
        worded = worded.model_copy(update={"content": "\n".join(filter(None, texts))})
    return worded, [_CHANGES_OF_WORDS[part.key] for part in beside]


def _with_readable_text(message: BaseMessage) -> tuple[BaseMessage, list[Change]]:
    """Returns a message that is a text; without white space that stands beside calls alone."""
    text = str(message.content)
    if text and not text.strip() and listed_calls(message):
        return message.model_copy(update={"content": ""}), [_NO_EMPTY_PARTS]
    return message, []


def _with_readable_blocks(message: BaseMessage) -> tuple[BaseMessage, list[Change]]:
    """Returns a message that is a list of blocks, with blocks that its provider reads."""
    blocks = blocks_of(message)
    changes: list[Change] = []
    if not blocks and isinstance(message, ToolMessage):
        changes.append(_NO_EMPTY_PARTS)
    for repair, change in _REPAIRS_OF_BLOCKS:
        repaired = repair(blocks, message)
        if repaired != blocks:
            blocks = repaired
            changes.append(change)
    if not changes:
        return message, []
    return message.model_copy(update={"content": blocks or ""}), changes


def _without_empty_blocks(blocks: Sequence[Block], _message: BaseMessage) -> list[Block]:
    return [block for block in blocks if says_something(block)]


def _with_raw_calls_as_text(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Makes texts of calls and results that stand in the content alone; ids of items go then."""
    content: list[Block] = []
    has_raw = False
    for block in blocks:
        if is_raw(block, message):
            content += _without_raw_form(block, message)
            has_raw = True
        else:
            content.append(block)
    if not has_raw:
        return content
    return blocks_of(without_items(message.model_copy(update={"content": content})))


def _without_raw_form(block: Block, message: BaseMessage) -> list[Block]:
    """Returns a call as its JSON; a result as what is in it, under a line that tells what it is."""
    if not is_result(block):
        return [raw_text(block)]
    inner = [
        part.block if part.is_media else text_block(readable_text_of(part))
        for part in parts_of(result_of(block, message))
    ]
    return [text_block(f"[{type_of(block)}]"), *inner]


def _without_refused_media(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Puts a text in place of every medium that providers refuse: that of an assistant."""
    if not isinstance(message, AIMessage):
        return list(blocks)
    if profile_of_author(message).reads_own_media:
        return list(blocks)
    return [_without_medium(block) for block in blocks]


def _without_medium(block: Block) -> Block:
    """Returns the text of a document, or a note, in place of a medium; any other block as it is."""
    if isinstance(block, str) or block.get("type") not in _MEDIA:
        return block
    if str(block.get("id")).startswith(_RESPONSES_IMAGE):
        return block
    text = block.get("text")
    if isinstance(text, str) and text.strip():
        return text_block(text)
    return text_block(placeholder_of(Part(block)))


def _with_text_blocks(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Makes a block of each text, with the keys that every provider takes.

    Texts of an assistant in a row are joined, as each would be a message of its own to Responses.
    """
    formed = list(map(_as_object, blocks))
    if isinstance(message, AIMessage):
        return _with_texts_joined(formed)
    if isinstance(message, HumanMessage):
        return [_without_own_keys(block) for block in formed]
    return list(formed)


def _as_object(block: Block) -> dict[str, Any]:
    return text_block(block) if isinstance(block, str) else block


def _with_texts_joined(blocks: Sequence[dict[str, Any]]) -> list[Block]:
    """Joins texts in a row that have nothing but their words."""
    joined: list[Block] = []
    for is_plain_text, run in groupby(blocks, lambda block: block.keys() == {"type", "text"}):
        if is_plain_text:
            texts = [str(block["text"]) for block in run]
            joined.append(text_block("\n".join(texts)))
        else:
            joined.extend(run)
    return joined


def _without_own_keys(block: dict[str, Any]) -> dict[str, Any]:
    """Returns a text without keys that not every provider takes; any other block as it is."""
    if block.get("type") != "text":
        return block
    return {key: value for key, value in block.items() if key not in _NOT_SENT}


_REPAIRS_OF_BLOCKS: tuple[
    tuple[Callable[[Sequence[Block], BaseMessage], list[Block]], Change], ...
] = (
    (_without_empty_blocks, _NO_EMPTY_PARTS),
    (
        without_trailing_thoughts,
        Change("reasoning", "sent without the reasoning at its end, which leads to nothing"),
    ),
    (
        _with_raw_calls_as_text,
        Change("call_form", "calls and results that stand in its content alone are sent as text"),
    ),
    (
        _without_refused_media,
        Change("media", "sent with text in place of its images and other media"),
    ),
    (
        _with_text_blocks,
        Change("content_form", "its texts are sent as blocks that every provider reads"),
    ),
)
"""What is done to the blocks of a message, in this order, and what the report says where it changes
something."""


def _without_old_forms(message: AIMessage) -> AIMessage:
    others = {
        key: value for key, value in message.additional_kwargs.items() if key not in OLD_FORMS
    }
    return message.model_copy(update={"additional_kwargs": others})
