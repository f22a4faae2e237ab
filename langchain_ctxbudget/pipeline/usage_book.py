"""The tokens and dollars that conversations and users have used, and what is left of their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_ctxbudget.budget.tiers import Standing, UsageLimits, standing
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.pipeline.bookkeeping import amounts
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.prompt.request import merged
from langchain_ctxbudget.stores.records import Scope, require_id
from langchain_ctxbudget.tokens.prices import Usage


class UsageBook:
    """Usage in tokens and US dollars, per conversation and per user and month (UTC).

    A pipeline has it as `usage`. It is fed by `ContextUsageHandler`, by the middleware, by `pipeline.observe_usage`,
    and by `record` where none of these sees an answer. Models without a known price count tokens only. Every method
    has an async twin.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> usage = {"input_tokens": 1_000, "output_tokens": 200, "total_tokens": 1_200}
        >>> spent = pipeline.usage.record(usage, user_id="ada", conversation_id="c1", model="gpt-4o")
        >>> pipeline.usage.of_session(user_id="ada", conversation_id="c1").total_tokens
        1200
    """

    def __init__(self, engine: Engine) -> None:
        """Takes the engine of a pipeline."""
        self._engine = engine

    def record(
        self, usage_metadata: Mapping[str, Any], *, user_id: str, conversation_id: str, model: str | None = None
    ) -> Usage:
        """Counts the usage of an answer; it is written when this returns.

        Args:
            usage_metadata: of the model's answer.
            user_id: the user.
            conversation_id: the conversation.
            model: that answered; default: the pipeline's.

        Returns:
            what was counted.

        Raises:
            InputError: it is no usage.
            MissingScopeError: no user or no conversation.
            Exception: what the store raised. It is counted all the same and written later: do not record it again.
        """
        return drive(self._record(usage_metadata, Scope(user_id, conversation_id), model))

    async def arecord(
        self, usage_metadata: Mapping[str, Any], *, user_id: str, conversation_id: str, model: str | None = None
    ) -> Usage:
        """Does what `record` does."""
        return await adrive(self._record(usage_metadata, Scope(user_id, conversation_id), model))

    def of_session(self, *, user_id: str, conversation_id: str) -> Usage:
        """Returns the usage of a conversation.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return drive(self._of_session(Scope(user_id, conversation_id)))

    async def aof_session(self, *, user_id: str, conversation_id: str) -> Usage:
        """Does what `of_session` does."""
        return await adrive(self._of_session(Scope(user_id, conversation_id)))

    def of_month(self, *, user_id: str, month: str | None = None) -> Usage:
        """Returns the usage of a user in a month, in all conversations, also those that were deleted since.

        Args:
            user_id: the user.
            month: such as `2026-11`; default: this month.

        Raises:
            InputError: it is no month.
            MissingScopeError: no user.
        """
        return drive(self._engine.bookkeeping.of_month(require_id("user_id", user_id), month))

    async def aof_month(self, *, user_id: str, month: str | None = None) -> Usage:
        """Does what `of_month` does."""
        return await adrive(self._engine.bookkeeping.of_month(require_id("user_id", user_id), month))

    def standing(
        self, *, user_id: str, conversation_id: str, limits: UsageLimits | Mapping[str, Any] | None = None
    ) -> Standing | None:
        """Returns how much is left of the most restrictive limit; None where none is set.

        Args:
            user_id: the user.
            conversation_id: the session.
            limits: default: the pipeline's, under what the user has saved; what cannot be used of that is left out.

        Raises:
            InvalidSettingsError: the limits are none.
            MissingScopeError: no user or no conversation.
        """
        return drive(self._standing(Scope(user_id, conversation_id), limits))

    async def astanding(
        self, *, user_id: str, conversation_id: str, limits: UsageLimits | Mapping[str, Any] | None = None
    ) -> Standing | None:
        """Does what `standing` does."""
        return await adrive(self._standing(Scope(user_id, conversation_id), limits))

    def _record(self, usage_metadata: Mapping[str, Any], scope: Scope, model: str | None) -> Flow[Usage]:
        engine = self._engine
        return (yield from engine.bookkeeping.record(scope, usage_metadata, model or engine.target.model_name))

    def _of_session(self, scope: Scope) -> Flow[Usage]:
        session, _ = yield from self._engine.bookkeeping.used(scope)
        return session

    def _standing(self, scope: Scope, limits: UsageLimits | Mapping[str, Any] | None) -> Flow[Standing | None]:
        if limits is None:
            saved = yield from self._engine.workspace.saved_settings(scope.user_id, None)
            settings, _ = merged(self._engine.settings, {"user": saved}, None, failures=[])
            limits = settings.usage_limits
        if limits is None:
            return None
        return standing(UsageLimits.of(limits), amounts(*(yield from self._engine.bookkeeping.used(scope))))
