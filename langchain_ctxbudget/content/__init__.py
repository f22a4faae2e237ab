"""The content of messages, read into parts once; and calls and items in it, written anew. Pure."""

from langchain_ctxbudget.content.blocks import (
    Block,
    blocks_of,
    type_of,
    json_text,
    says_something,
    text_block,
    with_text_in_front,
)
from langchain_ctxbudget.content.calls import (
    ITEM_CALLS,
    ITEM_RESULTS,
    answered_ids,
    call_id_of,
    call_ids,
    in_one_form,
    is_raw,
    is_result,
    is_text,
    item_call_ids,
    listed_calls,
    only_answers,
    raw_text,
    with_calls,
    with_calls_as,
    without_trailing_thoughts,
)
from langchain_ctxbudget.content.compactions import compaction_by
from langchain_ctxbudget.content.forms import (
    as_ordinary_result,
    as_screen,
    result_of,
    with_listed,
)
from langchain_ctxbudget.content.items import item_ids, loses_items, without_items
from langchain_ctxbudget.content.media import Medium
from langchain_ctxbudget.content.parts import (
    Kind,
    Part,
    has_media,
    only_text_of,
    parts_of,
    text_part,
    with_parts,
)
from langchain_ctxbudget.content.server_tools import cited_sources, readable_server_tool
from langchain_ctxbudget.content.tool_references import referenced_tools

__all__ = [
    "ITEM_CALLS",
    "ITEM_RESULTS",
    "Block",
    "Kind",
    "Medium",
    "Part",
    "answered_ids",
    "as_ordinary_result",
    "as_screen",
    "blocks_of",
    "call_id_of",
    "call_ids",
    "cited_sources",
    "compaction_by",
    "has_media",
    "in_one_form",
    "is_raw",
    "is_result",
    "is_text",
    "item_call_ids",
    "item_ids",
    "json_text",
    "listed_calls",
    "loses_items",
    "only_answers",
    "only_text_of",
    "parts_of",
    "raw_text",
    "readable_server_tool",
    "referenced_tools",
    "result_of",
    "says_something",
    "text_block",
    "text_part",
    "type_of",
    "with_calls",
    "with_calls_as",
    "with_listed",
    "with_parts",
    "with_text_in_front",
    "without_items",
    "without_trailing_thoughts",
]
