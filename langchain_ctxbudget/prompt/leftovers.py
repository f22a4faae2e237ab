"""Filling what is left of a budget: with quotes, and with other layers that have more to say."""

from dataclasses import replace

from langchain_ctxbudget.history import CONTEXT_FRAME
from langchain_ctxbudget.layers import Place, PromptLayer
from langchain_ctxbudget.prompt.assembly import has_human, layer_tokens
from langchain_ctxbudget.prompt.budgeting import with_items
from langchain_ctxbudget.prompt.fitting import JOIN_TOKENS, excess_tokens, pruned
from langchain_ctxbudget.prompt.plan import Plan


def with_leftovers(plan: Plan) -> Plan:
    """Gives left-over tokens to the background's layers that have more to say, by priority.

    Each layer is asked once, and grows at most to what the strategy allows. Quotes are chosen here.
    Layers outside the background do not grow: a summary that changed with the current message would
    rewrite the prompt.
    """
    if not has_human(plan.turn.groups):
        return plan
    tokens_left = _leftover_tokens(plan)
    view = plan.view
    for layer in _layers_by_priority(plan):
        if layer.place is not Place.QUOTES and not plan.chosen_by(layer).wants_more:
            continue
        used_before = _used_tokens(plan, layer.name)
        tokens = layer.wider_tokens(
            plan.allocated.spec_of(layer.name),
            plan.allocated.tokens[layer.name],
            used_before + tokens_left,
            view,
        )
        if tokens is not None:
            plan = with_items(plan, layer, view, tokens)
        tokens_left -= _used_tokens(plan, layer.name) - used_before
    return plan


def _leftover_tokens(plan: Plan) -> int:
    """Returns the tokens that the background may still take."""
    content = plan.content
    tokens = -excess_tokens(plan, content)
    if plan.growth.mode.adds_background:
        layers = {part.layer for part in content.volatile}
        used = sum(_used_tokens(plan, layer) for layer in layers)
        tokens = min(tokens, plan.growth.most_background_tokens - used)
    elif plan.growth.level_tokens:  # up to the limit, the next prompts are to grow
        tokens -= plan.limit_tokens - plan.growth.level_tokens
    if not content.volatile:
        tokens -= sum(map(plan.counter.count_text, CONTEXT_FRAME))
    return max(0, tokens - JOIN_TOKENS)


def _layers_by_priority(plan: Plan) -> list[PromptLayer]:
    """Returns the layers of the background, the most important first."""
    background = [layer for layer in plan.layers if layer.place.is_in_background]
    return sorted(
        background,
        key=lambda layer: (-plan.allocated.spec_of(layer.name).priority, layer.name),
    )


def _used_tokens(plan: Plan, layer: str) -> int:
    """Returns what a layer of the background costs, with its headings."""
    fragments = plan.content.of(layer)
    return sum(layer_tokens(fragments, plan.counter)) if fragments else 0


def with_shrunk_background(plan: Plan) -> Plan:
    """Takes out of a background that an earlier call has chosen what has no room any more.

    The least valuable texts go first.
    """
    layers = {part.layer for part in plan.fixed or ()}
    order = sorted(layers, key=lambda layer: (plan.allocated.spec_of(layer).priority, layer))
    content, removed = pruned(plan, plan.content, order)
    return replace(plan, fixed=content.volatile, gave_way=plan.gave_way.also(removed))
