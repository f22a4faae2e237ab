"""The API's operations: pydantic checks their input, and they answer with plain data.

An operation is a method of the service, which is told the user and gives only what is theirs. Kept
reports name their items by id, and the texts are read where they are kept: so nothing that was
erased since comes back.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from os.path import commonprefix
from typing import Annotated, Any, TypeAlias

from langchain_core.messages import HumanMessage
from pydantic import Field
from starlette.exceptions import HTTPException

from langchain_ctxbudget import budget as budgets
from langchain_ctxbudget import pipeline as pipelines
from langchain_ctxbudget.budget import TIERS, Fragment, Layer, Reason, Status, UsageLimits
from langchain_ctxbudget.documents import KnowledgeBase
from langchain_ctxbudget.errors import FactError, InputError
from langchain_ctxbudget.flow import Flow, adrive
from langchain_ctxbudget.history import Entry, MessageTable, OpenConversation
from langchain_ctxbudget.messages import Preservation, fingerprint, plain_text, time_of
from langchain_ctxbudget.pipeline import (
    ContextPipeline,
    ContextSnapshot,
    SnapshotBook,
    replay_last_turns,
)
from langchain_ctxbudget.prompt import NOTHING_ELSE, Prompt, Request, merged
from langchain_ctxbudget.report import (
    JOINED,
    STATES,
    ContextReport,
    LayerReport,
    ReportItem,
    preview,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import TITLE, Scope
from langchain_ctxbudget.tokens import PRICES, price_of
from langchain_ctxbudget.worker import new_mutex

UNKNOWN = 404
CONFLICT = 409
UNASKED = "What do you know?"
"""The question of a conversation in which its user has said nothing."""
TIER_OF_LAYER: Mapping[str, int] = {"L0": 1, "L1": 1, "L4": 4, "L5": 1, "L6": 4, "L7": 1}
"""Tiers of seed 003; of the mixed layers, L1 and L5, that of the framing. All others are
knowledge."""
TIER_OF_SOURCE = {"memories": 2, "documents": 3, "messages": 4, "conversations": 4}
WORDS = {
    "layers": {str(layer): title for layer, title in budgets.TITLES.items()},
    "reasons": {str(reason): reason.meaning for reason in Reason},
    "states": {state: words for state, (words, *_) in STATES.items()},
}
INSTRUCTIONS = ("manner ", "preference ")
"""Beginnings of the ids of items that say how to answer, and not what is known."""
LONGEST_ID = 2_000
LONGEST_TEXT = 10_000
MOST_MESSAGES = 200
MOST_POSITION = 2**31 - 1
MOST_REPLAYED = 5_000
"""Characters of an id; of a question or a shown message; messages in an answer; those of a replayed
conversation."""
Answer: TypeAlias = dict[str, Any]
Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT, pattern=r"\S")]
SnapshotId: TypeAlias = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=1_000)]
Budget: TypeAlias = Annotated[int, Field(ge=1, le=100_000_000)]
Position: TypeAlias = Annotated[int, Field(ge=1, le=MOST_POSITION)]
Shown: TypeAlias = dict[str, Any]
"""A message: its role, name, tokens and parts; a part has `layer`, `item`, `text`, and whether a
cache has it. Headings and fences are no item; what belongs to no layer has none."""
IN_SYSTEM = (Layer.IDENTITY, Layer.PREFERENCES, Layer.ARC)
SYSTEM_PROMPT = "system prompt"
SYSTEM, SUMMARY, SENT, SAID, TURN = range(5)
"""Kinds of messages, in the order of a prompt."""
Piece: TypeAlias = tuple[str, str, str]
"""A text that may stand in a message: its layer, its item, the text."""


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
        names = sorted(await self._pipeline.alist_conversations(user_id=user_id))
        found = [await self._summary(Scope(user_id, name)) for name in names]
        found.sort(
            key=lambda one: one["last_updated"] or datetime.min.replace(tzinfo=UTC), reverse=True
        )
        return {"user_id": user_id, "sessions": found, "words": WORDS}

    async def status(self, user_id: str, session_id: Id) -> Answer:
        """The context of a conversation: the newest snapshot, else what would be sent now."""
        scope, table = await self._open(user_id, session_id)
        if latest := await self._latest(scope):
            return await self._kept(scope, table, latest)
        return await self._preview(scope, table, None, None)

    async def snapshots(self, user_id: str, session_id: Id, limit: Limit = 100) -> Answer:
        """The newest snapshots of a conversation in numbers, oldest first.

        Where none were kept, its last turns.

        `input_price` is that of a million tokens of the model, where it is known.
        """
        book, is_replayed = await self._book(*(await self._open(user_id, session_id)))
        found = await book.alist(user_id=user_id, conversation_id=session_id, limit=limit)
        price = price_of(self._pipeline.engine.target.model_name, PRICES)
        told = {
            "replayed": is_replayed,
            "snapshots": list(map(_line, found)),
            "input_price": price and price.input,
        }
        return {"session_id": session_id, **told}

    async def snapshot(self, user_id: str, session_id: Id, snapshot_id: SnapshotId) -> Answer:
        """One snapshot."""
        scope, table = await self._open(user_id, session_id)
        book, _ = await self._book(scope, table)
        found = await book.aget(snapshot_id, user_id=user_id, conversation_id=session_id)
        if found is None:
            raise HTTPException(UNKNOWN, "There is no such snapshot")
        return await self._kept(scope, table, found)

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
        return {
            "messages": [
                _said(place, entry) for place, entry in enumerate(table[first - 1 : end], first)
            ]
        }

    async def usage(self, user_id: str, session_id: Id) -> Answer:
        """The use of a conversation and of its user in this month, and the limits that are set."""
        await self._open(user_id, session_id)
        who: Any = {"user_id": user_id, "conversation_id": session_id}
        books = self._pipeline.usage
        return {
            "session": (await books.aof_session(**who)).to_dict(),
            "month": (await books.aof_month(user_id=user_id)).to_dict(),
            "limits": (await self._settings(user_id)).usage_limits,
        }

    async def known(self, user_id: str) -> Answer:
        """Everything that is known about the user: facts, topics, people and things.

        And all of it as one text.
        """
        knowledge = self._pipeline.knowledge
        lines = await knowledge.alist_known(user_id=user_id)
        return {
            "known": [one._asdict() for one in lines],
            "text": await knowledge.adescribe(user_id=user_id),
        }

    async def why(self, user_id: str, item_id: Id) -> Answer:
        """The messages that something is known from."""
        with _known("item"):
            sources = await self._pipeline.knowledge.awhy(item_id, user_id=user_id)
        said = [(one.conversation_id, plain_text(one.message)) for one in sources if one.message]
        return {
            "sources": [
                {"session_id": session, "text": text[:LONGEST_TEXT]} for session, text in said
            ]
        }

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
        with _known("item"):
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

    async def pin(
        self, user_id: str, *, session_id: Id, message_id: Id, preservation: Preservation | None
    ) -> Answer:
        """Sets how compaction treats a message; None takes an earlier wish back."""
        await self._open(user_id, session_id)
        where = {"user_id": user_id, "conversation_id": session_id}
        with _known("message"):
            await self._pipeline.apin(message_id, preservation=preservation, **where)
        return {"session_id": session_id, "message_id": message_id, "preservation": preservation}

    async def _open(self, user_id: str, session_id: str) -> tuple[Scope, MessageTable]:
        scope = Scope(user_id, session_id)
        table = await self._read(scope)
        if not table and session_id not in await self._pipeline.alist_conversations(
            user_id=user_id
        ):
            raise HTTPException(UNKNOWN, "There is no such session")
        return scope, table

    async def _read(self, scope: Scope) -> MessageTable:
        workspace = self._pipeline.engine.workspace

        def read(conversation: OpenConversation) -> Flow[MessageTable]:
            yield from workspace.read_marks(conversation)
            return conversation.table

        return await adrive(workspace.recall(scope, read))

    async def _latest(self, scope: Scope) -> ContextSnapshot | None:
        ids = {"user_id": scope.user_id, "conversation_id": scope.conversation_id}
        return next(iter(await self._pipeline.snapshots.alist(limit=1, **ids)), None)

    async def _settings(self, user_id: str) -> ContextSettings:
        """The pipeline's settings under those that the user has saved, as far as these can be used."""
        saved = await self._pipeline.aget_settings(user_id=user_id)
        return merged(self._pipeline.settings, {"user": saved}, None, [])[0]

    async def _book(self, scope: Scope, table: MessageTable) -> tuple[SnapshotBook, bool]:
        """The snapshots of a conversation.

        Where none were kept, those of its last turns, replayed in memory.
        """
        if not 0 < len(table) <= MOST_REPLAYED or await self._latest(scope):
            return self._pipeline.snapshots, False
        settings = await self._settings(scope.user_id)
        key = scope, table.digest(), settings

        def find() -> ContextPipeline:
            with self._mutex:
                if self._replayed is None or self._replayed[0] != key:
                    engine = self._pipeline.engine
                    made = ContextPipeline(
                        settings.override(
                            {"keep_snapshots": pipelines.REPLAYED_TURNS, "learn": False}
                        ),
                        system_prompt=engine.system_prompt,
                        embeddings=engine.workspace.embeddings,
                        model=engine.target.model,
                        token_counter=engine.target.given_counter,
                    )
                    replay_last_turns(made, [entry.message for entry in table], scope)
                    self._replayed = key, made
                return self._replayed[1]

        return (await asyncio.to_thread(find)).snapshots, True

    async def _preview(
        self, scope: Scope, table: MessageTable, message: str | None, budget: int | None
    ) -> Answer:
        said = (one.message for one in reversed(table) if isinstance(one.message, HumanMessage))
        asked = message or next(
            (text for one in said if (text := plain_text(one)).strip()), UNASKED
        )
        request = (
            NOTHING_ELSE if budget is None else Request(settings={"max_context_tokens": budget})
        )
        made = await adrive(self._pipeline.engine.forecast(scope, asked, request))
        report = made.context.report
        now = datetime.now(UTC)
        return await self._told(scope, table, report, source="preview", at=now, shown=exact(made))

    async def _kept(self, scope: Scope, table: MessageTable, kept: ContextSnapshot) -> Answer:
        """The status of a kept report, whose items quote what they stand for as far as it is still there."""
        knowledge = self._pipeline.knowledge
        store = self._pipeline.store
        user = scope.user_id
        texts = {topic.id: topic.label for topic in await knowledge.alist_topics(user_id=user)}
        texts |= {entity.id: entity.name for entity in await knowledge.alist_entities(user_id=user)}
        for shelf in (KnowledgeBase(store, shared=True), KnowledgeBase(store, user_id=user)):
            texts |= {document.id: document.title for document in await shelf.alist()}
        texts |= {
            fact.id: fact.text
            for fact in await knowledge.alist_facts(user_id=user, include_ended=True)
        }
        texts |= {
            f"preference {n}": said
            for n, said in enumerate((await self._settings(user)).preferences, 1)
        }
        texts[SYSTEM_PROMPT] = self._pipeline.engine.system_prompt

        def entry_of(layer: str, item: ReportItem) -> Entry | None:
            if (
                layer == Layer.MESSAGE and item.id == "human"
            ):  # which the application stored afterwards
                return next(iter(table[kept.messages : kept.messages + 1]), None)
            is_said = (
                layer in (Layer.ARC, Layer.HISTORY, Layer.MESSAGE) or item.source == "messages"
            )
            number = item.id.removeprefix("message ")
            if (
                item.reason is Reason.SUMMARY and number.isdecimal()
            ):  # a line of a summary, and the message behind it
                place = int(number) - 1
            else:
                place = next(
                    (
                        table.positions[one]
                        for one in item.id.split(JOINED)
                        if one in table.positions
                    ),
                    -1,
                )
            return table[place] if is_said and 0 <= place < len(table) else None

        def quoted(layer: str, item: ReportItem) -> tuple[str, str]:
            if entry := entry_of(layer, item):
                return plain_text(entry.message), entry.message.type
            return texts.get(item.id.partition("#")[0], item.preview), ""

        def with_texts(one: LayerReport) -> LayerReport:
            items = (
                replace(item, preview=preview(quoted(one.layer, item)[0])) for item in one.items
            )
            return replace(one, items=tuple(items))

        report = replace(kept.report, layers=tuple(map(with_texts, kept.report.layers)))
        shown = outlined(kept.report, quoted)
        return await self._told(
            scope, table, report, source="snapshot", at=kept.created_at, shown=shown
        )

    async def _told(
        self,
        scope: Scope,
        table: MessageTable,
        report: ContextReport,
        *,
        source: str,
        at: datetime,
        shown: list[Shown],
    ) -> Answer:
        ids = [
            one for layer in report.layers for item in layer.items for one in item.id.split(JOINED)
        ]
        limits = (await self._settings(scope.user_id)).usage_limits if report.usage else None
        thresholds = UsageLimits.of(limits).thresholds if limits else budgets.THRESHOLDS
        return {
            "session_id": scope.conversation_id,
            "source": source,
            "prompt": shown,
            "positions": {one: table.positions[one] + 1 for one in ids if one in table.positions},
            "current_context": report.to_dict(),
            "tier_breakdown": _tier_breakdown(report),
            "budget_percent": round(100 * report.total_tokens / report.budget_tokens, 1),
            "pruning_strategy": _pruning_strategy(report, thresholds),
            "last_updated": at,
        }

    async def _summary(self, scope: Scope) -> Answer:
        table = await self._read(scope)
        latest = await self._latest(scope)
        report = latest.report if latest else None
        place = scope.place(TITLE)
        kept = await self._pipeline.store.aget(place.namespace, place.key)
        begins = (
            preview(plain_text(one.message))
            for one in table
            if isinstance(one.message, HumanMessage)
        )
        return {
            "session_id": scope.conversation_id,
            "title": preview(str(kept.value.get("text")))
            if kept
            else next(filter(None, begins), ""),
            "messages": len(table),
            "last_updated": latest.created_at
            if latest
            else time_of(table[-1].message)
            if table
            else None,
            "total_tokens": report.total_tokens if report else None,
            "budget_tokens": report.budget_tokens if report else None,
            "tier": report.usage.tier if report and report.usage else None,
        }


@contextmanager
def _known(what: str) -> Iterator[None]:
    """Refuses what asks for something that is not there, or for more than may be."""
    try:
        yield
    except FactError as error:  # as many are pinned as may be
        raise HTTPException(CONFLICT, str(error)) from error
    except InputError as error:
        raise HTTPException(UNKNOWN, f"There is no such {what}") from error


def _line(snapshot: ContextSnapshot) -> Answer:
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
        "whole_effective_tokens": report.stability.whole_effective_tokens,
        "compaction_step": report.stability.compaction_step,
    }


def _tier_breakdown(report: ContextReport) -> Answer:
    """Tokens and items per tier: 1 is always sent, 2 knowledge, 3 documents, 4 conversation.

    And the total.
    """
    tokens = Counter({1: sum(report.overhead_tokens.values())})
    items = Counter[int]()
    for layer in report.layers:
        framing = TIER_OF_LAYER.get(layer.layer, 2)
        tokens[framing] += layer.overhead_tokens
        for item in layer.items:
            is_fact = layer.layer == Layer.PREFERENCES and not item.id.startswith(INSTRUCTIONS)
            tier = 2 if is_fact else TIER_OF_SOURCE.get(item.source, framing)
            if item.status is not Status.OMITTED:
                tokens[tier] += item.tokens
                items[tier] += 1
    told = {f"tier{n}": {"tokens": tokens[n], "items": items[n]} for n in (1, 2, 3, 4)}
    return {**told, "total": report.total_tokens}


def _pruning_strategy(report: ContextReport, thresholds: tuple[float, ...]) -> Answer:
    """The parts that the usage limits allow (seed 003).

    `budget_range` is the range of what is left, as `60-80%`.
    """
    usage = report.usage
    place = (
        0 if usage is None else next(n for n, tier in enumerate(TIERS) if tier.name == usage.tier)
    )
    tier = budgets.HEALTHY if usage is None else budgets.relaxed(TIERS[place], usage.forced)
    percent = [f"{share * 100:g}" for share in thresholds]
    ranges = [
        f">{percent[0]}%",
        *(f"{low}-{high}%" for high, low in pairwise(percent)),
        f"<{percent[-1]}%",
    ]
    return {
        "budget_range": ranges[place],
        "tier1_messages": 1,
        "tier2_items": "all" if tier.knowledge_items is None else tier.knowledge_items,
        "tier3_mode": tier.documents,
        "tier4_messages": "as budgeted" if tier.history_messages is None else tier.history_messages,
    }


def _said(position: int, entry: Entry) -> Answer:
    text = plain_text(message := entry.message)
    return {
        "position": position,
        "id": entry.id,
        "role": message.type,
        "name": message.name,
        "text": text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…",
        "created_at": time_of(message),
        "preservation": entry.preservation,
    }


# A prompt as the page shows it: message by message, each in parts that a layer, an item and a cache
# own


def exact(prompt: Prompt) -> list[Shown]:
    """Returns the messages of a prompt that was just made, word for word."""
    plan = prompt.plan
    before = deque(plan.cached.messages if plan.cached else ())
    shown: list[Shown] = []
    for message, pieces in zip(prompt.context.messages, _pieces(prompt), strict=True):
        text = plain_text(message)
        cached = 0
        if before:
            former = before.popleft()
            same = fingerprint(message) == fingerprint(former)
            cached = len(commonprefix((text, text if same else plain_text(former))))  # noqa: RUF071 - by characters
            if not same:
                before.clear()
        parts = list[Shown]()
        for layer, item, first, end in _found(text, pieces):
            for start, stop in pairwise(sorted({first, min(max(first, cached), end), end})):
                parts.append(
                    {
                        "layer": layer,
                        "item": item,
                        "text": text[start:stop],
                        "cached": stop <= cached,
                    }
                )
        tokens = plan.counter.count_message(message)
        shown.append({"role": message.type, "name": message.name, "tokens": tokens, "parts": parts})
    return shown


def _pieces(prompt: Prompt) -> Iterator[list[Piece]]:
    """Yields what each message holds, in the order in which prompts are built."""
    content = prompt.plan.content
    said = [(Layer.HISTORY, group) for group in content.bare_history]
    said += [(Layer.MESSAGE, group) for group in content.turn]
    front = len(prompt.context.messages) - sum(len(group.messages) for _, group in said)
    for message in prompt.context.messages[:front]:
        if message.type == "system":
            system_prompt = (Layer.IDENTITY, SYSTEM_PROMPT, content.system_prompt)
            yield [
                system_prompt,
                *_of(part for part in content.fragments if part.layer != Layer.HISTORY),
            ]
        else:
            yield _of(content.summary)
    for layer, group in said:
        background = (
            content.backgrounds.get(group.positions[0], ()) if layer == Layer.HISTORY else ()
        )
        if layer == Layer.MESSAGE and content.asked in group.positions:
            background = (*content.volatile, *content.turn_work)
        name = JOINED.join(message.id or message.type for message in group.messages)
        for place, message in enumerate(group.messages):
            yield [*_of(() if place else background), (layer, name, plain_text(message))]


def _of(fragments: Iterable[Fragment]) -> list[Piece]:
    return [(part.layer, part.id, part.text.strip("\n")) for part in fragments]


def _found(text: str, pieces: Sequence[Piece]) -> Iterator[tuple[str | None, str | None, int, int]]:
    """Yields layer, item, start and end of everything in a text.

    What stands between two items frames the second.
    """
    at = 0
    for layer, item, said in pieces:
        start = text.find(said, at) if said else -1
        if start >= 0:
            if start > at:
                yield layer, None, at, start
            at = start + len(said)
            yield layer, item, start, at
    if at < len(text) or not pieces:
        yield None, None, at, len(text)


def outlined(
    report: ContextReport, quoted: Callable[[str, ReportItem], tuple[str, str]]
) -> list[Shown]:
    """Returns the messages of a prompt that only its report tells of.

    What a cache held of them is not known.

    `quoted` gives the text of a layer's item as far as it is still kept, and the role of the message that said it.
    """
    items = [
        (layer.layer, it)
        for layer in report.layers
        for it in layer.items
        if it.status is not Status.OMITTED
    ]
    shown = list[Shown]()
    last = None
    for layer, item in sorted(items, key=lambda one: (_place(*one), one[0] == Layer.MESSAGE)):
        place = _place(layer, item)
        text, role = quoted(layer, item)
        if place != last or place == SAID:
            said_by = role if place == SAID else "system" if place == SYSTEM else "human"
            shown.append({"role": said_by, "name": None, "tokens": 0, "parts": []})
            last = place
        shown[-1]["tokens"] += item.tokens
        shown[-1]["parts"].append({"layer": layer, "item": item.id, "text": text, "cached": None})
    return shown


def _place(layer: str, item: ReportItem) -> int:
    if item.reason is Reason.AS_SENT:  # in front of one of the messages, it is not known of which
        return SENT
    if layer == Layer.HISTORY:
        return SUMMARY if item.reason is Reason.SUMMARY else SAID
    return SYSTEM if layer in IN_SYSTEM else TURN
