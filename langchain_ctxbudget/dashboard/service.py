"""The API's operations, and the types of what they are asked and answer.

An operation is a method of the service, which is told the user and gives only what is theirs. pydantic checks what it
is asked; answers are plain dicts. Kept reports name their items by id, and the texts are read where they are kept: so
nothing that was erased since comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

from langchain_core.messages import HumanMessage
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from langchain_ctxbudget.budget import (
    HEALTHY,
    THRESHOLDS,
    TIERS,
    Documents,
    Layer,
    Reason,
    Status,
    TierName,
    UsageLimits,
    relaxed,
    standing,
    tier_of,
)
from langchain_ctxbudget.documents import KnowledgeBase
from langchain_ctxbudget.errors import FactError, InputError, StoreDataError
from langchain_ctxbudget.flow import Flow, adrive, batch
from langchain_ctxbudget.history import Entry, OpenConversation
from langchain_ctxbudget.messages import Preservation, plain_text, preservation_of
from langchain_ctxbudget.pipeline import ContextPipeline, ContextSnapshot, amounts, pins_place, read_snapshot_items
from langchain_ctxbudget.prompt import NOTHING_ELSE, Request, merged
from langchain_ctxbudget.report import JOINED, ContextReport, HistoryStrategy, LayerReport, ReportItem, preview
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import PinsRecord, Scope

UNKNOWN, CONFLICT = 404, 409
AT_ONCE = 8
"""Conversations that are read at a time for the list of them."""
UNASKED = "What do you know?"
"""The question of a conversation in which its user has said nothing."""
TIER_OF_LAYER: Mapping[str, int] = {"L0": 1, "L1": 1, "L2": 2, "L3": 2, "L4": 4, "L5": 1, "L6": 4, "L7": 1}
"""Tiers of seed 003; of the mixed layers, L1 and L5, that of the framing."""
TIER_OF_SOURCE = {"memories": 2, "documents": 3}
INSTRUCTIONS = ("manner ", "preference ")
"""Beginnings of the ids of items that say how to answer, and not what is known."""
SAID = (Layer.ARC, Layer.HISTORY, Layer.MESSAGE)
LONGEST_ID, LONGEST_MESSAGE, LONGEST_TEXT = 2_000, 10_000, 10_000
"""Characters that are taken of an id and of a question, and shown of a message."""
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

    usage_limits: UsageLimits | None
    max_context_tokens: int


class SaidMessage(TypedDict):
    """A message of a conversation; its position counts from 1, and a long text ends with an ellipsis."""

    position: int
    id: str
    role: str
    name: str | None
    text: str
    created_at: str | None
    preservation: Preservation | None


@dataclass(frozen=True)
class Transcript:
    """The messages of a conversation, and where each stands."""

    entries: Sequence[Entry]
    positions: Mapping[str, int]

    def text(self, item: ReportItem, steady: int) -> str:
        """Returns what an item stands for: a message, the first of several, or the source of a summary's line."""
        if item.reason is Reason.SUMMARY:
            number = item.id.removeprefix("message ")
            at = int(number) - 1 if number.isdecimal() else -1
            return plain_text(self.entries[at].message) if 0 <= at < steady else ""
        place = self.positions.get(item.id, self.positions.get(item.id.split(JOINED)[0]))
        return "" if place is None else plain_text(self.entries[place].message)

    def steady(self, report: ContextReport) -> int:
        """Returns how many messages, from the first on, are where they were: all of the report's, or 0.

        A report names older messages by their positions alone, and the newest by their ids, too. Where the last one has
        not moved, neither has anything before it.
        """
        ids = [
            item.id
            for item in report.layer(Layer.HISTORY).items
            if item.status is not Status.OMITTED and item.reason not in (Reason.SUMMARY, Reason.PINNED)
        ]
        last = self.positions.get(ids[-1].split(JOINED)[-1]) if ids else None
        end = report.coverage[-1].last if report.coverage else 0
        return end if last is not None and last + 1 == end else 0


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
        [found] = await adrive(batch(self._pipeline.store, [pins_place(scope)]))
        value: dict[str, Any] | None = getattr(found, "value", None)
        pins = PinsRecord.read(value, "the pins").pins if value is not None else {}
        chosen = enumerate(transcript.entries[first - 1 : end], first)
        return {"messages": [_said(place, entry, pins) for place, entry in chosen]}

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
        return {"usage_limits": limits, "max_context_tokens": applied.max_context_tokens}

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
        return body

    async def _open(self, user_id: str, session_id: str) -> tuple[Scope, Transcript]:
        scope = Scope(user_id, session_id)
        transcript = await self._read(scope)
        if not transcript.entries and session_id not in await self._pipeline.alist_conversations(user_id=user_id):
            raise RefusedError(UNKNOWN, "There is no such session")
        return scope, transcript

    async def _read(self, scope: Scope) -> Transcript:
        def read(conversation: OpenConversation) -> Flow[Transcript]:
            yield from ()
            return Transcript(conversation.entries, conversation.positions)

        return await adrive(self._pipeline.engine.workspace.recall(scope, read))

    async def _preview(
        self, scope: Scope, transcript: Transcript, message: str | None, budget: int | None
    ) -> ContextStatus:
        said = (one.message for one in reversed(transcript.entries) if isinstance(one.message, HumanMessage))
        asked = message or next((text for one in said if (text := plain_text(one)).strip()), UNASKED)
        request = NOTHING_ELSE if budget is None else Request(settings={"max_context_tokens": budget})
        report = await adrive(self._pipeline.engine.forecast(scope, asked, request))
        steady = report.coverage[-1].last if report.coverage else 0
        return await self._as_status(scope, "preview", report, datetime.now(UTC), steady)

    async def _shown(self, scope: Scope, transcript: Transcript, kept: ContextSnapshot) -> ContextStatus:
        """The status of a kept report, whose items quote what they stand for as far as it is still there."""
        knowledge, user, steady = self._pipeline.knowledge, scope.user_id, transcript.steady(kept.report)
        texts = {topic.id: topic.label for topic in await knowledge.alist_topics(user_id=user)}
        texts |= {entity.id: entity.name for entity in await knowledge.alist_entities(user_id=user)}
        for shelf in (
            KnowledgeBase(self._pipeline.store, shared=True),
            KnowledgeBase(self._pipeline.store, user_id=user),
        ):
            texts |= {document.id: document.title for document in await shelf.alist()}
        texts |= {fact.id: fact.text for fact in await knowledge.alist_facts(user_id=user, include_ended=True)}

        def quoted(layer: LayerReport, item: ReportItem) -> ReportItem:
            is_said = layer.layer in SAID or item.source == "messages"
            text = transcript.text(item, steady) if is_said else texts.get(item.id.partition("#")[0], "")
            return item if item.preview else replace(item, preview=preview(text))

        layers = (replace(one, items=tuple(quoted(one, item) for item in one.items)) for one in kept.report.layers)
        report = replace(kept.report, layers=tuple(layers))
        return await self._as_status(scope, "snapshot", report, kept.created_at, steady)

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

    async def _settings(self, user_id: str) -> ContextSettings:
        """The pipeline's settings under those that the user has saved, as far as these can be used."""
        saved = await self._pipeline.aget_settings(user_id=user_id)
        return merged(self._pipeline.settings, {"user": saved}, None, [])[0]

    async def _summary(self, scope: Scope) -> SessionSummary:
        transcript, latest = await self._read(scope), await self._latest(scope)
        said = transcript.entries[-1].message.additional_kwargs.get("created_at") if transcript.entries else None
        report = latest.report if latest else None
        return {
            "session_id": scope.conversation_id,
            "messages": len(transcript.entries),
            "last_updated": latest.created_at if latest else _moment(said),
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


def _said(position: int, entry: Entry, pins: Mapping[str, Preservation]) -> SaidMessage:
    """A message as the page shows it; what `pin` said of it outweighs its own wish."""
    message, text = entry.message, plain_text(entry.message)
    at = message.additional_kwargs.get("created_at")
    return {
        "position": position,
        "id": entry.id,
        "role": message.type,
        "name": message.name,
        "text": text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…",
        "created_at": at if isinstance(at, str) else None,
        "preservation": pins.get(entry.id, preservation_of(message)),
    }


def _moment(said: object) -> datetime | None:
    """A time as messages give it, taken for UTC where it does not say; None where it is none."""
    try:
        at = datetime.fromisoformat(str(said))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
