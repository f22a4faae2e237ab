"""The reports of the latest prompts of a pipeline, in memory."""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

from langchain_core.messages import BaseMessage

from langchain_ctxbudget import stores
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.prompt import Prompt
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.worker import new_mutex

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.last_call import LastCall
    from langchain_ctxbudget.pipeline.usage import Bookkeeping

MOST_REPORTS = 64
"""Reports that a pipeline remembers."""
_WORDS = ("type", "name", "text", "tool_call_id", "tool_calls")
"""The attributes of a message that tell its words."""
ReportMaker: TypeAlias = Callable[[], ContextReport]
"""Makes the report when it is first asked for."""


@dataclass(frozen=True, slots=True)
class RecentPrompt:
    """A prompt that was made, and the books of its store."""

    scope: stores.Scope
    report: ReportMaker
    digest_of_words: Callable[[], bytes]
    books: "Bookkeeping"
    call: "LastCall"
    prompt: Prompt | None
    """The prompt with its candidates; None where these were let go of."""


class RecentPrompts:
    """The latest prompts of a pipeline, found again by their words; threads and tasks share it.

    Only the last one keeps its candidates, which are large.
    """

    def __init__(self) -> None:
        self.last: RecentPrompt | None = None
        self._prompts: deque[RecentPrompt] = deque(maxlen=MOST_REPORTS)
        self._mutex = new_mutex()

    def note(
        self,
        prompt: Prompt,
        report: ReportMaker,
        scope: stores.Scope,
        books: "Bookkeeping",
        call: "LastCall",
    ) -> None:
        """Remembers a prompt, the books of its store, and the call that it was made for."""
        words = cache(partial(_digest_of_words, prompt.changes.last.messages))
        recent = RecentPrompt(scope, report, words, books, call, prompt)
        with self._mutex:
            self.last = recent
            self._prompts.append(replace(recent, prompt=None))

    def find(self, messages: Sequence[BaseMessage]) -> ContextReport | None:
        """Returns the report of the latest prompt with these words; None where it is forgotten."""
        key = _digest_of_words(messages)
        for recent in self._newest_first():
            if recent.digest_of_words() == key:
                return recent.report()
        return None

    def last_of(self, user_id: str, conversation_id: str) -> RecentPrompt | None:
        """Returns the newest prompt of a conversation; None where there is none."""
        for recent in self._newest_first():
            scope = recent.scope
            if scope.user_id == user_id and scope.conversation_id == conversation_id:
                return recent
        return None

    def report_of(self, scope: stores.Scope) -> ContextReport | None:
        """Returns the report of a conversation's newest prompt; None where there is none."""
        recent = self.last_of(scope.user_id, scope.conversation_id)
        return recent.report() if recent else None

    def _newest_first(self) -> list[RecentPrompt]:
        with self._mutex:
            return [*reversed(self._prompts)]

    def forget(self, is_gone: Callable[[stores.Scope], bool]) -> None:
        """Lets go of the reports of some conversations, which quote them."""
        with self._mutex:
            remaining = [recent for recent in self._prompts if not is_gone(recent.scope)]
            self._prompts = deque(remaining, MOST_REPORTS)
            if self.last and is_gone(self.last.scope):
                self.last = None


def _digest_of_words(messages: Sequence[BaseMessage]) -> bytes:
    """Returns a digest of the words of messages, without their ids, images and files."""
    words = [[getattr(message, name, None) for name in _WORDS] for message in messages]
    return digest(json.dumps(words, default=repr, skipkeys=True))
