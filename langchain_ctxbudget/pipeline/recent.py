"""The reports of the latest prompts, found by the words of the prompts."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.background import new_mutex
from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import Scope

_log = logging.getLogger(__name__)
NO_THREAD = (
    "the run names no conversation (thread_id), so it is one of its own: it is in memory only, and ends with the run"
)
MOST_REPORTS, MOST_CONVERSATIONS = 64, 1_024
"""Reports that are kept, and conversations of which the store is known."""
Account = Callable[[], ContextReport]


class _Noted(NamedTuple):
    """A prompt, of which report and digest are made when somebody looks for them."""

    scope: Scope
    report: Account
    key: Callable[[], bytes]

    def is_of(self, scope: Scope) -> bool:
        return (self.scope.user_id, self.scope.conversation_id) == (scope.user_id, scope.conversation_id)


class RecentPrompts:
    """The reports of the latest prompts of a pipeline; shared by threads and tasks.

    A prompt is found again by its words, in whatever form it comes back: copied, with other ids, with cache markers, or
    as a callback handler sees it. But for the last one, reports are kept without their candidates, which are large:
    they cannot be asked to `reallocate`.
    """

    def __init__(self) -> None:
        self._last: _Noted | None = None
        self._noted: deque[_Noted] = deque(maxlen=MOST_REPORTS)
        self._books: OrderedDict[Scope, Bookkeeping] = OrderedDict()
        self._told = False
        self._mutex = new_mutex()

    @property
    def report(self) -> ContextReport | None:
        """The last one, which questions without another one are about."""
        last = self._last
        return last.report() if last else None

    def note(
        self,
        messages: Sequence[BaseMessage],
        report: Account,
        scope: Scope,
        books: Bookkeeping,
        *,
        last: Account | None = None,
    ) -> None:
        """Remembers a prompt, and the books of its store.

        `last` makes the same report with its candidates, as long as no other prompt is made.
        """
        noted = _Noted(scope, report, cache(lambda: _digest(messages)))
        with self._mutex:
            self._last = noted._replace(report=last or report)
            self._noted.append(noted)
            self._books[scope] = books
            self._books.move_to_end(scope)
            if len(self._books) > MOST_CONVERSATIONS:
                self._books.popitem(last=False)

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """Returns the report of a prompt, of several with the same words the latest; None where it is forgotten."""
        key = _digest(messages)
        return self._newest(lambda noted: noted.key() == key)

    def last_of(self, scope: Scope) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt; None where there is none."""
        return self._newest(lambda noted: noted.is_of(scope))

    def _newest(self, wanted: Callable[[_Noted], bool]) -> ContextReport | None:
        with self._mutex:
            noted = list(self._noted)
        found = next((one for one in reversed(noted) if wanted(one)), None)
        return found.report() if found else None

    def books_of(self, report: ContextReport) -> tuple[Scope, Bookkeeping | None]:
        """Returns the conversation of a report, and its books; None where it is not among the latest."""
        passing = Scope(report.user_id, report.conversation_id, is_kept=False)
        scope = passing if passing in self._books else Scope(report.user_id, report.conversation_id)
        return scope, self._books.get(scope)

    def forget(self, scope: Scope) -> None:
        """Lets go of the reports of a conversation, which quote it."""
        with self._mutex:
            self._drop(lambda noted: noted.is_of(scope))

    def erase(self, user_id: str) -> None:
        """Lets go of everything about a user."""
        with self._mutex:
            self._drop(lambda noted: noted.scope.user_id == user_id)
            for scope in [scope for scope in self._books if scope.user_id == user_id]:
                del self._books[scope]

    def _drop(self, gone: Callable[[_Noted], bool]) -> None:
        self._noted = deque((noted for noted in self._noted if not gone(noted)), MOST_REPORTS)
        if self._last and gone(self._last):
            self._last = None

    def no_thread(self) -> str:
        """Returns the note in the report of a run without a thread; it is logged as well, once."""
        if not self._told:
            self._told = True
            _log.warning("%s", NO_THREAD)
        return NO_THREAD


def _digest(messages: Sequence[BaseMessage]) -> bytes:
    """Returns a digest of the words of messages, without their ids, images and files.

    LangChain shows these to callback handlers in another form, and a cache marker makes a list of a text.
    """
    said = [
        (one.type, one.name, str(one.text), getattr(one, "tool_call_id", None), getattr(one, "tool_calls", None))
        for one in messages
    ]
    return blake2b(json.dumps(said, default=repr, skipkeys=True).encode(), digest_size=16).digest()
