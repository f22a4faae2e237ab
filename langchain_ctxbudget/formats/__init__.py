"""Conversations from files: OpenAI, LangChain, a ChatGPT export, LangGraph states, evaluation sets.

The format is told by the content, never by the file's name. A file is read as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.formats import chatgpt, evaluation, langgraph, messages
from langchain_ctxbudget.formats.document import Document, Node, load
from langchain_ctxbudget.formats.model import ConversationFile, Draft, complete

__all__ = ["ConversationFile", "parse_conversations", "pick_conversation", "read_conversations"]

_ACCEPTED = """\
Accepted are, as JSON or JSONL, gzipped or not:
  openai      messages with "role" and "content", or objects with "messages"
  langchain   messages as messages_to_dict, model_dump or dumps write them, or objects with "messages"
  chatgpt     conversations.json of a data export: objects with "mapping"
  langgraph   states: objects with "values" or "channel_values" that hold "messages"
  evaluation  objects with "id" and "turns", or with "id" and "messages\""""
_MOST_LISTED = 20

_Reader = Callable[[Node], Draft]


def read_conversations(path: Path | str) -> list[ConversationFile]:
    """Reads every conversation of a file.

    Args:
        path: a JSON or JSONL file in one of the accepted formats, gzipped or not.

    Raises:
        ConversationFormatError: the file cannot be opened, or is not of an accepted format; it says where.
    """
    try:
        data = Path(path).read_bytes()
    except IsADirectoryError as error:
        raise ConversationFormatError(f"{path} is a directory: give a file in it") from error
    except FileNotFoundError as error:
        raise ConversationFormatError(f"{path}: there is no such file") from error
    except (OSError, ValueError) as error:
        raise ConversationFormatError(f"{path}: cannot be read ({error})") from error
    return parse_conversations(data, name=str(path))


def parse_conversations(data: bytes, *, name: str) -> list[ConversationFile]:
    """The conversations in the bytes of a file.

    Args:
        data: JSON or JSONL, gzipped or not.
        name: what to call the file in errors.

    Raises:
        ConversationFormatError: the bytes are not of an accepted format; it says where.
    """
    document = load(data, name)
    if not document.records:
        raise ConversationFormatError(f"{name}: an empty list. Nothing was imported.\n{_ACCEPTED}")
    try:
        return complete(_drafts(document))
    except RecursionError as error:  # a tree of parts within parts
        raise ConversationFormatError(f"{name}: nested too deeply. Nothing was imported.") from error


def pick_conversation(conversations: Sequence[ConversationFile], *, title: str | None = None) -> ConversationFile:
    """The one conversation, or the one with a title.

    Args:
        conversations: what `read_conversations` returned.
        title: the title or the id, or a part of it that no other has; upper and lower case are the same.

    Raises:
        ConversationFormatError: none fits, or several do; the error lists the titles.
    """
    if title is None:
        fitting = list(conversations)
    else:
        wanted = title.casefold()
        fitting = [c for c in conversations if wanted in (c.label.casefold(), c.conversation_id.casefold())]
        fitting = fitting or [c for c in conversations if wanted in c.label.casefold()]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        found = f"{len(fitting)} conversations" if title is None else f"{title!r} fits {len(fitting)} conversations"
        raise ConversationFormatError(f"{found}: choose one by its title or id\n{_listed(fitting)}")
    if not conversations:
        raise ConversationFormatError("There is no conversation to choose from")
    raise ConversationFormatError(f"No conversation is titled {title!r}. There are:\n{_listed(conversations)}")


def _drafts(document: Document) -> list[Draft]:
    first = document.records[0]
    if messages.is_message(first):
        return [messages.read_list(document.nodes("messages"))]
    nodes = document.nodes("conversations")
    reader = _reader(first)
    if reader is None:
        raise ConversationFormatError(f"{nodes[0].error('a message or a conversation')}\n{_ACCEPTED}")
    for node in nodes:
        if _reader(node.value) is not reader:
            raise node.error("a conversation in the form of the first one")
    return [reader(node) for node in nodes]


def _reader(record: object) -> _Reader | None:
    """How to read an object that holds a conversation; None where it does not."""
    if not isinstance(record, dict):
        return None
    if "mapping" in record:
        return chatgpt.read_conversation
    if "turns" in record:
        return evaluation.read_conversation
    if langgraph.is_state(record):
        return langgraph.read_conversation
    return messages.read_object if "messages" in record else None


def _listed(conversations: Sequence[ConversationFile]) -> str:
    lines = [
        f"  {c.label}"
        + (f"  ({c.conversation_id}, {len(c.messages)} messages)" if c.title else f"  ({len(c.messages)} messages)")
        for c in conversations[:_MOST_LISTED]
    ]
    if len(conversations) > _MOST_LISTED:
        lines.append(f"  and {len(conversations) - _MOST_LISTED:,} more")
    return "\n".join(lines)
