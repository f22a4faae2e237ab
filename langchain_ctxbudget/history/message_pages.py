"""Parts of a conversation, read from the store without the rest of it: the newest, those before, those since.

What a part costs to read is what it has, however long the conversation is. Changes need no reading of their own here,
because they were made where the messages stand.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore
from pydantic import TypeAdapter, ValidationError

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.message_log import Heads, fold, in_order, read_heads, read_records
from langchain_ctxbudget.stores.records import MessageRecord, Scope, place_key

LANES_AT_ONCE = 4
"""Lanes that are read at a time, those with the newest messages first."""


class Mark(NamedTuple):
    """A place in a lane: in front of its record of this number.

    Attributes:
        number: how many records are before it.
        clock: none of them is past it.
        born: of the lane; another one means that the lane is not the one that was meant.
    """

    number: int
    clock: int
    born: str


Bookmark = Mapping[str, Mark]
"""A place in a conversation, by lane."""
_BOOKMARK: TypeAdapter[dict[str, Mark]] = TypeAdapter(dict[str, Mark])


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A part of a conversation.

    Attributes:
        messages: in the order of the conversation.
        before: where the page begins: `get_page(before=...)` gives the messages before it. None at the beginning.
        after: where it ends: `get_page(after=...)` gives what has been said since.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline, ada = ContextPipeline(), {"user_id": "ada", "conversation_id": "c1"}
        >>> ids = pipeline.add_messages([HumanMessage(word) for word in ("one", "two", "three")], **ada)
        >>> page = pipeline.get_page(limit=2, **ada)
        >>> [message.content for message in page.messages]
        ['two', 'three']
        >>> [message.content for message in pipeline.get_page(before=page.before, **ada).messages]
        ['one']
    """

    messages: list[BaseMessage]
    before: str | None
    after: str


def read_last(store: BaseStore, scope: Scope, limit: int, before: str | None) -> Flow[MessagePage]:
    """The newest messages, or the newest before a bookmark."""
    now = _ends((yield from read_heads(store, scope)))
    ends = now if before is None else _still_there(_parsed(before), now)
    unread = dict(ends)
    found: list[MessageRecord] = []
    while True:
        found = in_order(found)
        oldest = found[-limit].place.order if len(found) >= limit else (0, "", 0)
        # What is not read of a lane yet comes before this.
        lanes = [lane for lane, mark in unread.items() if mark.number and (mark.clock, lane, mark.number) > oldest]
        if not lanes:
            break
        lanes = sorted(lanes, key=lambda lane: -unread[lane].clock)[:LANES_AT_ONCE]
        size = max(8, limit - len(found))
        starts = {lane: max(0, unread[lane].number - size) for lane in lanes}
        keys = [place_key(lane, n) for lane in lanes for n in range(starts[lane], unread[lane].number)]
        records = yield from read_records(store, scope, keys)
        for lane in lanes:
            unread[lane] = unread[lane]._replace(number=starts[lane])
        for record in records.values():
            if isinstance(record, MessageRecord):
                mark = unread[record.place.lane]
                unread[record.place.lane] = mark._replace(clock=min(mark.clock, record.place.clock))
                if not record.archived:
                    found.append(record)
    page, left = found[-limit:], found[:-limit]
    starts = {lane: mark.number for lane, mark in unread.items()}
    for record in left:  # read, but no part of the page
        starts[record.place.lane] = max(starts[record.place.lane], record.place.number + 1)
    clock = page[0].place.clock if page else 0
    marks = {
        lane: Mark(number, min(ends[lane].clock, clock), ends[lane].born) for lane, number in starts.items() if number
    }
    return MessagePage(_shown(page), _text(marks) if marks else None, _text(ends))


def read_since(store: BaseStore, scope: Scope, after: str) -> Flow[MessagePage]:
    """Everything that was said since a bookmark."""
    now = _ends((yield from read_heads(store, scope)))
    known = _still_there(_parsed(after), now)
    keys = [
        place_key(lane, n)
        for lane, mark in now.items()
        for n in range(known[lane].number if lane in known else 0, mark.number)
    ]
    records = yield from read_records(store, scope, keys)
    new = in_order(r for r in records.values() if isinstance(r, MessageRecord) and not r.archived)
    return MessagePage(_shown(new), _text(known) if known else None, _text(now))


def _shown(records: Sequence[MessageRecord]) -> list[BaseMessage]:
    return [message for _, message in fold(records).messages]


def _ends(heads: Heads) -> Bookmark:
    return {name: Mark(lane.count, lane.clock, lane.born) for name, lane in heads.lanes.items()}


def _still_there(bookmark: Bookmark, now: Bookmark) -> Bookmark:
    """What a bookmark says of the lanes that are still there, no more than they have."""
    return {
        lane: mark._replace(number=min(max(mark.number, 0), now[lane].number))
        for lane, mark in bookmark.items()
        if lane in now and mark.born == now[lane].born
    }


def _text(bookmark: Bookmark) -> str:
    return base64.urlsafe_b64encode(json.dumps(bookmark, separators=(",", ":")).encode()).decode()


def _parsed(text: str) -> Bookmark:
    try:
        return _BOOKMARK.validate_json(base64.urlsafe_b64decode(text))
    except (ValidationError, ValueError, TypeError) as error:
        raise InputError(f"{text!r} is no bookmark; pass `before` or `after` of an earlier page") from error
