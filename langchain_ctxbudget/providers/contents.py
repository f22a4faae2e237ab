"""Puts the content of a message into blocks that every provider reads, and leaves out empty ones.

OpenAI and Anthropic refuse media in an assistant's message, so a text stands in their place. Media
stay that a model of Google or of the Responses API has made, since these read them again. Media in
the results of tools stay, too.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import (
    CALL_BLOCKS,
    RESULT_BLOCKS,
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
from langchain_ctxbudget.providers.cache_marks import with_kept_mark_alone
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
_NOT_SENT = frozenset({"id", "index", "annotations", "citations"})
"""Keys of a text that not every provider takes; a user's text cites nothing."""
_RESPONSES_IMAGE = "ig_"
"""How the ids of images begin that the Responses API has made."""
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
    changes = [_CHANGES_OF_WORDS[part.key] for part in parts if _is_said_beside(part)]
    if not changes:
        return message, []
    shown = _with_words_shown(parts)
    worded = with_parts(message, shown)
    if isinstance(message.content, str):
        worded = worded.model_copy(update={"content": _joined_text(shown)})
    return worded, changes


def _is_said_beside(part: Part) -> bool:
    """Tells if a part holds words that stand beside the content: a refusal, or a transcript."""
    return part.key in _CHANGES_OF_WORDS and bool(part.plain_text)


def _with_words_shown(parts: Sequence[Part]) -> list[Part]:
    """Returns parts with a text for all words beside the content that it does not say already."""
    said = [part.plain_text for part in parts if not part.key]
    shown: list[Part] = []
    for part in parts:
        if not _is_said_beside(part):
            shown.append(part)
        elif part.plain_text not in said:
            shown.append(text_part(part.plain_text or ""))
    return shown


def _joined_text(parts: Sequence[Part]) -> str:
    """Returns the texts of a content as one, each beginning a line."""
    texts = [part.plain_text for part in parts if not part.key]
    return "\n".join(text for text in texts if text)


def _with_readable_text(message: BaseMessage) -> tuple[BaseMessage, list[Change]]:
    """Returns a message whose content is a text; white space that only stands beside calls goes."""
    text = str(message.content)
    if text and not text.strip() and listed_calls(message):
        return message.model_copy(update={"content": ""}), [_NO_EMPTY_PARTS]
    return message, []


def _with_readable_blocks(message: BaseMessage) -> tuple[BaseMessage, list[Change]]:
    """Returns a message whose content is a list of blocks, with blocks that providers read."""
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
    """Returns blocks with texts in place of calls and results that stand in the content alone.

    Where there are any, ids of items are left out as well.
    """
    content: list[Block] = []
    has_raw = False
    for block in blocks:
        if is_raw(block, message) or _is_inside_result(block, message):
            content += _without_raw_form(block, message)
            has_raw = True
        else:
            content.append(block)
    if not has_raw:
        return content
    return blocks_of(without_items(message.model_copy(update={"content": content})))


def _is_inside_result(block: Block, message: BaseMessage) -> bool:
    """Tells if a block is a call or a result of a function inside the result of another."""
    return isinstance(message, ToolMessage) and type_of(block) in (*CALL_BLOCKS, *RESULT_BLOCKS)


def _without_raw_form(block: Block, message: BaseMessage) -> list[Block]:
    """Returns what a reader would read of a call or a result that stands in the content alone.

    A call becomes its JSON. A result becomes a line that names its type, and what is in it.
    """
    if not is_result(block):
        return [raw_text(block)]
    shown: list[Block] = [text_block(f"[{type_of(block)}]")]
    for part in parts_of(result_of(block, message)):
        if part.is_media:
            shown.append(part.block)
            continue
        words = text_block(readable_text_of(part))
        if says_something(words):
            shown.append(words)
    return shown


def _without_refused_media(blocks: Sequence[Block], message: BaseMessage) -> list[Block]:
    """Returns the blocks of a message with a text for each medium, if it is an assistant's."""
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
    """Returns blocks that are all objects; a text has only keys that every provider takes.

    Texts of an assistant in a row are joined, since the Responses API would make a message of each.
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
    """Returns blocks in which texts in a row are one, if they have nothing but their words."""
    joined: list[Block] = []
    for is_plain_text, run in groupby(blocks, lambda block: block.keys() == {"type", "text"}):
        if is_plain_text:
            texts = [str(block["text"]) for block in run]
            joined.append(text_block("\n".join(texts)))
        else:
            joined.extend(run)
    return joined


def _without_own_keys(block: dict[str, Any]) -> dict[str, Any]:
    """Returns a text without keys that not every provider takes; any other block as it is.

    Of what LangChain keeps beside it, a mark for the cache stays.
    """
    if block.get("type") != "text":
        return block
    return with_kept_mark_alone({key: block[key] for key in block if key not in _NOT_SENT})


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
