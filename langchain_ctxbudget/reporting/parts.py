"""What the bars of a plot stand for, their words and their colours: plain data, no matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from langchain_ctxbudget.errors import BudgetError

LAYERS = {
    "L0": ("Identity", "#555555"),
    "L1": ("Preferences", "#A375E0"),
    "L2": ("Topics", "#428A56"),
    "L3": ("Entities", "#EBCD47"),
    "L4": ("Conversation arc", "#75CBF0"),
    "L5": ("Retrieval", "#E8702A"),
    "L6": ("History", "#1F4FA3"),
    "L7": ("Message", "#8A1212"),
}
"""Title and colour of every layer."""
OWN_COLOURS = ("#CC66A5", "#8BB85E", "#31145C")
"""For layers of the application's own, in the order in which they are declared."""
OVERHEAD, RESERVE, FREE = "tools and framing", "kept for the answer", "free"
OTHERS = {OVERHEAD: "#C0C0C0", RESERVE: "#F2F2F2", FREE: "#FFFFFF"}
HATCHES = {RESERVE: "////"}
STATES = {
    "verbatim": ("verbatim", "#1F4FA3"),
    "retrieved": ("retrieved", "#E8702A"),
    "summarized": ("behind the summary", "#75CBF0"),
    "omitted": ("left out", "#FFFFFF"),
}
"""What became of a message: its words and its colour."""
AXES = {
    "total_tokens": "budget, tokens",
    "message_count": "messages in the conversation",
    "history_tokens": "history, tokens",
    "message_tokens": "current message, tokens",
    "identity_tokens": "system prompt, tokens",
    "topic_tokens": "topics, tokens",
    "entity_tokens": "entities, tokens",
    "overhead_tokens": "tools and framing, tokens",
}
STRATEGY_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222", "#5B1A6B")
"""For strategies that are shown beside each other; apart for the colour-blind (six of Okabe and Ito)."""
VISIBLE = 0.004
"""Share of a bar below which a part is too thin for the legend."""


class Report(Protocol):
    """A `ContextReport`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""


class Allocation(Protocol):
    """What a strategy gives; see `core.allocation.Allocation`."""

    @property
    def total_tokens(self) -> int:
        """The budget."""

    @property
    def tokens(self) -> Mapping[str, int]:
        """By layer."""

    @property
    def reserve_tokens(self) -> int:
        """Kept free for the answer."""


class Situation(Protocol):
    """What is divided; see `core.allocation.Situation`."""

    @property
    def total_tokens(self) -> int:
        """The budget."""

    @property
    def overhead_tokens(self) -> int:
        """What no layer owns."""


S = TypeVar("S", bound=Situation)
S_contra = TypeVar("S_contra", bound=Situation, contravariant=True)


class Strategy(Protocol[S_contra]):
    """How a budget is divided; see `core.allocation.AllocationStrategy`."""

    @property
    def name(self) -> str:
        """What it is called."""

    def allocate(self, situation: S_contra) -> Allocation:
        """Divide the budget."""


ReportData: TypeAlias = Report | Mapping[str, Any]
Parts: TypeAlias = dict[str, int]
"""Tokens by part of the request: layers, overhead, reserve, free."""


def states_in_words(counts: Mapping[str, int]) -> str:
    """How many messages are in each state, those aside in which there are none.

    >>> states_in_words({"verbatim": 1_200, "omitted": 0, "retrieved": 3})
    '1,200 verbatim, 3 retrieved'
    """
    return ", ".join(f"{counts[state]:,} {said}" for state, (said, _) in STATES.items() if counts.get(state))


def share_of(tokens: int, budget: int) -> float:
    """What a part is of the budget; nothing of none."""
    return tokens / budget if budget else 0.0


def plain(report: ReportData) -> Mapping[str, Any]:
    """A report as data."""
    return report if isinstance(report, Mapping) else report.to_dict()


def used_parts(data: Mapping[str, Any]) -> Parts:
    """What a prompt consists of; what a strategy keeps for the answer is free, as nobody used it."""
    parts = {part["layer"]: part["used_tokens"] for part in data["layers"]}
    return {
        **parts,
        OVERHEAD: sum(data["overhead_tokens"].values()),
        FREE: data["budget_tokens"] - data["total_tokens"],
    }


def messages_of(data: Mapping[str, Any]) -> Parts:
    """How many messages are in each state."""
    counts = dict.fromkeys(STATES, 0)
    for part in data["coverage"]:
        counts[part["state"]] += part["last"] - part["first"] + 1
    return counts


def divided(strategy: Strategy[S], situation: S) -> Parts | None:
    """What a strategy plans; None where it refuses."""
    try:
        allocation = strategy.allocate(situation)
    except BudgetError:
        return None
    order = [*LAYERS, *(name for name in allocation.tokens if name not in LAYERS)]
    parts = {str(name): allocation.tokens.get(name, 0) for name in order}
    parts |= {OVERHEAD: situation.overhead_tokens, RESERVE: allocation.reserve_tokens}
    return {**parts, FREE: max(0, allocation.total_tokens - sum(parts.values()))}


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """The colour of every part, those of the application's own layers in the order of their names' coming."""
    colours = {layer: colour for layer, (_, colour) in LAYERS.items()} | OTHERS
    own = [name for name in dict.fromkeys(map(str, names)) if name not in colours]
    return colours | {name: OWN_COLOURS[number % len(OWN_COLOURS)] for number, name in enumerate(own)}


def in_order(many: Sequence[Parts]) -> list[str]:
    """The names of all parts: layers first, what no layer owns last."""
    names = dict.fromkeys(name for parts in many for name in parts)
    return sorted(names, key=lambda name: name in OTHERS)


def seen(many: Sequence[Parts]) -> list[str]:
    """The parts that are more than a hairline in some bar, in their order."""
    return [name for name in in_order(many) if any(p.get(name, 0) > VISIBLE * sum(p.values()) for p in many)]
