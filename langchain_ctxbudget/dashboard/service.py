"""The API's operations: pydantic checks their input, and they answer with plain data.

An operation is a method of the service: it takes the user's id and returns only what is theirs.
Kept reports name their items by id, and the texts are read where they are kept, so nothing comes
back that was erased since.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage
from pydantic import Field
from starlette.exceptions import HTTPException

from langchain_ctxbudget import budget as budgets
from langchain_ctxbudget import pipeline as pipelines
from langchain_ctxbudget.budget import TIERS, Reason, Status, UsageLimits
from langchain_ctxbudget.dashboard.prompts import (
    Quotation,
    Shown,
    exact,
    outlined,
)
from langchain_ctxbudget.documents import KnowledgeBase
from langchain_ctxbudget.errors import FactError, InputError
from langchain_ctxbudget.flow import Flow, adrive
from langchain_ctxbudget.history import Entry, MessageTable, OpenConversation
from langchain_ctxbudget.knowledge import StandingRule
from langchain_ctxbudget.layers import SYSTEM_PROMPT, Place, is_knowledge, place_of
from langchain_ctxbudget.messages import Preservation, plain_text, time_of
from langchain_ctxbudget.pipeline import (
    Chat,
    ContextPipeline,
    Prompter,
    StoredConversation,
    last_call,
    replay_last_turns,
)
from langchain_ctxbudget.prompt import merged_settings
from langchain_ctxbudget.report import (
    JOINED,
    SOURCES,
    STATES,
    ContextReport,
    LayerReport,
    ReportItem,
    preview,
    summed_up,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import TITLE, Scope
from langchain_ctxbudget.tokens import PRICES, price_of
from langchain_ctxbudget.worker import new_mutex

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.snapshots import ContextSnapshot, SnapshotBook

NOT_FOUND = 404
CONFLICT = 409
DEFAULT_QUESTION = "What do you know?"
"""The question of a conversation in which its user has said nothing."""
KNOWLEDGE_TIER = 2
TIER_OF_LAYER: Mapping[str, int] = {"L0": 1, "L1": 1, "L4": 4, "L5": 1, "L6": 4, "L7": 1, "L8": 1}
"""The tier of every layer; of the mixed layers, L1 and L5, that of their framing. All others are
knowledge."""
TIER_OF_SOURCE = {"memories": 2, "documents": 3, "messages": 4, "conversations": 4}
WORDS = {
    "layers": {str(layer): title for layer, title in budgets.TITLES.items()},
    "reasons": {str(reason): reason.meaning for reason in Reason},
    "states": {state: style.words for state, style in STATES.items()},
    "sources": SOURCES,
}
LONGEST_ID = 2_000
"""Characters of an id."""
LONGEST_TEXT = 10_000
"""Characters of a question, and of a message that is shown."""
MOST_MESSAGES = 200
"""Messages in an answer."""
MOST_POSITION = 2**31 - 1
MOST_REPLAYED = 5_000
"""Messages of a conversation whose last turns are replayed."""
Answer: TypeAlias = dict[str, Any]
Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT, pattern=r"\S")]
SnapshotId: TypeAlias = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=1_000)]
Budget: TypeAlias = Annotated[int, Field(ge=1, le=100_000_000)]
Position: TypeAlias = Annotated[int, Field(ge=1, le=MOST_POSITION)]


class DashboardService:
    """Reads and changes what a pipeline keeps of one user at a time.

    Every method may raise an `HTTPException`; those that forecast, a `BudgetError`.
    """

    def __init__(self, pipeline: ContextPipeline) -> None:
        self._pipeline = pipeline
        self._replayed: tuple[Any, ContextPipeline] | None = None
        """The conversation whose last turns were replayed most recently."""
        self._mutex = new_mutex()

    async def sessions(self, user_id: str) -> Answer:
        """The conversations of the user, the last updated first.

        Tokens and tier are those of the newest snapshot.
        """
        session_ids = sorted(await self._pipeline.alist_conversations(user_id=user_id))
        sessions = [await self._summary(Scope(user_id, session_id)) for session_id in session_ids]
        never = datetime.min.replace(tzinfo=UTC)
        sessions.sort(key=lambda session: session["last_updated"] or never, reverse=True)
        return {"user_id": user_id, "sessions": sessions, "words": WORDS}

    async def status(self, user_id: str, session_id: Id) -> Answer:
        """The context of a conversation: the newest snapshot, else what would be sent now."""
        scope, table = await self._open(user_id, session_id)
        latest = await self._latest(scope)
        if latest is not None:
            return await self._kept(scope, table, latest)
        return await self._preview(scope, table, None, None)

    async def snapshots(self, user_id: str, session_id: Id, limit: Limit = 100) -> Answer:
        """The newest snapshots of a conversation in numbers, oldest first.

        Where none were kept, they are of its last turns. `input_price` is the price of a million
        tokens of the model in US dollars, where it is known.
        """
        scope, table = await self._open(user_id, session_id)
        book, is_replayed = await self._book(scope, table)
        snapshots = await book.alist(user_id=user_id, conversation_id=session_id, limit=limit)
        price = price_of(self._pipeline.engine.target.model_name, PRICES)
        return {
            "session_id": session_id,
            "replayed": is_replayed,
            "snapshots": [_numbers(snapshot) for snapshot in snapshots],
            "input_price": price and price.input,
        }

    async def snapshot(self, user_id: str, session_id: Id, snapshot_id: SnapshotId) -> Answer:
        """One snapshot."""
        scope, table = await self._open(user_id, session_id)
        book, _ = await self._book(scope, table)
        snapshot = await book.aget(snapshot_id, user_id=user_id, conversation_id=session_id)
        if snapshot is None:
            raise HTTPException(NOT_FOUND, "There is no such snapshot")
        return await self._kept(scope, table, snapshot)

    async def preview(
        self,
        user_id: str,
        session_id: Id,
        budget: Budget | None = None,
        message: Words | None = None,
    ) -> Answer:
        """The next prompt as it would be; nothing is sent or stored."""
        scope, table = await self._open(user_id, session_id)
        return await self._preview(scope, table, message, budget)

    async def messages(
        self, user_id: str, session_id: Id, first: Position = 1, last: Position | None = None
    ) -> Answer:
        """Some messages of a conversation, by their positions."""
        _, table = await self._open(user_id, session_id)
        end = min(first - 1 + MOST_MESSAGES, last or MOST_POSITION)
        entries = enumerate(table[first - 1 : end], first)
        return {"messages": [_message(position, entry) for position, entry in entries]}

    async def usage(self, user_id: str, session_id: Id) -> Answer:
        """The use of a conversation and of its user in this month, and the limits that are set."""
        await self._open(user_id, session_id)
        usage = self._pipeline.usage
        session = await usage.aof_session(user_id=user_id, conversation_id=session_id)
        month = await usage.aof_month(user_id=user_id)
        own = await usage.aown_of_session(user_id=user_id, conversation_id=session_id)
        own_of_month = await usage.aown_of_month(user_id=user_id)
        settings = await self._settings(user_id)
        return {
            "session": session.to_dict(),
            "month": month.to_dict(),
            "own": {"session": own.total.to_dict(), "month": own_of_month.total.to_dict()},
            "limits": settings.usage_limits,
        }

    async def known(self, user_id: str) -> Answer:
        """All that is known about the user: rules, facts, topics, people, also as one text."""
        knowledge = self._pipeline.knowledge
        items = await knowledge.alist_known(user_id=user_id)
        return {
            "known": [item._asdict() for item in items],
            "text": await knowledge.adescribe(user_id=user_id),
        }

    async def why(self, user_id: str, item_id: Id) -> Answer:
        """The messages that something is known from."""
        with _refused("item"):
            sources = await self._pipeline.knowledge.awhy(item_id, user_id=user_id)
        quotations = [
            {
                "session_id": source.conversation_id,
                "text": plain_text(source.message)[:LONGEST_TEXT],
            }
            for source in sources
            if source.message
        ]
        return {"sources": quotations}

    async def change(
        self,
        user_id: str,
        *,
        item_id: Id,
        pinned: bool | None = None,
        text: Words | None = None,
        forgotten: bool = False,
    ) -> Answer:
        """Pin, correct or forget something that is known."""
        knowledge = self._pipeline.knowledge
        with _refused("item"):
            if forgotten:
                await knowledge.adelete(item_id, user_id=user_id)
            if text is not None:
                await knowledge.aedit(item_id, user_id=user_id, text=text)
            if pinned is not None:
                await knowledge.apin(item_id, user_id=user_id, pinned=pinned)
        return {"item_id": item_id, "pinned": pinned, "text": text, "forgotten": forgotten}

    async def forget(self, user_id: str) -> Answer:
        """Forget everything that is known about the user; the conversations stay."""
        await self._pipeline.knowledge.aclear(user_id=user_id)
        return await self.known(user_id)

    async def rules(self, user_id: str, session_id: Id) -> Answer:
        """The standing rules in force in a conversation; those of the application come first."""
        await self._open(user_id, session_id)
        rules = await self._chat(user_id, session_id).arules()
        return {"session_id": session_id, "rules": [_rule(rule) for rule in rules]}

    async def add_rule(
        self, user_id: str, *, session_id: Id, text: Words, everywhere: bool = False
    ) -> Answer:
        """Adds a standing rule to a conversation, or to all of the user's."""
        await self._open(user_id, session_id)
        await self._chat(user_id, session_id).aadd_rule(text, everywhere=everywhere)
        return await self.rules(user_id, session_id)

    async def lift_rule(self, user_id: str, *, session_id: Id, rule_id: Id) -> Answer:
        """Lifts a standing rule; one that the application gives stays."""
        await self._open(user_id, session_id)
        chat = self._chat(user_id, session_id)
        if any(rule.is_given and rule.id == rule_id for rule in await chat.arules()):
            raise HTTPException(CONFLICT, "The application gives this rule, so nobody lifts it")
        with _refused("rule"):
            await chat.alift_rule(rule_id)
        return await self.rules(user_id, session_id)

    def _chat(self, user_id: str, session_id: str) -> Chat:
        return self._pipeline.conversation(session_id, user_id=user_id)

    async def pin(
        self, user_id: str, *, session_id: Id, message_id: Id, preservation: Preservation | None
    ) -> Answer:
        """Sets how compaction treats a message; None takes an earlier wish back."""
        await self._open(user_id, session_id)
        with _refused("message"):
            await self._pipeline.apin(
                message_id,
                preservation=preservation,
                user_id=user_id,
                conversation_id=session_id,
            )
        return {"session_id": session_id, "message_id": message_id, "preservation": preservation}

    async def _open(self, user_id: str, session_id: str) -> tuple[Scope, MessageTable]:
        """Reads a conversation; one without messages must at least be known."""
        scope = Scope(user_id, session_id)
        table = await self._read(scope)
        if not table:
            session_ids = await self._pipeline.alist_conversations(user_id=user_id)
            if session_id not in session_ids:
                raise HTTPException(NOT_FOUND, "There is no such session")
        return scope, table

    async def _read(self, scope: Scope) -> MessageTable:
        workspace = self._pipeline.engine.where_kept().workspace
        stored = StoredConversation(workspace, scope)

        def read(conversation: OpenConversation) -> Flow[MessageTable]:
            yield from workspace.read_marks(conversation)
            return conversation.table

        return await adrive(stored.read(read))

    async def _latest(self, scope: Scope) -> "ContextSnapshot | None":
        snapshots = await self._pipeline.snapshots.alist(
            limit=1, user_id=scope.user_id, conversation_id=scope.conversation_id
        )
        return next(iter(snapshots), None)

    async def _settings(self, user_id: str) -> ContextSettings:
        """The pipeline's settings under those that the user has saved, as far as they are valid."""
        saved = await self._pipeline.aget_settings(user_id=user_id)
        return merged_settings(self._pipeline.settings, {"user": saved}, None, [])[0]

    async def _book(self, scope: Scope, table: MessageTable) -> "tuple[SnapshotBook, bool]":
        """The snapshots of a conversation, and whether they were replayed.

        Where none were kept, they are those of its last turns, replayed in memory.
        """
        can_replay = 0 < len(table) <= MOST_REPLAYED
        if not can_replay or await self._latest(scope):
            return self._pipeline.snapshots, False
        settings = await self._settings(scope.user_id)
        pipeline = await asyncio.to_thread(self._replay, scope, table, settings)
        return pipeline.snapshots, True

    def _replay(
        self, scope: Scope, table: MessageTable, settings: ContextSettings
    ) -> ContextPipeline:
        """Returns a pipeline that has made the last prompts of a conversation, and keeps it."""
        key = (scope, table.digest(), settings)
        with self._mutex:
            if self._replayed is not None and self._replayed[0] == key:
                return self._replayed[1]
            engine = self._pipeline.engine
            pipeline = ContextPipeline(
                settings.override({"keep_snapshots": pipelines.REPLAYED_TURNS, "learn": False}),
                system_prompt=engine.system_prompt,
                embeddings=engine.workspace.embeddings,
                model=engine.target.model,
                token_counter=engine.target.given_counter,
            )
            replay_last_turns(pipeline, [entry.message for entry in table], scope)
            self._replayed = (key, pipeline)
            return pipeline

    async def _preview(
        self, scope: Scope, table: MessageTable, message: str | None, budget: int | None
    ) -> Answer:
        """The prompt for a message, or for the last one that the user said again.

        It has the system prompt and the tools of the conversation's last call, as far as known.
        """
        engine = self._pipeline.engine.where_kept()
        last = await adrive(last_call(engine.workspace, scope))
        if last.model not in ("", engine.target.model_name):
            engine = engine.for_model(last.model)
        request = last.request
        if budget is not None:
            request = replace(request, settings={"max_context_tokens": budget})
        question = message or _last_question(table)
        prompter = Prompter(engine, scope)
        started = time.perf_counter()
        prompt = await adrive(prompter.forecast(question, request))
        made_in_ms = (time.perf_counter() - started) * 1000
        return await self._answer(
            scope,
            table,
            prompt.context.report,
            source="preview",
            at=datetime.now(UTC),
            shown=exact(prompt),
            made_in_ms=made_in_ms,
        )

    async def _kept(self, scope: Scope, table: MessageTable, snapshot: "ContextSnapshot") -> Answer:
        """The status of a kept report, with the texts of its items where these are still there."""
        quotes = _Quotes(table, snapshot.messages, await self._texts(scope))
        layers = tuple(quotes.in_layer(layer) for layer in snapshot.report.layers)
        return await self._answer(
            scope,
            table,
            replace(snapshot.report, layers=layers),
            source="snapshot",
            at=snapshot.created_at,
            shown=outlined(snapshot.report, quotes.quoted),
            made_in_ms=sum(snapshot.report.timings_ms.values()),
            answer=quotes.answer(snapshot.report),
        )

    async def _texts(self, scope: Scope) -> dict[str, str]:
        """The texts of what is known about a user, of documents and of settings, by item id."""
        user_id = scope.user_id
        knowledge = self._pipeline.knowledge
        store = self._pipeline.store
        texts = {SYSTEM_PROMPT: self._pipeline.engine.system_prompt}
        for rule in await self._chat(user_id, scope.conversation_id).arules():
            texts[rule.id] = rule.text
        for topic in await knowledge.alist_topics(user_id=user_id):
            texts[topic.id] = topic.label
        for entity in await knowledge.alist_entities(user_id=user_id):
            texts[entity.id] = entity.name
        for shelf in (KnowledgeBase(store, shared=True), KnowledgeBase(store, user_id=user_id)):
            for document in await shelf.alist():
                texts[document.id] = document.title
        for fact in await knowledge.alist_facts(user_id=user_id, include_ended=True):
            texts[fact.id] = fact.text
        settings = await self._settings(user_id)
        for number, preference in enumerate(settings.preferences, 1):
            texts[f"preference {number}"] = preference
        return texts

    async def _answer(
        self,
        scope: Scope,
        table: MessageTable,
        report: ContextReport,
        *,
        source: str,
        at: datetime,
        shown: list[Shown],
        made_in_ms: float,
        answer: Entry | None = None,
    ) -> Answer:
        thresholds = budgets.THRESHOLDS
        if report.usage is not None:
            settings = await self._settings(scope.user_id)
            if settings.usage_limits is not None:
                thresholds = UsageLimits.of(settings.usage_limits).thresholds
        return {
            "session_id": scope.conversation_id,
            "source": source,
            "summary": summed_up(report),
            "made_in_ms": made_in_ms,
            "prompt": shown,
            "answer": None if answer is None else _message(table.positions[answer.id] + 1, answer),
            "positions": _positions(report, table),
            "current_context": report.to_dict(),
            "tier_breakdown": _tier_breakdown(report),
            "budget_percent": round(100 * report.total_tokens / report.budget_tokens, 1),
            "pruning_strategy": _pruning_strategy(report, thresholds),
            "last_updated": at,
        }

    async def _summary(self, scope: Scope) -> Answer:
        table = await self._read(scope)
        latest = await self._latest(scope)
        summary: Answer = {
            "session_id": scope.conversation_id,
            "title": await self._title(scope, table),
            "messages": len(table),
            "last_updated": time_of(table[-1].message) if table else None,
            "total_tokens": None,
            "budget_tokens": None,
            "tier": None,
        }
        if latest is not None:
            report = latest.report
            summary["last_updated"] = latest.created_at
            summary["total_tokens"] = report.total_tokens
            summary["budget_tokens"] = report.budget_tokens
            summary["tier"] = report.usage.tier if report.usage else None
        return summary

    async def _title(self, scope: Scope, table: MessageTable) -> str:
        """The title of a conversation: the stored one, else the beginning of the first message."""
        place = scope.place(TITLE)
        stored = await self._pipeline.store.aget(place.namespace, place.key)
        if stored is not None:
            return preview(str(stored.value.get("text")))
        for entry in table:
            if isinstance(entry.message, HumanMessage):
                beginning = preview(plain_text(entry.message))
                if beginning:
                    return beginning
        return ""


class _Quotes:
    """The texts of the items of a kept report, as far as they are still there."""

    def __init__(self, table: MessageTable, messages: int, texts: Mapping[str, str]) -> None:
        self._table = table
        self._messages = messages
        """The number of messages when the report was made."""
        self._texts = texts

    def in_layer(self, layer: LayerReport) -> LayerReport:
        """Returns a layer's report with the texts of its items."""
        items = (
            replace(item, preview=preview(self.quoted(layer.layer, item).text))
            for item in layer.items
        )
        return replace(layer, items=tuple(items))

    def quoted(self, layer: str, item: ReportItem) -> Quotation:
        """Returns the text of an item, and the role of the message that said it."""
        entry = self._entry_of(layer, item)
        if entry is not None:
            return Quotation(plain_text(entry.message), entry.message.type)
        return Quotation(self._texts.get(item.id.partition("#")[0], item.preview))

    def answer(self, report: ContextReport) -> Entry | None:
        """Returns what the model has answered, where that is stored.

        It is the model's first message behind the turn, as far as the prompt had that.
        """
        start = self._messages
        for layer in report.layers:
            if place_of(layer.layer) is not Place.TURN:
                continue
            ids = chain.from_iterable(item.id.split(JOINED) for item in layer.items)
            positions = self._table.positions
            start = max([start, *(positions[each] + 1 for each in ids if each in positions)])
        for position in range(start, len(self._table)):
            entry = self._table[position]
            if isinstance(entry.message, AIMessage):
                return entry
            is_question = position == self._messages
            if isinstance(entry.message, HumanMessage) and not is_question:
                return None
        return None

    def _entry_of(self, layer: str, item: ReportItem) -> Entry | None:
        """Returns the message that an item is, or that its line of a summary comes from."""
        place = place_of(layer)
        if place is Place.TURN and item.id == "human":
            # The application stored it after the prompt was made.
            return self._at(self._messages)
        is_message = place in (Place.HISTORY, Place.TURN) or item.reason is Reason.SUMMARY
        if not is_message and item.source != "messages":
            return None
        number = item.id.removeprefix("message ")
        if item.reason is Reason.SUMMARY and number.isdecimal():
            return self._at(int(number) - 1)
        for message_id in item.id.split(JOINED):
            position = self._table.positions.get(message_id)
            if position is not None:
                return self._at(position)
        return None

    def _at(self, position: int) -> Entry | None:
        if 0 <= position < len(self._table):
            return self._table[position]
        return None


def _last_question(table: MessageTable) -> str:
    """Returns the last words of the user; a general question where there are none."""
    for entry in reversed(table):
        if isinstance(entry.message, HumanMessage):
            text = plain_text(entry.message)
            if text.strip():
                return text
    return DEFAULT_QUESTION


def _positions(report: ContextReport, table: MessageTable) -> dict[str, int]:
    """Returns the positions, from 1, of the messages that a report names."""
    positions: dict[str, int] = {}
    for layer in report.layers:
        for item in layer.items:
            for message_id in item.id.split(JOINED):
                if message_id in table.positions:
                    positions[message_id] = table.positions[message_id] + 1
    return positions


@contextmanager
def _refused(subject: str) -> Iterator[None]:
    """Makes an HTTP error of an item that is not there, or of one pin more than may be."""
    try:
        yield
    except FactError as error:
        raise HTTPException(CONFLICT, str(error)) from error
    except InputError as error:
        raise HTTPException(NOT_FOUND, f"There is no such {subject}") from error


def _numbers(snapshot: "ContextSnapshot") -> Answer:
    """A snapshot in numbers; `layers` are tokens used, by layer."""
    report = snapshot.report
    return {
        "id": snapshot.id,
        "created_at": snapshot.created_at,
        "messages": snapshot.messages,
        "total_tokens": report.total_tokens,
        "budget_tokens": report.budget_tokens,
        "layers": {layer.layer: layer.used_tokens for layer in report.layers},
        "overhead_tokens": sum(report.overhead_tokens.values()),
        "effective_tokens": report.stability.effective_tokens,
        "own_effective_tokens": report.own_effective_tokens,
        "whole_effective_tokens": report.stability.whole_effective_tokens,
        "compaction_step": report.stability.compaction_step,
    }


def _tier_breakdown(report: ContextReport) -> Answer:
    """Tokens and items per tier, and the total.

    Tier 1 is always sent, 2 is knowledge, 3 documents, 4 the conversation.
    """
    tokens = Counter({1: sum(report.overhead_tokens.values())})
    items: Counter[int] = Counter()
    for layer in report.layers:
        framing_tier = TIER_OF_LAYER.get(layer.layer, KNOWLEDGE_TIER)
        tokens[framing_tier] += layer.overhead_tokens
        for item in layer.items:
            if item.status is not Status.OMITTED:
                tier = _tier_of(layer, item, framing_tier)
                tokens[tier] += item.tokens
                items[tier] += 1
    tiers = {f"tier{n}": {"tokens": tokens[n], "items": items[n]} for n in (1, 2, 3, 4)}
    return {**tiers, "total": report.total_tokens}


def _tier_of(layer: LayerReport, item: ReportItem, framing_tier: int) -> int:
    if is_knowledge(layer.layer, item.id):
        return KNOWLEDGE_TIER
    return TIER_OF_SOURCE.get(item.source, framing_tier)


def _pruning_strategy(report: ContextReport, thresholds: Sequence[float]) -> Answer:
    """What the usage limits allow; `budget_range` is the range of what is left, as `60-80%`."""
    usage = report.usage
    number = 0
    tier = budgets.HEALTHY
    if usage is not None:
        number = [tier.name for tier in TIERS].index(usage.tier)
        tier = budgets.without_forced_limits(TIERS[number], usage.forced)
    return {
        "budget_range": _ranges(thresholds)[number],
        "tier1_messages": 1,
        "tier2_items": "all" if tier.knowledge_items is None else tier.knowledge_items,
        "tier3_mode": tier.documents,
        "tier4_messages": "as budgeted" if tier.history_messages is None else tier.history_messages,
    }


def _ranges(thresholds: Sequence[float]) -> list[str]:
    """Returns the ranges between thresholds in percent, the highest first."""
    percents = [f"{share * 100:g}" for share in thresholds]
    between = [f"{low}-{high}%" for high, low in pairwise(percents)]
    return [f">{percents[0]}%", *between, f"<{percents[-1]}%"]


def _rule(rule: StandingRule) -> Answer:
    return {
        "id": rule.id,
        "text": rule.text,
        "since": rule.since,
        "day": rule.day,
        "session_id": rule.conversation_id,
        "message_id": rule.message_id,
        "made_by": rule.made_by,
        "holds_everywhere": rule.holds_everywhere,
        "position": None if rule.position is None else rule.position + 1,
    }


def _message(position: int, entry: Entry) -> Answer:
    message = entry.message
    text = plain_text(message)
    if len(text) > LONGEST_TEXT:
        text = f"{text[: LONGEST_TEXT - 1]}…"
    return {
        "position": position,
        "id": entry.id,
        "role": message.type,
        "name": message.name,
        "text": text,
        "created_at": time_of(message),
        "preservation": entry.preservation,
    }
