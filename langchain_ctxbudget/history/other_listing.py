"""Which conversations a user has, as the store lists them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langgraph.store.base import BaseStore, Item, SearchItem, SearchOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.log import JOINED, LANES, PINS

LISTED = 1_024
"""Heads of lanes that are looked at, those that were written last."""


@dataclass(frozen=True, slots=True)
class ListedConversation:
    """A conversation as the store lists it."""

    label: str
    written_at: float
    """When it was written to last, in seconds since 1970."""
    lanes: tuple[tuple[str, Any], ...]
    """The heads of its lanes, by their keys."""
    messages: int
    """The number of its messages."""
    pins: SearchItem | None
    lane_items: Sequence[Item] | None
    """All that is stored about its lanes, where all was listed."""

    @property
    def state(self) -> object:
        """Equal to an earlier one where nothing of the conversation has changed since."""
        return self.lanes, self.pins and self.pins.value


def list_conversations(store: BaseStore, user_id: str) -> Flow[list[ListedConversation]]:
    """Returns the conversations of a user that were written to last, the oldest first."""
    user = (stores.ROOT, stores.label(user_id))
    searches = [SearchOp((*user, kind), limit=LISTED) for kind in (LANES, PINS)]
    lanes, pins = cast("list[list[SearchItem]]", (yield from batch(store, searches)))
    pins_of = {item.namespace[-1]: item for item in items_within(pins, (*user, PINS))}

    listed: list[ListedConversation] = []
    for label, items in _by_label(items_within(lanes, (*user, LANES))).items():
        heads = [item for item in items if item.key != JOINED]
        if heads:
            lane_items = items if len(lanes) < LISTED else None
            listed.append(_listed(label, heads, pins_of.get(label), lane_items))
    return sorted(listed, key=_order_of)


def _listed(
    label: str,
    heads: list[SearchItem],
    pins: SearchItem | None,
    lane_items: list[SearchItem] | None,
) -> ListedConversation:
    heads.sort(key=lambda head: head.key)
    return ListedConversation(
        label=label,
        written_at=max(head.updated_at.timestamp() for head in heads),
        lanes=tuple((head.key, head.value) for head in heads),
        messages=sum(log.lane_of(head.key, head.value).count for head in heads),
        pins=pins,
        lane_items=lane_items,
    )


def _order_of(conversation: ListedConversation) -> tuple[float, str]:
    return conversation.written_at, conversation.label


def items_within(items: Iterable[SearchItem], prefix: tuple[str, ...]) -> list[SearchItem]:
    """Returns the items right below a prefix; some stores match a prefix as text."""
    return [item for item in items if item.namespace[:-1] == prefix]


def _by_label(items: Iterable[SearchItem]) -> dict[str, list[SearchItem]]:
    items_of: dict[str, list[SearchItem]] = {}
    for item in items:
        items_of.setdefault(item.namespace[-1], []).append(item)
    return items_of
