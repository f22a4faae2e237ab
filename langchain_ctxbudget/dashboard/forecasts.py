"""The prompts that would be made now: worked out once, then allocated again at any budget without I/O."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.dashboard.transcripts import Recent
from langchain_ctxbudget.errors import BudgetError
from langchain_ctxbudget.flow import adrive
from langchain_ctxbudget.opening import NOTHING_ELSE, Request
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores.records import Scope

KEPT_FORECASTS = 32
"""Prompts whose candidates are kept, of all users together."""

Key = tuple[Scope, str, str]
"""A conversation, what is asked in it, and the version of the conversation."""


class Forecasts:
    """Tells of prompts that nobody sends, and that leave nothing behind in the pipeline or its store."""

    def __init__(self, pipeline: ContextPipeline) -> None:
        """Over the conversations of a pipeline.

        Args:
            pipeline: whose prompts they would be.
        """
        self._pipeline = pipeline
        self._reports: Recent[Key, ContextReport] = Recent(KEPT_FORECASTS)
        self._locks: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()

    async def report(self, scope: Scope, message: str, version: str, budget: int | None) -> ContextReport:
        """The report of the prompt for a message.

        Without a budget it is worked out anew, so that everything that has changed since is in it. With one, the
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
            if found is None:
                try:
                    found = await self._assemble(key)
                except BudgetError:  # the settings' own budget is too small; this one may not be
                    return await self._assemble(key, budget)
            return await asyncio.to_thread(found.reallocate, budget)

    def forget(self, user_id: str) -> None:
        """Let go of a user's candidates, as something has changed that decides about them."""
        for key in [key for key in self._reports if key[0].user_id == user_id]:
            del self._reports[key]

    async def _assemble(self, key: Key, budget: int | None = None) -> ContextReport:
        scope, message, _ = key
        request = NOTHING_ELSE if budget is None else Request(settings={"max_context_tokens": budget})
        report = await adrive(self._pipeline.engine.forecast(scope, message, request))
        for old in [old for old in self._reports if old[0] == scope and old[2] != key[2]]:
            del self._reports[old]
        if budget is None:
            self._reports.keep(key, report)
        return report
