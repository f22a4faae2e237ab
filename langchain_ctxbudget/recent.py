"""The reports of the latest prompts, found by what the prompts say."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.bookkeeping import Bookkeeping
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.stores.records import Scope

_CONVERSATIONS = 1_024
"""Of so many conversations it is known in which store they are kept."""
_TAIL_CHARACTERS = 256
"""How much of an image or a file tells it from another."""


class RecentPrompts:
    """The reports of the latest prompts of a pipeline; shared by threads and tasks.

    A prompt is found again by what it says, in whatever form it comes back: copied, with other ids, with cache
    markers, or as a callback handler sees it. The reports are kept without their candidates, which are large: they
    cannot be asked to `reallocate`.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> recent = RecentPrompts()
        >>> recent.add(context.messages, context.report)
        >>> recent.find([HumanMessage("Hello", id="another")]) == context.report
        True
    """

    def __init__(self, limit: int = 64) -> None:
        """Begin with none.

        Args:
            limit: how many prompts are remembered; the oldest is forgotten first.
        """
        self._limit = limit
        self._reports: dict[bytes, ContextReport] = {}
        self._mutex = threading.Lock()

    def add(self, messages: Sequence[BaseMessage], report: ContextReport) -> None:
        """Remember a prompt; of two that say the same, the later one.

        Args:
            messages: as they are sent.
            report: of the prompt.
        """
        key, bare = _digest(messages), replace(report)
        with self._mutex:
            self._reports.pop(key, None)
            self._reports[key] = bare
            if len(self._reports) > self._limit:
                del self._reports[next(iter(self._reports))]

    def forget(self, user_id: str, conversation_id: str) -> None:
        """Let go of the reports of a conversation, which quote it.

        Args:
            user_id: whose it is.
            conversation_id: which one.
        """
        with self._mutex:
            for key, report in list(self._reports.items()):
                if (report.user_id, report.conversation_id) == (user_id, conversation_id):
                    del self._reports[key]

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """The report of a prompt; None where it is not one of the latest."""
        key = _digest(messages)
        with self._mutex:
            return self._reports.get(key)


def _digest(messages: Sequence[BaseMessage]) -> bytes:
    """What messages say, without their ids and in one form.

    `core.messages.fingerprint` tells forms apart that a prompt takes on its way: LangChain shows images and files to
    callback handlers in another one, and a cache marker makes a list of a text.
    """
    said = [list(_said(message)) for message in messages]
    text = json.dumps(said, default=repr, skipkeys=True)
    return blake2b(text.encode(), digest_size=16).digest()


def _said(message: BaseMessage) -> Iterator[Any]:
    """What one message says, part by part."""
    yield message.type
    yield message.name
    if isinstance(message, AIMessage):
        yield [(call["id"], call["name"], call["args"]) for call in message.tool_calls]
    elif isinstance(message, ToolMessage):
        yield message.tool_call_id
    if isinstance(message.content, str):
        yield message.content
        return
    for block in message.content:
        if isinstance(block, str):
            yield block
        else:
            yield block["text"] if isinstance(block.get("text"), str) else _data(block)


def _data(block: Mapping[str, Any]) -> str:
    """What tells a block that is not text from another: the end of its data or address, which every form keeps."""
    texts = (text for value in block.values() for text in _texts(value))
    return max(texts, key=len, default="")[-_TAIL_CHARACTERS:].rpartition(",")[2]


def _texts(value: object) -> Iterator[str]:
    for part in value.values() if isinstance(value, dict) else (value,):
        if isinstance(part, str):
            yield part


class Last:
    """What was assembled last: the report that questions without another one are about, and the last few by prompt."""

    def __init__(self) -> None:
        self.report: ContextReport | None = None
        self.scope: Scope | None = None
        self.recent = RecentPrompts()
        self._books: OrderedDict[Scope, Bookkeeping] = OrderedDict()

    def note(self, messages: Sequence[BaseMessage], report: ContextReport, scope: Scope, books: Bookkeeping) -> None:
        """Take in a prompt.

        Args:
            messages: as they are sent.
            report: of the prompt.
            scope: its conversation.
            books: of the store that the conversation is kept in.
        """
        self.report, self.scope = report, scope
        self.recent.add(messages, report)
        self._books[scope] = books
        self._books.move_to_end(scope)
        while len(self._books) > _CONVERSATIONS:
            self._books.popitem(last=False)

    def books_of(self, scope: Scope) -> Bookkeeping | None:
        """Where the usage of a conversation is counted; None where it is not among the latest."""
        return self._books.get(scope)

    def forget(self, scope: Scope) -> None:
        """Let go of the reports of a conversation."""
        self.recent.forget(scope.user_id, scope.conversation_id)
        if self.scope == scope:
            self.report = self.scope = None
