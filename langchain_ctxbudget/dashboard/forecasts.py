"""The prompts that would be made now: assembled once, then allocated again at any budget without I/O."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.dashboard.transcripts import Recent
from langchain_ctxbudget.errors import BudgetError, InputError
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores.records import Scope

KEPT_FORECASTS = 32
"""Prompts whose candidates are kept, of all users together."""

Key = tuple[Scope, str, str]
"""A conversation, what is asked in it, and the version of the conversation."""


class Forecasts:
    """Makes prompts that nobody sends.

    They are made by a pipeline of their own on the same store, so that the application's own does not take them for
    its last prompts: usage that it observes, and what a prompt shares with the one before, are about those it sends.
    """

    def __init__(self, pipeline: ContextPipeline) -> None:
        """Beside a pipeline.

        Args:
            pipeline: the application's.
        """
        self._application = pipeline
        self._own: ContextPipeline | None = None
        self._reports: Recent[Key, ContextReport] = Recent(KEPT_FORECASTS)
        self._locks: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()

    async def report(self, scope: Scope, message: str, version: str, budget: int | None) -> ContextReport:
        """The report of the prompt for a message.

        Without a budget it is assembled anew, so that everything that has changed since is in it. With one, the
        candidates that were found before are allocated again, in a worker thread.

        Args:
            scope: the conversation.
            message: what is asked.
            version: of the conversation; candidates of another one are of no use.
            budget: of the whole request, in tokens; None: that of the settings.

        Raises:
            BudgetError: what must be sent does not fit.
        """
        key = (scope, message, version)
        lock = self._locks.setdefault(scope, asyncio.Lock())
        async with lock:
            if budget is None:
                return await self._assemble(key)
            found = self._reports.recall(key)
            if found is not None:
                try:
                    return await asyncio.to_thread(found.reallocate, budget)
                except InputError:  # changed since in a way that its version does not tell
                    self._reports.pop(key, None)
            try:
                found = await self._assemble(key)
            except BudgetError:  # the settings' own budget is too small; this one may not be
                return await self._assemble(key, budget)
            return await asyncio.to_thread(found.reallocate, budget)

    def forget(self, user_id: str) -> None:
        """Let go of a user's candidates, as something has changed that decides about them."""
        for key in [key for key in self._reports if key[0].user_id == user_id]:
            del self._reports[key]

    def close(self) -> None:
        """Stop what the prompts have begun in the background."""
        if self._own is not None:
            self._own.close()
            self._own = None

    async def _assemble(self, key: Key, budget: int | None = None) -> ContextReport:
        scope, message, _ = key
        settings = {"keep_snapshots": 0} | ({} if budget is None else {"max_context_tokens": budget})
        context = await self._pipeline.aassemble(
            message,
            user_id=scope.user_id,
            conversation_id=scope.conversation_id,
            settings=settings,
        )
        for old in [old for old in self._reports if old[0] == scope and old[2] != key[2]]:
            del self._reports[old]
        if budget is None:
            self._reports.keep(key, context.report)
        return context.report

    @property
    def _pipeline(self) -> ContextPipeline:
        if self._own is None:
            target = self._application.engine.target
            self._own = self._application.with_model(target.model, token_counter=target.given_counter)
        return self._own
