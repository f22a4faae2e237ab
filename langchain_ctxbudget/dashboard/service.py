"""The API's operations, and the types of what they are asked and answer.

An operation is a method of the service, which is told the user and gives only what is theirs. pydantic checks what it
is asked; answers are plain dicts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from langchain_ctxbudget.budget import (
    HEALTHY,
    THRESHOLDS,
    TIERS,
    Documents,
    Forced,
    Layer,
    Status,
    TierName,
    UsageLimits,
    relaxed,
    standing,
    tier_of,
)
from langchain_ctxbudget.dashboard.transcripts import (
    Recent,
    SaidMessage,
    Transcript,
    Transcripts,
    steady_messages,
    with_previews,
)
from langchain_ctxbudget.errors import BudgetError, FactError, InputError, StoreDataError
from langchain_ctxbudget.flow import adrive
from langchain_ctxbudget.messages import Preservation
from langchain_ctxbudget.pipeline import ContextPipeline, ContextSnapshot, amounts, read_snapshot_items
from langchain_ctxbudget.prompt import NOTHING_ELSE, Request, merged
from langchain_ctxbudget.report import ContextReport, HistoryStrategy, LayerReport, ReportItem
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope

UNKNOWN, CONFLICT = 404, 409
AT_ONCE = 8
"""Conversations that are read at a time for the list of them, of which a first look reads each whole."""
KEPT_FORECASTS = 32
"""Prompts whose candidates are kept, of all users together."""
UNASKED = "What do you know?"
"""The question of a conversation in which its user has said nothing."""
TIER_OF_LAYER: Mapping[str, int] = {"L0": 1, "L1": 1, "L2": 2, "L3": 2, "L4": 4, "L5": 1, "L6": 4, "L7": 1}
"""Tiers of seed 003; of the mixed layers, L1 and L5, that of the framing."""
TIER_OF_SOURCE = {"memories": 2, "documents": 3}
INSTRUCTIONS = ("manner ", "preference ")
"""Beginnings of the ids of items that say how to answer, and not what is known."""

LONGEST_ID, LONGEST_MESSAGE = 2_000, 10_000
"""Characters."""
MOST_POSITION = 2**31 - 1
MOST_MESSAGES = 200
"""In one answer."""

_log = logging.getLogger(__name__)

Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_MESSAGE, pattern=r"\S")]
Source: TypeAlias = Literal["snapshot", "preview"]
SnapshotId: TypeAlias = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=1_000)]
Budget: TypeAlias = Annotated[int, Field(ge=1, le=100_000_000)]
Position: TypeAlias = Annotated[int, Field(ge=1, le=MOST_POSITION)]


class Body(BaseModel):
    """A change, sent as JSON; nothing else may be in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MessagePin(Body):
    """The fate of a message when its conversation is compacted."""

    session_id: Id
    message_id: Id
    preservation: Preservation | None
    """None takes back an earlier wish."""


class FactPin(Body):
    """A fact, a topic or an entity that is kept whatever happens, or no longer."""

    fact_id: Id
    pinned: bool


Pin: TypeAlias = MessagePin | FactPin


class Force(Body):
    """Parts of a prompt that are let in however little of a usage limit is left."""

    force_include: Annotated[list[Forced], Field(max_length=16)]


class SessionSummary(TypedDict):
    """A conversation in the list; tokens and tier are those of its newest snapshot."""

    session_id: str
    messages: int
    last_updated: datetime | None
    snapshots: int
    total_tokens: int | None
    budget_tokens: int | None
    budget_percent: float | None
    tier: TierName | None


class Sessions(TypedDict):
    """The conversations of a user, the newest first."""

    user_id: str
    sessions: list[SessionSummary]


class PruningStrategy(TypedDict):
    """The parts that the usage limits let in (seed 003); `budget_range` is what is left, such as `60-80%`."""

    budget_range: str
    tier1_messages: int
    tier2_items: int | Literal["all"]
    tier3_mode: Documents
    tier4_messages: int | Literal["as budgeted"]


class ContextStatus(TypedDict):
    """The prompt of a conversation: one that was made, or the one that would be made now.

    The first `steady_messages` messages are where they were when it was made; later positions may be those of others.
    """

    session_id: str
    source: Source
    current_context: ContextReport
    tier_breakdown: dict[str, dict[str, int] | int]
    """Tokens and items of what is always sent (`tier1`), known, of documents, of what was said; their `total`."""
    budget_percent: float
    pruning_strategy: PruningStrategy
    last_updated: datetime
    steady_messages: int


class SnapshotSummary(TypedDict):
    """A snapshot in numbers; `layers` are tokens used, by layer."""

    id: str
    created_at: datetime
    messages: int
    total_tokens: int
    budget_tokens: int
    layers: dict[str, int]
    overhead_tokens: int
    tier: TierName | None
    allocation_strategy: str
    history_strategy: HistoryStrategy
    compaction_step: bool
    stable_zone_share: float | None


class Snapshots(TypedDict):
    """The newest snapshots of a conversation, oldest first."""

    session_id: str
    snapshots: list[SnapshotSummary]


class SessionUsage(TypedDict):
    """The use of a conversation, and of its user in this month: calls, tokens, cost in US dollars.

    `standing` is the most restrictive limit with what is used, allowed and left of it.
    """

    session: dict[str, float]
    month: dict[str, float]
    standing: dict[str, str | int | float] | None
    tier: TierName | None


class Settings(TypedDict):
    """The settings that apply to the user."""

    force_include: list[Forced]
    usage_limits: UsageLimits | None
    max_context_tokens: int


class RefusedError(Exception):
    """A request that is not answered as asked."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class DashboardService:
    """Reads and changes what a pipeline keeps of one user at a time.

    Raises:
        BudgetError: of every method that forecasts: the parts that must be sent do not fit.
        RefusedError: of every method about a conversation: its user has no such one.
    """

    def __init__(self, pipeline: ContextPipeline) -> None:
        self._pipeline = pipeline
        self._transcripts = Transcripts(pipeline)
        self._forecasts: Recent[tuple[Scope, str, str], ContextReport] = Recent(KEPT_FORECASTS)
        """By conversation, message and the conversation's version."""

    async def sessions(self, user_id: str) -> Sessions:
        """The conversations of the user, the last updated first."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def summary(name: str) -> SessionSummary:
            async with gate:
                return await self._summary(Scope(user_id, name))

        names = await self._pipeline.alist_conversations(user_id=user_id)
        found = await asyncio.gather(*map(summary, sorted(names)))
        oldest = datetime.min.replace(tzinfo=UTC)
        newest_first = sorted(found, key=lambda one: one["last_updated"] or oldest, reverse=True)
        return {"user_id": user_id, "sessions": newest_first}

    async def status(self, user_id: str, session_id: Id) -> ContextStatus:
        """The context of a conversation: the newest snapshot, else what would be sent now."""
        scope, transcript = await self._open(user_id, session_id)
        if latest := await self._latest(scope):
            return await self._shown(scope, transcript, latest)
        return await self._preview(scope, transcript, None, None)

    async def snapshots(self, user_id: str, session_id: Id, limit: Limit = 100) -> Snapshots:
        """The newest snapshots of a conversation, oldest first."""
        await self._open(user_id, session_id)
        found = await self._pipeline.snapshots.alist(user_id=user_id, conversation_id=session_id, limit=limit)
        return {"session_id": session_id, "snapshots": [_snapshot_summary(one) for one in found]}

    async def snapshot(self, user_id: str, session_id: Id, snapshot_id: SnapshotId) -> ContextStatus:
        """One snapshot."""
        scope, transcript = await self._open(user_id, session_id)
        found = await self._pipeline.snapshots.aget(snapshot_id, user_id=user_id, conversation_id=session_id)
        if found is None:
            raise RefusedError(UNKNOWN, "There is no such snapshot")
        return await self._shown(scope, transcript, found)

    async def preview(
        self, user_id: str, session_id: Id, budget: Budget | None = None, message: Words | None = None
    ) -> ContextStatus:
        """The next prompt as it would be; nothing is sent or stored."""
        scope, transcript = await self._open(user_id, session_id)
        return await self._preview(scope, transcript, message, budget)

    async def messages(
        self, user_id: str, session_id: Id, first: Position = 1, last: Position | None = None
    ) -> dict[str, list[SaidMessage]]:
        """Some messages of a conversation, by their positions."""
        scope, transcript = await self._open(user_id, session_id)
        end = min(first - 1 + MOST_MESSAGES, last or MOST_POSITION)
        return {"messages": await self._transcripts.with_pins(scope, transcript.messages[first - 1 : end])}

    async def usage(self, user_id: str, session_id: Id) -> SessionUsage:
        """The use of a conversation, and of its user in this month."""
        scope, _ = await self._open(user_id, session_id)
        session, month = await adrive(self._pipeline.engine.workspace.bookkeeping.used(scope))
        limits = UsageLimits.of((await self._settings(user_id)).usage_limits or {})
        closest = standing(limits, amounts(session, month))
        return {
            "session": session.to_dict(),
            "month": month.to_dict(),
            "standing": {**asdict(closest), "left": closest.left} if closest else None,
            "tier": tier_of(closest.left, limits.thresholds).name if closest else None,
        }

    async def settings(self, user_id: str) -> Settings:
        """The settings that apply to the user."""
        applied = await self._settings(user_id)
        limits = None if applied.usage_limits is None else UsageLimits.of(applied.usage_limits)
        budget, forced = applied.max_context_tokens, list(applied.force_include)
        return {"force_include": forced, "usage_limits": limits, "max_context_tokens": budget}

    async def pin(self, user_id: str, body: Pin) -> Pin:
        """Say what is to become of a message when its conversation is compacted, or that a fact is kept."""
        try:
            if isinstance(body, FactPin):
                await self._pipeline.knowledge.apin(body.fact_id, user_id=user_id, pinned=body.pinned)
            else:
                scope, _ = await self._open(user_id, body.session_id)
                where = {"user_id": user_id, "conversation_id": scope.conversation_id}
                await self._pipeline.apin(body.message_id, preservation=body.preservation, **where)
        except FactError as error:  # as many are pinned as may be
            raise RefusedError(CONFLICT, str(error)) from error
        except InputError as error:
            raise RefusedError(UNKNOWN, "There is no such message or fact") from error
        finally:
            self._forget_forecasts(user_id)
        return body

    async def force(self, user_id: str, body: Force) -> Settings:
        """Say what is let in however little of a usage limit is left; saved as the user's settings."""
        saved = await self._pipeline.aget_settings(user_id=user_id)
        forced = {"force_include": list(dict.fromkeys(body.force_include))}
        await self._pipeline.asave_settings({**saved, **forced}, user_id=user_id)
        self._forget_forecasts(user_id)
        return await self.settings(user_id)

    async def _open(self, user_id: str, session_id: str) -> tuple[Scope, Transcript]:
        scope = Scope(user_id, session_id)
        transcript = await self._transcripts.read(scope)
        if transcript is None:
            raise RefusedError(UNKNOWN, "There is no such session")
        return scope, transcript

    async def _preview(
        self, scope: Scope, transcript: Transcript, message: str | None, budget: int | None
    ) -> ContextStatus:
        asked = message if message is not None else transcript.asked or UNASKED
        report = await self._forecast(scope, asked, transcript.version, budget)
        steady = report.coverage[-1].last if report.coverage else 0
        return await self._as_status(scope, "preview", report, datetime.now(UTC), steady)

    async def _shown(self, scope: Scope, transcript: Transcript, kept: ContextSnapshot) -> ContextStatus:
        report = await with_previews(kept.report, transcript, scope, self._pipeline, self._transcripts)
        return await self._as_status(scope, "snapshot", report, kept.created_at, steady_messages(report, transcript))

    async def _as_status(
        self, scope: Scope, source: Source, report: ContextReport, at: datetime, steady: int
    ) -> ContextStatus:
        limits = (await self._settings(scope.user_id)).usage_limits if report.usage else None
        return {
            "session_id": scope.conversation_id,
            "source": source,
            "current_context": report,
            "tier_breakdown": _tier_breakdown(report),
            "budget_percent": _budget_percent(report),
            "pruning_strategy": _pruning_strategy(report, UsageLimits.of(limits).thresholds if limits else THRESHOLDS),
            "last_updated": at,
            "steady_messages": steady,
        }

    async def _forecast(self, scope: Scope, message: str, version: str, budget: int | None) -> ContextReport:
        """The report of the prompt for a message.

        Without a budget it is worked out anew, so that everything that has changed since is in it. With one, the
        candidates that were found before are allocated again, in a worker thread.
        """
        key = (scope, message, version)
        report = None if budget is None else self._forecasts.recall(key)
        if report is None:
            try:
                report = await adrive(self._pipeline.engine.forecast(scope, message, NOTHING_ELSE))
            except BudgetError:
                if budget is None:
                    raise
                # The settings' own budget is too small; this one may not be.
                request = Request(settings={"max_context_tokens": budget})
                return await adrive(self._pipeline.engine.forecast(scope, message, request))
            self._forecasts.keep(key, report)
        return report if budget is None else await asyncio.to_thread(report.reallocate, budget)

    def _forget_forecasts(self, user_id: str) -> None:
        for key in [key for key in self._forecasts if key[0].user_id == user_id]:
            del self._forecasts[key]

    async def _settings(self, user_id: str) -> ContextSettings:
        """The pipeline's settings under those that the user has saved, as far as these can be used."""
        saved = await self._pipeline.aget_settings(user_id=user_id)
        return merged(self._pipeline.settings, {"user": saved}, None, [])[0]

    async def _summary(self, scope: Scope) -> SessionSummary:
        messages, last_said = await self._transcripts.outline(scope)
        latest = await self._latest(scope)
        report = latest.report if latest else None
        return {
            "session_id": scope.conversation_id,
            "messages": messages,
            "last_updated": latest.created_at if latest else _moment(last_said),
            "snapshots": len(await adrive(read_snapshot_items(self._pipeline.store, scope))) if latest else 0,
            "total_tokens": report.total_tokens if report else None,
            "budget_tokens": report.budget_tokens if report else None,
            "budget_percent": _budget_percent(report) if report else None,
            "tier": report.usage.tier if report and report.usage else None,
        }

    async def _latest(self, scope: Scope) -> ContextSnapshot | None:
        """The newest snapshot of a conversation; one that cannot be read hides nothing else."""
        book = self._pipeline.snapshots
        try:
            return await book.alatest(user_id=scope.user_id, conversation_id=scope.conversation_id)
        except StoreDataError:
            _log.warning("A snapshot cannot be read, so it is not shown", exc_info=True)
            return None


def _snapshot_summary(snapshot: ContextSnapshot) -> SnapshotSummary:
    report = snapshot.report
    return {
        "id": snapshot.id,
        "created_at": snapshot.created_at,
        "messages": snapshot.messages,
        "total_tokens": report.total_tokens,
        "budget_tokens": report.budget_tokens,
        "layers": {layer.layer: layer.used_tokens for layer in report.layers},
        "overhead_tokens": sum(report.overhead_tokens.values()),
        "tier": report.usage.tier if report.usage else None,
        "allocation_strategy": report.allocation_strategy,
        "history_strategy": report.history_strategy,
        "compaction_step": report.stability.compaction_step,
        "stable_zone_share": report.stability.stable_zone_share,
    }


def _budget_percent(report: ContextReport) -> float:
    return round(100 * report.total_tokens / report.budget_tokens, 1)


def _tier_breakdown(report: ContextReport) -> dict[str, dict[str, int] | int]:
    tokens, items = Counter({1: sum(report.overhead_tokens.values())}), Counter[int]()
    for layer in report.layers:
        tokens[_tier(layer)] += layer.overhead_tokens
        for item in layer.items:
            if item.status is not Status.OMITTED:
                tier = _tier(layer, item)
                tokens[tier] += item.tokens
                items[tier] += 1
    told = {f"tier{n}": {"tokens": tokens[n], "items": items[n]} for n in (1, 2, 3, 4)}
    return {**told, "total": report.total_tokens}


def _tier(layer: LayerReport, item: ReportItem | None = None) -> int:
    """The tier of an item, or of what its layer costs besides its items."""
    if item and layer.layer == Layer.PREFERENCES:
        return 1 if item.id.startswith(INSTRUCTIONS) else 2
    if item and layer.layer == Layer.RETRIEVAL:
        return TIER_OF_SOURCE.get(item.source, 4)
    return TIER_OF_LAYER.get(layer.layer, 2)  # the application's own layers are knowledge


def _pruning_strategy(report: ContextReport, thresholds: tuple[float, ...]) -> PruningStrategy:
    usage = report.usage
    place = 0 if usage is None else next(n for n, tier in enumerate(TIERS) if tier.name == usage.tier)
    tier = HEALTHY if usage is None else relaxed(TIERS[place], usage.forced)
    percent = [f"{share * 100:g}" for share in thresholds]
    ranges = [f">{percent[0]}%", *(f"{low}-{high}%" for high, low in pairwise(percent))]
    return {
        "budget_range": [*ranges, f"<{percent[-1]}%"][place],
        "tier1_messages": 1,
        "tier2_items": "all" if tier.knowledge_items is None else tier.knowledge_items,
        "tier3_mode": tier.documents,
        "tier4_messages": "as budgeted" if tier.history_messages is None else tier.history_messages,
    }


def _moment(text: str | None) -> datetime | None:
    """A time as messages give it, taken for UTC where it does not say; None where it is none."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
