"""The reports of earlier prompts that a pipeline has kept."""

from __future__ import annotations

from typing import TypeAlias

from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.stores import snapshots
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.stores.snapshots import ContextSnapshot

Snapshots: TypeAlias = list[ContextSnapshot]
"""Oldest first."""
MOST = 100
"""Snapshots that are given by default."""


class SnapshotBook:
    """The reports of earlier prompts, where `keep_snapshots` says that they are kept.

    A pipeline has it as `snapshots`. They are written in the background, so the newest may be missing for a moment
    (`pipeline.flush()` waits for it). Every method has an async twin.

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

    def __init__(self, engine: Engine) -> None:
        """Takes the engine of a pipeline."""
        self._engine = engine

    def latest(self, *, user_id: str, conversation_id: str) -> ContextSnapshot | None:
        """Returns the newest snapshot of a conversation; None where there is none.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        found = self.list(user_id=user_id, conversation_id=conversation_id, limit=1)
        return found[0] if found else None

    async def alatest(self, *, user_id: str, conversation_id: str) -> ContextSnapshot | None:
        """Does what `latest` does."""
        found = await self.alist(user_id=user_id, conversation_id=conversation_id, limit=1)
        return found[0] if found else None

    def get(self, snapshot_id: str, *, user_id: str, conversation_id: str) -> ContextSnapshot | None:
        """Returns one snapshot; None where the conversation has none of this id.

        Raises:
            MissingScopeError: no user or no conversation.
        """
        return drive(snapshots.read_one(self._engine.store, Scope(user_id, conversation_id), snapshot_id))

    async def aget(self, snapshot_id: str, *, user_id: str, conversation_id: str) -> ContextSnapshot | None:
        """Does what `get` does."""
        return await adrive(snapshots.read_one(self._engine.store, Scope(user_id, conversation_id), snapshot_id))

    def list(self, *, user_id: str, conversation_id: str, limit: int = MOST) -> Snapshots:
        """Returns the newest snapshots of a conversation, oldest first.

        Args:
            user_id: the user.
            conversation_id: the conversation.
            limit: the most that are given.

        Raises:
            InputError: the limit is not a count.
            MissingScopeError: no user or no conversation.
        """
        return drive(snapshots.read_last(self._engine.store, Scope(user_id, conversation_id), limit))

    async def alist(self, *, user_id: str, conversation_id: str, limit: int = MOST) -> Snapshots:
        """Does what `list` does."""
        return await adrive(snapshots.read_last(self._engine.store, Scope(user_id, conversation_id), limit))
