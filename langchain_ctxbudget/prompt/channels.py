"""The decisions of a prompt's steps as plain data: the channels of a graph's state.

A channel gives what a plan has decided, and a plan that is decided as plain data says, whoever has
written that: the step itself, in this process or another one, or a node of the application's own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, Required

from pydantic import NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from langchain_ctxbudget.budget import Fragment, Layer, Reason
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.history import Decision, compact
from langchain_ctxbudget.knowledge import Bundles, subjects
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.prompt.budgeting import history_plan, with_history
from langchain_ctxbudget.prompt.growing import divide_budget
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.retrieval import MIXED_SECTION, Retrieved
from langchain_ctxbudget.stores import CutRecord


class DetectedTopics(TypedDict, total=False):
    """The ids of the topics and entities that the message is about, declared or learned, with how sure that is."""

    topics: dict[str, float]
    entities: dict[str, float]


class BudgetShares(TypedDict, total=False):
    """The tokens of each layer by its short name.

    A layer that a node leaves out gets its usual share.
    """

    layers: dict[str, NonNegativeInt]
    keep_messages: NonNegativeInt | None
    goes_on: bool
    """True if the prompt continues the last one; else it is written anew."""
    cold: bool
    """True if no cache holds the last prompt any more."""
    afforded_tokens: int | None
    """What it may cost, by what was saved, compared with sending everything."""
    limit_tokens: int
    """The limit of the whole prompt; only a setting changes it."""


class Item(TypedDict, total=False):
    """One item of the background in front of the user's words.

    A node needs to give its text alone.
    """

    text: Required[str]
    id: str
    layer: str
    value: float
    """The item with the least value is taken out first."""


class SummarizedHistory(TypedDict, total=False):
    """Where verbatim history begins, and the lines that stand for what is before it."""

    position: int
    """The number of messages that are not verbatim, but for those `kept`."""
    kept: list[int]
    cleared: int
    """Results of tools before this position are shown in short."""
    summary: list[dict[str, Any]]
    """Lines, of each at least its `text`; one without `first` and `end` stands for all that is not
    verbatim."""
    arc: list[dict[str, Any]]
    strategy: str
    begun: int
    clipped: bool
    waiting: list[str]


_FRAGMENTS = TypeAdapter(tuple[Fragment, ...])


class Channel(NamedTuple):
    """The plain data of one step."""

    name: str
    kind: Any
    written: Callable[[Plan], Any]
    """Returns what a plan has decided."""
    read: Callable[[Plan, Any], Plan]

    def taken(self, plan: Plan, data: object) -> Plan:
        """Returns a plan that is decided as the data say.

        `InputError` where they cannot be read.
        """
        try:
            return self.read(plan, _adapter_of(self.kind).validate_python(data))
        except ValidationError as error:
            wrong = error.errors()[0]
            place = ".".join(map(str, (self.name, *wrong["loc"])))
            raise InputError(
                f"A node has written {wrong['input']!r} to {place!r}: {wrong['msg']}"
            ) from error


_adapter_of = cache(TypeAdapter[Any])  # made when a channel is first read: that takes its time


def _detected(plan: Plan) -> DetectedTopics:
    topics = plan.detected.topics
    entities = plan.detected.entities
    return {
        "topics": {one.id: one.confidence for one in topics},
        "entities": {one.id: one.confidence for one in entities},
    }


def _with_detected(plan: Plan, given: DetectedTopics) -> Plan:
    found = {Layer.TOPICS: given.get("topics", {}), Layer.ENTITIES: given.get("entities", {})}
    return plan.but(
        detected=subjects.named(plan.detected, found, plan.request.settings, plan.request.knowledge)
    )


def _budget(plan: Plan) -> BudgetShares:
    if (allocation := plan.allocation) is None:
        return {}
    layers = {str(layer): tokens for layer, tokens in allocation.tokens.items()}
    flags: BudgetShares = {
        "goes_on": plan.goes_on,
        "cold": plan.cold,
        "afforded_tokens": plan.afforded_tokens,
    }
    return {
        "limit_tokens": plan.limit_tokens,
        "layers": layers,
        "keep_messages": allocation.keep_messages,
        **flags,
    }


def _with_budget(plan: Plan, given: BudgetShares) -> Plan:
    """Divides again if the data decide otherwise than now whether the prompt continues.

    Time may have passed.
    """
    flags = {name: given[name] for name in ("goes_on", "cold", "afforded_tokens") if name in given}
    if plan.allocation is None or any(getattr(plan, name) != flag for name, flag in flags.items()):
        kept = ("detected", "embedded_query", "failures", "uses_known_costs")
        so_far = {name: getattr(plan, name) for name in kept}
        plan = divide_budget(
            Plan.begin(plan.conversation, plan.request).but(
                **so_far, **flags, is_redone=bool(flags)
            )
        )
    allocation = plan.allocated
    required = (Layer.IDENTITY, Layer.MESSAGE)
    layers = {
        name: n
        for name, n in given.get("layers", {}).items()
        if name in allocation.tokens.keys() - required
    }
    keep = given.get("keep_messages", allocation.keep_messages)
    return plan.but(
        allocation=replace(allocation, tokens={**allocation.tokens, **layers}, keep_messages=keep)
    )


def _items(plan: Plan, *, retrieved: bool) -> list[Item]:
    own = tuple(part for part in plan.chosen if (part.layer == Layer.RETRIEVAL) is retrieved)
    made: list[Item] = _FRAGMENTS.dump_python(own, mode="json", exclude_defaults=True)
    return made


def _with_items(plan: Plan, given: Sequence[Item], *, retrieved: bool) -> Plan:
    if retrieved:
        parts = _fragments(plan, given, "found", {str(Layer.RETRIEVAL): MIXED_SECTION})
    else:
        sections = {str(layer): line for layer, line in subjects.SECTIONS.items()}
        sections |= {
            layer.name: subjects.own_section(layer) for layer in plan.request.settings.layers
        }
        parts = _fragments(plan, given, "bundle", sections)
    if (
        plan.fixed is not None
    ):  # in the middle of a turn another background stands in front of its message from now on
        others = tuple(
            part for part in plan.fixed if (part.layer == Layer.RETRIEVAL) is not retrieved
        )
        parts = (*others, *parts) if retrieved else (*parts, *others)
        return plan.with_background(plan.background and replace(plan.background, fragments=parts))
    if retrieved:
        return plan.but(retrieved=Retrieved(parts))
    return plan.but(
        bundles=Bundles(parts, plan.detected.omitted, plan.detected.more_omitted, is_given=True)
    )


def _fragments(
    plan: Plan, given: Sequence[Item], name: str, sections: Mapping[str, str]
) -> tuple[Fragment, ...]:
    order = [*sections]
    least = {"layer": order[0], "reason": Reason.RELEVANT, "tokens": 0}
    filled = [
        {**least, "id": f"{name} {n}", "value": -float(n), **one} for n, one in enumerate(given, 1)
    ]
    if foreign := {str(one["layer"]) for one in filled} - sections.keys():
        raise InputError(
            f"A node has written items of the layers {sorted(foreign)}; here they may be of {order}"
        )
    parts = sorted(_FRAGMENTS.validate_python(filled), key=lambda part: order.index(part.layer))
    clean = fences.as_data
    count = plan.counter.count_text
    lines = [(part, _line(part.text), part.section or sections[part.layer]) for part in parts]
    return tuple(
        replace(
            part, text=text, tokens=count(text), section=clean(section), heading=clean(part.heading)
        )
        for part, text, section in lines
        if text
    )


def _line(text: str) -> str:
    """Returns a text as one item of data; a text that is an item already stays as it is."""
    first, *more = text.splitlines() or [""]
    if (
        first.startswith(("- ", "# ", "["))
        and text.endswith("\n")
        and all(it[:1] in ("", " ") for it in more)
    ):
        return fences.as_data(text)
    return fences.item("", text.strip()) if text.strip() else ""


def _history(plan: Plan) -> Any:  # noqa: ANN401 - as its channel has it
    return _record(plan.history.record) if plan.history.record else {"position": plan.history.cut}


def _record(cut: CutRecord) -> dict[str, Any]:
    return cut.model_dump(mode="json", include={*SummarizedHistory.__annotations__})


def _with_summary(plan: Plan, given: dict[str, Any]) -> Plan:
    """Takes over a cut that the conversation knows; any other one is a compaction step."""
    conversation = plan.conversation
    going = plan.history.record
    if going is not None and _record(going) == given:
        return plan
    cut = conversation.cuts.get(plan.cut_key)
    is_new = cut is None or _record(cut) != given
    if cut is None or is_new:
        end = len(conversation.entries)
        position = compact.safe_at(conversation.safe, min(given.get("position", 0), end))
        cleared = min(given.get("cleared", 0), end)
        read = max(position, cleared)
        least = {"strategy": "compacted" if read else "full", "begun": end if plan.grows else 0}
        own = {"position": position, "cleared": cleared, "cut_key": plan.cut_key}
        own |= {name: _lines(given.get(name, ()), position) for name in ("summary", "arc")}
        own |= {"kept": sorted(at for at in {*given.get("kept", ())} if 0 <= at < position)}
        own |= {"digest": conversation.entries[read - 1].digest if read else ""}
        cut = CutRecord.model_validate(
            {**least, **given, **own, "preserved": conversation.table.preserved(position)}
        )
    view = history_plan(plan).view(Decision(cut.position, cut.cleared, record=cut))
    return with_history(plan, replace(view, is_rebuilt=is_new))


def _lines(given: Iterable[Any], end: int) -> list[dict[str, Any]]:
    lines = [{"position": 0, "heading": "", "first": 0, "end": end, **one} for one in given]
    return [
        {**one, "text": _line(one.get("text", "")), "heading": fences.as_data(one["heading"])}
        for one in lines
    ]


_ITEMS = list[dict[str, Any]]
CHANNELS: Mapping[str, Channel] = {
    "detect_topics": Channel("detected", DetectedTopics, _detected, _with_detected),
    "compute_budget": Channel("budget", BudgetShares, _budget, _with_budget),
    "fetch_bundles": Channel(
        "bundles", _ITEMS, partial(_items, retrieved=False), partial(_with_items, retrieved=False)
    ),
    "compact_history": Channel("history", SummarizedHistory, _history, _with_summary),
    "retrieve": Channel(
        "retrieved", _ITEMS, partial(_items, retrieved=True), partial(_with_items, retrieved=True)
    ),
}
"""The channel of each step before the last one."""
