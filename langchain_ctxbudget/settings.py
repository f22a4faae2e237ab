"""What a developer can set; frozen, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

from langchain_ctxbudget.core.allocation import (
    AllocationStrategy,
    Depth,
    ElasticAllocation,
    Emphasis,
    LayerSpec,
    strategy_of,
)
from langchain_ctxbudget.core.assembly import Layout
from langchain_ctxbudget.core.candidates import SOURCES, Source
from langchain_ctxbudget.core.layers import TITLES, Layer
from langchain_ctxbudget.core.style import Personality, ResponseStyle
from langchain_ctxbudget.core.tiers import Forced, UsageLimits, require_forced
from langchain_ctxbudget.errors import InvalidSettingsError

Oversized = Literal["error", "clip"]
CacheMarkers = Literal["none", "anthropic"]

T = TypeVar("T")

ELASTIC = ElasticAllocation()
MOST_PRIORITY = 100


def _declared(kind: type[T], values: object, setting: str) -> tuple[T, ...]:
    """Turn mappings into `kind`, so that settings can come from JSON."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InvalidSettingsError(f"{setting} must be a list of {kind.__name__}, not {values!r}")
    result: list[T] = []
    for index, value in enumerate(values):
        if isinstance(value, kind):
            result.append(value)
        elif isinstance(value, Mapping):
            try:
                result.append(kind(**value))
            except TypeError as error:
                raise InvalidSettingsError(f"{setting}[{index}]: {error}") from error
        else:
            raise InvalidSettingsError(
                f"{setting}[{index}] must be a {kind.__name__} or a mapping of its fields, not {type(value).__name__}"
            )
    return tuple(result)


def _require_text(value: object, setting: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidSettingsError(f"{setting} must be a non-empty string, not {value!r}")


def _strings(value: object, setting: str) -> tuple[str, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidSettingsError(f"{setting} must be a list of strings, not {value!r}")
    result = tuple(value)
    for index, text in enumerate(result):
        _require_text(text, f"{setting}[{index}]")
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that the application declares, with what should be known when it comes up.

    Example:
        >>> Topic(label="Billing", aliases=("invoice",), context="Invoices go out on the 1st.").label
        'Billing'
    """

    label: str
    """Its name; also detected when it stands in a message."""
    context: str
    """What goes into the prompt when it is detected."""
    aliases: tuple[str, ...] = ()
    """Other words for it."""

    def __post_init__(self) -> None:
        _require_text(self.label, "Topic.label")
        _require_text(self.context, "Topic.context")
        object.__setattr__(self, "aliases", _strings(self.aliases, "Topic.aliases"))

    @property
    def names(self) -> tuple[str, ...]:
        """Every word for it, its label first."""
        return (self.label, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A person, project, organisation or tool that the application declares.

    Example:
        >>> Entity(name="Ada", type="person", context="Ada runs the billing team.").names
        ('Ada',)
    """

    name: str
    """Its name; also detected when it stands in a message."""
    context: str
    """What goes into the prompt when it is detected."""
    type: str = "concept"
    """`person`, `project`, `organization`, `tool`, `concept` or any other word."""
    aliases: tuple[str, ...] = ()
    """Other names for it."""

    def __post_init__(self) -> None:
        _require_text(self.name, "Entity.name")
        _require_text(self.context, "Entity.context")
        _require_text(self.type, "Entity.type")
        object.__setattr__(self, "aliases", _strings(self.aliases, "Entity.aliases"))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of it, the first one first."""
        return (self.name, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRequest:
    """What a layer of the application's own is asked for."""

    query: str
    """The words of the current turn's human message."""
    budget_tokens: int
    """What the layer may cost, its heading included; it is filled with the first items that fit."""
    user_id: str
    conversation_id: str


LayerItems: TypeAlias = Sequence[str] | Callable[[LayerRequest], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomLayer:
    """A layer of the application's own: open files, the weather, a ticket; part of the volatile zone.

    Every item is one entry of the layer: as many as fit are taken in the given order, and the first one that does not
    fit is shrunk to its first sentences where that is possible. Where the function fails, the layer is empty and
    the report says so. A function is called once per assembly, in a worker thread under async.

    Raises:
        InvalidSettingsError: sizes that are not in order, or a name that is taken.

    Example:
        >>> CustomLayer(name="open files", items=["main.py: print('hi')"], ideal_tokens=800).max_tokens
        800
    """

    name: str
    """What it is called in reports; its heading in the prompt, too, unless there is another one."""
    items: LayerItems
    """Its items, most important first, or a function that is told the budget and gives them."""
    ideal_tokens: int
    """What it would like, in tokens."""
    min_tokens: int = 0
    """Below this, in tokens, it is left out."""
    max_tokens: int | None = None
    """What it can use at most, in tokens; None: `ideal_tokens`."""
    priority: int = 70
    """0 to 100; topics have 70, entities 65, retrieval 75, history 90."""
    elasticity: float = 0.5
    """0 (rigid) to 1: how willing it is to shrink."""
    heading: str = ""
    """What stands above its items; default: its name."""

    def __post_init__(self) -> None:
        _require_text(self.name, "CustomLayer.name")
        taken = {*(layer.casefold() for layer in Layer), *(title.casefold() for title in TITLES.values())}
        if self.name.casefold() in taken or not self.name.isprintable():
            raise InvalidSettingsError(f"CustomLayer.name {self.name!r} is a layer of the package, or not one line")
        if not isinstance(self.heading, str):
            raise InvalidSettingsError(f"CustomLayer.heading must be a string, not {self.heading!r}")
        _require_count(self.min_tokens, "CustomLayer.min_tokens", minimum=0)
        _require_count(self.ideal_tokens, "CustomLayer.ideal_tokens", minimum=0)
        if self.max_tokens is None:
            object.__setattr__(self, "max_tokens", self.ideal_tokens)
        _require_count(self.max_tokens, "CustomLayer.max_tokens", minimum=0)
        if not self.min_tokens <= self.ideal_tokens <= (self.max_tokens or 0):
            raise InvalidSettingsError(
                f"CustomLayer {self.name!r} needs min_tokens <= ideal_tokens <= max_tokens, not {self.min_tokens}, "
                f"{self.ideal_tokens}, {self.max_tokens}"
            )
        _require_count(self.priority, "CustomLayer.priority", minimum=0)
        if self.priority > MOST_PRIORITY:
            raise InvalidSettingsError(f"CustomLayer.priority must be 0 to {MOST_PRIORITY}, not {self.priority}")
        if not isinstance(self.elasticity, int | float) or not 0 <= self.elasticity <= 1:
            raise InvalidSettingsError(f"CustomLayer.elasticity must be from 0 to 1, not {self.elasticity!r}")
        if not callable(self.items):
            object.__setattr__(self, "items", _strings(self.items, "CustomLayer.items"))

    @property
    def spec(self) -> LayerSpec:
        """What it wants, for the strategies."""
        return LayerSpec(
            layer=self.name,
            min_tokens=self.min_tokens,
            ideal_tokens=self.ideal_tokens,
            max_tokens=self.max_tokens or 0,
            priority=self.priority,
            elasticity=self.elasticity,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """How much may go into a prompt, and what the developer wants in it.

    Raises:
        InvalidSettingsError: a value outside its range; the message names the range.

    Example:
        >>> ContextSettings(max_context_tokens=8_000, preferences=["Answer briefly."]).preferences
        ('Answer briefly.',)
    """

    max_context_tokens: int = 12_000
    """The most that messages, tool schemas and response format together may cost, in tokens."""
    window_tokens: int | None = None
    """The model's window, in tokens, where neither its profile nor its server tells; None: not known."""
    output_reserve_tokens: int | None = None
    """Kept free in the model's window for the answer, in tokens; None: what the model says, else nothing."""
    allocation: AllocationStrategy | str | Mapping[str, Any] = ELASTIC
    """How the budget is divided: `"elastic"`, `"ratio"`, `"fixed"`, `"dynamic"`, `"prioritized"`, a mapping such as
    `{"strategy": "ratio", "memory": 0.35, "history": 0.35, "reserve": 0.3}`, or a strategy of your own."""
    oversized_message: Oversized = "error"
    """What happens to a user's message that does not fit: an error, or head and tail around a marker."""
    tool_reserve: float = 0.25
    """What is kept free for the calls and results of a turn where the request has tools, as a share of what system
    prompt, tools and message leave: as long as they need no more, nothing before them changes."""
    cache_markers: CacheMarkers = "none"
    """`"anthropic"`: the end of the stable zone carries `cache_control`, for Anthropic's models only."""
    layout: Layout = "cache_first"
    """Where topics, entities and what was found stand: in front of the user's words, so that all before them can be
    cached, or with `"system_first"` at the end of the system message (seed 000)."""
    max_system_share: float = 0.25
    """The largest share of the model's window, where it is known, that the system prompt may take."""
    depth: Depth = "standard"
    """How much topics would like; in the profile `seed` arc and retrieval, too (seed 000: knowledge depth)."""
    emphasis: Emphasis = "balanced"
    """What is worth more where both cannot be had: finding what was said before (`"recall"`: history gives way to
    retrieval), or prompts that begin as the last one did (`"cache"`)."""
    sources: Sequence[Source] = SOURCES
    """Where retrieval looks besides the open conversation: the user's other `"conversations"`, `"memories"`,
    `"documents"`."""
    prioritize_history: bool = True
    """Whether dialogue comes before knowledge when both want the same tokens (seed 000)."""
    include_entities: bool = True
    """Whether detected entities go into the prompt (seeds 000, 002)."""
    personality: Personality | str | Mapping[str, Any] | None = None
    """Who the assistant is, besides what the system prompt says (seed 004): `"helpful"`, `"conversational"`,
    `{"kind": "expert", "domain": "tax law"}` or `{"kind": "custom", "description": "..."}`."""
    response_style: ResponseStyle | Mapping[str, Any] | None = None
    """How the user wants to be answered (seed 004), for instance `{"verbosity": "concise", "bullets": True}`."""
    preferences: Sequence[str] = ()
    """How the user wants to be answered, in words of their own, one line each."""
    learn: bool = True
    """Whether facts, topics and entities are learned from conversations in the background, and shown."""
    learn_every: int = 5
    """New messages after which a conversation is learned from (seed 001); and when its session ends."""
    learn_from_tools: bool = False
    """Whether a model learns from results of tools, too; rules read the user's words only."""
    memories: Sequence[str] = ()
    """What is known about the user, most important first: 25 % of what is left, 150 to 500 tokens (seed 001)."""
    topics: tuple[Topic, ...] = ()
    """Topics to detect; mappings with the same fields are accepted."""
    entities: tuple[Entity, ...] = ()
    """Entities to detect; mappings with the same fields are accepted."""
    layers: tuple[CustomLayer, ...] = ()
    """Layers of the application's own; mappings with the same fields are accepted."""
    keep_messages: int = 6
    """The newest messages that stay verbatim while they fit a quarter of the budget (seed 001: the last 6), two for an
    exchange, whatever calls it has. The last exchange stays up to half of the budget; of a larger one, its end does."""
    compaction_trigger: float = 0.8
    """Compaction starts when verbatim history passes this share of its layer (seed 001: 80 %); the summary of
    what is older gets the rest."""
    compaction_target: float = 0.25
    """Compaction goes down to this share of the layer."""
    segment_messages: int = 20
    """Messages that are summarised together, about so many; compaction goes by whole segments where the room allows."""
    usage_limits: UsageLimits | Mapping[str, Any] | None = None
    """What a session, and a user in a month, may use, for instance `{"month_tokens": 1_000_000}`; the less is left, the
    less goes into a prompt (seed 003). None: no limits."""
    force_include: Sequence[Forced] = ()
    """What goes in however little of a limit is left: `"knowledge"`, `"documents"`, `"history"`, the whole
    `"budget"`."""
    keep_snapshots: int = 0
    """How many of a conversation's latest reports are kept in the store, for the dashboard; 0: none."""
    summarize_in_background: bool = True
    """Whether a `summary_model` writes off the hot path, extraction standing in; else a turn that compacts waits."""

    def __post_init__(self) -> None:
        _require_count(self.max_context_tokens, "max_context_tokens", minimum=1)
        if self.output_reserve_tokens is not None:
            _require_count(self.output_reserve_tokens, "output_reserve_tokens", minimum=0)
        if self.window_tokens is not None:
            _require_count(self.window_tokens, "window_tokens", minimum=1)
        _require_count(self.keep_messages, "keep_messages", minimum=0)
        _require_count(self.segment_messages, "segment_messages", minimum=2)
        _require_flag(self.summarize_in_background, "summarize_in_background")
        if self.usage_limits is not None:
            object.__setattr__(self, "usage_limits", UsageLimits.of(self.usage_limits))
        object.__setattr__(self, "force_include", require_forced(self.force_include))
        _require_count(self.keep_snapshots, "keep_snapshots", minimum=0)
        _require_choice(self.cache_markers, "cache_markers", CacheMarkers)
        _require_choice(self.layout, "layout", Layout)
        if self.tool_reserve != 0:
            _require_share(self.tool_reserve, "tool_reserve")
        _require_share(self.max_system_share, "max_system_share")
        _require_share(self.compaction_trigger, "compaction_trigger")
        _require_share(self.compaction_target, "compaction_target")
        if self.compaction_target >= self.compaction_trigger:
            raise InvalidSettingsError(
                f"compaction_target ({self.compaction_target}) must be below compaction_trigger "
                f"({self.compaction_trigger}), else every turn compacts"
            )
        _require_choice(self.depth, "depth", Depth)
        _require_choice(self.emphasis, "emphasis", Emphasis)
        object.__setattr__(self, "sources", _strings(self.sources, "sources"))
        for source in self.sources:
            _require_choice(source, "sources", Source)
        _require_choice(self.oversized_message, "oversized_message", Oversized)
        object.__setattr__(self, "allocation", strategy_of(self.allocation))
        _require_flag(self.prioritize_history, "prioritize_history")
        _require_flag(self.include_entities, "include_entities")
        _require_flag(self.learn, "learn")
        _require_count(self.learn_every, "learn_every", minimum=1)
        _require_flag(self.learn_from_tools, "learn_from_tools")
        if self.personality is not None:
            object.__setattr__(self, "personality", Personality.of(self.personality))
        if self.response_style is not None:
            object.__setattr__(self, "response_style", ResponseStyle.of(self.response_style))
        object.__setattr__(self, "preferences", _strings(self.preferences, "preferences"))
        object.__setattr__(self, "memories", _strings(self.memories, "memories"))
        object.__setattr__(self, "topics", _declared(Topic, self.topics, "topics"))
        object.__setattr__(self, "entities", _declared(Entity, self.entities, "entities"))
        object.__setattr__(self, "layers", _declared(CustomLayer, self.layers, "layers"))
        names = [layer.name for layer in self.layers]
        if len(set(names)) < len(names):
            raise InvalidSettingsError(f"layers must have different names, not {', '.join(names)}")

    @property
    def manner(self) -> tuple[str, ...]:
        """Personality and response style as instructions, the personality first."""
        personality = () if self.personality is None else (Personality.of(self.personality).text,)
        return (*personality, *(() if self.response_style is None else ResponseStyle.of(self.response_style).lines))

    @property
    def strategy(self) -> AllocationStrategy:
        """How the budget is divided."""
        return strategy_of(self.allocation)

    def override(self, changes: ContextSettings | Mapping[str, Any] | None) -> Self:
        """Settings with `changes` laid over these.

        Args:
            changes: a mapping of setting names to values; whole settings replace these; None changes nothing.

        Raises:
            InvalidSettingsError: an unknown setting, or a value outside its range.
        """
        if changes is None:
            return self
        if isinstance(changes, type(self)):
            return changes
        if not isinstance(changes, Mapping):
            raise InvalidSettingsError(
                f"settings must be a ContextSettings or a mapping of its fields, not {type(changes).__name__}"
            )
        known = {field.name for field in fields(self)}
        if unknown := sorted(map(str, set(changes) - known)):
            raise InvalidSettingsError(f"Unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return replace(self, **changes)


def _require_count(value: object, setting: str, *, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InvalidSettingsError(f"{setting} must be a whole number of at least {minimum}, not {value!r}")


def _require_choice(value: object, setting: str, choices: object) -> None:
    names = get_args(choices)
    if value not in names:
        known = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
        raise InvalidSettingsError(f"{setting} must be {known}, not {value!r}")


def _require_flag(value: object, setting: str) -> None:
    if not isinstance(value, bool):
        raise InvalidSettingsError(f"{setting} must be True or False, not {value!r}")


def _require_share(value: object, setting: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise InvalidSettingsError(f"{setting} must be a share above 0 and up to 1, not {value!r}")
