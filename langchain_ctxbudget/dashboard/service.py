"""What the API does: one method for each of its operations. Every method is told the user and gives what is theirs."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from langchain_ctxbudget.bookkeeping import amounts
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.tiers import THRESHOLDS, UsageLimits, standing, tier_of
from langchain_ctxbudget.dashboard import answers, questions, views
from langchain_ctxbudget.dashboard.forecasts import Forecasts
from langchain_ctxbudget.dashboard.places import counted, steady_messages
from langchain_ctxbudget.dashboard.quoting import with_previews
from langchain_ctxbudget.dashboard.refusals import CONFLICT, UNKNOWN, RefusedError
from langchain_ctxbudget.dashboard.transcripts import Outline, Recent, Transcript, Transcripts
from langchain_ctxbudget.errors import FactError, InputError, StoreDataError
from langchain_ctxbudget.flow import adrive
from langchain_ctxbudget.opening import merged
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import Scope, label
from langchain_ctxbudget.stores.snapshots import ContextSnapshot, read_keys

AT_ONCE = 8
"""Conversations that are read at a time for the list of them."""
KEPT_COUNTS = 10_000
UNASKED = "What do you know?"
"""What is asked in a conversation in which its user has said nothing."""

_log = logging.getLogger(__name__)


class DashboardService:
    """Reads and changes what a pipeline keeps of one user at a time.

    Raises:
        BudgetError: of every method that forecasts: what must be sent does not fit.
        RefusedError: of every method that is asked about a conversation: its user has no such one.
    """

    def __init__(self, pipeline: ContextPipeline) -> None:
        """Over a pipeline.

        Args:
            pipeline: whose store is shown.
        """
        self._pipeline = pipeline
        self._transcripts = Transcripts(pipeline)
        self._forecasts = Forecasts(pipeline)
        self._counts: Recent[Scope, tuple[str, int]] = Recent(KEPT_COUNTS)
        """How many snapshots a conversation has, with the id of the newest."""

    async def sessions(self, user_id: str, _asked: questions.Nothing) -> answers.Sessions:
        """The conversations of the user, those that were last updated first."""
        versions = await self._transcripts.versions(user_id)
        with_snapshots = await self._transcripts.with_snapshots(user_id)
        gate = asyncio.Semaphore(AT_ONCE)

        async def summary(name: str) -> answers.SessionSummary:
            scope = Scope(user_id, name)
            async with gate:
                outline = await self._transcripts.outline(scope, versions[name])
                return await self._summary(scope, outline, has_snapshots=label(name) in with_snapshots)

        found = await asyncio.gather(*map(summary, sorted(versions)))
        oldest = datetime.min.replace(tzinfo=UTC)
        newest_first = sorted(found, key=lambda one: one.last_updated or oldest, reverse=True)
        return answers.Sessions(user_id=user_id, sessions=tuple(newest_first))

    async def status(self, user_id: str, asked: questions.OfSession) -> answers.ContextStatus:
        """What is in the context: the newest snapshot, else what would be sent now."""
        scope, transcript = await self._open(user_id, asked)
        latest = await self._latest(scope)
        if latest is None:
            return await self._preview(scope, transcript, None, None)
        return await self._shown(scope, transcript, latest.report, latest.created_at)

    async def snapshots(self, user_id: str, asked: questions.OfSnapshots) -> answers.Snapshots:
        """The newest snapshots of a conversation, oldest first."""
        await self._open(user_id, asked)
        found = await self._pipeline.snapshots.alist(
            user_id=user_id, conversation_id=asked.session_id, limit=asked.limit
        )
        return answers.Snapshots(session_id=asked.session_id, snapshots=tuple(map(views.snapshot_summary, found)))

    async def snapshot(self, user_id: str, asked: questions.OfSnapshot) -> answers.ContextStatus:
        """One snapshot."""
        scope, transcript = await self._open(user_id, asked)
        found = await self._pipeline.snapshots.aget(
            asked.snapshot_id, user_id=user_id, conversation_id=asked.session_id
        )
        if found is None:
            raise RefusedError(UNKNOWN, "There is no such snapshot")
        return await self._shown(scope, transcript, found.report, found.created_at)

    async def preview(self, user_id: str, asked: questions.OfPreview) -> answers.ContextStatus:
        """What the next prompt would be; nothing is sent, and nothing that is said in it is stored."""
        scope, transcript = await self._open(user_id, asked)
        return await self._preview(scope, transcript, asked.message, asked.budget)

    async def messages(self, user_id: str, asked: questions.OfMessages) -> answers.Messages:
        """Some messages of a conversation, by their positions."""
        scope, transcript = await self._open(user_id, asked)
        end = asked.first - 1 + questions.MOST_MESSAGES
        end = end if asked.last is None else min(end, asked.last)
        part = transcript.messages[asked.first - 1 : end]
        return answers.Messages(messages=await self._transcripts.with_pins(scope, part))

    async def usage(self, user_id: str, asked: questions.OfSession) -> answers.SessionUsage:
        """What a conversation has used, and its user in this month."""
        scope, _ = await self._open(user_id, asked)
        session, month = await adrive(self._pipeline.engine.bookkeeping.used(scope))
        limits = UsageLimits.of((await self._settings(user_id)).usage_limits or {})
        closest = standing(limits, amounts(session, month))
        return answers.SessionUsage(
            session=views.usage_totals(session),
            month=views.usage_totals(month),
            standing=views.limit_standing(closest) if closest else None,
            tier=tier_of(closest.left, limits.thresholds).name if closest else None,
        )

    async def settings(self, user_id: str, _asked: questions.Nothing) -> answers.Settings:
        """The settings that apply to the user."""
        return views.settings(await self._settings(user_id))

    async def pin(self, user_id: str, asked: questions.Pin) -> answers.MessagePinned | answers.FactPinned:
        """Say what is to become of a message when its conversation is compacted, or whether a fact is kept.

        Raises:
            RefusedError: as many facts are pinned as may be.
        """
        try:
            if isinstance(asked, questions.FactPin):
                return await self._pin_fact(user_id, asked)
            return await self._pin_message(user_id, asked)
        finally:
            self._forecasts.forget(user_id)

    async def _pin_message(self, user_id: str, asked: questions.MessagePin) -> answers.MessagePinned:
        await self._open(user_id, asked)
        try:
            await self._pipeline.apin(
                asked.message_id,
                user_id=user_id,
                conversation_id=asked.session_id,
                preservation=asked.preservation,
            )
        except InputError as error:
            raise RefusedError(UNKNOWN, "The session has no such message") from error
        return answers.MessagePinned(
            session_id=asked.session_id, message_id=asked.message_id, preservation=asked.preservation
        )

    async def _pin_fact(self, user_id: str, asked: questions.FactPin) -> answers.FactPinned:
        try:
            await self._pipeline.knowledge.apin(asked.fact_id, user_id=user_id, pinned=asked.pinned)
        except FactError as error:
            raise RefusedError(CONFLICT, str(error)) from error
        except InputError as error:
            raise RefusedError(UNKNOWN, "There is no such fact") from error
        return answers.FactPinned(fact_id=asked.fact_id, pinned=asked.pinned)

    async def force(self, user_id: str, asked: questions.Force) -> answers.Settings:
        """Say what goes into prompts however little of a usage limit is left; saved as the user's settings."""
        saved = await self._pipeline.aget_settings(user_id=user_id)
        forced = {"force_include": list(dict.fromkeys(asked.force_include))}
        await self._pipeline.asave_settings({**saved, **forced}, user_id=user_id)
        self._forecasts.forget(user_id)
        return views.settings(await self._settings(user_id))

    async def _open(self, user_id: str, asked: questions.OfSession | questions.MessagePin) -> tuple[Scope, Transcript]:
        """The conversation that is asked about.

        Raises:
            RefusedError: the user has no such one.
        """
        scope = Scope(user_id, asked.session_id)
        transcript = await self._transcripts.read(scope)
        if transcript is None:
            raise RefusedError(UNKNOWN, "There is no such session")
        return scope, transcript

    async def _preview(
        self, scope: Scope, transcript: Transcript, message: str | None, budget: int | None
    ) -> answers.ContextStatus:
        asked = message if message is not None else transcript.asked or UNASKED
        report = await self._forecasts.report(scope, asked, transcript.version, budget)
        thresholds = await self._thresholds(scope.user_id, report)
        now = datetime.now(UTC)
        return views.status(scope.conversation_id, "preview", report, now, thresholds, steady=counted(report))

    async def _shown(
        self, scope: Scope, transcript: Transcript, kept: ContextReport, at: datetime
    ) -> answers.ContextStatus:
        report = await with_previews(kept, transcript, scope, self._pipeline, self._transcripts)
        thresholds = await self._thresholds(scope.user_id, report)
        steady = steady_messages(report, transcript)
        return views.status(scope.conversation_id, "snapshot", report, at, thresholds, steady=steady)

    async def _thresholds(self, user_id: str, report: ContextReport) -> tuple[float, float, float]:
        limits = (await self._settings(user_id)).usage_limits if report.usage else None
        return THRESHOLDS if limits is None else UsageLimits.of(limits).thresholds

    async def _settings(self, user_id: str) -> ContextSettings:
        """The pipeline's settings under what the user has saved; what cannot be used of that is left out."""
        saved = await self._pipeline.aget_settings(user_id=user_id)
        return merged(self._pipeline.settings, {"user": saved}, None, [])[0]

    async def _summary(self, scope: Scope, outline: Outline, *, has_snapshots: bool) -> answers.SessionSummary:
        latest = await self._latest(scope) if has_snapshots else None
        shown = None if latest is None else views.snapshot_summary(latest)
        said = views.moment(outline.last_said)
        return answers.SessionSummary(
            session_id=scope.conversation_id,
            messages=outline.messages,
            last_updated=shown.created_at if shown else said,
            snapshots=await self._count(scope, shown.id) if shown else 0,
            total_tokens=shown.total_tokens if shown else None,
            budget_tokens=shown.budget_tokens if shown else None,
            budget_percent=views.budget_percent(latest.report) if latest else None,
            tier=shown.tier if shown else None,
        )

    async def _latest(self, scope: Scope) -> ContextSnapshot | None:
        """The newest snapshot of a conversation; one that cannot be read hides nothing else."""
        book = self._pipeline.snapshots
        try:
            return await book.alatest(user_id=scope.user_id, conversation_id=scope.conversation_id)
        except StoreDataError:
            _log.warning("A snapshot cannot be read, so it is not shown", exc_info=True)
            return None

    async def _count(self, scope: Scope, newest: str) -> int:
        """How many snapshots a conversation has; while the newest one is the same, as many as before."""
        known = self._counts.recall(scope)
        if known is None or known[0] != newest:
            known = (newest, len(await adrive(read_keys(self._pipeline.store, scope))))
            self._counts.keep(scope, known)
        return known[1]
