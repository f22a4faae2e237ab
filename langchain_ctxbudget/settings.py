"""The settings of a developer: frozen, and checked when they are made."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    PlainValidator,
    model_validator,
)

from langchain_ctxbudget import budget
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.messages import one_line, packaged

T = TypeVar("T")
Many: TypeAlias = Annotated[Sequence[T], AfterValidator(tuple)]
Source = Literal["conversations", "memories", "documents"]
SOURCES: tuple[Source, ...] = ("conversations", "memories", "documents")
STYLES: Mapping[str, Mapping[str, str]] = json.loads(packaged("styles.json"))
"""The instruction for every kind of personality, and every value of a `ResponseStyle` (seed
004)."""


class Personality(budget.Parameters):
    """The personality of the assistant (seed 004).

    An expert has a domain, a custom one a description.

    >>> Personality.of({"kind": "expert", "domain": "tax law"}).text
    'You are an expert in tax law. Answer accurately and in depth.'
    """

    setting: ClassVar[str] = "personality"
    kind: Literal["helpful", "expert", "conversational", "custom"] = "helpful"
    domain: str = ""
    """The field of an expert."""
    description: str = ""
    """The instruction of a custom personality."""

    @model_validator(mode="after")
    def _says_enough(self) -> Self:
        needed = {"expert": "domain", "custom": "description"}.get(self.kind)
        if needed and not getattr(self, needed).strip():
            raise InvalidSettingsError(
                f"personality.{needed} must be a non-empty string for {self.kind!r}"
            )
        return self

    @classmethod
    def of(cls, value: object) -> Self:
        """Returns a personality from one, a mapping of its fields, or a kind that needs no more ("helpful")."""
        return super().of({"kind": value} if isinstance(value, str) else value)

    @property
    def text(self) -> str:
        """The instruction."""
        return STYLES["personality"][self.kind].format(
            domain=one_line(self.domain), description=self.description.strip()
        )


class ResponseStyle(budget.Parameters):
    """The way in which the assistant answers (seed 004); None leaves a point open.

    >>> ResponseStyle(verbosity="concise", links=False).lines
    ('Answer briefly and leave out what was not asked for.', 'Do not include links.')
    """

    setting: ClassVar[str] = "response_style"
    style: Literal["formal", "professional", "casual", "friendly"] | None = None
    verbosity: Literal["concise", "moderate", "detailed"] | None = None
    technical_level: Literal["beginner", "intermediate", "expert"] | None = None
    bullets: budget.Flag | None = None
    numbered_lists: budget.Flag | None = None
    code_blocks: budget.Flag | None = None
    links: budget.Flag | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """One instruction for every point that is settled."""
        return tuple(
            STYLES[name][str(value).lower()]
            for name, value in self.model_dump(exclude_none=True).items()
        )


class RetrievalSettings(budget.Parameters):
    """Limits and weights of retrieval, in the application's own numbers (seed 004: RAG).

    The ranking knows age and names already, as far as measurements show that they help; the weights
    add to it.

    >>> RetrievalSettings(min_relevance=0.05, most_items=8).recency_weight
    0.0
    """

    setting: ClassVar[str] = "retrieval"
    candidates: budget.Positive | None = None
    """The best texts of all, which weights, a reranker and packing see. None: 50 for a reranker,
    else 256, or one for eight tokens of room."""
    most_items: budget.NonNegative | None = None
    """The most texts that are quoted for one message; None: as many as are worth their tokens."""
    min_relevance: budget.ShareOrNone = 0.0
    """The least probability that a message needs a text; less likely texts stay out."""
    recency_weight: budget.ShareOrNone = 0.0
    """Raises what is new: a text of today by 0.2 times this share of the distance between the best
    candidate and the last, one of a year ago by 1 / e of that."""
    entity_weight: budget.ShareOrNone = 0.0
    """Raises what names the message's entities: a text with all of them by 0.3 times this share of
    that distance."""
    memory_weights: (
        tuple[budget.ShareOrNone, budget.ShareOrNone, budget.ShareOrNone, budget.ShareOrNone] | None
    ) = None
    """The order of memories among themselves by similarity, certainty (1 if pinned), `exp(-days /
    365)` and type, for instance `(0.4, 0.3, 0.2, 0.1)` (seed 002); None: by the one ranking of all
    texts."""


class EntityContext(budget.Parameters):
    """How much a prompt says of people and things (seed 004).

    The last two hold for a whole pipeline.
    """

    setting: ClassVar[str] = "entity_context"
    most_entities: budget.NonNegative = 3
    min_relevance: budget.ShareOrNone = 0.35
    """The least confidence of a detection."""
    attributes_per_entity: budget.NonNegative = 5
    relationships: budget.Flag = True


_FIELD = re.compile(r"\{(speaker|text)\}")


class HistoryFormat(budget.Parameters):
    """How the summary of compacted history is written (seed 004: `HistoryFormatterConfig`)."""

    setting: ClassVar[str] = "history_format"
    summary_tokens: budget.NonNegative | None = None
    speakers: budget.Flag = True
    timestamps: budget.Flag = True
    template: Annotated[str, Field(pattern=r"^[^\r\n]*\{text\}[^\r\n]*$")] = "{speaker}: {text}"
    """A line with its speaker, for instance `"{text} ({speaker})"`."""

    def line(self, speaker: str, text: str) -> str:
        """Returns a line of a summary; the text alone where no speaker is named."""
        given = {"speaker": speaker, "text": text}
        return (
            _FIELD.sub(lambda found: given[found[1]], self.template)
            if speaker and self.speakers
            else text
        )


class _Declared(budget.Parameters):
    """Something that the application declares.

    Messages are searched for its name and its aliases.
    """

    context: budget.Text
    """The text that goes into the prompt when it comes up."""
    aliases: tuple[budget.Text, ...] = ()


class Topic(_Declared):
    """A topic that the application declares."""

    label: budget.Text

    @property
    def names(self) -> tuple[str, ...]:
        """Every word for it, its label first."""
        return (self.label, *self.aliases)


class Entity(_Declared):
    """A person, project, organisation or tool that the application declares."""

    name: budget.Text
    type: budget.Text = "concept"
    """`person`, `project`, `organization`, `tool`, `concept` or any other word."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every word for it, its name first."""
        return (self.name, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRequest:
    """The question that the function of a custom layer answers."""

    query: str
    """The words of the current turn's human message."""
    budget_tokens: int
    """The tokens for the layer, its heading included; it is filled with the first items that
    fit."""
    user_id: str
    conversation_id: str
    left_tokens: int = 0
    """What is left of the prompt's budget for calls and results before older messages give way to
    them."""


def _items(value: object) -> object:
    if callable(value):
        return value
    texts = value if isinstance(value, Sequence) and not isinstance(value, str) else (None,)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("must be a list of non-empty strings, or a function that gives them")
    return tuple(texts)


LayerItems: TypeAlias = Annotated[
    Sequence[str] | Callable[[LayerRequest], Sequence[str]], PlainValidator(_items)
]


class CustomLayer(budget.Parameters):
    """A layer of the application's own: open files, the weather, a ticket.

    Part of the volatile zone.

    Every item is one entry of the layer: as many as fit are taken in the given order, and the first
    one that does not fit is shortened where that is possible. Where the function fails, the layer
    is empty and the report says so. A function is called once per assembly, in a worker thread
    under async.

    >>> CustomLayer(name="open files", items=["main.py: print('hi')"], ideal_tokens=800).priority
    70
    """

    name: budget.Text
    """Its name in reports, and its heading in the prompt."""
    items: LayerItems
    """Its items, most important first, or a function that is told the budget and gives them."""
    ideal_tokens: budget.NonNegative
    """The size it would like, and the most it can use."""
    min_tokens: budget.NonNegative = 0
    """Below this it is left out."""
    priority: Annotated[int, Field(strict=True, ge=0, le=100)] = 70
    """0 to 100; topics have 70, entities 65, retrieval 75, history 90."""

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        taken = {text.casefold() for text in (*budget.Layer, *budget.TITLES.values())}
        if self.name.casefold() in taken or not self.name.isprintable():
            raise ValueError(f"name {self.name!r} is a layer of the package, or not one line")
        if self.min_tokens > self.ideal_tokens:
            sizes = f"{self.min_tokens} and {self.ideal_tokens}"
            raise ValueError(f"layer {self.name!r} needs min_tokens <= ideal_tokens, not {sizes}")
        return self

    @property
    def spec(self) -> budget.LayerSpec:
        """Its demand, for the strategies."""
        sizes = (self.min_tokens, self.ideal_tokens, self.ideal_tokens)
        return budget.LayerSpec(self.name, *sizes, priority=self.priority, elasticity=0.5)


def _different(layers: tuple[CustomLayer, ...]) -> tuple[CustomLayer, ...]:
    names = [layer.name for layer in layers]
    if len(set(names)) < len(names):
        raise ValueError(f"must have different names, not {', '.join(names)}")
    return layers


def _or_none(made: Callable[[object], object]) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value is None else made(value))


ToolKind: TypeAlias = Literal["read", "edit", "write", "run", "search", "todo", "other"]
"""The kinds of tools that the work state of an agent knows."""


ForeignThread: TypeAlias = Literal["show", "error", "share"]
"""What happens in a run whose thread is another user's."""


class ContextSettings(budget.Parameters):
    """The size of a prompt, and what the developer wants in it.

    Out of range is an `InvalidSettingsError`.

    Example:
        >>> ContextSettings(max_context_tokens=8_000, preferences=["Answer briefly."]).preferences
        ('Answer briefly.',)
    """

    max_context_tokens: budget.Positive = 12_000
    """The most that messages, tool schemas and response format together may cost, in tokens."""
    window_tokens: budget.Positive | None = None
    """The model's window, in tokens, where neither its profile nor its server tells; None: not
    known."""
    output_reserve_tokens: budget.NonNegative | None = None
    """Kept free in the model's window for the answer, in tokens; None: what the model says, else
    nothing."""
    allocation: Annotated[budget.AllocationStrategy, PlainValidator(budget.strategy_of)] = (
        budget.ElasticAllocation()
    )
    """The way the budget is divided: `"elastic"`, `"ratio"`, `"fixed"`, `"dynamic"`, `"prioritized"`, a mapping such as
    `{"strategy": "ratio", "memory": 0.35, "history": 0.35, "reserve": 0.3}`, or a strategy of your own."""
    oversized_message: Literal["error", "clip"] = "error"
    """The treatment of a user's message that does not fit: an error, or it is shortened around a
    marker."""
    tool_reserve: budget.ShareOrNone = 0.25
    """Kept free for the calls and results of a turn where the request has tools, as a share of what
    system prompt, tools and message leave."""
    tool_kinds: Mapping[str, ToolKind] = Field(default_factory=dict)
    """What tools do whose calls do not tell it by their arguments, for instance `{"fetch_page": "read"}`: `"read"`,
    `"edit"` or `"write"` a file, `"run"` a command, `"search"`, keep a `"todo"` list, or `"other"`."""
    cache_markers: Literal["none", "anthropic"] = "none"
    """`"anthropic"`: system message, stable zone and prompt have `cache_control` at their ends,
    four marks at most."""
    cache_lifetime_seconds: Annotated[float, Field(ge=0)] = 300.0
    """The time for which the provider's cache holds a prompt, for instance 300: within it prompts
    only grow, each the last one and more at its end, and are written anew in steps
    (`docs/explanation/prompt.md`). 0: the block of earlier turns goes, and each turn has a new
    one."""
    layout: budget.Layout = "cache_first"
    """The place of topics, entities and retrieval: in front of the user's words, or with
    `"system_first"` at the end of the system message (seed 000)."""
    max_system_share: budget.Share = 0.25
    """The largest share of the model's window, where it is known, that the system prompt may
    take."""
    depth: budget.Depth = "standard"
    """How much topics and retrieval would like; in the profile `seed` the arc, too (seed 000:
    knowledge depth)."""
    emphasis: budget.Emphasis = "balanced"
    """What comes first where both cannot be had: finding what was said before (`"recall"`: history
    gives way to retrieval), or prompts that begin as the last one did (`"cache"`)."""
    sources: Many[Source] = SOURCES
    """The places where retrieval looks besides the open conversation: the user's other `"conversations"`, `"memories"`,
    `"documents"`."""
    retrieval: Annotated[RetrievalSettings, BeforeValidator(RetrievalSettings.of)] = (
        RetrievalSettings()
    )
    """Limits and weights of retrieval, for instance `{"min_relevance": 0.05, "most_items": 8}`
    (seed 004)."""
    prioritize_history: budget.Flag = True
    """True: dialogue comes before knowledge when both want the same tokens (seed 000)."""
    include_entities: budget.Flag = True
    """True: detected entities go into the prompt (seeds 000, 002)."""
    entity_context: Annotated[EntityContext, BeforeValidator(EntityContext.of)] = EntityContext()
    """How much is said of them, for instance `{"most_entities": 5, "relationships": False}` (seed
    004)."""
    history_format: Annotated[HistoryFormat, BeforeValidator(HistoryFormat.of)] = HistoryFormat()
    """The form of summaries, for instance `{"summary_tokens": 400, "timestamps": False}` (seed
    004)."""
    personality: Annotated[Personality | None, _or_none(Personality.of)] = None
    """The assistant's role, besides what the system prompt says (seed 004): `"helpful"`, `"conversational"`,
    `{"kind": "expert", "domain": "tax law"}` or `{"kind": "custom", "description": "..."}`."""
    response_style: Annotated[ResponseStyle | None, _or_none(ResponseStyle.of)] = None
    """The style of the answers (seed 004), for instance `{"verbosity": "concise", "bullets":
    True}`."""
    preferences: Many[budget.Text] = ()
    """How to answer, in the application's own words, one line each."""
    learn: Literal["model", "rules"] | budget.Flag = True
    """Facts, topics and entities are learned from conversations in the background, and shown: by
    the summary model, by rules, or by the model where there is one and else by rules (True)."""
    learn_every: budget.Positive = 5
    """New messages after which a conversation is learned from (seed 001); and when its session
    ends."""
    memories: Many[budget.Text] = ()
    """Facts about the user, most important first: 25 % of what is left, 150 to 500 tokens (seed
    001)."""
    topics: tuple[Topic, ...] = ()
    """Topics to detect; here, for entities and layers, mappings with the same fields are
    accepted."""
    entities: tuple[Entity, ...] = ()
    layers: Annotated[tuple[CustomLayer, ...], AfterValidator(_different)] = ()
    """Layers of the application's own."""
    keep_messages: budget.NonNegative = 6
    """The newest messages that stay verbatim while they fit a quarter of the budget (seed 001: the
    last 6); two stand for an exchange, however many calls it has. Of the last exchange, as much
    stays as fits half of the budget."""
    keep_important: budget.ShareOrNone = 0.0
    """The share of the budget for older messages that say most, word for word: what was decided or
    left open, numbers, names, code (seed 002: preservation by analysis, with the score of seed
    000). Pinned ones come first."""
    compaction_trigger: budget.Share = 0.8
    """Compaction starts when verbatim history passes this share of its layer (seed 001: 80 %)."""
    compaction_target: budget.Share = 0.25
    """Compaction goes down to this share of the layer."""
    span_messages: Annotated[
        int,
        Field(
            strict=True, ge=2, validation_alias=AliasChoices("span_messages", "segment_messages")
        ),
    ] = 20
    """Messages that are summarised together, about so many; compaction goes by whole spans where
    the room allows. The old name, `segment_messages`, is accepted."""
    usage_limits: Annotated[budget.UsageLimits | None, _or_none(budget.UsageLimits.of)] = None
    """The most that a session, and a user in a month, may use, for instance `{"month_tokens":
    1_000_000}`; the less is left, the less goes into a prompt (seed 003). None: no limits."""
    force_include: Many[budget.Forced] = ()
    """Goes in however little of a limit is left: `"knowledge"`, `"documents"`, `"history"`, the
    whole `"budget"`."""
    on_foreign_thread: ForeignThread = "show"
    """What happens in a run whose thread is another user's, who ran it first. `"show"`: its prompt is made from the
    run's state, in memory, and nothing of it is stored, learned or found later. `"error"`: a `ForeignUserError`.
    `"share"`: threads are shared on purpose, and none is anybody's: each is kept under its own id, beside all users.
    Holds for a whole pipeline; see `docs/how-to/users.md`."""
    keep_snapshots: budget.NonNegative = 0
    """The number of a conversation's latest reports kept in the store, for the dashboard; 0:
    none."""

    @model_validator(mode="after")
    def _require_target_below_trigger(self) -> Self:
        if self.compaction_target >= self.compaction_trigger:
            raise ValueError(
                f"compaction_target ({self.compaction_target}) must be below compaction_trigger "
                f"({self.compaction_trigger}), else every turn compacts"
            )
        return self

    @property
    def manner(self) -> tuple[str, ...]:
        """Personality and response style as instructions, the personality first."""
        personality = (self.personality.text,) if self.personality else ()
        return (*personality, *(self.response_style.lines if self.response_style else ()))

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were given, without the defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def override(self, changes: "ContextSettings | Mapping[str, Any] | None") -> Self:
        """Returns these settings with some of them changed; whole settings replace these.

        None changes nothing.
        """
        if changes is None:
            return self
        return self.of({**self.chosen, **changes} if isinstance(changes, Mapping) else changes)
