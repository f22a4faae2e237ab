"""What a pipeline keeps beside conversations, to look at: usage and earlier reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from langgraph.store.base import GetOp, Item

from langchain_ctxbudget.budget import Standing, UsageLimits, standing
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch, twins
from langchain_ctxbudget.pipeline.bookkeeping import SNAPSHOTS, ContextSnapshot, amounts, read_snapshot_items
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.prompt import merged
from langchain_ctxbudget.stores import Scope, month_of, read_settings, settings_place
from langchain_ctxbudget.tokens import Usage

Snapshots: TypeAlias = list[ContextSnapshot]
MOST_SNAPSHOTS = 100
"""Snapshots that are given by default."""


class _Book:
    """A part of a pipeline."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine


class UsageBook(_Book):
    """Usage in tokens and US dollars, per conversation and per user and month (UTC), and what is left of limits.

    A pipeline has it as `usage`. It is fed by `ContextUsageHandler`, by the middleware, by `pipeline.observe_usage`,
    and by `record` where none of these sees an answer. Models without a known price count tokens only. Every method
    has an async twin. Without a user or a conversation, it raises `MissingScopeError`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> usage = {"input_tokens": 1_000, "output_tokens": 200, "total_tokens": 1_200}
        >>> spent = pipeline.usage.record(usage, user_id="ada", conversation_id="c1", model="gpt-4o")
        >>> pipeline.usage.of_session(user_id="ada", conversation_id="c1").total_tokens
        1200
    """

    def _record(
        self, usage_metadata: Mapping[str, Any], *, user_id: str, conversation_id: str, model: str | None = None
    ) -> Flow[Usage]:
        """Counts the usage of an answer, of the pipeline's model or another one, and returns it once it is written.

        Raises `InputError` where it is no usage, and what the store raised. It is counted all the same then and
        written later: do not record it again.
        """
        scope, engine = Scope(user_id, conversation_id), self._engine
        return engine.workspace.bookkeeping.record(scope, usage_metadata, model or engine.target.model_name)

    record, arecord = twins(_record)

    def _of_session(self, *, user_id: str, conversation_id: str) -> Flow[Usage]:
        """Returns the usage of a conversation."""
        session, _ = yield from self._engine.workspace.bookkeeping.used(Scope(user_id, conversation_id))
        return session

    of_session, aof_session = twins(_of_session)

    def _of_month(self, *, user_id: str, month: str | None = None) -> Flow[Usage]:
        """Returns the usage of a user in a month (this one, or such as `2026-11`; else `InputError`).

        It is that of all conversations, also of those that were deleted since.
        """
        workspace = self._engine.workspace
        books = workspace.bookkeeping
        return books.ledger.of_month(workspace.store, user_id, month or month_of(books.clock()))

    of_month, aof_month = twins(_of_month)

    def _standing(
        self, *, user_id: str, conversation_id: str, limits: UsageLimits | Mapping[str, Any] | None = None
    ) -> Flow[Standing | None]:
        """Returns how much is left of the most restrictive limit; None where none is set.

        The limits are the pipeline's, under what the user has saved, where none are given; `InvalidSettingsError` for
        something else.
        """
        scope, workspace = Scope(user_id, conversation_id), self._engine.workspace
        if limits is None:
            saved = yield from read_settings(workspace.store, settings_place(user_id, None))
            limits = merged(workspace.settings, {"user": saved}, None, failures=[])[0].usage_limits
        if limits is None:
            return None
        return standing(UsageLimits.of(limits), amounts(*(yield from workspace.bookkeeping.used(scope))))

    standing, astanding = twins(_standing)


class SnapshotBook(_Book):
    """The reports of earlier prompts, where `keep_snapshots` says that they are kept.

    A pipeline has it as `snapshots`. They are written in the background, so the newest may be missing for a moment
    (`pipeline.flush()` waits for it). Every method has an async twin. Without a user or a conversation, it raises
    `MissingScopeError`.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline({"keep_snapshots": 10})
        >>> for question in ("Hello", "Hello again"):
        ...     context = pipeline.assemble(question, user_id="ada", conversation_id="c1")
        >>> pipeline.flush()
        True
        >>> [one.report.total_tokens for one in pipeline.snapshots.list(user_id="ada", conversation_id="c1")]
        [8, 9]
    """

    def _latest(self, *, user_id: str, conversation_id: str) -> Flow[ContextSnapshot | None]:
        """Returns the newest snapshot of a conversation; None where there is none."""
        found = yield from self._list(user_id=user_id, conversation_id=conversation_id, limit=1)
        return found[0] if found else None

    latest, alatest = twins(_latest)

    def _get(self, snapshot_id: str, *, user_id: str, conversation_id: str) -> Flow[ContextSnapshot | None]:
        """Returns one snapshot; None where the conversation has none of this id."""
        scope = Scope(user_id, conversation_id)
        [found] = yield from batch(self._engine.workspace.store, [GetOp(scope.namespace(SNAPSHOTS), snapshot_id)])
        return ContextSnapshot.of_item(scope, found) if isinstance(found, Item) else None

    get, aget = twins(_get)

    def _list(self, *, user_id: str, conversation_id: str, limit: int = MOST_SNAPSHOTS) -> Flow[Snapshots]:
        """Returns the newest snapshots of a conversation, oldest first, at most `limit`; `InputError` for no count."""
        scope = Scope(user_id, conversation_id)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"limit must be a whole number of at least 1, not {limit!r}")
        items = yield from read_snapshot_items(self._engine.workspace.store, scope)
        return [ContextSnapshot.of_item(scope, item) for item in items[-limit:]]

    list, alist = twins(_list)
