"""Messages of a user's other conversations, as candidates for a prompt.

A store with an index gives those that are nearest in meaning to a query. One without gives the last messages of the
conversations that were written last: a set to choose from, and no ranking. What is read is bounded by what is asked
for, however much the user has said. A record is believed where its conversation is there, its lane counts it, and
nobody has asked to leave it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, cast

from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.log import (
    JOINED,
    LANES,
    MESSAGES,
    PINS,
    TOLD,
    Heads,
    fold,
    in_order,
    lane_of,
    told_place,
)
from langchain_ctxbudget.messages import date_of, plain_text, preservation_of, speaker
from langchain_ctxbudget.search import Candidate
from langchain_ctxbudget.stores import (
    ROOT,
    UNQUOTED,
    LaneRecord,
    MessageRecord,
    PinsRecord,
    Place,
    has_index,
    label,
    place_key,
    require_id,
    stored,
)

OVERFETCH = 4
"""How many times as many messages are searched for, because some may be the open conversation's."""
LANES_READ = 512
"""Heads of lanes among which the conversations that were written last are looked for."""
FEWEST_EACH = 8
"""Without an index: messages that are read of a conversation at least, where it has so many."""


class _Found(NamedTuple):
    """A message of a conversation, of which the label is known."""

    conversation: str
    record: MessageRecord


class _Key(NamedTuple):
    """The place where something of a user is kept."""

    conversation: str
    kind: str
    key: str


_Values = Mapping[_Key, dict[str, Any] | None]


@dataclass(slots=True)
class OtherConversations:
    """What was read last of the other conversations, kept with the conversation that is open.

    Without an index a read costs more, and its result does not depend on the query: it is made again when a
    conversation that it has something of was written to, or another one begun, by whomever.
    """

    _read_for: Hashable = None
    _found: Sequence[Candidate] = ()
    _read: _Values = field(default_factory=dict)

    def read(
        self, store: BaseStore, user_id: str, query: str, *, without_conversation: str | None, limit: int
    ) -> Flow[Sequence[Candidate]]:
        """Reads at most `limit` messages of a user's other conversations, where they may be others than the last time.

        Args:
            store: where they are kept.
            user_id: whose.
            query: what they are to be about. With an index the nearest come first; without one it is not looked at.
            without_conversation: the id of the open conversation, of which nothing is wanted.
            limit: how many messages.

        Raises:
            MissingScopeError: there is no user id.
            StoreDataError: a record cannot be read.
        """
        user = label(require_id("user_id", user_id))
        without = None if without_conversation is None else label(without_conversation)
        if limit < 1:
            return ()
        told = told_place(user_id)
        if query.strip() and has_index(store):
            # The open conversation cannot be left out of a search, only of what it finds; and some stores keep the
            # vector of a message that is archived now.
            most = limit if without is None else limit * OVERFETCH
            search = SearchOp((ROOT, user, MESSAGES), filter={"archived": False}, limit=most, query=query)
            [result] = yield from batch(store, [search])
            scored = [item for item in cast("list[SearchItem]", result) if item.score is not None]
            found = [
                _Found(item.namespace[-1], MessageRecord.read(item.value, f"message {item.key!r}"))
                for item in _within(scored, (ROOT, user, MESSAGES), without)
            ]
            candidates, _ = yield from _candidates(store, user, found)
            return candidates[:limit]
        read_for = (user_id, without_conversation, limit)
        if read_for == self._read_for and self._read:
            values = yield from _get(store, user, list(self._read))
            if all(values.get(at) == value for at, value in self._read.items()):
                return self._found
        begun, result = yield from batch(store, [told, SearchOp((ROOT, user, LANES), limit=LANES_READ)])
        found, heads = yield from _last(store, cast("list[SearchItem]", result), user, without, limit)
        candidates, read = yield from _candidates(store, user, found)
        # Heads as they were before their records were read: what was written meanwhile is a change.
        self._read = {**read, **heads, _Key("", TOLD, TOLD): begun.value if isinstance(begun, Item) else None}
        self._read_for, self._found = read_for, tuple(candidates[:limit])
        return self._found


def _candidates(store: BaseStore, user: str, found: Sequence[_Found]) -> Flow[tuple[list[Candidate], _Values]]:
    """Returns the candidates among some messages, and what they depend on besides."""
    records: defaultdict[str, list[MessageRecord]] = defaultdict(list)
    for one in found:
        records[one.conversation].append(one.record)
    about = [
        _Key(conversation, *place)
        for conversation, its in records.items()
        for place in [(LANES, JOINED), (PINS, PINS), *((LANES, lane) for lane in {r.place.lane: None for r in its})]
    ]
    values = yield from _get(store, user, about)
    made = {
        (conversation, key): candidate
        for conversation, its in records.items()
        for key, candidate in _of_conversation(conversation, its, values)
    }
    keys = ((one.conversation, one.record.place.key) for one in found)
    return [made[key] for key in keys if key in made], {at: values.get(at) for at in about}


def _last(
    store: BaseStore, items: Sequence[SearchItem], user: str, without: str | None, limit: int
) -> Flow[tuple[list[_Found], _Values]]:
    """Returns the last messages of the conversations that were written last, and the heads of their lanes."""
    lanes: defaultdict[str, dict[str, Item]] = defaultdict(dict)
    for item in _within(items, (ROOT, user, LANES), without):
        if item.key != JOINED:
            lanes[item.namespace[-1]][item.key] = item
    written = {name: max(item.updated_at for item in its.values()).timestamp() for name, its in lanes.items()}
    latest = sorted(written, key=lambda name: (-written[name], name))[: max(1, limit // FEWEST_EACH)]
    heads = [{key: lane_of(key, item.value) for key, item in lanes[name].items()} for name in latest]
    shares = shared([sum(lane.count for lane in its.values()) for its in heads], limit)
    keys = [
        _Key(name, MESSAGES, key)
        for name, its, share in zip(latest, heads, shares, strict=True)
        for key in last_keys(its, share)
    ]
    values = yield from _get(store, user, keys)
    told = {_Key(name, LANES, key): item.value for name in latest for key, item in lanes[name].items()}
    return [
        _Found(at.conversation, MessageRecord.read(value, f"message {at.key!r}"))
        for at, value in values.items()
        if "changed" not in value
    ], told


def shared(sizes: Sequence[int], limit: int) -> list[int]:
    """Returns how many of each are taken, so that all have the same share and what one leaves goes to the others.

    >>> shared([2, 100, 50], 30)
    [2, 14, 14]
    """
    shares, left = [0] * len(sizes), limit
    for done, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[place] = min(sizes[place], left // (len(sizes) - done))
        left -= shares[place]
    return shares


def last_keys(lanes: Mapping[str, LaneRecord], most: int) -> list[str]:
    """Returns the keys of the last records of a conversation, those of the lane that was written last first."""
    keys: list[str] = []
    for name in Heads(None, lanes).polled():
        end = lanes[name].count
        keys += [place_key(name, number) for number in range(end - 1, max(0, end - most + len(keys)) - 1, -1)]
    return keys


def _within(items: Iterable[SearchItem], prefix: tuple[str, ...], without: str | None) -> list[SearchItem]:
    """Returns the items that are a conversation's, and not of one of them; a store may look for a prefix as text."""
    return [item for item in items if item.namespace[:-1] == prefix and item.namespace[-1] != without]


def _get(store: BaseStore, user: str, keys: Sequence[_Key]) -> Flow[dict[_Key, dict[str, Any]]]:
    """Reads what there is of these at once."""
    reads = [GetOp((ROOT, user, *filter(None, (at.kind, at.conversation))), at.key) for at in keys]
    items = yield from batch(store, reads)
    return {at: item.value for at, item in zip(keys, items, strict=True) if isinstance(item, Item)}


def _of_conversation(
    conversation: str, records: Sequence[MessageRecord], values: _Values
) -> list[tuple[str, Candidate]]:
    """Returns the candidates among some messages of a conversation, each with the key of its record."""
    joined = values.get(_Key(conversation, LANES, JOINED))
    if joined is None:  # it is being deleted
        return []
    conversation_id = str(stored(joined)["conversation_id"])
    asked = values.get(_Key(conversation, PINS, PINS))
    pins = {} if asked is None else PinsRecord.read(asked, "the pins").pins
    heads = {lane: values.get(_Key(conversation, LANES, lane)) for lane in {record.place.lane for record in records}}
    counts = {lane: lane_of(lane, head).count for lane, head in heads.items() if head}
    told = fold(in_order(r for r in records if r.place.number < counts.get(r.place.lane, 0))).messages
    found: list[tuple[str, Candidate]] = []
    for (record, message), place in zip(told, _places([record.place for record, _ in told]), strict=True):
        text = plain_text(message)
        if text and (pins.get(str(message.id)) or preservation_of(message)) not in UNQUOTED:
            candidate = Candidate(
                id=message_reference(conversation_id, str(message.id)),
                source="conversations",
                text=text,
                title=conversation_id,
                place=place,
                speaker=speaker(message),
                date=date_of(message),
                kind="experience",
            )
            found.append((record.place.key, candidate))
    return found


def _places(places: Sequence[Place]) -> list[int]:
    """Returns a number for each place, in the same order; neighbours differ by one."""
    numbers = [0] if places else []
    for before, place in pairwise(places):
        numbers.append(numbers[-1] + (place.number - before.number if place.lane == before.lane else 2))
    return numbers


def message_reference(conversation_id: str, message_id: str) -> str:
    """Returns one text for both ids; an id may have a slash, too."""
    return f"{conversation_id.replace('%', '%25').replace('/', '%2F')}/{message_id}"
