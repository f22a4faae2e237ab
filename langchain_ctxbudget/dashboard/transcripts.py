"""The conversations that the dashboard shows, as they are stored, and the texts behind the items of a kept report.

A report names its items by id, and their texts are read where they are kept. So nothing that was erased since comes
back; an item whose text is no longer there, or was never kept (the current message, the settings), has no preview.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage, HumanMessage
from typing_extensions import TypedDict

from langchain_ctxbudget.background import cached_property
from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.documents import KnowledgeBase
from langchain_ctxbudget.flow import adrive, batch
from langchain_ctxbudget.history import MessagePage
from langchain_ctxbudget.messages import Preservation, also_forgets, plain_text, preservation_of
from langchain_ctxbudget.pipeline import ContextPipeline, pins_place
from langchain_ctxbudget.report import JOINED, ContextReport, LayerReport, ReportItem, preview
from langchain_ctxbudget.stores import PinsRecord, Scope

LONGEST_TEXT = 10_000
"""Characters of a message that are shown."""
EVERYTHING = 2**31
"""More messages than a conversation has."""
KEPT_TRANSCRIPTS, KEPT_OUTLINES = 16, 10_000
OTHER_CONVERSATIONS = 20
"""Other conversations that one report quotes."""
SAID = (Layer.ARC, Layer.HISTORY, Layer.MESSAGE)
KNOWN = (Layer.PREFERENCES, Layer.TOPICS, Layer.ENTITIES)

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A mapping that forgets the entry that was not used for longest, and all of them when a user is erased."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        _all[id(self)] = self

    def recall(self, key: K) -> V | None:
        """Returns the value of a key, which is thereby used; None where there is none."""
        value = self.pop(key, None)  # another thread may be forgetting
        return value if value is None else self.keep(key, value)

    def keep(self, key: K, value: V) -> V:
        """Keeps and returns a value."""
        self.pop(key, None)
        self[key] = value
        if len(self) > self._limit:
            self.popitem(last=False)
        return value


_all: WeakValueDictionary[int, Recent[Any, Any]] = WeakValueDictionary()


@also_forgets
def _forget_all() -> None:
    """Lets go of everything: users are erased in the pipeline, which knows of no dashboard."""
    for recent in list(_all.values()):
        recent.clear()


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
    """The messages of a conversation, its version, which every change changes, and the last words of its user."""

    version: str
    messages: tuple[SaidMessage, ...]
    asked: str

    @cached_property
    def by_id(self) -> dict[str, SaidMessage]:
        """The messages by their ids."""
        return {message["id"]: message for message in self.messages}


class Transcripts:
    """Reads conversations of a pipeline, each within the scope of its user."""

    def __init__(self, pipeline: ContextPipeline) -> None:
        self._pipeline = pipeline
        self._transcripts: Recent[Scope, Transcript] = Recent(KEPT_TRANSCRIPTS)
        self._outlines: Recent[Scope, tuple[str, int, str | None]] = Recent(KEPT_OUTLINES)

    async def read(self, scope: Scope) -> Transcript | None:
        """Returns a conversation; None where its user has no such one."""
        newest, known = await self._page(scope, 1), self._transcripts.recall(scope)
        if known is not None and known.version == newest.version:
            return known
        names = () if newest.messages else await self._pipeline.alist_conversations(user_id=scope.user_id)
        if not newest.messages and scope.conversation_id not in names:
            self._transcripts.pop(scope, None)
            return None
        page = await self._page(scope, EVERYTHING)
        said = (plain_text(message) for message in reversed(page.messages) if isinstance(message, HumanMessage))
        read = Transcript(
            version=page.version,
            messages=tuple(_said(place, message) for place, message in enumerate(page.messages, 1)),
            asked=next((text for text in said if text.strip()), ""),
        )
        return self._transcripts.keep(scope, read)

    async def outline(self, scope: Scope) -> tuple[int, str | None]:
        """Returns the number of messages, and when the newest was said, as it was given with it."""
        newest, known = await self._page(scope, 1), self._outlines.recall(scope)
        if known is None or known[0] != newest.version:
            page = await self._page(scope, EVERYTHING)
            at = page.messages[-1].additional_kwargs.get("created_at") if page.messages else None
            known = page.version, len(page.messages), at if isinstance(at, str) else None
            self._outlines.keep(scope, known)
        return known[1:]

    async def with_pins(self, scope: Scope, messages: tuple[SaidMessage, ...]) -> list[SaidMessage]:
        """Returns messages with the wishes of `pin`, which outweigh their own."""
        [found] = await adrive(batch(self._pipeline.store, [pins_place(scope)]))
        value: dict[str, Any] | None = getattr(found, "value", None)
        pins = PinsRecord.read(value, "the pins").pins if value is not None else {}
        return [{**one, "preservation": pins.get(one["id"], one["preservation"])} for one in messages]

    async def _page(self, scope: Scope, limit: int) -> MessagePage:
        return await self._pipeline.aget_page(user_id=scope.user_id, conversation_id=scope.conversation_id, limit=limit)


def _said(position: int, message: BaseMessage) -> SaidMessage:
    text, at = plain_text(message), message.additional_kwargs.get("created_at")
    return {
        "position": position,
        "id": str(message.id),
        "role": message.type,
        "name": message.name,
        "text": text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…",
        "created_at": at if isinstance(at, str) else None,
        "preservation": preservation_of(message),
    }


def steady_messages(report: ContextReport, transcript: Transcript) -> int:
    """Returns how many messages, from the first on, are where they were: all of the report's, or 0.

    A report names older messages by their positions alone, and the newest by their ids, too. Where the last one has not
    moved, neither has anything before it.
    """
    ids = [
        item.id
        for item in report.layer(Layer.HISTORY).items
        if item.status is not Status.OMITTED and item.reason not in (Reason.SUMMARY, Reason.PINNED)
    ]
    last = transcript.by_id.get(ids[-1].split(JOINED)[-1]) if ids else None
    end = report.coverage[-1].last if report.coverage else 0
    return end if last and last["position"] == end else 0


async def with_previews(
    report: ContextReport, transcript: Transcript, scope: Scope, pipeline: ContextPipeline, transcripts: Transcripts
) -> ContextReport:
    """Returns a report whose items quote what they stand for; nothing of another user is read."""
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for layer in report.layers:
        for item in layer.items:
            ids["memories" if layer.layer in KNOWN else item.source].add(item.id)
    texts: dict[str, Mapping[str, str]] = {
        "memories": await _known(scope.user_id, pipeline) if ids["memories"] else {},
        "documents": await _titles(ids["documents"], scope.user_id, pipeline) if ids["documents"] else {},
        "conversations": await _other_conversations(ids["conversations"], scope.user_id, transcripts),
    }
    steady = steady_messages(report, transcript)

    def quoted(layer: LayerReport, item: ReportItem) -> ReportItem:
        is_said = layer.layer in SAID or (layer.layer == Layer.RETRIEVAL and item.source == "messages")
        kept = texts.get(item.source or "memories", {}).get(item.id, "")
        text = _said_text(transcript, steady, item) if is_said else kept
        return item if item.preview else replace(item, preview=preview(text))

    layers = (replace(layer, items=tuple(quoted(layer, item) for item in layer.items)) for layer in report.layers)
    return replace(report, layers=tuple(layers))


def _said_text(transcript: Transcript, steady: int, item: ReportItem) -> str:
    """Returns the message of an item, the first of several, or the one that a line of a summary comes from."""
    if item.reason is Reason.SUMMARY:
        number = item.id.removeprefix("message ")
        position = int(number) if number.isdecimal() else 0
        return transcript.messages[position - 1]["text"] if 0 < position <= steady else ""
    message = transcript.by_id.get(item.id) or transcript.by_id.get(item.id.split(JOINED)[0])
    return message["text"] if message else ""


async def _known(user_id: str, pipeline: ContextPipeline) -> dict[str, str]:
    knowledge = pipeline.knowledge
    texts = {topic.id: topic.label for topic in await knowledge.alist_topics(user_id=user_id)}
    texts |= {entity.id: entity.name for entity in await knowledge.alist_entities(user_id=user_id)}
    return texts | {fact.id: fact.text for fact in await knowledge.alist_facts(user_id=user_id, include_ended=True)}


async def _titles(ids: Iterable[str], user_id: str, pipeline: ContextPipeline) -> dict[str, str]:
    """Returns the titles of documents, the user's own and everyone's, by the items that are parts of them."""
    shelves = KnowledgeBase(pipeline.store, shared=True), KnowledgeBase(pipeline.store, user_id=user_id)
    titles = {document.id: document.title for shelf in shelves for document in await shelf.alist()}
    return {key: titles.get(key.partition("#")[0], "") for key in ids}


async def _other_conversations(ids: Iterable[str], user_id: str, transcripts: Transcripts) -> dict[str, str]:
    """Returns messages of other conversations, by references such as `conversation/message`."""
    names = dict.fromkeys(key.partition("/")[0] for key in sorted(ids))
    texts: dict[str, str] = {}
    for name in list(names)[:OTHER_CONVERSATIONS]:
        if other := await transcripts.read(Scope(user_id, unquote(name))):
            texts |= {f"{name}/{key}": message["text"] for key, message in other.by_id.items()}
    return texts
