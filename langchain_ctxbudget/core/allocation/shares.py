"""Strategies that give shares of the budget: predictable, and tuned by numbers that a person can read.

Each divides the budget into buckets (history, entities, retrieval, ...), and each bucket between its layers. Without
`borrow` a bucket that is not used up stays free; with it, others may use what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from langchain_ctxbudget.core.allocation import wants
from langchain_ctxbudget.core.allocation.model import MOST_EXCHANGES, Allocation, Situation, share_out
from langchain_ctxbudget.core.allocation.solver import LayerSpec, divide
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.core.turns import newest_that_fit
from langchain_ctxbudget.errors import InvalidSettingsError, SystemPromptTooLargeError

ARC_SHARE = 0.2
"""Of the room for history, what the arc may take at most."""
HISTORY_PRIORITY, ARC_PRIORITY, RETRIEVAL_PRIORITY = 90, 88, 75

SUM_TOLERANCE = 0.05
"""Ratios may add up to this much more or less than 1 (seed 002)."""
LONG_CONVERSATION = 50
"""Messages from which on a conversation counts as long."""
RATIO_SHIFT = 0.10
"""What adaptive ratios move between memory and history at most."""

SEED_WINDOW = 4_096
"""The window that the defaults of seed 004 are made for."""
DYNAMIC_SYSTEM_TOKENS = 400
DYNAMIC_SHARES = ((3, (15, 15, 60)), (10, (30, 20, 40)), (None, (40, 25, 25)))
"""Up to so many messages: history, entities and retrieval in percent of what message and overhead leave."""
MANY_ENTITIES, MANY_ENTITIES_FACTOR = 10, 1.3

Buckets: TypeAlias = Mapping[tuple[str, ...], int]
"""Tokens for groups of layers: `preferences` (and what is known about the user), `history` (arc, summary, messages),
`knowledge` (topics, entities), `retrieval` (retrieved items, layers of the application's own)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAllocation:
    """Memory, history and reserve as ratios of what system prompt, message and tools leave (seed 002).

    Memory is everything known: preferences, topics, entities, layers of the application's own, retrieval. The
    reserve stays free for the answer; what the output reserve has taken off a small window already counts for it.

    Raises:
        InvalidSettingsError: ratios that do not add up to 1, give or take 0.05.

    Example:
        >>> RatioAllocation(memory=0.35, history=0.35, reserve=0.30).name
        'ratio 35/35/30'
    """

    memory: float = 0.30
    history: float = 0.40
    reserve: float = 0.30
    min_exchanges: int = 3
    """The newest exchanges that stay, even where they are more than the share of history; knowledge gives way, then
    the reserve."""
    max_system_share: float = 0.25
    """The largest share of the budget for the system prompt; more is an error."""
    borrow: bool = False
    """Whether history may use what memory leaves unused, and memory what history leaves (seed 002, "Future")."""
    adaptive: bool = False
    """Whether a long conversation moves up to a tenth from memory to history, and a short one or one about
    several topics the other way (seed 002, "Future")."""

    def __post_init__(self) -> None:
        _require_shares(self.memory, self.history, self.reserve)
        total = self.memory + self.history + self.reserve
        if not 1 - SUM_TOLERANCE - 1e-9 <= total <= 1 + SUM_TOLERANCE + 1e-9:
            raise InvalidSettingsError(
                f"memory ({self.memory}), history ({self.history}) and reserve ({self.reserve}) must add up to 1, "
                f"give or take {SUM_TOLERANCE}, not {total:.2f}"
            )
        _require_exchanges(self.min_exchanges)
        _require_flags(borrow=self.borrow, adaptive=self.adaptive)
        _require_shares(self.max_system_share)

    @property
    def name(self) -> str:
        """`ratio` with its percentages."""
        shares = "/".join(f"{share * 100:.0f}" for share in (self.memory, self.history, self.reserve))
        return f"ratio {shares}{', adaptive' if self.adaptive else ''}{', borrowing' if self.borrow else ''}"

    def allocate(self, situation: Situation) -> Allocation:
        """Divide the budget by the ratios.

        Raises:
            SystemPromptTooLargeError: the system prompt takes more than its share.
        """
        most = situation.total_tokens * self.max_system_share
        if situation.identity_tokens > most:
            share = f"{self.max_system_share:.0%} of the budget"
            setting = "max_system_share of the strategy"
            raise SystemPromptTooLargeError(situation.identity_tokens, int(most), share, setting)
        available = situation.free_tokens + situation.reserved_tokens
        shift = self._shift(situation)
        memory, history = wants.part(available, self.memory - shift), wants.part(available, self.history + shift)
        if memory + history > situation.free_tokens:  # an output reserve that is larger than the ratio's
            memory, history = (part * situation.free_tokens // (memory + history) for part in (memory, history))
        newest = situation.exchanges[: self.min_exchanges]
        fit = newest_that_fit([exchange.tokens for exchange in reversed(newest)], situation.free_tokens)
        kept = newest[:fit]
        exchanges = sum(exchange.tokens for exchange in kept)
        over = max(0, exchanges - history)
        memory, history = max(0, memory - over), history + over
        return _allocate(
            self.name,
            situation,
            {("history",): history, ("preferences", "knowledge", "retrieval"): memory},
            borrow=self.borrow,
            kept_tokens=exchanges,
            reserve_tokens=situation.free_tokens - memory - history,
            keep_messages=sum(exchange.messages for exchange in kept),
        )

    def _shift(self, situation: Situation) -> float:
        if not self.adaptive:
            return 0.0
        length = min(1.0, situation.message_count / LONG_CONVERSATION)
        shift = RATIO_SHIFT * (2 * length - 1) - (RATIO_SHIFT if wants.knowledge_heavy(situation) else 0.0)
        return max(-min(RATIO_SHIFT, self.history), min(RATIO_SHIFT, self.memory, shift))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedAllocation:
    """Fixed shares of the whole budget (seed 004); the defaults are those of its 4,096-token window.

    System prompt and current turn are sent as they are: where they are more than their share, the others shrink
    together; where they are less, the rest stays free, unless the others may borrow it.

    Raises:
        InvalidSettingsError: a share outside 0 to 1, or shares that are more than 1 together.

    Example:
        >>> FixedAllocation(system=0.1, history=0.4, entities=0.1, retrieval=0.3, query=0.1).name
        'fixed'
    """

    system: float = 500 / SEED_WINDOW
    """System prompt and preferences."""
    history: float = 1_000 / SEED_WINDOW
    entities: float = 500 / SEED_WINDOW
    """Topics and entities."""
    retrieval: float = 1_500 / SEED_WINDOW
    query: float = 596 / SEED_WINDOW
    """The current turn, tool schemas and framing."""
    borrow: bool = False
    """Whether layers may use what others leave."""

    def __post_init__(self) -> None:
        shares = (self.system, self.history, self.entities, self.retrieval, self.query)
        _require_shares(*shares)
        _require_flags(borrow=self.borrow)
        if sum(shares) > 1 + 1e-9:
            raise InvalidSettingsError(
                f"the shares of a fixed allocation must be at most 1 together, not {sum(shares):.2f}"
            )

    @property
    def name(self) -> str:
        """`fixed`."""
        return "fixed, borrowing" if self.borrow else "fixed"

    def allocate(self, situation: Situation) -> Allocation:
        """Divide the budget by the shares."""
        total = situation.total_tokens
        buckets: Buckets = {
            ("preferences",): max(0, wants.part(total, self.system) - situation.identity_tokens),
            ("history",): wants.part(total, self.history),
            ("knowledge",): wants.part(total, self.entities),
            ("retrieval",): wants.part(total, self.retrieval),
        }
        return _allocate(self.name, situation, _with_kept(buckets, situation), borrow=self.borrow)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicAllocation:
    """Shares that follow the conversation: its length, its entities, what there is to retrieve (seed 004).

    A turn of the seed is what one speaker says, so turns are messages here. The seed's margin of 100 tokens for
    the query is replaced by what framing and tools are counted to cost.

    Example:
        >>> DynamicAllocation().name
        'dynamic'
    """

    borrow: bool = False
    """Whether layers may use what others leave."""

    def __post_init__(self) -> None:
        _require_flags(borrow=self.borrow)

    @property
    def name(self) -> str:
        """`dynamic`."""
        return "dynamic, borrowing" if self.borrow else "dynamic"

    def allocate(self, situation: Situation) -> Allocation:
        """Divide the budget by the conversation."""
        remaining = max(0, situation.total_tokens - situation.overhead_tokens - situation.message_tokens)
        percent = next(p for most, p in DYNAMIC_SHARES if most is None or situation.message_count <= most)
        history, entities, retrieval = (remaining * share // 100 for share in percent)
        system = max(DYNAMIC_SYSTEM_TOKENS, situation.identity_tokens)
        if situation.entity_count > MANY_ENTITIES:
            entities = int(entities * MANY_ENTITIES_FACTOR)
            retrieval = max(0, remaining - system - history - entities)

        def buckets(history: int, entities: int, retrieval: int) -> Buckets:
            rest = max(situation.identity_tokens, min(system, remaining - history - entities - retrieval))
            shares: Buckets = {
                ("preferences",): rest - situation.identity_tokens,
                ("history",): history,
                ("knowledge",): entities,
                ("retrieval",): retrieval,
            }
            return _with_kept(shares, situation)

        chosen = buckets(history, entities, retrieval)
        if not situation.custom:
            without_chunks = buckets(history + retrieval // 2, entities + retrieval // 2, 0)
            if wants.history_fits(situation, without_chunks[("history",)]):
                chosen = without_chunks
        return _allocate(self.name, situation, chosen, borrow=self.borrow)


def _with_kept(buckets: Buckets, situation: Situation) -> Buckets:
    """Buckets that fit together, history with room for the newest messages that stay."""
    free = situation.free_tokens
    history = min(free, max(_scaled(buckets, free)[("history",)], situation.keep_tokens))
    others = {groups: tokens for groups, tokens in buckets.items() if groups != ("history",)}
    return {("history",): history, **_scaled(others, free - history)}


def _scaled(buckets: Buckets, tokens: int) -> dict[tuple[str, ...], int]:
    """The same buckets, made smaller together where they are more than `tokens`."""
    total = sum(buckets.values())
    return {groups: part if total <= tokens else part * tokens // total for groups, part in buckets.items()}


def _allocate(
    name: str,
    situation: Situation,
    buckets: Buckets,
    *,
    borrow: bool,
    kept_tokens: int | None = None,
    reserve_tokens: int = 0,
    keep_messages: int | None = None,
) -> Allocation:
    """Divide every bucket between its layers.

    Args:
        name: the strategy's name.
        situation: what there is to divide.
        buckets: together at most what is free.
        borrow: whether a layer may use what others leave.
        kept_tokens: what the newest messages that stay cost; None: as the settings say.
        reserve_tokens: what stays free for the answer.
        keep_messages: the newest messages that stay verbatim.
    """
    room = next(tokens for groups, tokens in buckets.items() if "history" in groups)
    if borrow:
        room += sum(_unused(groups, tokens, situation) for groups, tokens in buckets.items() if "history" not in groups)
    fits_whole = wants.history_fits(situation, room)
    kept = situation.keep_tokens if kept_tokens is None else kept_tokens
    specs: list[LayerSpec] = []
    for groups, tokens in buckets.items():
        wanted = _specs(groups, situation, tokens, fits_whole=fits_whole, kept_tokens=kept)
        given = divide(wanted, tokens)
        if fits_whole and Layer.HISTORY in given:  # what it borrows comes before what others could use
            given[Layer.HISTORY] = situation.history_tokens
        specs += [
            LayerSpec(
                layer=spec.layer,
                min_tokens=0,
                ideal_tokens=given[spec.layer],
                max_tokens=given[spec.layer],
                priority=spec.priority,
                usable_tokens=spec.limit_tokens if borrow else None,
            )
            for spec in wanted
        ]
    return share_out(
        name, situation, specs, fits_whole=fits_whole, reserve_tokens=reserve_tokens, keep_messages=keep_messages
    )


def _specs(
    groups: tuple[str, ...], situation: Situation, tokens: int, *, fits_whole: bool, kept_tokens: int = 0
) -> list[LayerSpec]:
    """What the layers of a bucket want of it."""
    specs: list[LayerSpec] = []
    if "preferences" in groups:
        specs.append(wants.preferences(situation, tokens))
    if "knowledge" in groups:
        specs += [wants.topics(situation), wants.entities(situation)]
        if "retrieval" not in groups:  # nobody else wants the bucket: as much as they hold
            specs = [_up_to(spec, _held(spec, situation)) for spec in specs]
    if "retrieval" in groups:
        specs += situation.custom
        # It wants what the others' ideals leave: past those, topics would take all of a bucket up to their caps.
        left = max(min(tokens, wants.RETRIEVAL_FLOOR), tokens - sum(spec.ideal_tokens for spec in specs))
        wanted, everything = (0, 0) if fits_whole else (left, situation.free_tokens)
        specs.append(_up_to(wants.rigid(Layer.RETRIEVAL, wanted, RETRIEVAL_PRIORITY), everything))
    if "history" in groups:
        most = max(0, min(int(tokens * ARC_SHARE), tokens - kept_tokens))  # the newest messages come first
        arc = 0 if fits_whole else min(wants.arc_ideal(situation), most)
        history = situation.history_tokens if fits_whole else max(0, tokens - arc)
        specs.append(wants.rigid(Layer.ARC, arc, ARC_PRIORITY))
        specs.append(_up_to(wants.rigid(Layer.HISTORY, history, HISTORY_PRIORITY), situation.history_tokens))
    return specs


def _up_to(spec: LayerSpec, limit_tokens: int) -> LayerSpec:
    """A layer that takes what nobody else wants, up to a limit."""
    return replace(spec, usable_tokens=limit_tokens)


def _held(spec: LayerSpec, situation: Situation) -> int:
    held = {Layer.TOPICS: situation.topic_tokens, Layer.ENTITIES: situation.entity_tokens}
    return held.get(Layer(spec.layer), spec.limit_tokens)


def _unused(groups: tuple[str, ...], tokens: int, situation: Situation) -> int:
    """What a bucket leaves when the whole conversation is in the prompt, and nothing of it is to be retrieved."""
    return tokens - sum(divide(_specs(groups, situation, tokens, fits_whole=True), tokens).values())


def _require_shares(*shares: float) -> None:
    for share in shares:
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
            raise InvalidSettingsError(f"a share must be a number from 0 to 1, not {share!r}")


def _require_flags(**flags: object) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidSettingsError(f"{name} must be True or False, not {value!r}")


def _require_exchanges(value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_EXCHANGES:
        raise InvalidSettingsError(f"min_exchanges must be a whole number from 0 to {MOST_EXCHANGES}, not {value!r}")
