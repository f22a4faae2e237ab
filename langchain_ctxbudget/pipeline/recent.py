"""The reports of the latest prompts, found by the words of the prompts."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import Scope

MOST_REPORTS = 64
Account = Callable[[], ContextReport]


class _Noted(NamedTuple):
    """A prompt, of which report and digest are made when somebody looks for them."""

    scope: Scope
    report: Account
    key: Callable[[], bytes]
    books: Bookkeeping

    def is_of(self, user_id: str, conversation_id: str) -> bool:
        return (self.scope.user_id, self.scope.conversation_id) == (user_id, conversation_id)


class RecentPrompts:
    """The reports of the latest prompts of a pipeline; shared by threads and tasks.

    A prompt is found again by its words, in whatever form it comes back: copied, with other ids, with cache markers, or
    as a callback handler sees it. But for the last one, reports are kept without their candidates, which are large:
    they cannot be asked to `reallocate`.
    """

    def __init__(self) -> None:
        self._last: _Noted | None = None
        self._noted: deque[_Noted] = deque(maxlen=MOST_REPORTS)
        self._mutex = threading.Lock()

    @property
    def report(self) -> ContextReport | None:
        """The last one, which questions without another one are about."""
        last = self._last
        return last.report() if last else None

    def note(
        self, messages: Sequence[BaseMessage], report: Account, scope: Scope, books: Bookkeeping, last: Account
    ) -> None:
        """Remembers a prompt, and the books of its store.

        `last` makes the same report with its candidates, as long as no other prompt is made.
        """
        noted = _Noted(scope, report, cache(lambda: _digest(messages)), books)
        with self._mutex:
            self._last = noted._replace(report=last)
            self._noted.append(noted)

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """Returns the report of a prompt, of several with the same words the latest; None where it is forgotten."""
        key = _digest(messages)
        found = self._newest(lambda noted: noted.key() == key)
        return found.report() if found else None

    def last_of(self, scope: Scope) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt; None where there is none."""
        found = self._newest(lambda noted: noted.is_of(scope.user_id, scope.conversation_id))
        return found.report() if found else None

    def books_of(self, report: ContextReport) -> tuple[Scope, Bookkeeping | None]:
        """Returns the conversation of a report, and its books; None where it is not among the latest."""
        found = self._newest(lambda noted: noted.is_of(report.user_id, report.conversation_id))
        return (found.scope, found.books) if found else (Scope(report.user_id, report.conversation_id), None)

    def _newest(self, wanted: Callable[[_Noted], bool]) -> _Noted | None:
        with self._mutex:
            noted = list(self._noted)
        return next((one for one in reversed(noted) if wanted(one)), None)

    def forget(self, gone: Callable[[Scope], bool]) -> None:
        """Lets go of the reports of some conversations, which quote them."""
        with self._mutex:
            self._noted = deque((noted for noted in self._noted if not gone(noted.scope)), MOST_REPORTS)
            if self._last and gone(self._last.scope):
                self._last = None


def _digest(messages: Sequence[BaseMessage]) -> bytes:
    """Returns a digest of the words of messages, without their ids, images and files.

    LangChain shows these to callback handlers in another form, and a cache marker makes a list of a text.
    """
    said = [
        (one.type, one.name, str(one.text), getattr(one, "tool_call_id", None), getattr(one, "tool_calls", None))
        for one in messages
    ]
    return blake2b(json.dumps(said, default=repr, skipkeys=True).encode(), digest_size=16).digest()
