"""What an allocation is made from, and what it is."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.settings import Depth


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """What one layer wants (seed 000, `LayerBudget`); all sizes in tokens."""

    layer: Layer
    min_tokens: int
    """Below this the layer is left out."""
    ideal_tokens: int
    """What it would like."""
    max_tokens: int
    """What it can use at most."""
    priority: int
    """0 to 100; higher comes first."""
    elasticity: float = 0.0
    """0 (rigid) to 1: how willing it is to shrink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that an allocation depends on; all sizes in tokens."""

    total_tokens: int
    """The budget of the whole request."""
    overhead_tokens: int
    """Tool schemas, response format, reply priming, fences: what no layer owns."""
    identity_tokens: int
    """The system prompt."""
    preferences_tokens: int
    """All preferences."""
    message_tokens: int
    """The current turn, as far as it must be sent."""
    message_count: int
    """Messages of the conversation so far."""
    history_tokens: int
    """All of them, verbatim."""
    keep_tokens: int = 0
    """The newest messages that stay verbatim."""
    topic_count: int = 0
    topic_tokens: int = 0
    """What the detected topics hold."""
    entity_count: int = 0
    entity_tokens: int = 0
    """What the detected entities hold."""
    compacted: bool = False
    """Whether the conversation was compacted before."""
    depth: Depth = "standard"
    prioritize_history: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What every layer may use, in tokens, and why."""

    strategy: str
    total_tokens: int
    tokens: dict[Layer, int]
    specs: tuple[LayerSpec, ...]
    fits_whole: bool
    """Whether the whole conversation goes in verbatim."""
