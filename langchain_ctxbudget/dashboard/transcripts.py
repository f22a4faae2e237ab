"""The conversations that the dashboard shows, as they are stored; what has not changed is not read again."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.store.base import Item

from langchain_ctxbudget.core.messages import plain_text
from langchain_ctxbudget.core.preservation import preservation_of
from langchain_ctxbudget.dashboard.answers import SaidMessage
from langchain_ctxbudget.flow import adrive, batch
from langchain_ctxbudget.opening import pins_place
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.message_log import JOINED, LANES
from langchain_ctxbudget.stores.message_pages import MessagePage
from langchain_ctxbudget.stores.records import ROOT, PinsRecord, Scope, label, stored
from langchain_ctxbudget.stores.snapshots import SNAPSHOTS

LONGEST_TEXT = 10_000
"""Characters of a message that are shown."""
EVERYTHING = 2**31
"""More messages than a conversation has."""
KEPT_TRANSCRIPTS, KEPT_SUMMARIES = 16, 10_000

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A mapping that forgets what was not used for longest."""

    def __init__(self, limit: int) -> None:
        """Begin with nothing.

        Args:
            limit: how much is kept.
        """
        super().__init__()
        self._limit = limit

    def recall(self, key: K) -> V | None:
        """What is kept under a key, which is thereby used; None where nothing is."""
        if key in self:
            self.move_to_end(key)
        return self.get(key)

    def keep(self, key: K, value: V) -> None:
        """Keep a value under a key."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)


@dataclass(frozen=True)
class Transcript:
    """The messages of a conversation."""

    version: str
    """Another one after every change."""
    messages: tuple[SaidMessage, ...]
    asked: str
    """What the user said last; empty where they said nothing."""

    @cached_property
    def by_id(self) -> dict[str, SaidMessage]:
        """The messages by their ids."""
        return {message.id: message for message in self.messages}


@dataclass(frozen=True, slots=True)
class Outline:
    """What the list of conversations shows of one."""

    version: str
    messages: int
    last_said: str | None
    """When the newest message was said, as it was given with it."""


class Transcripts:
    """Reads conversations of users; whoever asks says whose, and gets nothing of another one."""

    def __init__(self, pipeline: ContextPipeline) -> None:
        """Over the store of a pipeline.

        Args:
            pipeline: whose conversations they are.
        """
        self._pipeline = pipeline
        self._transcripts: Recent[Scope, Transcript] = Recent(KEPT_TRANSCRIPTS)
        self._outlines: Recent[Scope, Outline] = Recent(KEPT_SUMMARIES)

    async def read(self, scope: Scope) -> Transcript | None:
        """A conversation; None where its user has no such one."""
        newest = await self._page(scope, 1)
        known = self._transcripts.recall(scope)
        if known is not None and known.version == newest.after:
            return known
        self._transcripts.pop(scope, None)
        if not newest.messages and not await self._exists(scope):
            return None
        page = await self._page(scope, EVERYTHING)
        read = Transcript(
            version=page.after,
            messages=tuple(_said(place, message) for place, message in enumerate(page.messages, 1)),
            asked=_asked(page.messages),
        )
        self._transcripts.keep(scope, read)
        return read

    async def versions(self, user_id: str) -> dict[str, str]:
        """The version of each of a user's conversations, by its id; all in one read."""
        path = (ROOT, label(user_id), LANES)
        found: dict[tuple[str, ...], list[Item]] = {}
        for item in await adrive(bulk.read_below(self._pipeline.store, path)):
            found.setdefault(item.namespace, []).append(item)
        joined = ((items, item) for items in found.values() for item in items if item.key == JOINED)
        return {
            str(stored(item.value)["conversation_id"]): json.dumps(sorted((one.key, str(one.value)) for one in items))
            for items, item in joined
        }

    async def outline(self, scope: Scope, version: str) -> Outline:
        """How long a conversation is; read again where its version is another than before."""
        known = self._outlines.recall(scope)
        if known is None or known.version != version:
            page = await self._page(scope, EVERYTHING)
            said = page.messages[-1].additional_kwargs.get("created_at") if page.messages else None
            known = Outline(version, len(page.messages), said if isinstance(said, str) else None)
            self._outlines.keep(scope, known)
        return known

    async def with_snapshots(self, user_id: str) -> set[str]:
        """The labels of the conversations of a user that have snapshots."""
        path = (ROOT, label(user_id), SNAPSHOTS)
        return {one[-1] for one in await adrive(bulk.read_namespaces(self._pipeline.store, path))}

    async def with_pins(self, scope: Scope, messages: tuple[SaidMessage, ...]) -> tuple[SaidMessage, ...]:
        """Messages with what was asked for by `pin`, which outweighs what they say themselves."""
        place = pins_place(scope)
        [found] = await adrive(batch(self._pipeline.store, [place]))
        value: dict[str, Any] | None = getattr(found, "value", None)
        pins = PinsRecord.read(value, "the pins").pins if value is not None else {}
        return tuple(
            replace(message, preservation=pins[message.id]) if message.id in pins else message for message in messages
        )

    async def _page(self, scope: Scope, limit: int) -> MessagePage:
        return await self._pipeline.aget_page(user_id=scope.user_id, conversation_id=scope.conversation_id, limit=limit)

    async def _exists(self, scope: Scope) -> bool:
        return scope.conversation_id in await self._pipeline.alist_conversations(user_id=scope.user_id)


def _said(position: int, message: BaseMessage) -> SaidMessage:
    text, at = plain_text(message), message.additional_kwargs.get("created_at")
    return SaidMessage(
        position=position,
        id=str(message.id),
        role=message.type,
        name=message.name,
        text=text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…",
        created_at=at if isinstance(at, str) else None,
        preservation=preservation_of(message),
    )


def _asked(messages: list[BaseMessage]) -> str:
    said = (plain_text(message) for message in reversed(messages) if isinstance(message, HumanMessage))
    return next((text for text in said if text.strip()), "")
