"""Filling what is left of a budget: with quotes, and with other layers that have more to say."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from langchain_ctxbudget import budget as budgets
from langchain_ctxbudget.budget import Layer, LayerSpec, Reason
from langchain_ctxbudget.history import CONTEXT_FRAME
from langchain_ctxbudget.knowledge import subjects
from langchain_ctxbudget.prompt.assembly import (
    fragments_of,
    group_tokens,
    has_human,
    layer_tokens,
    positions_of,
)
from langchain_ctxbudget.prompt.budgeting import bundles_within
from langchain_ctxbudget.prompt.fitting import JOIN_TOKENS, excess_tokens, pruned
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.retrieval import MIXED_SECTION, OWN_SECTION, Pool, recall_tool, select


@dataclass(frozen=True, slots=True)
class QuotingPolicy:
    """What a quote must be worth to take room in a prompt."""

    least_worth: Mapping[budgets.Emphasis, float] = field(
        default_factory=lambda: {"balanced": 0.2, "cache": 1.0}
    )
    """The probability with which a text must be needed that takes the whole budget. For a text that
    takes a tenth of the budget, a tenth of this is enough."""
    weak_share: float = 0.05
    """The share of the budget that quotes may take if hardly anything that was said has to do with
    the message."""


QUOTING_POLICY = QuotingPolicy()


def with_leftovers(plan: Plan) -> Plan:
    """Gives left-over tokens to the background's layers that have more to say, by priority.

    Each layer is asked once, and grows at most to what the strategy allows. Retrieval is one of
    them; its quotes are chosen here. Layers outside the background do not grow: a summary that
    changed with the current message would rewrite the prompt.
    """
    if not has_human(plan.turn.groups):
        return plan
    tokens_left = _leftover_tokens(plan)
    rooms = dict(plan.allocated.tokens)
    for spec in _layers_by_priority(plan):
        used_before = _used_tokens(plan, spec.layer)
        if spec.layer == Layer.RETRIEVAL:
            plan = _with_retrieved(plan, min(tokens_left, spec.limit_tokens))
        elif _wants_more(plan, spec.layer):
            room = _wider_room(plan, spec, rooms[spec.layer], used_before + tokens_left)
            if room is not None:
                rooms[spec.layer] = room
                plan = replace(plan, bundles=bundles_within(plan, rooms))
        tokens_left -= _used_tokens(plan, spec.layer) - used_before
    return plan


def _leftover_tokens(plan: Plan) -> int:
    """Returns the tokens that the background may still take."""
    content = plan.content
    tokens = -excess_tokens(plan, content)
    if plan.growth.adds_background:
        layers = {part.layer for part in content.volatile}
        used = sum(_used_tokens(plan, layer) for layer in layers)
        tokens = min(tokens, plan.growth.most_background_tokens - used)
    elif plan.growth.level_tokens:  # up to the limit, the next prompts are to grow
        tokens -= plan.limit_tokens - plan.growth.level_tokens
    if not content.volatile:
        tokens -= sum(map(plan.counter.count_text, CONTEXT_FRAME))
    return max(0, tokens - JOIN_TOKENS)


def _layers_by_priority(plan: Plan) -> list[LayerSpec]:
    """Returns the layers of the background, the most important first."""
    own_layers = [layer.name for layer in plan.request.settings.layers]
    names = [Layer.TOPICS, Layer.ENTITIES, Layer.RETRIEVAL, *own_layers]
    specs = [plan.allocated.spec_of(name) for name in names]
    return sorted(specs, key=lambda spec: (-spec.priority, spec.layer))


def _wider_room(plan: Plan, spec: LayerSpec, room: int, most_tokens: int) -> int | None:
    """Returns a layer's room with left-over tokens, or None if even that is less than it needs.

    Args:
        plan: The plan.
        spec: What the strategy says of the layer.
        room: The room of the layer so far.
        most_tokens: All that the layer may cost, its heading included.
    """
    own_layers = {layer.name: layer for layer in plan.request.settings.layers}
    least_tokens = spec.min_tokens
    if spec.layer in own_layers:
        least_tokens = max(least_tokens, own_layers[spec.layer].min_tokens)
    else:  # the rooms of topics and entities are for lines alone
        most_tokens -= plan.counter.count_text(subjects.SECTIONS[Layer(spec.layer)])
    wider = max(room, min(most_tokens, spec.limit_tokens))
    return wider if wider >= least_tokens else None


def _wants_more(plan: Plan, layer: str) -> bool:
    """Tells whether something of a layer was left out or shortened because there was no room."""
    bundles = plan.bundles
    if bundles.is_given:  # somebody else has written them
        return False
    for part in bundles.fragments:
        if part.layer == layer and part.status is budgets.Status.SHRUNK:
            return True
    return any(
        omitted_layer == layer and item.reason is Reason.NO_ROOM
        for omitted_layer, item in bundles.omitted
    )


def _used_tokens(plan: Plan, layer: str) -> int:
    """Returns what a layer of the background costs, with its headings."""
    fragments = [fragment for fragment in plan.content.volatile if fragment.layer == layer]
    return sum(layer_tokens(fragments, plan.counter)) if fragments else 0


def with_shrunk_background(plan: Plan) -> Plan:
    """Takes out of a background that an earlier call has chosen what has no room any more.

    The least valuable texts go first.
    """
    layers = {part.layer for part in plan.fixed or ()}
    order = sorted(layers, key=lambda layer: (plan.allocated.spec_of(layer).priority, layer))
    content, removed = pruned(plan, plan.content, order)
    return replace(plan, fixed=content.volatile, pruned=(*plan.pruned, *removed))


# Quotes


def _with_retrieved(plan: Plan, budget_tokens: int) -> Plan:
    """Quotes those of the ranked texts that are worth their tokens, within a budget."""
    pool = plan.pool
    if pool is None:
        return plan
    history = plan.history
    budget_tokens = _quotes_tokens(plan, pool, budget_tokens)
    heading_tokens = max(map(plan.counter.count_text, (OWN_SECTION, MIXED_SECTION)))
    shown = {position for position in positions_of(history.groups) if position < history.cut}
    quoted_before = {part.id for part in fragments_of(history.backgrounds.values())}
    growth = plan.growth
    is_rebuild = not growth.adds_background
    is_cold_rebuild = plan.grows and growth.is_cold and is_rebuild and not plan.turn.stage
    retrieved = select(
        plan.conversation,
        pool,
        history.cut,
        max(0, budget_tokens - heading_tokens),
        shown={*shown, *history.quoted},
        shown_ids=quoted_before,
        in_short=history.shortened.difference(history.quoted),
        prices=_prices(plan, pool),
        # The last half of the quotes is sent only once, so that the next prompt can grow.
        transient_tokens=budget_tokens // 2 if is_cold_rebuild else 0,
        is_numbered=bool(recall_tool(plan.request.tools)),
        limits=plan.request.settings.retrieval,
    )
    return replace(plan, retrieved=retrieved)


def _quotes_tokens(plan: Plan, pool: Pool, budget_tokens: int) -> int:
    """Returns how many tokens of a budget quotes may take."""
    tier = plan.request.tier
    history = plan.history
    if tier.history_messages is not None and not (pool.others or pool.named_documents):
        # The usage limit lets in a share of the conversation. What it takes from the history must
        # not come back as quotes.
        shown_tokens = sum(group_tokens(group, plan.counter) for group in history.groups)
        shown_tokens += sum(part.tokens for part in (*history.summary, *history.arc))
        most_tokens = int(plan.conversation.total_tokens * tier.budget_share)
        budget_tokens = min(budget_tokens, most_tokens - shown_tokens)
    if plan.grows and pool.evidence.is_weak:
        budget_tokens = min(budget_tokens, int(plan.limit_tokens * QUOTING_POLICY.weak_share))
    return budget_tokens


def _prices(plan: Plan, pool: Pool) -> tuple[float, float]:
    """Returns the price of a token of a quote from this conversation, and from another one.

    A price is the probability with which a text must be needed, for each token that it costs. In a
    cold rebuild, which has nothing cached to lose, quotes from this conversation are free.
    """
    if not plan.grows or pool.question.is_broad:
        return 0.0, 0.0
    settings = plan.request.settings
    worth = QUOTING_POLICY.least_worth[settings.emphasis]
    price = worth / budgets.DEPTH_FACTOR[settings.depth] / plan.limit_tokens
    is_rebuild = not plan.growth.adds_background
    is_free = plan.growth.is_cold and is_rebuild and not pool.evidence.is_weak
    return (0.0 if is_free else price), price
