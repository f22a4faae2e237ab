"""The conversations that are open in this process: a bounded cache, one working set for each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.flow import Flow, T, locked
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.stores.records import Scope

MAX_OPEN = 256
"""Working sets kept in memory; the one unused for longest goes first, and is read again when needed."""


class OpenConversations:
    """Working sets by scope; one that is in use is never dropped."""

    def __init__(self, counter: TokenCounter, limit: int = MAX_OPEN) -> None:
        self._counter = counter
        self._limit = limit
        self._mutex = threading.Lock()
        self._open: OrderedDict[Scope, Conversation] = OrderedDict()
        self._users: dict[Scope, int] = {}

    def using(self, scope: Scope, body: Callable[[Conversation], Flow[T]]) -> Flow[T]:
        """Run a flow with a conversation's working set, alone."""
        conversation = self._check_out(scope)
        try:
            return (yield from locked(conversation.lock, body(conversation)))
        finally:
            self._check_in(scope)

    def _check_out(self, scope: Scope) -> Conversation:
        with self._mutex:
            conversation = self._open.get(scope)
            if conversation is None:
                conversation = self._open[scope] = Conversation(scope, self._counter)
            self._open.move_to_end(scope)
            self._users[scope] = self._users.get(scope, 0) + 1
            return conversation

    def _check_in(self, scope: Scope) -> None:
        with self._mutex:
            self._users[scope] -= 1
            if not self._users[scope]:
                del self._users[scope]
            idle = (known for known in list(self._open) if known not in self._users)
            for known in idle:
                if len(self._open) <= self._limit:
                    break
                del self._open[known]
