"""The reports of the latest prompts, found by the words of the prompts."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import blake2b
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping
from langchain_ctxbudget.prompt import WhatIf
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import Scope

MOST_REPORTS = 64
Account = Callable[[], ContextReport]


class _Noted(NamedTuple):
    scope: Scope
    report: Account
    key: Callable[[], bytes]
    """Makes the digest of its words."""
    books: Bookkeeping


class RecentPrompts:
    """The reports of the latest prompts of a pipeline; shared by threads and tasks.

    A prompt is found again by its words, in whatever form it comes back: copied, with other ids, with cache markers, or
    as a callback handler sees it. Of the last one there are its candidates, too, which are large.
    """

    def __init__(self) -> None:
        self._last: tuple[_Noted, WhatIf] | None = None
        self._noted: deque[_Noted] = deque(maxlen=MOST_REPORTS)
        self._mutex = threading.Lock()

    @property
    def report(self) -> ContextReport | None:
        """The last one, which questions without another one are about."""
        last = self._last
        return last[0].report() if last else None

    @property
    def what_if(self) -> WhatIf | None:
        """The last one, to be asked for the report of another budget."""
        last = self._last
        return last[1] if last else None

    def note(
        self, messages: Sequence[BaseMessage], report: Account, scope: Scope, books: Bookkeeping, what_if: WhatIf
    ) -> None:
        """Remembers a prompt, and the books of its store."""
        noted = _Noted(scope, report, cache(partial(_digest, messages)), books)
        with self._mutex:
            self._last = noted, what_if
            self._noted.append(noted)

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """Returns the report of a prompt, of several with the same words the latest; None where it is forgotten."""
        key = _digest(messages)
        return next((noted.report() for noted in self._newest() if noted.key() == key), None)

    def last_of(self, scope: Scope) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt; None where there is none."""
        return next((noted.report() for noted in self._newest() if _ids(noted.scope) == _ids(scope)), None)

    def books_of(self, report: ContextReport) -> tuple[Scope, Bookkeeping | None]:
        """Returns the conversation of a report, and its books; None where it is not among the latest."""
        scope = Scope(report.user_id, report.conversation_id)
        found = ((noted.scope, noted.books) for noted in self._newest() if _ids(noted.scope) == _ids(scope))
        return next(found, (scope, None))

    def _newest(self) -> list[_Noted]:
        with self._mutex:
            return [*reversed(self._noted)]

    def forget(self, gone: Callable[[Scope], bool]) -> None:
        """Lets go of the reports of some conversations, which quote them."""
        with self._mutex:
            self._noted = deque((noted for noted in self._noted if not gone(noted.scope)), MOST_REPORTS)
            if self._last and gone(self._last[0].scope):
                self._last = None


def _ids(scope: Scope) -> tuple[str, str]:
    return scope.user_id, scope.conversation_id


def _digest(messages: Sequence[BaseMessage]) -> bytes:
    """Returns a digest of the words of messages, without their ids, images and files.

    LangChain shows these to callback handlers in another form, and a cache marker makes a list of a text.
    """
    said = [
        (one.type, one.name, str(one.text), getattr(one, "tool_call_id", None), getattr(one, "tool_calls", None))
        for one in messages
    ]
    return blake2b(json.dumps(said, default=repr, skipkeys=True).encode(), digest_size=16).digest()
