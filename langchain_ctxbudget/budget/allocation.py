"""The layers of a prompt, and the procedure that divides a budget between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple, Protocol, Self, runtime_checkable

Depth = Literal["minimal", "standard", "deep"]
Emphasis = Literal["recall", "balanced", "cache"]
Layout = Literal["cache_first", "system_first"]
"""The place of content chosen for a turn: in front of its human message, or in the system
message."""
MEMORIES_HEADING = "## What you know about this user\n"
"""The line above facts about the user, among the preferences."""
MOST_EXCHANGES = 10
"""The most exchanges that a situation tells of."""


class Layer(StrEnum):
    """A layer of the package: its short name in data, its name for readers, and its colours.

    A report is looked at long after its prompt, so colours go by name. Layers that are none of
    these, such as an application's own, have their names as titles and take turns with colours.
    """

    full_name: str
    """What a reader calls it: in reports, plots and the dashboard."""
    colour: str
    """Its colour on a light ground."""
    colour_on_dark: str
    """The same hue, lighter, for a dark ground: a terminal, or a page in dark."""

    def __new__(
        cls, value: str, full_name: str = "", colour: str = "", colour_on_dark: str = ""
    ) -> Self:
        """Takes the short name, the name for readers and the two colours."""
        layer = str.__new__(cls, value)
        layer._value_ = value
        layer.full_name = full_name
        layer.colour = colour
        layer.colour_on_dark = colour_on_dark
        return layer

    IDENTITY = "L0", "System prompt", "#555555", "#9AA1A9"
    PREFERENCES = "L1", "Rules and preferences", "#A375E0", "#B791EC"
    TOPICS = "L2", "Topics", "#428A56", "#5FAE75"
    ENTITIES = "L3", "People and things", "#EBCD47", "#EBCD47"
    ARC = "L4", "Where things stand", "#75CBF0", "#75CBF0"
    RETRIEVAL = "L5", "Looked up", "#E8702A", "#F08A4B"
    HISTORY = "L6", "History", "#1F4FA3", "#6F9AE6"
    MESSAGE = "L7", "This turn", "#8A1212", "#D76A6A"
    TOOLS = "L8", "Tools", "#2F8F8B", "#55B5B0"


TITLES: dict[str, str] = {layer: layer.full_name for layer in Layer}


class Status(StrEnum):
    """The outcome for a candidate item."""

    INCLUDED = "included"
    SHRUNK = "shrunk"
    OMITTED = "omitted"


class ExplainedCode(StrEnum):
    """A code that a report tells; `meaning` says it in words."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Takes the code and its meaning."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code


class Reason(ExplainedCode):
    """Why an item was included, shrunk or omitted."""

    REQUIRED = (
        "required",
        "always sent: system prompt, current message and the newest calls with their results",
    )
    CONFIGURED = "configured", "given in the settings, and it fits"
    DETECTED = "detected", "the current message names it"
    RECENT = "recent", "among the newest messages, which are sent word for word"
    SUMMARY = "summary", "stands for older messages that are not sent themselves"
    PINNED = "pinned", "kept word for word because the application pinned it"
    IMPORTANT = (
        "important",
        "kept word for word because it says most, by the setting `keep_important`",
    )
    SHORTENED = (
        "shortened",
        "sent in short: too large, an old result of a tool, or only to be summarised",
    )
    DROPPED = "dropped", "left out because the application asked for it"
    RELEVANT = "relevant", "found for the current message, and worth its tokens"
    SUPERSEDED = "superseded", "a later statement in this prompt replaces it, and it says so"
    AS_SENT = "as_sent", "chosen for an earlier message, and sent with it again"
    SUMMARIZED = "summarized", "not sent word for word; a summary in this prompt has read it"
    COMPACTED = (
        "compacted",
        "the provider has compacted the conversation itself, and ignores what stood before that",
    )
    NO_ROOM = "no_room", "does not fit into what its layer was given"
    OVER_IDEAL = "over_ideal", "does not fit into the `ideal_tokens` of its layer"
    RANKED_LOWER = "ranked_lower", "others are worth more per token for the current message"
    LOW_RELEVANCE = "low_relevance", "has too little to do with the current message"
    BOUND = "bound", "a tool that the model can call; all of them fit"
    USED_BEFORE = "used_before", "a tool that this conversation has used, so it stays bound"
    NAMED = "named", "a tool that the system prompt names"
    FITS_QUESTION = "fits_question", "a tool that fits the message"
    FINDS_TOOLS = "finds_tools", "lets the model find and call the tools that are not bound"
    NAMES_TOOLS = "names_tools", "names the tools that are not bound, so that the model knows them"
    LOADED_BY_PROVIDER = "loaded_by_provider", "a deferred tool: the provider loads it when asked"
    TO_BE_FOUND = "to_be_found", "a tool that is not bound: `find_tools` finds it"
    NOT_NEEDED_YET = "not_needed_yet", "offered once the prompt leaves something out"
    STANDING_RULE = "standing_rule", "a rule that holds until the user takes it back"
    REMEMBERED = "remembered", "known about the user, and shown in this conversation"
    NEXT_SNAPSHOT = (
        "next_snapshot",
        "learned since the last rebuilt prompt; the next rebuilt one shows it",
    )
    NOT_COMPILED = "not_compiled", "known, but its text is still being compiled in the background"
    NOT_DETECTED = "not_detected", "the current message does not name it"
    SWITCHED_OFF = "switched_off", "a setting leaves it out"
    USAGE_LIMIT = (
        "usage_limit",
        "little of a usage limit is left, and others count more; `force_include` lets it in",
    )
    REPAIRED = "repaired", "cannot be sent as it stands; the repairs say why"
    MEDIA_LIMIT = "media_limit", "too large for the provider, or more than it takes in one request"
    CLIPPED = "clipped", "larger than the room there is: its middle is left out"
    COMPRESSED = (
        "compressed",
        "made shorter or taken out as a last resort, as the exact count was over the budget",
    )
    PRUNED = "pruned", "taken out again, as the exact count was over the budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What a quoted part of a document is cited by."""

    title: str
    source: str = ""
    """A path, an address, or any name that the application gave the document."""
    number: str = ""
    """The number of its chunk, from 1 (`3`), or of chunks in a row (`3-5`); empty for the whole
    document and for its summary."""
    page: str = ""
    """Its page, or pages (`7-8`), where the document has any."""

    @property
    def text(self) -> str:
        """Title, source, number and page in one line."""
        source = f"({self.source})" if self.source else ""
        number = f"#{self.number}" if self.number else ""
        page = f"page {self.page}" if self.page else ""
        return " ".join(filter(None, (self.title, source, number, page)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """One item as text: lines that begin with a mark and end with a line break."""

    layer: str
    """A `Layer`, or the name of a custom layer."""
    id: str
    text: str
    tokens: int
    reason: Reason
    status: Status = Status.INCLUDED
    section: str = ""
    """A line above the first fragment of its layer."""
    heading: str = ""
    """A line above it, once for all fragments in a row that share it."""
    value: float = 0.0
    """Its worth; the least is taken out first."""
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    """The scores by which it was found; those of a quote's ranking are in `Retrieved`."""
    transient: bool = False
    """True for what is shown with its own turn alone; later prompts go on without it."""
    expendable: bool = False
    """True for what goes first where the window is tight."""
    source: str = ""
    citation: Citation | None = None
    """Of a part of a document."""
    covers: tuple[int, int] = (0, 0)
    """The messages behind a line of a summary: the position of the first, and the one after the
    last."""

    @property
    def is_quoted_whole(self) -> bool:
        """True for a retrieved item that stands there word for word."""
        return self.layer == Layer.RETRIEVAL and self.status is Status.INCLUDED


class Exchange(NamedTuple):
    """A user's message and everything up to the next one."""

    messages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The demand of one layer; all sizes in tokens."""

    layer: str
    min_tokens: int
    ideal_tokens: int
    max_tokens: int
    """The most it can use while others want the tokens too."""
    priority: int
    """0 to 100; higher comes first."""
    elasticity: float = 0.0
    """0 (rigid) to 1: how willing it is to shrink."""
    usable_tokens: int | None = None
    """The most it can use of tokens that nobody else wants; None: `max_tokens`."""

    @property
    def limit_tokens(self) -> int:
        """The most it can use, also of tokens that nobody else wants."""
        return max(self.max_tokens, self.usable_tokens or 0)

    @property
    def keenness(self) -> Fraction:
        """Its weight against other layers."""
        return max(1, self.priority) * (1 - Fraction(self.elasticity) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that an allocation depends on; all sizes in tokens."""

    total_tokens: int
    overhead_tokens: int
    """Response format, reply priming, fences: what no layer owns."""
    identity_tokens: int
    preferences_tokens: int
    message_tokens: int
    """The part of the current turn that must be sent, with the room kept for its next rounds."""
    message_count: int
    history_tokens: int
    rule_tokens: int = 0
    """The part of `preferences_tokens` that standing rules take: they are always sent."""
    memory_tokens: int = 0
    learned_tokens: int = 0
    """The part of `memory_tokens` that was learned from conversations."""
    keep_tokens: int = 0
    """The newest messages that stay verbatim."""
    pinned_tokens: int = 0
    exchanges: tuple[Exchange, ...] = ()
    """The newest exchanges, newest first, at most `MOST_EXCHANGES`."""
    topic_count: int = 0
    topic_tokens: int = 0
    """The size of the texts of the detected topics; the same for entities below."""
    entity_count: int = 0
    entity_tokens: int = 0
    custom: tuple[LayerSpec, ...] = ()
    depth: Depth = "standard"
    prioritize_history: bool = True
    emphasis: Emphasis = "balanced"
    grown_tokens: int = 0
    """What the prompt may grow to before it is rebuilt, where that is more than the total."""
    tools_tokens: int = 0
    """The schemas of the tools that are bound, and the names of those that are not."""

    @property
    def required(self) -> dict[str, int]:
        """The tokens of the layers that are sent whole, whatever a strategy says."""
        return {
            Layer.IDENTITY: self.identity_tokens,
            Layer.MESSAGE: self.message_tokens,
            Layer.TOOLS: self.tools_tokens,
        }

    @property
    def free_tokens(self) -> int:
        """The tokens left for layers that can give way."""
        return max(0, self.total_tokens - self.overhead_tokens - sum(self.required.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The tokens that every layer may use, and the demands behind them."""

    strategy: str
    total_tokens: int
    tokens: dict[str, int]
    """By layer: a `Layer`, or the name of a custom layer."""
    specs: tuple[LayerSpec, ...]
    fits_whole: bool
    reserve_tokens: int = 0
    keep_messages: int | None = None
    """The newest messages that stay verbatim; None: as the settings say."""

    def spec_of(self, layer: str) -> LayerSpec:
        """Returns the demand behind a layer's tokens.

        A layer that takes no part in the division, such as the current turn, has priority 100.
        """
        rigid = LayerSpec(layer, 0, 0, self.tokens.get(layer, 0), priority=100)
        return next((spec for spec in self.specs if spec.layer == layer), rigid)


@runtime_checkable
class AllocationStrategy(Protocol):
    """A rule that divides a budget.

    Write your own with `share_out` (`docs/reference/layers.md` has one).
    """

    @property
    def name(self) -> str:
        """Its name in reports."""

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget; a pure function of the situation."""


def share_out(
    name: str,
    situation: Situation,
    specs: Sequence[LayerSpec],
    *,
    fits_whole: bool,
    reserve_tokens: int = 0,
    keep_messages: int | None = None,
) -> Allocation:
    """Divides the free tokens between layers.

    A layer that is not named, or a custom one below its floor, gets nothing.

    Args:
        name: The strategy's name.
        situation: What the budget is divided in.
        specs: The demands of the layers.
        fits_whole: True if the history goes in whole.
        reserve_tokens: What stays free.
        keep_messages: The newest messages that stay verbatim; None: as the settings say.
    """
    reserve = min(max(0, reserve_tokens), situation.free_tokens)
    return Allocation(
        strategy=name,
        total_tokens=situation.total_tokens,
        tokens={
            **dict.fromkeys(Layer, 0),
            **dict.fromkeys((spec.layer for spec in situation.custom), 0),
            **_divided_above_floors(situation.custom, specs, situation.free_tokens - reserve),
            **situation.required,
        },
        specs=tuple(specs),
        fits_whole=fits_whole,
        reserve_tokens=reserve,
        keep_messages=keep_messages,
    )


def _divided_above_floors(
    custom: Sequence[LayerSpec], specs: Sequence[LayerSpec], available_tokens: int
) -> dict[str, int]:
    """Returns the grants of layers.

    A custom layer that would be below its floor leaves its tokens to the others.
    """
    floors = {spec.layer: spec.min_tokens for spec in custom}
    grants = divide(specs, available_tokens)
    too_small = {layer for layer, tokens in grants.items() if tokens < floors.get(layer, 0)}
    if not too_small:
        return grants
    others = [spec for spec in specs if spec.layer not in too_small]
    return {**dict.fromkeys(too_small, 0), **divide(others, available_tokens)}


def divide(specs: Sequence[LayerSpec], available_tokens: int) -> dict[str, int]:
    """Divides tokens between layers; their order does not matter.

    Floors first, the keenest layers' before the others: one whose floor does not fit gets nothing.
    Then every layer grows towards its ideal, as fast as `(ideal - min) * keenness`; the rest goes
    to the highest priorities. More budget never means less for a layer (floors permitting), nor
    does a higher priority or ideal of its own.
    """
    left = max(0, available_tokens)
    grants = {spec.layer: 0 for spec in specs}

    growing: list[LayerSpec] = []
    for spec in sorted(specs, key=lambda spec: (-spec.keenness, spec.layer)):
        if spec.min_tokens <= left:
            grants[spec.layer] = spec.min_tokens
            left -= spec.min_tokens
            growing.append(spec)

    for layer, growth in _growth_to_ideals(growing, left).items():
        grants[layer] += growth
    left -= sum(spec.ideal_tokens - spec.min_tokens for spec in growing)

    by_priority = sorted(growing, key=lambda spec: (-spec.priority, spec.layer))
    up_to_maximum = [(spec.layer, spec.max_tokens) for spec in by_priority]
    up_to_limit = [(spec.layer, spec.limit_tokens) for spec in by_priority]
    for layer, most in up_to_maximum + up_to_limit:
        extra = max(0, min(left, most - grants[layer]))
        grants[layer] += extra
        left -= extra
    return grants


def _growth_to_ideals(specs: Sequence[LayerSpec], tokens: int) -> dict[str, int]:
    """Returns how far layers grow together from floor towards ideal.

    In `specs`, the keenest layers come first.
    """
    demands = {spec.layer: spec.ideal_tokens - spec.min_tokens for spec in specs}
    if sum(demands.values()) <= tokens:
        return demands

    left = tokens
    keenness = {spec.layer: spec.keenness for spec in specs}
    weights = {layer: demand * keenness[layer] for layer, demand in demands.items()}
    total_weight = sum(weights.values())
    for layer, demand in demands.items():
        if keenness[layer] * left < total_weight:
            break
        left -= demand  # it gets all it wants; the rest of its share is for the others
        total_weight -= weights[layer]
    speed = left / total_weight
    return {layer: min(demand, int(weights[layer] * speed)) for layer, demand in demands.items()}
