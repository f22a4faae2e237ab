"""Layers of the application's own: what is in them, and their text within what they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.assembly import Fragment
from langchain_ctxbudget.core.clipping import clip_text
from langchain_ctxbudget.core.layers import Reason, Status
from langchain_ctxbudget.core.packing import pack
from langchain_ctxbudget.core.report import ReportItem, preview
from langchain_ctxbudget.core.text import one_line
from langchain_ctxbudget.flow import Call, Flow, Lock, lending
from langchain_ctxbudget.settings import CustomLayer, LayerRequest

SMALLEST_ITEM_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of one layer, and the account of what is not in it."""

    fragments: tuple[Fragment, ...] = ()
    omitted: tuple[ReportItem, ...] = ()

    @property
    def wants_more(self) -> bool:
        """Whether something was shrunk or left out for want of room."""
        return bool(self.omitted) or any(fragment.status is Status.SHRUNK for fragment in self.fragments)


def section(layer: CustomLayer) -> str:
    """The line above a layer's items."""
    return f"## {fences.as_data(one_line(layer.heading or layer.name))}\n"


def fetch(layer: CustomLayer, request: LayerRequest, lock: Lock) -> Flow[tuple[str, ...]]:
    """The items of a layer; a function is told the budget first, and called in a worker thread under async.

    Args:
        layer: whose items.
        request: what the function is told.
        lock: of the conversation, which the function must not ask for.

    Raises:
        TypeError: the function gave something else than strings.
        Exception: whatever the function raises.
    """
    source = layer.items
    if not callable(source):
        return tuple(source)
    call = lending(lock, partial(_asked, source, request))
    items: tuple[str, ...] = yield Call(call, lambda: asyncio.to_thread(call))
    return items


def _asked(source: Callable[[LayerRequest], Any], request: LayerRequest) -> tuple[str, ...]:
    given = source(request)
    if isinstance(given, Coroutine):
        given.close()
        raise TypeError("its function is async; a plain function is called in a worker thread under async")
    if isinstance(given, bytes):
        raise TypeError("its function gave bytes, not strings")
    items = (given,) if isinstance(given, str) else tuple(given)
    if wrong := [item for item in items if not isinstance(item, str)]:
        raise TypeError(f"an item is {wrong[0]!r}, not a string")
    return items


def render(layer: CustomLayer, items: Sequence[str], count: Callable[[str], int], budget_tokens: int) -> Rendered:
    """The items of a layer within a budget: the first ones that fit, and the first that does not, shrunk.

    Args:
        layer: whose items.
        items: most important first.
        count: tokens of a text.
        budget_tokens: what they may cost, the layer's heading included.
    """
    given = [(number, item) for number, item in enumerate(items, 1) if item.strip()]
    above = section(layer)
    room = budget_tokens - count(above)
    costs = {number: count(_line(item)) for number, item in given} if room > 0 else {}
    taken = set(pack([number for number, _ in given if number in costs], costs.__getitem__, room, SMALLEST_ITEM_TOKENS))
    left = room - sum(costs[number] for number in taken)
    fragments: list[Fragment] = []
    omitted: list[ReportItem] = []
    shrunk = False
    for number, item in given:
        name = f"{layer.name} {number}"
        text, status, reason = _line(item), Status.INCLUDED, Reason.CONFIGURED
        if number not in taken:
            clipped = None if shrunk or left <= 0 else clip_text(item, lambda part: count(_line(part)), left)
            shrunk = True
            if clipped is None:
                cost = costs.get(number) or count(text)
                omitted.append(
                    ReportItem(
                        id=name, tokens=cost, status=Status.OMITTED, reason=Reason.NO_ROOM, preview=preview(item)
                    )
                )
                continue
            text, status, reason = _line(clipped), Status.SHRUNK, Reason.CLIPPED
        fragments.append(
            Fragment(
                layer=layer.name,
                id=name,
                text=text,
                tokens=count(text),
                reason=reason,
                status=status,
                section=above,
                value=-float(number),
            )
        )
    return Rendered(tuple(fragments), tuple(omitted))


def _line(item: str) -> str:
    return f"- {fences.as_item(item.strip())}\n"
