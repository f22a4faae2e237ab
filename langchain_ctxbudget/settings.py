"""What a developer can set; frozen, checked when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeVar

from langchain_ctxbudget.errors import InvalidSettingsError

Depth = Literal["minimal", "standard", "deep"]

T = TypeVar("T")


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
    output_reserve_tokens: int | None = None
    """Kept free in the model's window for the answer, in tokens; None: what the model says, else nothing."""
    max_system_share: float = 0.25
    """The largest share of the model's window, where it is known, that the system prompt may take."""
    depth: Depth = "standard"
    """How much room topics, arc and retrieval get (seed 000: knowledge depth)."""
    prioritize_history: bool = True
    """Whether dialogue comes before knowledge when both want the same tokens (seed 000)."""
    include_entities: bool = True
    """Whether detected entities go into the prompt (seeds 000, 002)."""
    preferences: tuple[str, ...] = ()
    """How the user wants to be answered, one line each."""
    topics: tuple[Topic, ...] = ()
    """Topics to detect; mappings with the same fields are accepted."""
    entities: tuple[Entity, ...] = ()
    """Entities to detect; mappings with the same fields are accepted."""
    keep_messages: int = 6
    """The newest messages that stay verbatim while they fit a quarter of the budget (seed 001: the last 6)."""
    compaction_trigger: float = 0.8
    """Compaction starts when verbatim history passes this share of its layer (seed 001: 80 %); the summary of
    what is older gets the rest."""
    compaction_target: float = 0.4
    """Compaction goes down to this share of the layer."""

    def __post_init__(self) -> None:
        _require_count(self.max_context_tokens, "max_context_tokens", minimum=1)
        if self.output_reserve_tokens is not None:
            _require_count(self.output_reserve_tokens, "output_reserve_tokens", minimum=0)
        _require_count(self.keep_messages, "keep_messages", minimum=0)
        _require_share(self.max_system_share, "max_system_share")
        _require_share(self.compaction_trigger, "compaction_trigger")
        _require_share(self.compaction_target, "compaction_target")
        if self.compaction_target >= self.compaction_trigger:
            raise InvalidSettingsError(
                f"compaction_target ({self.compaction_target}) must be below compaction_trigger "
                f"({self.compaction_trigger}), else every turn compacts"
            )
        if self.depth not in ("minimal", "standard", "deep"):
            raise InvalidSettingsError(f"depth must be 'minimal', 'standard' or 'deep', not {self.depth!r}")
        _require_flag(self.prioritize_history, "prioritize_history")
        _require_flag(self.include_entities, "include_entities")
        object.__setattr__(self, "preferences", _strings(self.preferences, "preferences"))
        object.__setattr__(self, "topics", _declared(Topic, self.topics, "topics"))
        object.__setattr__(self, "entities", _declared(Entity, self.entities, "entities"))

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


def _require_flag(value: object, setting: str) -> None:
    if not isinstance(value, bool):
        raise InvalidSettingsError(f"{setting} must be True or False, not {value!r}")


def _require_share(value: object, setting: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise InvalidSettingsError(f"{setting} must be a share above 0 and up to 1, not {value!r}")
