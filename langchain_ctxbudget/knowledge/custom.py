"""Layers of the application's own: their items, and the text of these within a budget."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_ctxbudget.budget import Fragment, Reason, Status
from langchain_ctxbudget.flow import Flow, Lock, in_thread, lending
from langchain_ctxbudget.knowledge.subjects import Bundles, Count
from langchain_ctxbudget.messages import clip_text, fences, one_line
from langchain_ctxbudget.report import ReportItem, preview
from langchain_ctxbudget.search import pack
from langchain_ctxbudget.settings import CustomLayer, LayerRequest

SMALLEST_ITEM_TOKENS = 4


def fetch(layer: CustomLayer, request: LayerRequest, lock: Lock) -> Flow[tuple[str, ...]]:
    """Gets the items of a layer; a function is called in a worker thread under async, and must not ask for the lock.

    Raises:
        TypeError: the function gave something else than strings.
        Exception: the function's own.
    """
    if not callable(layer.items):
        return tuple(layer.items)
    items: tuple[str, ...] = yield in_thread(lending(lock, partial(_asked, layer.items, request)))
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


def render(layer: CustomLayer, items: Sequence[str], count: Count, budget_tokens: int) -> Bundles:
    """Writes the items of a layer that fit a budget, heading included; the first that does not fit is shrunk."""
    section = f"## {fences.as_data(one_line(layer.heading or layer.name))}\n"
    given = {place: item for place, item in enumerate(items, 1) if item.strip()}
    room = budget_tokens - count(section)
    costs = {place: count(_line(item)) if room > 0 else 0 for place, item in given.items()}
    taken = set(pack(given, costs.__getitem__, room, SMALLEST_ITEM_TOKENS))
    left = room - sum(costs[place] for place in taken)
    fragments: list[Fragment] = []
    omitted: list[tuple[str, ReportItem]] = []
    for place, item in given.items():
        name, text, status, reason = f"{layer.name} {place}", _line(item), Status.INCLUDED, Reason.CONFIGURED
        if place not in taken:
            clipped = clip_text(item, lambda part: count(_line(part)), left) if left > 0 else None
            left = 0  # only the first one is shrunk
            if clipped is None:
                item_tokens = costs[place] or count(text)
                left_out = ReportItem(
                    id=name, tokens=item_tokens, status=Status.OMITTED, reason=Reason.NO_ROOM, preview=preview(item)
                )
                omitted.append((layer.name, left_out))
                continue
            text, status, reason = _line(clipped), Status.SHRUNK, Reason.CLIPPED
        part = Fragment(layer=layer.name, id=name, text=text, tokens=count(text), reason=reason, status=status)
        fragments.append(replace(part, section=section, value=-float(place)))
    return Bundles(tuple(fragments), tuple(omitted))


def _line(item: str) -> str:
    return f"- {fences.as_item(item.strip())}\n"
