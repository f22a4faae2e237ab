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

from langchain_ctxbudget.budget import Fragment, Reason
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.history import CutChoice, history_view, safe_at
from langchain_ctxbudget.knowledge import Detected, with_subjects
from langchain_ctxbudget.layers import Place, is_required, place_of
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.prompt.budgeting import history_plan, with_history
from langchain_ctxbudget.prompt.growing import divide_budget
from langchain_ctxbudget.prompt.mode import Growth
from langchain_ctxbudget.prompt.plan import Findings, Plan
from langchain_ctxbudget.report import Cause, Mode
from langchain_ctxbudget.stores import CutRecord


class DetectedTopics(TypedDict, total=False):
    """The ids of the topics and entities that the message is about, each with how sure that is."""

    topics: dict[str, float]
    entities: dict[str, float]


class BudgetShares(TypedDict, total=False):
    """The tokens of each layer by its short name.

    A layer that a node leaves out gets its usual share.
    """

    layers: dict[str, NonNegativeInt]
    keep_messages: NonNegativeInt | None
    goes_on: bool
    """True if the prompt extends the last one; else it is rebuilt."""
    cause: str | None
    """Why it is so; for the report."""
    cold: bool
    """True if no cache holds the last prompt any more."""
    afforded_tokens: int | None
    """What a rebuild may cost, by what was saved so far, compared with sending everything."""
    limit_tokens: int
    """The limit of the whole prompt; only a setting changes it."""
    tools: list[str] | None
    """The names of the tools to bind, where the prompt chooses them."""


class Item(TypedDict, total=False):
    """One item of the background in front of the user's words; only its text is required."""

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
    """Lines with at least a `text`; one without `first` and `end` stands for all messages that are
    not verbatim."""
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
    data_of: Callable[[Plan], Any]
    """Returns what a plan has decided, as data."""
    read: Callable[[Plan, Any], Plan]
    """Returns a plan that is decided as valid data say."""

    def taken(self, plan: Plan, data: object) -> Plan:
        """Returns a plan that is decided as data say.

        Raises:
            InputError: the data cannot be read.
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


# Topics and entities


def _detected(plan: Plan) -> DetectedTopics:
    detected = plan.findings.detected
    return {
        "topics": {topic.id: topic.confidence for topic in detected.topics.subjects},
        "entities": {entity.id: entity.confidence for entity in detected.entities.subjects},
    }


def _with_detected(plan: Plan, data: DetectedTopics) -> Plan:
    settings = plan.request.settings
    knowledge = plan.request.user.knowledge
    detected = plan.findings.detected
    topics = with_subjects(detected.topics, data.get("topics", {}), settings.topics, knowledge)
    entities = with_subjects(
        detected.entities, data.get("entities", {}), settings.entities, knowledge
    )
    detected = Detected(topics=topics, entities=entities)
    return replace(plan, findings=replace(plan.findings, detected=detected))


# The budget


def _budget(plan: Plan) -> BudgetShares:
    allocation = plan.allocation
    if allocation is None:
        return {}
    return {
        "limit_tokens": plan.limit_tokens,
        "layers": {str(layer): tokens for layer, tokens in allocation.tokens.items()},
        "keep_messages": allocation.keep_messages,
        "goes_on": plan.growth.mode.extends_last,
        "cause": plan.growth.cause.value if plan.growth.cause else None,
        "cold": plan.growth.is_cold,
        "afforded_tokens": plan.growth.afforded_tokens,
        "tools": _chosen_tools(plan),
    }


def _chosen_tools(plan: Plan) -> list[str] | None:
    """Returns the names of the tools to bind; None where these are all that were given."""
    return [*plan.tools.names] if plan.request.binds_chosen_tools else None


def _with_budget(plan: Plan, data: BudgetShares) -> Plan:
    """Takes over the shares of the layers.

    The budget is divided again if the data decide otherwise than now whether the prompt extends the
    last one, as time may have passed, or which tools are bound.
    """
    if plan.allocation is None or not _agrees(plan, data):
        begun = replace(
            Plan.begin(plan.conversation, plan.request),
            growth=_growth_of(data),
            findings=Findings(
                detected=plan.findings.detected,
                embedded_query=plan.findings.embedded_query,
                tool_scores=plan.findings.tool_scores,
            ),
            failures=plan.failures,
            uses_known_costs=plan.uses_known_costs,
        )
        plan = divide_budget(begun)

    allocation = plan.allocated
    tokens = dict(allocation.tokens)
    for layer, layer_tokens in data.get("layers", {}).items():
        if layer in tokens and not is_required(layer):
            tokens[layer] = layer_tokens
    keep = data.get("keep_messages", allocation.keep_messages)
    return replace(
        plan,
        growth=_with_cause(plan.growth, data),
        allocation=replace(allocation, tokens=tokens, keep_messages=keep),
    )


def _decisions(growth: Growth) -> dict[str, Any]:
    """Returns what the data of a budget say of a prompt's mode."""
    return {
        "goes_on": growth.mode.extends_last,
        "cold": growth.is_cold,
        "afforded_tokens": growth.afforded_tokens,
    }


def _agrees(plan: Plan, data: BudgetShares) -> bool:
    """Tells whether data decide nothing else about mode and tools than a plan has."""
    tools = data.get("tools")
    if tools is not None and tools != _chosen_tools(plan):
        return False
    return all(
        data[name] == decision  # type: ignore[literal-required]
        for name, decision in _decisions(plan.growth).items()
        if name in data
    )


def _growth_of(data: BudgetShares) -> Growth:
    """Returns the mode that data decide on; it is found out where they say nothing of it."""
    names = data.get("tools")
    tools = None if names is None else tuple(names)
    if not any(name in data for name in _decisions(Growth())):
        return Growth(tools=tools)
    mode = Mode.EXTENDED if data.get("goes_on") else Mode.REBUILT
    return Growth(
        mode=mode,
        is_cold=data.get("cold", True),
        is_given=True,
        afforded_tokens=data.get("afforded_tokens"),
        tools=tools,
    )


def _with_cause(growth: Growth, data: BudgetShares) -> Growth:
    """Returns a mode with the cause that data tell of it.

    Whoever has decided knows it: for a process that comes later, a cache may have gone cold.
    """
    told = data.get("cause")
    for cause in Cause:
        if cause.value == told and growth.mode.extends_last is data.get("goes_on"):
            return replace(growth, cause=cause)
    return growth


# The items of the background


def _items(plan: Plan, *, place: Place) -> list[Item]:
    """Returns the items of a part of the background: its quotes, or those of its other layers."""
    parts = tuple(part for part in plan.background_items if place_of(part.layer) is place)
    items: list[Item] = _FRAGMENTS.dump_python(parts, mode="json", exclude_defaults=True)
    return items


def _with_items(plan: Plan, data: Sequence[Item], *, place: Place, name: str) -> Plan:
    """Puts items in place of those of a part of the background.

    `name` begins the ids of items that have none.
    """
    layers = [layer for layer in plan.layers if layer.place is place]
    parts = _fragments(plan, data, name, {str(layer.name): layer.section for layer in layers})
    if plan.fixed is not None:
        others = [part for part in plan.fixed if place_of(part.layer) is not place]
        in_order = sorted((*others, *parts), key=lambda part: place_of(part.layer))
        return _with_fixed(plan, tuple(in_order))
    view = plan.view
    for layer in layers:
        of_layer = tuple(part for part in parts if part.layer == layer.name)
        plan = plan.with_chosen(layer, layer.given(view, of_layer))
    return plan


def _with_fixed(plan: Plan, parts: tuple[Fragment, ...]) -> Plan:
    """Puts another background in front of the message, from now on in the middle of a turn."""
    background = plan.background
    if background is not None:
        background = replace(background, fragments=parts)
    return plan.with_background(background)


def _fragments(
    plan: Plan, items: Sequence[Item], name: str, sections: Mapping[str, str]
) -> tuple[Fragment, ...]:
    """Returns items as fragments of the background, as safe and counted as any other.

    Args:
        plan: the plan that they are for.
        items: what was written, the most valuable first unless they say otherwise.
        name: begins the ids of those without.
        sections: the headings of the layers that they may be of, in the order of the layers; the
            first layer is that of an item which names none.
    """
    order = [*sections]
    complete: list[dict[str, Any]] = []
    for number, item in enumerate(items, 1):
        defaults = {
            "layer": order[0],
            "reason": Reason.RELEVANT,
            "tokens": 0,
            "id": f"{name} {number}",
            "value": -float(number),
        }
        complete.append({**defaults, **item})
    foreign = {str(item["layer"]) for item in complete} - sections.keys()
    if foreign:
        raise InputError(
            f"A node has written items of the layers {sorted(foreign)}; here they may be of {order}"
        )

    parts = _FRAGMENTS.validate_python(complete)
    fragments: list[Fragment] = []
    for part in sorted(parts, key=lambda part: order.index(part.layer)):
        text = _line(part.text)
        if text:
            fragment = replace(
                part,
                text=text,
                tokens=plan.counter.count_text(text),
                section=fences.as_data(part.section or sections[part.layer]),
                heading=fences.as_data(part.heading),
            )
            fragments.append(fragment)
    return tuple(fragments)


def _line(text: str) -> str:
    """Returns a text as one item of data; a text that is an item already stays as it is."""
    if _is_item(text):
        return fences.as_data(text)
    return fences.item("", text.strip()) if text.strip() else ""


def _is_item(text: str) -> bool:
    """Tells whether a text begins and ends as an item does, with further lines indented."""
    if not text.startswith(("- ", "# ", "[")) or not text.endswith("\n"):
        return False
    _, *further_lines = text.splitlines()
    return all(line[:1] in ("", " ") for line in further_lines)


# The history


def _history(plan: Plan) -> dict[str, Any]:
    record = plan.history.record
    return {"position": plan.history.cut} if record is None else _cut_data(record)


def _cut_data(cut: CutRecord) -> dict[str, Any]:
    return cut.model_dump(mode="json", include={*SummarizedHistory.__annotations__})


def _with_history(plan: Plan, data: dict[str, Any]) -> Plan:
    """Takes over a cut that the conversation knows; any other one makes the prompt a rebuild."""
    record = plan.history.record
    if record is not None and _cut_data(record) == data:
        return plan
    cut = plan.conversation.cuts.get(plan.cut_key)
    is_new = cut is None or _cut_data(cut) != data
    if cut is None or is_new:
        cut = _cut_of(plan, data)
    view = history_view(history_plan(plan), CutChoice(cut.position, cut.cleared, record=cut))
    return with_history(plan, replace(view, is_rebuilt=is_new))


def _cut_of(plan: Plan, data: dict[str, Any]) -> CutRecord:
    """Returns the cut that data describe, at a safe place within the conversation."""
    conversation = plan.conversation
    end = len(conversation.entries)
    position = safe_at(conversation.safe, min(data.get("position", 0), end))
    position = max(conversation.first, position)
    cleared = min(data.get("cleared", 0), end)
    read_until = max(position, cleared)
    kept = [at for at in {*data.get("kept", ())} if 0 <= at < position]
    fields = {
        "strategy": "compacted" if read_until else "full",
        "begun": end if plan.grows else 0,
        **data,
        "position": position,
        "cleared": cleared,
        "cut_key": plan.cut_key,
        "summary": _lines(data.get("summary", ()), position),
        "arc": _lines(data.get("arc", ()), position),
        "kept": sorted(kept),
        "digest": conversation.entries[read_until - 1].digest if read_until else "",
        "preserved": conversation.table.preserved(position),
    }
    return CutRecord.model_validate(fields)


def _lines(data: Iterable[Any], end: int) -> list[dict[str, Any]]:
    """Returns the lines of a summary or an arc, complete and safe."""
    lines: list[dict[str, Any]] = []
    for given in data:
        line = {"position": 0, "heading": "", "first": 0, "end": end, **given}
        line["text"] = _line(given.get("text", ""))
        line["heading"] = fences.as_data(line["heading"])
        lines.append(line)
    return lines


_ITEMS = list[dict[str, Any]]
CHANNELS: Mapping[str, Channel] = {
    "detect_topics": Channel("detected", DetectedTopics, _detected, _with_detected),
    "compute_budget": Channel("budget", BudgetShares, _budget, _with_budget),
    "fetch_bundles": Channel(
        "bundles",
        _ITEMS,
        partial(_items, place=Place.BACKGROUND),
        partial(_with_items, place=Place.BACKGROUND, name="bundle"),
    ),
    "compact_history": Channel("history", SummarizedHistory, _history, _with_history),
    "retrieve": Channel(
        "retrieved",
        _ITEMS,
        partial(_items, place=Place.QUOTES),
        partial(_with_items, place=Place.QUOTES, name="found"),
    ),
}
"""The channel of each step before the last one."""
