"""`ContextSettings`, and the six groups that its settings stand in."""

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
    get_type_hints,
)

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from langchain_ctxbudget.budget import (
    AllocationStrategy,
    Depth,
    ElasticAllocation,
    Emphasis,
    Flag,
    Forced,
    Layout,
    NonNegative,
    Parameters,
    Positive,
    Share,
    ShareOrNone,
    Text,
    UsageLimits,
    strategy_of,
)
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.settings.values import (
    SOURCES,
    CustomLayer,
    Entity,
    EntityContext,
    ForeignThread,
    HistoryFormat,
    Personality,
    ResponseStyle,
    RetentionPolicy,
    RetrievalSettings,
    Source,
    ToolKind,
    Topic,
)

if TYPE_CHECKING:
    from langchain_ctxbudget.settings import inputs

T = TypeVar("T")
P = TypeVar("P", bound=Parameters)
Many: TypeAlias = Annotated[Sequence[T], AfterValidator(tuple)]
OLD_NAMES = {"segment_messages": "span_messages"}
"""Earlier names of settings, which are accepted."""


class SettingsGroup(Parameters):
    """Settings that belong together; the `repr` shows those that were changed."""

    def __repr_args__(self) -> Iterable[tuple[str, Any]]:
        """Returns the fields that differ from their defaults."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                yield name, value


def _showing_fields(model: type[P]) -> type[P]:
    """Lets the constructor of settings show its fields, to `inspect` and to editors."""
    own = signature(model.__init__).parameters.values()
    shown = [parameter for parameter in own if parameter.kind is not Parameter.VAR_KEYWORD]
    types = get_type_hints(model)
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        )
    model.__init__.__signature__ = Signature(shown, return_annotation=None)  # type: ignore[attr-defined]
    return model


def _personality_of(value: object) -> Personality | None:
    return None if value is None else Personality.of(value)


def _style_of(value: object) -> ResponseStyle | None:
    return None if value is None else ResponseStyle.of(value)


def _limits_of(value: object) -> UsageLimits | None:
    return None if value is None else UsageLimits.of(value)


def _require_different_names(layers: tuple[CustomLayer, ...]) -> tuple[CustomLayer, ...]:
    names = [layer.name for layer in layers]
    if len(set(names)) < len(names):
        raise ValueError(f"must have different names, not {', '.join(names)}")
    return layers


@_showing_fields
class BudgetSettings(SettingsGroup):
    """How much may go into a prompt, and how that is divided."""

    setting: ClassVar[str] = "budget"
    max_context_tokens: Positive = 12_000
    """The most that messages, tool schemas and response format together may cost, in tokens."""
    window_tokens: Positive | None = None
    """The model's window, in tokens, where neither its profile nor its server tells; None: not
    known."""
    output_reserve_tokens: NonNegative | None = None
    """Kept free in the model's window for the answer, in tokens; None: what the model says, else
    nothing."""
    max_system_share: Share = 0.25
    """The largest share of the model's window, where it is known, that the system prompt may
    take."""
    oversized_message: Literal["error", "clip"] = "error"
    """The treatment of a user's message that does not fit: an error, or it is shortened around a
    marker."""
    tool_reserve: ShareOrNone = 0.25
    """Kept free for the calls and results of a turn where the request has tools, as a share of what
    system prompt, tools and message leave."""
    tool_tokens: Positive | None = None
    """The most that the schemas of bound tools may cost, in tokens; the model finds the others with
    `find_tools`. None: all are bound."""
    required_tools: Many[Text] = ()
    """The names of tools that are bound in any case, above all of those that people approve by
    name."""
    allocation: Annotated[AllocationStrategy, PlainValidator(strategy_of)] = ElasticAllocation()
    """The way the budget is divided: `"elastic"`, `"ratio"`, `"fixed"`, `"dynamic"`,
    `"prioritized"`, a mapping such as `{"strategy": "ratio", "memory": 0.35, "history": 0.35,
    "reserve": 0.3}`, or a strategy of your own."""
    emphasis: Emphasis = "balanced"
    """What comes first where both cannot be had: finding what was said before (`"recall"`: history
    gives way to retrieval), or prompts that begin as the last one did (`"cache"`)."""
    depth: Depth = "standard"
    """How much room topics and what is looked up ask for; in the profile `seed` the arc, too."""
    prioritize_history: Flag = True
    """True: dialogue comes before knowledge when both want the same tokens."""

    def __init__(self, **values: "Unpack[inputs.BudgetInputs]") -> None:
        Parameters.__init__(self, **values)

    @property
    def quotes_anew(self) -> bool:
        """True if every message gets quotes of its own, and no later prompt repeats them.

        Then quotes are chosen as if they cost nothing but their room. Otherwise they stay in the
        prompt, later ones are added behind them, and what they cost must be saved first.
        """
        return self.emphasis == "recall"


@_showing_fields
class HistorySettings(SettingsGroup):
    """How much of a conversation stays word for word, and how the rest is summarised."""

    setting: ClassVar[str] = "history"
    keep_messages: NonNegative = 6
    """The newest messages that stay verbatim while they fit a quarter of the budget; two stand for
    an exchange, however many calls it has. Of the last exchange, as much stays as fits half of the
    budget."""
    keep_important: ShareOrNone = 0.0
    """The share of the budget for older messages that say most, word for word: what was decided or
    left open, numbers, names, code. Pinned ones come first."""
    compaction_trigger: Share = 0.8
    """Compaction starts when verbatim history passes this share of its layer."""
    compaction_target: Share = 0.25
    """Compaction goes down to this share of the layer."""
    span_messages: Annotated[int, Field(strict=True, ge=2)] = 20
    """Messages that are summarised together, about so many; compaction goes by whole spans where
    the room allows."""
    history_format: Annotated[HistoryFormat, BeforeValidator(HistoryFormat.of)] = HistoryFormat()
    """The form of summaries, for instance `{"summary_tokens": 400, "timestamps": False}`."""
    tool_kinds: Mapping[str, ToolKind] = Field(default_factory=dict)
    """The kinds of tools (`ToolKind`) whose calls do not tell it by their arguments, for instance
    `{"fetch_page": "read"}`."""

    def __init__(self, **values: "Unpack[inputs.HistoryInputs]") -> None:
        Parameters.__init__(self, **values)

    @model_validator(mode="after")
    def _require_target_below_trigger(self) -> Self:
        if self.compaction_target >= self.compaction_trigger:
            raise ValueError(
                f"compaction_target ({self.compaction_target}) must be below compaction_trigger "
                f"({self.compaction_trigger}), else every turn compacts"
            )
        return self


@_showing_fields
class KnowledgeSettings(SettingsGroup):
    """What is known besides the conversation: where it is found, learned and declared."""

    setting: ClassVar[str] = "knowledge"
    sources: Many[Source] = SOURCES
    """The places where retrieval looks besides the open conversation: the user's other
    `"conversations"`, `"memories"`, `"documents"`."""
    retrieval: Annotated[RetrievalSettings, BeforeValidator(RetrievalSettings.of)] = (
        RetrievalSettings()
    )
    """Limits and weights of retrieval, for instance `{"min_relevance": 0.05, "most_items": 8}`."""
    encoder: Flag = False
    """Compare sentences too, not only words, with the encoder of the extra `encoder`. Messages are
    encoded in the background; until they are, their words serve. `flush` waits for it."""
    learn: Literal["model", "rules"] | Flag = True
    """Facts, topics and entities are learned from conversations in the background, and shown: by
    the summary model, by rules, or by the model where there is one and else by rules (True)."""
    learn_every: Positive = 5
    """New messages after which a conversation is learned from; and when its session ends."""
    rules: Many[Text] = ()
    """Standing rules of the application, for instance `["Never name a price."]`: they stand in
    every prompt before those that the user has laid down, and no user lifts them."""
    memories: Many[Text] = ()
    """Facts about the user, most important first: 25 % of what is left, 150 to 500 tokens."""
    topics: tuple[Topic, ...] = ()
    """Topics to detect; here, for entities and layers, mappings with the same fields are
    accepted."""
    entities: tuple[Entity, ...] = ()
    """People and things to detect."""
    include_entities: Flag = True
    """True: detected entities go into the prompt."""
    entity_context: Annotated[EntityContext, BeforeValidator(EntityContext.of)] = EntityContext()
    """How much is said of them, for instance `{"most_entities": 5, "relationships": False}`."""

    def __init__(self, **values: "Unpack[inputs.KnowledgeInputs]") -> None:
        Parameters.__init__(self, **values)


@_showing_fields
class PromptSettings(SettingsGroup):
    """The form of a prompt, and what a provider's cache makes of it."""

    setting: ClassVar[str] = "prompt"
    layout: Layout = "cache_first"
    """The place of topics, entities and retrieval: in front of the user's words, or with
    `"system_first"` at the end of the system message."""
    layers: Annotated[tuple[CustomLayer, ...], AfterValidator(_require_different_names)] = ()
    """Layers of the application's own."""
    cache_lifetime_seconds: Annotated[float, Field(ge=0)] = 300.0
    """The time for which the provider's cache holds a prompt, for instance 300. Where it is not
    given, that of the model's provider counts, as far as it is known. Within it prompts only grow,
    each the last one and more at its end, and are rebuilt at intervals
    (`docs/explanation/prompt.md`). 0: the background of earlier turns goes, and each turn has a new
    one."""
    cache_markers: Literal["none", "anthropic"] = "none"
    """`"anthropic"`: system message, stable zone and prompt have `cache_control` at their ends,
    four marks at most."""

    def __init__(self, **values: "Unpack[inputs.PromptInputs]") -> None:
        Parameters.__init__(self, **values)


@_showing_fields
class StyleSettings(SettingsGroup):
    """How the assistant answers."""

    setting: ClassVar[str] = "style"
    personality: Annotated[Personality | None, BeforeValidator(_personality_of)] = None
    """The assistant's role, besides what the system prompt says: `"helpful"`, `"conversational"`,
    `{"kind": "expert", "domain": "tax law"}` or `{"kind": "custom", "description": "..."}`."""
    response_style: Annotated[ResponseStyle | None, BeforeValidator(_style_of)] = None
    """The style of the answers, for instance `{"verbosity": "concise", "bullets": True}`."""
    preferences: Many[Text] = ()
    """How to answer, in the application's own words, one line each."""

    def __init__(self, **values: "Unpack[inputs.StyleInputs]") -> None:
        Parameters.__init__(self, **values)

    @property
    def manner(self) -> tuple[str, ...]:
        """Personality and response style as instructions, the personality first."""
        instructions: list[str] = []
        if self.personality:
            instructions.append(self.personality.text)
        if self.response_style:
            instructions += self.response_style.lines
        return tuple(instructions)


@_showing_fields
class UsageSettings(SettingsGroup):
    """What users may use up, whose threads they are, and what is kept of prompts."""

    setting: ClassVar[str] = "usage"
    usage_limits: Annotated[UsageLimits | None, BeforeValidator(_limits_of)] = None
    """The most that a session, and a user in a month, may use, for instance `{"month_tokens":
    1_000_000}`; the less is left, the less goes into a prompt. None: no limits."""
    force_include: Many[Forced] = ()
    """Goes in however little of a limit is left: `"knowledge"`, `"documents"`, `"history"`, the
    whole `"budget"`."""
    keep_snapshots: NonNegative = 0
    """The number of a conversation's latest reports kept in the store, for the dashboard; 0:
    none."""
    trace_texts: Flag = False
    """True: spans of OpenTelemetry have the messages that were sent, the queries of searches, and
    what has failed or was lost, in words. False: numbers and names alone."""
    retention: Annotated[RetentionPolicy, BeforeValidator(RetentionPolicy.of)] = RetentionPolicy()
    """For how many days what is stored is kept, for instance `{"messages": 90}`; see `sweep`. A
    user's saved settings may say other days."""
    on_foreign_thread: ForeignThread = "show"
    """What happens in a run whose thread is another user's, who ran it first. `"show"`: its prompt
    is made from the run's state, in memory, and nothing of it is stored, learned or found later.
    `"error"`: a `ForeignUserError`. `"share"`: threads are shared on purpose, and none is
    anybody's: each is kept under its own id, beside all users. Holds for a whole pipeline; see
    `docs/how-to/users.md`."""

    def __init__(self, **values: "Unpack[inputs.UsageInputs]") -> None:
        Parameters.__init__(self, **values)


GROUPS: Mapping[str, type[SettingsGroup]] = {
    "budget": BudgetSettings,
    "history": HistorySettings,
    "knowledge": KnowledgeSettings,
    "prompt": PromptSettings,
    "style": StyleSettings,
    "usage": UsageSettings,
}
"""The groups by the keyword that each is given as."""


# Pydantic takes the fields of the last base first.
@_showing_fields
class ContextSettings(
    UsageSettings,
    StyleSettings,
    PromptSettings,
    KnowledgeSettings,
    HistorySettings,
    BudgetSettings,
):
    """The size of a prompt, and what the developer wants in it.

    The settings stand in six groups. Each is given by its own name, or with others in its group,
    and can be read both ways. Out of range is an `InvalidSettingsError`.

    Example:
        >>> settings = ContextSettings(
        ...     max_context_tokens=8_000, style={"preferences": ["Answer briefly."]}
        ... )
        >>> settings.preferences
        ('Answer briefly.',)
        >>> settings.budget
        BudgetSettings(max_context_tokens=8000)
        >>> settings.override({"history": {"keep_messages": 4}}).keep_messages
        4
    """

    setting: ClassVar[str] = ""

    def __init__(  # noqa: D417 - `**values` are the fields of the groups
        self,
        *,
        budget: "BudgetSettings | inputs.Fields | None" = None,
        history: "HistorySettings | inputs.Fields | None" = None,
        knowledge: "KnowledgeSettings | inputs.Fields | None" = None,
        prompt: "PromptSettings | inputs.Fields | None" = None,
        style: "StyleSettings | inputs.Fields | None" = None,
        usage: "UsageSettings | inputs.Fields | None" = None,
        **values: "Unpack[inputs.SettingsInputs]",
    ) -> None:
        """Checks settings, which may stand in groups or be given by their own names.

        Args:
            budget: how much may go into a prompt, and how that is divided.
            history: how much of a conversation stays word for word, and how the rest is summarised.
            knowledge: what is known besides the conversation.
            prompt: the form of a prompt, and what a provider's cache makes of it.
            style: how the assistant answers.
            usage: what users may use up, whose threads they are, and what is kept of prompts.
        """
        groups = {
            "budget": budget,
            "history": history,
            "knowledge": knowledge,
            "prompt": prompt,
            "style": style,
            "usage": usage,
        }
        in_groups = {name: group for name, group in groups.items() if group is not None}
        Parameters.__init__(self, **_by_own_names({**in_groups, **values}))

    def __repr_args__(self) -> Iterable[tuple[str, Any]]:
        """Returns the groups in which a setting differs from its default."""
        for name in GROUPS:
            group = getattr(self, name)
            if any(True for _ in group.__repr_args__()):
                yield name, group

    @property
    def budget(self) -> BudgetSettings:
        """How much may go into a prompt, and how that is divided."""
        return self._group(BudgetSettings)

    @property
    def history(self) -> HistorySettings:
        """How much of a conversation stays word for word, and how the rest is summarised."""
        return self._group(HistorySettings)

    @property
    def knowledge(self) -> KnowledgeSettings:
        """What is known besides the conversation: where it is found, learned and declared."""
        return self._group(KnowledgeSettings)

    @property
    def prompt(self) -> PromptSettings:
        """The form of a prompt, and what a provider's cache makes of it."""
        return self._group(PromptSettings)

    @property
    def style(self) -> StyleSettings:
        """How the assistant answers."""
        return self._group(StyleSettings)

    @property
    def usage(self) -> UsageSettings:
        """What users may use up, whose threads they are, and what is kept of prompts."""
        return self._group(UsageSettings)

    def _group(self, group: type[P]) -> P:
        return group(**_chosen_of(group, self))

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were given, by their own names, without the defaults."""
        return _chosen_of(type(self), self)

    def override(self, changes: "ContextSettings | Mapping[str, Any] | None") -> Self:
        """Returns these settings with some of them changed; whole settings replace these.

        None changes nothing.
        """
        if changes is None:
            return self
        if isinstance(changes, Mapping):
            changes = {**self.chosen, **_by_own_names(changes)}
        return self.of(changes)


def _chosen_of(group: type[Parameters], settings: Parameters) -> dict[str, Any]:
    """Returns the settings of a group that were given, without the defaults."""
    names = [name for name in group.model_fields if name in settings.model_fields_set]
    return {name: getattr(settings, name) for name in names}


def _require_own_names(group: str, values: object) -> None:
    """Raises `InvalidSettingsError` for a setting that stands in a group where it is not."""
    if not isinstance(values, Mapping):
        return
    for name, value in values.items():
        homes = [other for other, kind in GROUPS.items() if name in kind.model_fields]
        if homes and group not in homes:
            raise InvalidSettingsError(
                f"{name} is no setting of the group {group!r}, but of {homes[0]!r}: pass "
                f"{{{homes[0]!r}: {{{name!r}: {value!r}}}}}, or {{{name!r}: {value!r}}} without a "
                "group"
            )


def _by_own_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings, some of which came in groups, by their own names of today."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        settings = {OLD_NAMES.get(name, name): value}
        if name in GROUPS:
            group = GROUPS[name]
            _require_own_names(name, value)
            settings = _chosen_of(group, group.of(value))
        for own_name, setting in settings.items():
            if own_name in flat:
                raise InvalidSettingsError(f"{own_name} is given twice")
            flat[own_name] = setting
    return flat
