"""Which conversations a user has, as the store lists them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langgraph.store.base import BaseStore, Item, SearchItem, SearchOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import log
from langchain_ctxbudget.history.log import JOINED, LANES, PINS

PAGE = 1_024
"""Items that are listed together."""


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
    lane_items: Sequence[Item]
    """All that is stored about its lanes."""

    @property
    def state(self) -> object:
        """Equal to an earlier one where nothing of the conversation has changed since."""
        return self.lanes, self.pins and self.pins.value


def list_conversations(store: BaseStore, user_id: str) -> Flow[list[ListedConversation]]:
    """Returns all conversations of a user, the one that was written to first at the beginning."""
    user = (stores.ROOT, stores.label(user_id))
    lanes, pins = yield from _items_below(store, [(*user, LANES), (*user, PINS)])
    pins_of = {item.namespace[-1]: item for item in pins}

    listed: list[ListedConversation] = []
    for label, items in _by_label(lanes).items():
        heads = [item for item in items if item.key != JOINED]
        if heads:
            listed.append(_listed(label, heads, pins_of.get(label), items))
    return sorted(listed, key=_order_of)


def _items_below(
    store: BaseStore, prefixes: Sequence[tuple[str, ...]]
) -> Flow[list[list[SearchItem]]]:
    """Returns all items right below some prefixes, in one batch as long as there are few."""
    found: dict[tuple[str, ...], list[SearchItem]] = {prefix: [] for prefix in prefixes}
    unfinished = [*prefixes]
    while unfinished:
        searches = [
            SearchOp(prefix, limit=PAGE, offset=len(found[prefix])) for prefix in unfinished
        ]
        pages = cast("list[list[SearchItem]]", (yield from batch(store, searches)))
        for prefix, page in zip(unfinished, pages, strict=True):
            found[prefix] += page
        unfinished = [
            prefix for prefix, page in zip(unfinished, pages, strict=True) if len(page) == PAGE
        ]
    return [items_within(items, prefix) for prefix, items in found.items()]


def _listed(
    label: str,
    heads: list[SearchItem],
    pins: SearchItem | None,
    lane_items: list[SearchItem],
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
