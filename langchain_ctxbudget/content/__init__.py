"""The content of messages, read into parts once; and calls and items in it, written anew. Pure."""

from langchain_ctxbudget.content.blocks import (
    Block,
    blocks_of,
    json_text,
    says_something,
    text_block,
    with_text_in_front,
)
from langchain_ctxbudget.content.calls import (
    call_ids,
    in_one_form,
    is_raw,
    is_text,
    listed_calls,
    raw_text,
    with_calls,
    with_calls_as,
    without_trailing_thoughts,
)
from langchain_ctxbudget.content.compactions import compaction_by
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
    "Block",
    "Kind",
    "Medium",
    "Part",
    "blocks_of",
    "call_ids",
    "cited_sources",
    "compaction_by",
    "has_media",
    "in_one_form",
    "is_raw",
    "is_text",
    "item_ids",
    "json_text",
    "listed_calls",
    "loses_items",
    "only_text_of",
    "parts_of",
    "raw_text",
    "readable_server_tool",
    "referenced_tools",
    "says_something",
    "text_block",
    "text_part",
    "with_calls",
    "with_calls_as",
    "with_parts",
    "with_text_in_front",
    "without_items",
    "without_trailing_thoughts",
]
