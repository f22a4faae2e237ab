"""Conversations from files of other programs, each kind of file by one reader.

A file is JSON or JSONL, an archive or a folder of such. The content tells the kind, never a name.
"""

from langchain_ctxbudget.readers.base import JsonObject, ReadConversation, Reader, Skipped
from langchain_ctxbudget.readers.reading import (
    ReadResult,
    parse_conversations,
    pick_conversation,
    read_conversations,
)
from langchain_ctxbudget.readers.registry import ACCEPTED, READERS

__all__ = [
    "ACCEPTED",
    "READERS",
    "JsonObject",
    "ReadConversation",
    "ReadResult",
    "Reader",
    "Skipped",
    "parse_conversations",
    "pick_conversation",
    "read_conversations",
]
