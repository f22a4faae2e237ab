"""The conversations that are open in this process: a bounded cache, one working set for each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary, WeakValueDictionary

from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.flow import Flow, Lock, T, locked
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.stores.records import Scope

MAX_OPEN = 256
"""Working sets kept in memory; the one unused for longest goes first, and is read again when needed."""


_locks: WeakKeyDictionary[BaseStore, WeakValueDictionary[Scope, Lock]] = WeakKeyDictionary()
_locks_mutex = threading.Lock()


def _lock_of(store: BaseStore, scope: Scope) -> Lock:
    """The lock of a conversation in a store, shared by every pipeline of this process that uses the store."""
    with _locks_mutex:
        return _locks.setdefault(store, WeakValueDictionary()).setdefault(scope, Lock())


def in_use(store: BaseStore) -> list[Scope]:
    """The conversations in a store that anybody in this process has open."""
    with _locks_mutex:
        return list(_locks.get(store, ()))


class OpenConversations:
    """Working sets by scope; one that is in use is never dropped."""

    def __init__(self, inherited: Mapping[Scope, Conversation] | None = None, limit: int = MAX_OPEN) -> None:
        """Begin with none open.

        Args:
            inherited: working sets on the same store that are taken over when they are asked for.
            limit: how many are kept.
        """
        self._inherited = dict(list((inherited or {}).items())[-limit:])
        self._limit = limit
        self._mutex = threading.Lock()
        self._open: OrderedDict[Scope, Conversation] = OrderedDict()
        self._users: dict[Scope, int] = {}

    def using(
        self,
        store: BaseStore,
        scope: Scope,
        counter: TokenCounter,
        body: Callable[[Conversation], Flow[T]],
        *,
        recount: bool,
    ) -> Flow[T]:
        """Run a flow with a conversation's working set, alone.

        Args:
            store: where it is kept.
            scope: which one.
            counter: how its messages are counted where it is not open yet.
            body: the flow.
            recount: whether they are counted so in any case.
        """
        conversation = self._check_out(store, scope, counter)

        def counted() -> Flow[T]:
            with self._mutex:
                known = self._inherited.pop(scope, None)
            if conversation.heads is None and known is not None and known.heads is not None:
                conversation.adopt(known)
            if recount and conversation.counter is not counter:
                conversation.recount(counter)
            return (yield from body(conversation))

        try:
            return (yield from locked(conversation.lock, counted()))
        finally:
            self._check_in(scope)

    def working_sets(self) -> dict[Scope, Conversation]:
        """Everything that is open or was inherited; whoever uses one holds its lock."""
        with self._mutex:
            return {**self._inherited, **self._open}

    def _check_out(self, store: BaseStore, scope: Scope, counter: TokenCounter) -> Conversation:
        with self._mutex:
            conversation = self._open.get(scope)
            if conversation is None:
                conversation = self._open[scope] = Conversation(scope, counter, _lock_of(store, scope))
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
