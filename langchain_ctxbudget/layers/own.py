"""Layers of the application's own: open files, the weather, a ticket."""

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_ctxbudget.budget import Fragment, LayerSpec, Reason, Situation, Status
from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.knowledge import left_out_item
from langchain_ctxbudget.layers.base import Chosen, Place, PromptLayer, View
from langchain_ctxbudget.messages import Count, clip_text, fences, one_line
from langchain_ctxbudget.report import ReportItem
from langchain_ctxbudget.search import pack
from langchain_ctxbudget.settings import CustomLayer, LayerRequest

NOTHING_NOW = "- Nothing at the moment.\n"
"""Stands for the items of a layer that has none any more."""


class ListedLayer(PromptLayer):
    """A layer of the background that shows the first of some texts that fit."""

    place = Place.BACKGROUND
    spec: LayerSpec
    """What it asks for."""

    def texts(self, view: View) -> Sequence[str]:
        """Returns its items, the most important first."""
        return view.known.own_items.get(self.name, ())

    def measured(self, situation: Situation, _view: View) -> Situation:
        """Returns a situation with what the layer asks for."""
        return replace(situation, custom=(*situation.custom, self.spec))

    def wider_tokens(
        self, spec: LayerSpec, granted_tokens: int, most_tokens: int, view: View
    ) -> int | None:
        """Returns the grant with what others leave, or None if that is below the layer's floor."""
        wider = super().wider_tokens(spec, granted_tokens, most_tokens, view)
        return None if wider is None or wider < self.spec.min_tokens else wider

    def items(self, view: View, tokens: int) -> Chosen:
        """Returns the texts that fit, the line above them included.

        The first one that does not fit is shrunk.
        """
        count = view.counter.count_text
        all_texts = enumerate(self.texts(view), 1)
        texts = {place: text.strip() for place, text in all_texts if text.strip()}
        costs = {place: count(_line(text)) for place, text in texts.items()}
        room_tokens = tokens - count(self.section)
        whole = set(pack(costs, room_tokens))
        tokens_left = room_tokens - sum(costs[place] for place in whole)

        is_at_its_most = tokens >= self.spec.limit_tokens
        reason = Reason.OVER_IDEAL if is_at_its_most else Reason.NO_ROOM
        fragments: list[Fragment] = []
        omitted: list[ReportItem] = []
        for place, text in texts.items():
            if place in whole:
                fragments.append(self._item(place, _line(text), count))
                continue
            shorter = None
            if tokens_left > 0:
                shorter = clip_text(text, lambda part: count(_line(part)), tokens_left)
                tokens_left = 0  # only the first one is shrunk
            if shorter is None:
                name = self._name_of(place)
                omitted.append(left_out_item(name, _line(text), reason, count))
                continue
            item = self._item(place, _line(shorter.strip()), count)
            fragments.append(replace(item, status=Status.SHRUNK, reason=Reason.CLIPPED))
        return Chosen(
            fragments=tuple(fragments),
            left_out=lambda: tuple(omitted),
            lacks_room=bool(omitted),
        )

    def _item(self, place: int, line: str, count: Count) -> Fragment:
        return Fragment(
            layer=self.name,
            id=self._name_of(place),
            text=line,
            tokens=count(line),
            section=self.section,
            value=-float(place),
            status=Status.INCLUDED,
            reason=Reason.CONFIGURED,
        )

    def _name_of(self, place: int) -> str:
        return f"{self.name} {place}"


def _line(text: str) -> str:
    return f"- {fences.as_item(text)}\n" if text else ""


class OwnLayer(ListedLayer):
    """A layer that the application has declared in the settings."""

    is_asked = True

    def __init__(self, declared: CustomLayer) -> None:
        heading = f"## {fences.as_data(one_line(declared.name))}"
        self.name = declared.name
        self.title = declared.name
        self.section = f"{heading}\n"
        self.renewed_section = (
            f"{heading} (now; what stands above under this name is out of date)\n"
        )
        self.spec = declared.spec
        self._items = declared.items

    def fetched(self, request: LayerRequest) -> Flow[tuple[str, ...]]:
        """Returns the items; a function is called in a worker thread under async.

        Raises:
            TypeError: The function gives something else than strings.
            Exception: Whatever the function raises.
        """
        items: Any = self._items
        if callable(items):
            items = yield in_thread(partial(items, request))
        if isinstance(items, Coroutine):
            items.close()
            raise TypeError(
                "its function is async; a plain function is called in a worker thread under async"
            )
        texts: tuple[Any, ...] = (items,) if isinstance(items, str | bytes) else tuple(items)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"an item is {text!r}, not a string")
        return texts

    def not_shown_before(
        self, view: View, chosen: Chosen, backgrounds: Sequence[Sequence[Fragment]]
    ) -> Chosen:
        """Returns what it chose without what stands in the prompt already, while all of that holds.

        Once a text that stands there is none of its items any more, all of them stand there again,
        below a line that says so.
        """
        if self.name not in view.known.own_items:  # its function has failed
            return super().not_shown_before(view, chosen, backgrounds)
        shown = self._shown(backgrounds)
        lines = {_line(text.strip()) for text in self.texts(view)}
        is_out_of_date = any(
            part.text not in lines and part.status is Status.INCLUDED for part in shown
        )
        if not is_out_of_date:
            return chosen.without(shown)
        parts = chosen.fragments
        if not any(lines):
            parts = (self._item(1, NOTHING_NOW, view.counter.count_text),)
        renewed = tuple(replace(part, section=self.renewed_section) for part in parts)
        return replace(chosen, fragments=renewed)

    def _shown(self, backgrounds: Sequence[Sequence[Fragment]]) -> list[Fragment]:
        """Returns its items in backgrounds, from the last time on that all of them were shown."""
        shown: list[Fragment] = []
        for background in backgrounds:
            own = [part for part in background if part.layer == self.name]
            if any(part.section == self.renewed_section for part in own):
                shown = []
            shown += [part for part in own if part.text != NOTHING_NOW]
        return shown


class FormerLayer(PromptLayer):
    """A layer that the application had when an earlier background was sent, and has no longer."""

    place = Place.BACKGROUND

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = name
