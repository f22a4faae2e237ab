"""Messages of a user's other conversations, as candidates for a prompt.

A store with an index gives those that are nearest in meaning to a query. One without gives the last messages of the
conversations that were written last: a set to choose from, and no ranking. What is read is bounded by what is asked
for, however much the user has said. A record is believed where its conversation is there, its lane counts it, and
nobody has asked to leave it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from langgraph.store.base import BaseStore, GetOp, Item, SearchItem, SearchOp

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.log import (
    JOINED,
    LANES,
    MESSAGES,
    PINS,
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
    MessageRecord,
    PinsRecord,
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

_Values = Mapping[GetOp, dict[str, Any] | None]
"""What stands at some places."""


@dataclass(slots=True)
class OtherConversations:
    """What was read last of the other conversations, kept with the conversation that is open.

    Without an index a read costs more, and its result does not depend on the query: it is made again when a
    conversation that it has something of was written to, or another one begun, by whomever.
    """

    _read_for: Hashable = None
    _found: Sequence[Candidate] = ()
    _depends_on: _Values = field(default_factory=dict)

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
        user = (ROOT, label(require_id("user_id", user_id)))
        without = None if without_conversation is None else label(without_conversation)
        if limit < 1:
            return ()
        if query.strip() and has_index(store):
            # The open conversation cannot be left out of a search, only of what it finds; and some stores keep the
            # vector of a message that is archived now.
            most = limit if without is None else limit * OVERFETCH
            search = SearchOp((*user, MESSAGES), filter={"archived": False}, limit=most, query=query)
            [result] = yield from batch(store, [search])
            scored = [item for item in cast("list[SearchItem]", result) if item.score is not None]
            candidates, _ = yield from _candidates(store, _within(scored, (*user, MESSAGES), without))
            return candidates[:limit]
        read_for = (user_id, without_conversation, limit)
        if read_for == self._read_for and (yield from _read(store, self._depends_on)) == self._depends_on:
            return self._found
        begun, result = yield from batch(store, [told_place(user_id), SearchOp((*user, LANES), limit=LANES_READ)])
        heads = _within(cast("list[SearchItem]", result), (*user, LANES), without)
        places, lanes = _last(heads, limit)
        records = cast("list[Item]", [item for item in (yield from batch(store, places)) if isinstance(item, Item)])
        candidates, read = yield from _candidates(store, [item for item in records if "changed" not in item.value])
        # Heads as they were before their records were read: what was written meanwhile is a change.
        told = {told_place(user_id): begun.value if isinstance(begun, Item) else None}
        self._depends_on = {**read, **{GetOp(item.namespace, item.key): item.value for item in lanes}, **told}
        self._read_for, self._found = read_for, tuple(candidates[:limit])
        return self._found


def _within(items: Iterable[SearchItem], prefix: tuple[str, ...], without: str | None) -> list[SearchItem]:
    """Returns the items that are a conversation's, and not of one of them; a store may look for a prefix as text."""
    return [item for item in items if item.namespace[:-1] == prefix and item.namespace[-1] != without]


def _read(store: BaseStore, places: Iterable[GetOp]) -> Flow[_Values]:
    """Reads what stands at some places at once."""
    asked = list(places)
    items = yield from batch(store, asked)
    return {at: item.value if isinstance(item, Item) else None for at, item in zip(asked, items, strict=True)}


def _last(heads: Sequence[SearchItem], limit: int) -> tuple[list[GetOp], list[SearchItem]]:
    """Returns where the last messages of the conversations are that were written last, and the heads of their lanes.

    All have the same share, and what one leaves goes to the others; of each, the lane written last comes first.
    """
    lanes: defaultdict[str, list[SearchItem]] = defaultdict(list)
    for item in heads:
        if item.key != JOINED:
            lanes[item.namespace[-1]].append(item)
    written = {name: max(item.updated_at for item in its).timestamp() for name, its in lanes.items()}
    latest = sorted(written, key=lambda name: (-written[name], name))[: max(1, limit // FEWEST_EACH)]
    read = {name: Heads(None, {item.key: lane_of(item.key, item.value) for item in lanes[name]}) for name in latest}
    sizes = {name: sum(lane.count for lane in its.lanes.values()) for name, its in read.items()}
    shares: dict[str, int] = {}
    for done, name in enumerate(sorted(latest, key=sizes.__getitem__)):
        shares[name] = min(sizes[name], (limit - sum(shares.values())) // (len(latest) - done))
    keys: list[GetOp] = []
    for name in latest:
        numbers = ((lane, n) for lane in read[name].polled() for n in reversed(range(read[name].lanes[lane].count)))
        namespace = (*lanes[name][0].namespace[:2], MESSAGES, name)
        keys += [GetOp(namespace, place_key(*number)) for number in islice(numbers, shares[name])]
    return keys, [item for name in latest for item in lanes[name]]


def _candidates(store: BaseStore, found: Sequence[Item]) -> Flow[tuple[list[Candidate], _Values]]:
    """Returns the candidates among some messages, in order, and what they depend on besides."""
    records: defaultdict[tuple[str, ...], list[MessageRecord]] = defaultdict(list)
    for item in found:
        records[item.namespace].append(MessageRecord.read(item.value, f"message {item.key!r}"))
    about = [
        GetOp((*namespace[:2], kind, namespace[-1]), key)
        for namespace, its in records.items()
        for kind, key in [(LANES, JOINED), (PINS, PINS), *((LANES, lane) for lane in {r.place.lane: None for r in its})]
    ]
    values = yield from _read(store, about)
    made = {
        (namespace, key): candidate
        for namespace, its in records.items()
        for key, candidate in _of_conversation(namespace, its, values)
    }
    return [made[at] for item in found if (at := (item.namespace, item.key)) in made], values


def _of_conversation(
    namespace: tuple[str, ...], records: Sequence[MessageRecord], values: _Values
) -> Iterator[tuple[str, Candidate]]:
    """Yields the candidates among some messages of a conversation, each with the key of its record."""

    def value(kind: str, key: str) -> dict[str, Any] | None:
        return values.get(GetOp((*namespace[:2], kind, namespace[-1]), key))

    joined, asked = value(LANES, JOINED), value(PINS, PINS)
    if joined is None:  # it is being deleted
        return
    conversation_id = str(stored(joined)["conversation_id"])
    pins = {} if asked is None else PinsRecord.read(asked, "the pins").pins
    heads = {lane: value(LANES, lane) for lane in {record.place.lane for record in records}}
    counts = {lane: lane_of(lane, head).count for lane, head in heads.items() if head}
    number, before = 0, None
    for record, message in fold(in_order(r for r in records if r.place.number < counts.get(r.place.lane, 0))).messages:
        place, text = record.place, plain_text(message)
        if before is not None:  # neighbours differ by one
            number += place.number - before.number if place.lane == before.lane else 2
        before = place
        if text and (pins.get(str(message.id)) or preservation_of(message)) not in UNQUOTED:
            yield (
                place.key,
                Candidate(
                    id=message_reference(conversation_id, str(message.id)),
                    source="conversations",
                    text=text,
                    title=conversation_id,
                    place=number,
                    speaker=speaker(message),
                    date=date_of(message),
                    kind="experience",
                ),
            )


def message_reference(conversation_id: str, message_id: str) -> str:
    """Returns one text for both ids; an id may have a slash, too."""
    return f"{conversation_id.replace('%', '%25').replace('/', '%2F')}/{message_id}"
