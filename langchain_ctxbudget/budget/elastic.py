"""The strategy `elastic`: every layer has floor, ideal, maximum, priority and elasticity.

In the profile `adaptive` floors scale with the budget, and history and retrieval share one pool.
The profile `seed` has fixed floors and caps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_ctxbudget.budget import allocation
from langchain_ctxbudget.budget.allocation import Allocation, Layer, LayerSpec, Situation
from langchain_ctxbudget.budget.demands import (
    DEPTH_FACTOR,
    ENTITIES,
    POLICY,
    TOPICS,
    arc_ideal,
    entities_demand,
    preferences_demand,
    share_of,
    topics_demand,
)
from langchain_ctxbudget.budget.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPolicy:
    """What both profiles have in common."""

    arc_floor: int = 200
    arc_elasticity: float = 0.3
    retrieval_floor: int = 200
    retrieval_elasticity: float = 0.5
    history_floor: int = 500
    retrieval_priority: int = 75
    arc_priority: int = 88
    history_priority: int = 90
    history_elasticity: float = 0.4


ELASTIC = ElasticPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueRank:
    """How much arc and history count against other layers."""

    arc_priority: int
    history_priority: int
    history_elasticity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePolicy:
    """What the profile `adaptive` adds."""

    floor_share: float = 0.05
    """A floor is the fixed number or this share of the budget, whichever is less."""
    learned_share: float = 0.05
    """The share of the budget for learned facts once the conversation does not go in whole, because
    its own words are worth more then; at least as much as facts get in any case."""
    arc_from_tokens: int = 2_048
    """A budget up to this has no arc: there, what is not retrieved is not seen at all."""
    arc_cap: float = 0.12
    """The most that the arc takes of what system prompt and preferences leave."""
    pinned_share: float = 0.25
    """The share of the pool for pinned messages, beside the rest of the history."""
    first: DialogueRank = DialogueRank(
        arc_priority=ELASTIC.arc_priority,
        history_priority=ELASTIC.history_priority,
        history_elasticity=ELASTIC.history_elasticity,
    )
    """With `prioritize_history`."""
    behind: DialogueRank = DialogueRank(
        arc_priority=72, history_priority=78, history_elasticity=0.6
    )
    """Without it."""

    def rank_in(self, situation: Situation) -> DialogueRank:
        """Returns how much arc and history count in a situation."""
        return self.first if situation.prioritize_history else self.behind


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPolicy:
    """The caps of the profile `seed`, mostly as shares of the budget."""

    preferences_share: float = 0.03
    preferences_floor: int = 100
    preferences_ideal: int = 600
    preferences_max: int = 800
    preferences_elasticity: float = 0.1
    arc_share: float = 0.15
    arc_cap: float = 0.20
    retrieval_share: float = 0.10
    retrieval_cap: float = 0.18
    covered_share: float = 0.15
    """Topics of this share of the budget cover what retrieval would find."""
    least_uncovered: float = 0.3
    """The share of what retrieval wants that it wants even then."""
    small_tokens: int = 3_000
    """A conversation up to this size would be sent whole."""
    medium_tokens: int = 10_000
    medium_share: float = 0.35
    """The share of the budget for a conversation up to the medium size; the same below."""
    large_tokens: int = 50_000
    large_share: float = 0.30
    largest_share: float = 0.25
    history_cap: float = 0.60
    prioritized: float = 1.3
    """What history wants more where it comes first, as a factor."""
    dialogue_heavy: float = 1.2
    """What it wants more than that in a conversation of many messages."""
    many_messages: int = 20
    history_priority: int = 80
    """Its priority in a conversation of fewer messages, or where history does not come first."""


ADAPTIVE = AdaptivePolicy()
SEED = SeedPolicy()


@dataclass(frozen=True, slots=True)
class Lean:
    """How the pool of history and retrieval is divided: retrieval finds, history is cached."""

    least_share: float
    """The share of the pool that history keeps, however long it is."""
    falls: float
    """Its share falls by `1 / ratio ** falls`, for a history `ratio` times as large as the pool."""
    arc_share: float
    """The arc's ideal share of what system prompt and preferences leave."""


LEANS: dict[allocation.Emphasis, Lean] = {
    "recall": Lean(least_share=0.0, falls=2.0, arc_share=0.02),
    "balanced": Lean(least_share=0.1, falls=2.0, arc_share=0.03),
    "cache": Lean(least_share=0.35, falls=0.5, arc_share=0.08),
}
"""By measurement: research/retrieval.md shows recall against what prompts cost."""


class ElasticAllocation(Parameters):
    """Layers with floor, ideal, maximum, priority and elasticity, computed from the situation."""

    profile: Literal["adaptive", "seed"] = "adaptive"

    @property
    def name(self) -> str:
        """`elastic`, with its profile where that is not the default."""
        return "elastic" if self.profile == "adaptive" else f"elastic ({self.profile})"

    def allocate(self, situation: Situation) -> Allocation:
        """Divides the budget by the situation."""
        demands = self._demands(situation)
        preferences = demands.preferences()
        topics = topics_demand(situation, demands.floor(TOPICS.floor_tokens))
        entities = entities_demand(situation, demands.floor(ENTITIES.floor_tokens))

        # Of a custom layer only the floor is kept from a history that would go in whole: with the
        # ideal, wanting more could compact the conversation, and so give a layer less.
        knowledge_tokens = sum(spec.ideal_tokens for spec in (preferences, topics, entities))
        custom_floors = sum(spec.min_tokens for spec in situation.custom)
        room = situation.free_tokens - knowledge_tokens - custom_floors
        fits_whole = situation.history_tokens <= room
        if fits_whole:
            dialogue = _whole_dialogue(situation)
        else:
            preferences = demands.preferences_beside_a_part()
            dialogue = demands.partial_dialogue(preferences)
        specs = (preferences, topics, entities, *situation.custom, *dialogue)
        return allocation.share_out(self.name, situation, specs, fits_whole=fits_whole)

    def _demands(self, situation: Situation) -> "_Adaptive | _Seed":
        return _Seed(situation) if self.profile == "seed" else _Adaptive(situation)


def _whole_dialogue(situation: Situation) -> Sequence[LayerSpec]:
    """Returns the demands of a history that goes in whole, and of retrieval beside it."""
    history = situation.history_tokens
    return (
        LayerSpec(
            Layer.RETRIEVAL, 0, 0, situation.free_tokens, priority=ELASTIC.retrieval_priority
        ),
        LayerSpec(Layer.HISTORY, history, history, history, priority=ELASTIC.history_priority),
    )


@dataclass(frozen=True, slots=True)
class _Adaptive:
    """The demands of the profile `adaptive`."""

    situation: Situation

    def floor(self, tokens: int) -> int:
        """Returns a floor, or a small share of the budget where that is less."""
        return min(tokens, int(self.situation.total_tokens * ADAPTIVE.floor_share))

    def preferences(self) -> LayerSpec:
        """Returns the demand of preferences beside a history that may go in whole."""
        return preferences_demand(self.situation, self.situation.free_tokens)

    def preferences_beside_a_part(self) -> LayerSpec:
        """Returns the demand of preferences once history does not go in whole.

        It is the same at every turn from there on.
        """
        return preferences_demand(
            self.situation, self.situation.free_tokens, ADAPTIVE.learned_share
        )

    def partial_dialogue(self, preferences: LayerSpec) -> Sequence[LayerSpec]:
        """Returns the demands of arc, retrieval and history.

        They come from a pool that does not depend on this turn.
        """
        situation = self.situation
        fixed_tokens = (
            situation.overhead_tokens + situation.identity_tokens + preferences.ideal_tokens
        )
        steady_tokens = max(0, situation.total_tokens - fixed_tokens)
        arc = self._arc(steady_tokens)
        pool_tokens = max(0, steady_tokens - arc.ideal_tokens)
        history = self._history(pool_tokens)
        retrieval = self._retrieval(pool_tokens - history.ideal_tokens)
        return arc, retrieval, history

    def _arc(self, steady_tokens: int) -> LayerSpec:
        """Returns the demand of the arc, given what system prompt and preferences leave."""
        situation = self.situation
        # The arc stands while the prompt grows.
        grown_tokens = max(1, situation.total_tokens, situation.grown_tokens)
        ideal = 0
        if grown_tokens > ADAPTIVE.arc_from_tokens:
            lean = LEANS[situation.emphasis]
            share = lean.arc_share * grown_tokens / max(1, situation.total_tokens)
            ideal = int(min(arc_ideal(situation), steady_tokens * share))
        most = ideal
        if ideal and situation.depth != "minimal":
            most = max(ideal, int(steady_tokens * ADAPTIVE.arc_cap))
        return LayerSpec(
            Layer.ARC,
            min(ideal, self.floor(ELASTIC.arc_floor)),
            ideal,
            most,
            priority=ADAPTIVE.rank_in(situation).arc_priority,
            elasticity=ELASTIC.arc_elasticity,
        )

    def _history(self, pool_tokens: int) -> LayerSpec:
        """Returns the demand of history: less of a longer one."""
        situation = self.situation
        held = situation.history_tokens
        least = min(held, max(situation.keep_tokens, self.floor(ELASTIC.history_floor)))
        pinned = min(situation.pinned_tokens, int(pool_tokens * ADAPTIVE.pinned_share))
        share = self._share_of_history(pool_tokens)
        ideal = min(held, pinned + max(least, int(pool_tokens * share)))
        rank = ADAPTIVE.rank_in(situation)
        return LayerSpec(
            Layer.HISTORY,
            least,
            ideal,
            ideal,
            priority=rank.history_priority,
            elasticity=rank.history_elasticity,
        )

    def _share_of_history(self, pool_tokens: int) -> float:
        """Returns the share of the pool that history wants."""
        lean = LEANS[self.situation.emphasis]
        ratio = max(self.situation.history_tokens / max(1, pool_tokens), 1.0)
        falling_share: float = 1.0 / ratio**lean.falls
        share = max(lean.least_share, falling_share)
        return share / max(1.0, DEPTH_FACTOR[self.situation.depth])

    def _retrieval(self, left_tokens: int) -> LayerSpec:
        """Returns the demand of retrieval, given what history leaves of the pool."""
        situation = self.situation
        floor = self.floor(ELASTIC.retrieval_floor)
        depth_share = min(1.0, DEPTH_FACTOR[situation.depth])
        ideal = max(floor, int(left_tokens * depth_share))
        most = ideal
        if situation.depth != "minimal":  # there, what is left stays empty
            most = max(ideal, situation.total_tokens)
        return LayerSpec(
            Layer.RETRIEVAL,
            floor,
            ideal,
            most,
            ELASTIC.retrieval_priority,
            ELASTIC.retrieval_elasticity,
        )


@dataclass(frozen=True, slots=True)
class _Seed:
    """The demands of the profile `seed`.

    A layer never wants more than it holds, as sizes are known here.
    """

    situation: Situation

    def floor(self, tokens: int) -> int:
        """Returns a floor as it is: in this profile it does not scale with the budget."""
        return tokens

    def preferences(self) -> LayerSpec:
        """Returns the demand of preferences beside a history that may go in whole."""
        return self._preferences()

    def preferences_beside_a_part(self) -> LayerSpec:
        """Returns the demand of preferences once history does not go in whole."""
        return self._preferences(self.situation.history_tokens)

    def _preferences(self, taken_tokens: int = 0) -> LayerSpec:
        """Returns the demand of preferences: the ideal is the floor, and it has to fit."""
        situation = self.situation
        wanted = preferences_demand(situation, situation.free_tokens, taken_tokens=taken_tokens)
        held = wanted.ideal_tokens
        share = int(situation.total_tokens * SEED.preferences_share)
        ideal = max(SEED.preferences_floor, min(SEED.preferences_ideal, share))
        floor = ideal if wanted.min_tokens else SEED.preferences_floor
        return LayerSpec(
            Layer.PREFERENCES,
            min(held, floor),
            min(held, ideal),
            min(held, SEED.preferences_max),
            POLICY.preferences_priority,
            elasticity=SEED.preferences_elasticity,
        )

    def partial_dialogue(self, _preferences: LayerSpec) -> Sequence[LayerSpec]:
        """Returns the demands of arc, retrieval and history."""
        return self._arc(), self._retrieval(), self._history()

    def _arc(self) -> LayerSpec:
        budget = self.situation.total_tokens
        wanted = min(arc_ideal(self.situation), int(budget * SEED.arc_share))
        return LayerSpec(
            Layer.ARC,
            ELASTIC.arc_floor,
            max(ELASTIC.arc_floor, wanted),
            max(ELASTIC.arc_floor, int(budget * SEED.arc_cap)),
            priority=ELASTIC.arc_priority,
            elasticity=ELASTIC.arc_elasticity,
        )

    def _retrieval(self) -> LayerSpec:
        """Returns the demand of retrieval: less where topics cover what it would find."""
        situation = self.situation
        budget = situation.total_tokens
        covered = min(1.0, situation.topic_tokens / (budget * SEED.covered_share))
        uncovered = max(SEED.least_uncovered, 1.0 - covered)
        wanted = int(budget * SEED.retrieval_share * uncovered * DEPTH_FACTOR[situation.depth])
        most = max(ELASTIC.retrieval_floor, int(budget * SEED.retrieval_cap))
        return LayerSpec(
            Layer.RETRIEVAL,
            ELASTIC.retrieval_floor,
            min(most, max(ELASTIC.retrieval_floor, wanted)),
            most,
            ELASTIC.retrieval_priority,
            ELASTIC.retrieval_elasticity,
        )

    def _history(self) -> LayerSpec:
        situation = self.situation
        budget = situation.total_tokens
        held = situation.history_tokens
        is_dialogue_heavy = (
            situation.message_count > SEED.many_messages and situation.prioritize_history
        )
        share = self._share_by_size()
        priority = SEED.history_priority
        if situation.prioritize_history:
            share *= SEED.prioritized
        if is_dialogue_heavy:
            share *= SEED.dialogue_heavy
            priority = ELASTIC.history_priority

        low = min(held, max(ELASTIC.history_floor, situation.keep_tokens))
        high = max(low, min(held, int(budget * SEED.history_cap)))
        return LayerSpec(
            Layer.HISTORY,
            low,
            min(high, max(low, share_of(budget, share))),
            high,
            priority,
            ELASTIC.history_elasticity,
            usable_tokens=held,
        )

    def _share_by_size(self) -> float:
        """Returns the share of the budget for history: a smaller one for a longer conversation."""
        held = self.situation.history_tokens
        if held <= SEED.small_tokens:
            return min(1.0, held / self.situation.total_tokens)
        if held <= SEED.medium_tokens:
            return SEED.medium_share
        if held <= SEED.large_tokens:
            return SEED.large_share
        return SEED.largest_share
