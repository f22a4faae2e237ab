"""The reports of the latest prompts, found by the words of the prompts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.background import new_mutex
from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import Scope

_log = logging.getLogger(__name__)
K = TypeVar("K")
V = TypeVar("V")
NO_THREAD = (
    "the run names no conversation (thread_id), so it is one of its own: it is in memory only, and ends with the run"
)
MOST_REPORTS, MOST_CONVERSATIONS = 64, 1_024
"""Reports that are kept, and conversations of which the store is known."""
_TAIL_CHARACTERS = 256
"""The end of an image or a file that tells it from another."""


class RecentPrompts:
    """The reports of the latest prompts of a pipeline; shared by threads and tasks.

    A prompt is found again by its words, in whatever form it comes back: copied, with other ids, with cache markers, or
    as a callback handler sees it. But for the last one, reports are kept without their candidates, which are large:
    they cannot be asked to `reallocate`.
    """

    def __init__(self) -> None:
        self.report: ContextReport | None = None
        """The last one, which questions without another one are about."""
        self._reports: dict[bytes, ContextReport] = {}
        self._books: dict[Scope, Bookkeeping] = {}
        self._told = False
        self._mutex = new_mutex()

    def note(self, messages: Sequence[BaseMessage], report: ContextReport, scope: Scope, books: Bookkeeping) -> None:
        """Remembers a prompt, and the books of its store; of two prompts with the same words, the later one."""
        key = _digest(messages)
        with self._mutex:
            self.report = report
            _keep(self._reports, key, replace(report), MOST_REPORTS)
            _keep(self._books, scope, books, MOST_CONVERSATIONS)

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """Returns the report of a prompt; None where it is not one of the latest."""
        key = _digest(messages)
        with self._mutex:
            return self._reports.get(key)

    def last_of(self, scope: Scope) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt; None where there is none."""
        with self._mutex:
            return next((report for report in reversed(self._reports.values()) if _is_of(report, scope)), None)

    def books_of(self, report: ContextReport) -> tuple[Scope, Bookkeeping | None]:
        """Returns the conversation of a report, and its books; None where it is not among the latest."""
        passing = Scope(report.user_id, report.conversation_id, is_kept=False)
        scope = passing if passing in self._books else Scope(report.user_id, report.conversation_id)
        return scope, self._books.get(scope)

    def forget(self, scope: Scope) -> None:
        """Lets go of the reports of a conversation, which quote it."""
        with self._mutex:
            self._reports = {key: report for key, report in self._reports.items() if not _is_of(report, scope)}
            self.report = None if self.report and _is_of(self.report, scope) else self.report

    def erase(self, user_id: str) -> None:
        """Lets go of everything about a user."""
        with self._mutex:
            self._reports = {key: report for key, report in self._reports.items() if report.user_id != user_id}
            self._books = {scope: books for scope, books in self._books.items() if scope.user_id != user_id}
            self.report = None if self.report and self.report.user_id == user_id else self.report

    def no_thread(self) -> str:
        """Returns the note in the report of a run without a thread; it is logged as well, once."""
        if not self._told:
            self._told = True
            _log.warning("%s", NO_THREAD)
        return NO_THREAD


def _keep(things: dict[K, V], key: K, thing: V, most: int) -> None:
    things.pop(key, None)
    things[key] = thing
    if len(things) > most:
        del things[next(iter(things))]


def _is_of(report: ContextReport, scope: Scope) -> bool:
    return (report.user_id, report.conversation_id) == (scope.user_id, scope.conversation_id)


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
    for block in [message.content] if isinstance(message.content, str) else message.content:
        if isinstance(block, str):
            yield block
        else:
            yield block["text"] if isinstance(block.get("text"), str) else _data(block)


def _data(block: Mapping[str, Any]) -> str:
    """Returns the end of a block's data or address, which every form of it keeps."""
    parts = [part for value in block.values() for part in (value.values() if isinstance(value, dict) else (value,))]
    longest = max((part for part in parts if isinstance(part, str)), key=len, default="")
    return longest[-_TAIL_CHARACTERS:].rpartition(",")[2]
