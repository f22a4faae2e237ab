"""What each setting may be given as, for type checkers and editors.

A setting is more often given as a name or a mapping than as the value that is made of it, and that
is not what the annotation of its field tells.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from typing_extensions import TypedDict

from langchain_ctxbudget.budget import (
    AllocationStrategy,
    Depth,
    Emphasis,
    Forced,
    Layout,
    UsageLimits,
)
from langchain_ctxbudget.settings.values import (
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

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a value, which is made of them."""


class BudgetInputs(TypedDict, total=False):
    """The keywords of `BudgetSettings`."""

    max_context_tokens: int
    window_tokens: int | None
    output_reserve_tokens: int | None
    max_system_share: float
    oversized_message: Literal["error", "clip"]
    tool_reserve: float
    tool_tokens: int | None
    required_tools: Sequence[str]
    allocation: AllocationStrategy | str | Fields
    emphasis: Emphasis
    depth: Depth
    prioritize_history: bool


class HistoryInputs(TypedDict, total=False):
    """The keywords of `HistorySettings`."""

    keep_messages: int
    keep_important: float
    compaction_trigger: float
    compaction_target: float
    span_messages: int
    history_format: HistoryFormat | Fields
    tool_kinds: Mapping[str, ToolKind]


class KnowledgeInputs(TypedDict, total=False):
    """The keywords of `KnowledgeSettings`."""

    sources: Sequence[Source]
    retrieval: RetrievalSettings | Fields
    encoder: bool
    learn: Literal["model", "rules"] | bool
    learn_every: int
    rules: Sequence[str]
    memories: Sequence[str]
    topics: Sequence[Topic | Fields]
    entities: Sequence[Entity | Fields]
    include_entities: bool
    entity_context: EntityContext | Fields


class PromptInputs(TypedDict, total=False):
    """The keywords of `PromptSettings`."""

    layout: Layout
    layers: Sequence[CustomLayer | Fields]
    cache_lifetime_seconds: float
    cache_markers: Literal["none", "anthropic"]


class StyleInputs(TypedDict, total=False):
    """The keywords of `StyleSettings`."""

    personality: Personality | str | Fields | None
    response_style: ResponseStyle | Fields | None
    preferences: Sequence[str]


class UsageInputs(TypedDict, total=False):
    """The keywords of `UsageSettings`."""

    usage_limits: UsageLimits | Fields | None
    force_include: Sequence[Forced]
    keep_snapshots: int
    trace_texts: bool
    retention: RetentionPolicy | Fields
    on_foreign_thread: ForeignThread


class SettingsInputs(
    BudgetInputs,
    HistoryInputs,
    KnowledgeInputs,
    PromptInputs,
    StyleInputs,
    UsageInputs,
    total=False,
):
    """The keywords of `ContextSettings` besides its groups."""

    segment_messages: int
    """The old name of `span_messages`."""
