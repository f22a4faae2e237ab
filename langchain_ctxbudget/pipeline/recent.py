"""The reports of the latest prompts, found by the words of the prompts."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.background import new_mutex
from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping
from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.stores.records import PassingScope, Scope

_log = logging.getLogger(__name__)
NO_THREAD = (
    "the run names no conversation (thread_id), so it is one of its own: it is in memory only, and ends with the run"
)
_CONVERSATIONS = 1_024
"""The number of conversations of which the store is known."""
_TAIL_CHARACTERS = 256
"""The end of an image or a file that tells it from another."""


class RecentPrompts:
    """The reports of the latest prompts of a pipeline; shared by threads and tasks.

    A prompt is found again by its words, in whatever form it comes back: copied, with other ids, with cache markers, or
    as a callback handler sees it. The reports are kept without their candidates, which are large: they cannot be asked
    to `reallocate`.

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
        """Begins with none; beyond the limit the oldest is forgotten first."""
        self._limit = limit
        self._reports: OrderedDict[bytes, ContextReport] = OrderedDict()
        self._mutex = new_mutex()

    def add(self, messages: Sequence[BaseMessage], report: ContextReport) -> None:
        """Remembers the report of a prompt; of two prompts with the same words, the later one."""
        key, bare = _digest(messages), replace(report)
        with self._mutex:
            self._reports[key] = bare
            self._reports.move_to_end(key)
            if len(self._reports) > self._limit:
                self._reports.popitem(last=False)

    def forget(self, user_id: str, conversation_id: str | None = None) -> None:
        """Lets go of the reports of a conversation, which quote it; without one, of all of the user's."""
        with self._mutex:
            for key, report in list(self._reports.items()):
                if report.user_id == user_id and conversation_id in (None, report.conversation_id):
                    del self._reports[key]

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """Returns the report of a prompt; None where it is not one of the latest."""
        key = _digest(messages)
        with self._mutex:
            return self._reports.get(key)

    def last_of(self, scope: Scope) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt; None where there is none."""
        asked = (scope.user_id, scope.conversation_id)
        with self._mutex:
            newest = reversed(self._reports.values())
            return next((report for report in newest if (report.user_id, report.conversation_id) == asked), None)


def _digest(messages: Sequence[BaseMessage]) -> bytes:
    """Returns a digest of the words of messages, without their ids and in one form.

    LangChain shows images and files to callback handlers in another form, and a cache marker makes a list of a text.
    """
    text = json.dumps([list(_words(message)) for message in messages], default=repr, skipkeys=True)
    return blake2b(text.encode(), digest_size=16).digest()


def _words(message: BaseMessage) -> Iterator[Any]:
    yield message.type
    yield message.name
    if isinstance(message, AIMessage):
        yield [(call["id"], call["name"], call["args"]) for call in message.tool_calls]
    elif isinstance(message, ToolMessage):
        yield message.tool_call_id
    blocks = [message.content] if isinstance(message.content, str) else message.content
    for block in blocks:
        if isinstance(block, str):
            yield block
        else:
            yield block["text"] if isinstance(block.get("text"), str) else _data(block)


def _data(block: Mapping[str, Any]) -> str:
    """Returns the end of a block's data or address, which every form of it keeps."""
    parts = [part for value in block.values() for part in (value.values() if isinstance(value, dict) else (value,))]
    longest = max((part for part in parts if isinstance(part, str)), key=len, default="")
    return longest[-_TAIL_CHARACTERS:].rpartition(",")[2]


class Last:
    """The report that questions without another one are about, and the latest prompts."""

    def __init__(self) -> None:
        self.report: ContextReport | None = None
        self.scope: Scope | None = None
        self.recent = RecentPrompts()
        self._books: OrderedDict[Scope, Bookkeeping] = OrderedDict()
        self._told = False

    def no_thread(self) -> str:
        """Returns the note in the report of a run without a thread; it is logged as well, once."""
        if not self._told:
            self._told = True
            _log.warning("%s", NO_THREAD)
        return NO_THREAD

    def note(self, messages: Sequence[BaseMessage], report: ContextReport, scope: Scope, books: Bookkeeping) -> None:
        """Takes in a prompt of a conversation, and the books of the store that it is kept in."""
        self.report, self.scope = report, scope
        self.recent.add(messages, report)
        self._books[scope] = books
        self._books.move_to_end(scope)
        while len(self._books) > _CONVERSATIONS:
            self._books.popitem(last=False)

    def scope_of(self, report: ContextReport) -> Scope:
        """Returns the conversation of a report."""
        passing = PassingScope(report.user_id, report.conversation_id)
        return passing if passing in self._books else Scope(report.user_id, report.conversation_id)

    def books_of(self, scope: Scope) -> Bookkeeping | None:
        """Returns the books of a conversation's usage; None where it is not among the latest."""
        return self._books.get(scope)

    def forget(self, scope: Scope) -> None:
        """Lets go of the reports of a conversation."""
        self.recent.forget(scope.user_id, scope.conversation_id)
        if self.scope == scope:
            self.report = self.scope = None

    def erase(self, user_id: str) -> None:
        """Lets go of everything about a user."""
        self.recent.forget(user_id)
        if self.scope and self.scope.user_id == user_id:
            self.report = self.scope = None
        for scope in [scope for scope in self._books if scope.user_id == user_id]:
            del self._books[scope]
