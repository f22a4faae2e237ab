"""Fitting a finished prompt into its budget: a few items give way, or the last resort is taken."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.content import has_media
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.layers import (
    LAYERS,
    Groups,
    Place,
    Rung,
    group_tokens,
    is_required,
    place_of,
    tokens_at,
)
from langchain_ctxbudget.messages import fold, one_line, without_media
from langchain_ctxbudget.prompt import assembly
from langchain_ctxbudget.prompt.giving_way import Yielding, give_way
from langchain_ctxbudget.prompt.plan import Plan, UnsentMedia
from langchain_ctxbudget.prompt.tools import costs_of_tools
from langchain_ctxbudget.providers import media_left_out, repair_of, with_calls_as_shown
from langchain_ctxbudget.tokens import TokenCounter
from langchain_ctxbudget.tools import BOUND_TOOLS

JOIN_TOKENS = 2
"""How many tokens more two texts may cost together than apart, as background and user's words."""
SMALL_EXCESS_TOKENS = 64
"""An excess up to this is taken back from a few items, a larger one by the last resort."""
SMALL_EXCESS_SHARE = 0.02
"""The same as a share of the limit; the larger one counts."""
LARGE_BLOCKS = "large blocks"
"""The name in a report of `without_large`, which is tried before the rungs."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan that is settled: its messages are built, counted, and within the limit."""

    plan: Plan
    content: assembly.Content
    built: assembly.BuiltPrompt
    measured: assembly.Measure


def excess_tokens(plan: Plan, content: assembly.Content) -> int:
    """Returns how many tokens a prompt is over its limit once its turn takes all its room.

    Below 0, that many are left. While a turn may still grow, its rounds count as all of its room,
    so that the same texts give way at every call of a loop.
    """
    turn = plan.turn
    limit = plan.limit_tokens - plan.allocated.reserve_tokens - sum(plan.extras.values())
    limit -= plan.counter.count_messages([])
    if not turn.free_tokens:
        joins = JOIN_TOKENS if turn.note else 0
        return sum(map(plan.cost, assembly.build(content).messages)) + joins - limit
    human = tuple(group for group in content.turn if assembly.has_human([group]))
    human_tokens = sum(group_tokens(group, plan.counter) for group in human)
    rounds_tokens = turn.room_tokens - human_tokens
    others = assembly.build(replace(content, turn=human, turn_note="")).messages
    return sum(map(plan.cost, others)) + rounds_tokens + JOIN_TOKENS - limit


def pruned(
    plan: Plan, content: assembly.Content, order: list[str]
) -> tuple[assembly.Content, tuple[Fragment, ...]]:
    """Removes what exceeds the limit from the layers of `order`, the least valuable first.

    Also returns what was removed.
    """
    pruning = _Pruning(plan, content)
    layers = [
        Yielding(priority, partial(pruning.shrink, layer)) for priority, layer in enumerate(order)
    ]
    give_way(layers, excess_tokens(plan, content))
    return pruning.content, _omitted(pruning.removed, Reason.PRUNED)


class _Pruning:
    """A content from which items of one layer after the other are taken out."""

    def __init__(self, plan: Plan, content: assembly.Content) -> None:
        self.plan = plan
        self.content = content
        self.removed: list[Fragment] = []

    def shrink(self, layer: str, excess: int) -> int:
        """Takes items out of a layer until the excess is gone, or the layer has none left.

        Returns by how many tokens the content is smaller.
        """
        excess_left = excess
        while excess_left > 0:
            smaller, removed = assembly.without_least(
                self.content, self.plan.counter, excess_left, [layer]
            )
            if smaller == self.content:
                break
            self.content = smaller
            self.removed += removed
            excess_left = excess_tokens(self.plan, smaller)
        return excess - excess_left


def fit_prompt(plan: Plan) -> Settled:
    """Builds the messages, counts them exactly, and takes out what is over the limit.

    What the turn's next rounds will need counts as taken. A large excess, as where a strategy of
    the application's own leaves no room, is first brought down by the last resort. What is then
    still over is taken from the layers by the strategy's priorities.
    """
    limit = plan.limit_tokens - plan.allocated.reserve_tokens
    plan, content = _within_media_limits(plan)
    excess = excess_tokens(plan, content)
    if excess > _small_excess(limit):
        plan, content = _by_last_resort(plan, content, excess, limit)
        excess = excess_tokens(plan, content)
    if excess > 0:
        content, removed = pruned(plan, content, _layers_by_priority(plan))
        plan = replace(plan, gave_way=plan.gave_way.also(removed))

    extras_tokens = sum(plan.extras.values())
    built = assembly.build(content)
    measured = assembly.measure(content, built, plan.counter, plan.cost, extras_tokens)
    if measured.total_tokens > limit:
        identity = tokens_at(measured.items_tokens, Place.SYSTEM_PROMPT)
        message = tokens_at(measured.items_tokens, Place.TURN)
        rest = measured.total_tokens - identity - message - extras_tokens
        needs = floors(identity, message, plan.extras, rest)
        raise BudgetTooSmallError(limit, needs, advice(plan))
    return Settled(plan, content, built, measured)


def _within_media_limits(plan: Plan) -> tuple[Plan, assembly.Content]:
    """Returns a plan and its content without media beyond what the provider takes in a request."""
    content = plan.content
    messages = assembly.messages_of((*content.history, *content.turn))
    left_out = media_left_out(messages, content.profile.media.limits)
    if not left_out:
        return plan, content
    repairs = tuple(repair_of(messages[at], numbers) for at, numbers in left_out.items())
    history_count = len(assembly.messages_of(content.history))
    media: list[UnsentMedia] = []
    for at, numbers in left_out.items():
        layer = Layer.HISTORY if at < history_count else Layer.MESSAGE
        media.append(UnsentMedia(layer, messages[at], numbers))
    conversation = plan.conversation
    stored = len(conversation.entries) if conversation.has_recall_tool else None
    content = assembly.without_media_at(content, left_out, stored)
    gave_way = replace(plan.gave_way, repairs=repairs, media=tuple(media))
    return replace(plan, gave_way=gave_way), content


def _small_excess(limit: int) -> int:
    """Returns up to how many tokens an excess is small."""
    return max(SMALL_EXCESS_TOKENS, int(limit * SMALL_EXCESS_SHARE))


def _by_last_resort(
    plan: Plan, content: assembly.Content, excess: int, limit: int
) -> tuple[Plan, assembly.Content]:
    """Shortens a prompt that is far over its limit.

    Returns the plan, which notes what was done and what was taken out, and the smaller content.
    """
    history = without_large(content.history, plan.counter, excess, limit)
    if history != content.history:
        content = replace(content, history=history)
        plan = replace(plan, gave_way=plan.gave_way.also((), LARGE_BLOCKS))
        excess = excess_tokens(plan, content)
    if excess > _small_excess(limit):
        content, taken, removed = reduce(
            content, plan.counter, lambda smaller: excess_tokens(plan, smaller)
        )
        omitted = _omitted(removed, Reason.COMPRESSED)
        plan = replace(plan, gave_way=plan.gave_way.also(omitted, *taken))
    return plan, content


def _layers_by_priority(plan: Plan) -> list[str]:
    """Returns the layers that may give way, the least important first."""
    layers = [layer for layer in plan.allocated.tokens if not is_required(layer)]
    return sorted(layers, key=lambda layer: (plan.allocated.spec_of(layer).priority, layer))


def _omitted(fragments: Sequence[Fragment], reason: Reason) -> tuple[Fragment, ...]:
    """Returns fragments as a report names them once they are taken out."""
    return tuple(replace(fragment, status=Status.OMITTED, reason=reason) for fragment in fragments)


def counted_extras(plan: Plan) -> dict[str, int]:
    """Returns what tools and response format cost, if anything, by their names in errors."""
    extras = costs_of_tools(plan)
    format_tokens = plan.counter.count_response_format(plan.request.call.response_format)
    if format_tokens:
        extras["response format"] = format_tokens
    return extras


def floors(identity: int, message: int, extras: Mapping[str, int], framing: int) -> dict[str, int]:
    """Returns the tokens that each part of a request needs at least, by its name in errors."""
    return {
        "system prompt": identity,
        "current message": message,
        **extras,
        "framing": framing,
    }


def advice(plan: Plan) -> str:
    """Returns what to change when the parts that must be sent do not fit."""
    settings = plan.request.settings
    window = plan.request.allowance.window.tokens
    clip = ""
    if settings.oversized_message != "clip":
        clip = ' oversized_message="clip" shows the message in short.'
    tools = ""
    if settings.tool_tokens is None and BOUND_TOOLS in plan.extras:
        tools = " tool_tokens=... binds so many tokens of tools, and the model finds the others."
    if window is not None and plan.limit_tokens < settings.max_context_tokens:
        return (
            f"The model's window of {window:,} tokens less the output reserve of "
            f"{plan.request.output_reserve_tokens:,} is the limit: use a model with a larger "
            f"window, lower output_reserve_tokens, or shorten these parts.{clip}{tools}"
        )
    return (
        f"Raise max_context_tokens (now {settings.max_context_tokens:,}) to at least the sum, "
        f"or shorten these parts; none of them is ever cut silently.{clip}{tools}"
    )


# The last resort


def without_large(
    history: Groups, counter: TokenCounter, excess_tokens: int, limit_tokens: int
) -> Groups:
    """Returns a history without what is large, so that its neighbours need not give way.

    Left out are all groups that cost more than the whole limit (large messages are in short
    already), then media, the oldest first, until the excess is gone.
    """
    kept = dict(enumerate(history))

    def take_out(number: int, _excess: int) -> int:
        return group_tokens(kept.pop(number), counter)

    def take_out_media(number: int, _excess: int) -> int:
        group = kept[number]
        messages = [without_media(it) if has_media(it) else it for it in group.messages]
        kept[number] = with_calls_as_shown(replace(group, messages=tuple(messages)))
        return group_tokens(group, counter) - group_tokens(kept[number], counter)

    items: list[Yielding] = []
    for number, group in enumerate(history):
        if group_tokens(group, counter) > limit_tokens:
            items.append(Yielding((0, number), partial(take_out, number), goes_anyway=True))
        elif any(map(has_media, group.messages)):
            items.append(Yielding((1, number), partial(take_out_media, number)))
    give_way(items, excess_tokens)
    return tuple(kept.values())


def reduce(
    content: assembly.Content, counter: TokenCounter, over: Callable[[assembly.Content], int]
) -> tuple[assembly.Content, tuple[str, ...], tuple[Fragment, ...]]:
    """Takes one rung of the last resort after the other until a content fits, or none is left.

    Args:
        content: the content of a prompt.
        counter: counts its messages.
        over: returns how many tokens a content is over its limit.

    Returns:
        The smaller content, the names of the rungs, and the fragments that were taken out.
    """
    descent = _Descent(content, counter, over)
    rungs = [Yielding(number, partial(descent.take, rung)) for number, rung in enumerate(Rung)]
    give_way(rungs, over(content))
    return descent.content, tuple(descent.taken), tuple(descent.removed)


class _Descent:
    """A content that goes down the rungs of the last resort."""

    def __init__(
        self,
        content: assembly.Content,
        counter: TokenCounter,
        over: Callable[[assembly.Content], int],
    ) -> None:
        self.content = content
        self.counter = counter
        self.over = over
        self.taken: list[str] = []
        """The names of the rungs that made it smaller."""
        self.removed: list[Fragment] = []

    def take(self, rung: Rung, excess: int) -> int:
        """Takes a rung, and returns by how many tokens the content is smaller."""
        fragments = self.content.fragments
        gone = _least_valuable(fragments, rung, excess)
        if rung is Rung.LIGHT:
            gone |= _repeated(fragments)
        history = _shortened(self.content.behind_compaction, rung, self.counter)
        smaller = replace(
            self.content,
            fragments=tuple(part for i, part in enumerate(fragments) if i not in gone),
            history=(*self.content.compacted, *history),
        )
        if smaller != self.content:
            self.taken.append(rung.value)
            self.removed += [fragments[i] for i in sorted(gone)]
            self.content = smaller
        return excess - self.over(smaller)


def _shortened(history: Groups, rung: Rung, counter: TokenCounter) -> Groups:
    """Returns what stays of the messages of the history when a rung is taken."""
    for layer in LAYERS:
        history = layer.shortened(rung, history, counter)
    return history


def _least_valuable(fragments: Sequence[Fragment], rung: Rung, excess: int) -> set[int]:
    """Returns the places of the fragments that go when a rung is taken, layer by layer.

    The least valuable of those that a layer means go first.
    """
    gone: set[int] = set()

    def take_out(place: int, _excess: int) -> int:
        gone.add(place)
        return fragments[place].tokens

    by_value = sorted(range(len(fragments)), key=lambda i: fragments[i].value)
    items: list[Yielding] = []
    for layer in LAYERS:
        of_layer = [i for i in by_value if fragments[i].layer == layer.name]
        for staying in layer.staying(rung):
            candidates = [i for i in of_layer if staying.among(fragments[i])]
            items += [
                Yielding((len(items), order), partial(take_out, i), goes_anyway=staying.is_strict)
                for order, i in enumerate(candidates[: staying.most_going(len(candidates))])
            ]
    give_way(items, excess)
    return gone


def _repeated(fragments: Sequence[Fragment]) -> set[int]:
    """Returns the places of the background's items that say what another one says that stays.

    Of several that say the same, one that is no quote stays, and of quotes the most valuable one.
    """
    places = [place_of(part.layer) for part in fragments]
    background = [i for i, place in enumerate(places) if place.is_in_background]
    worst_first = sorted(
        background, key=lambda i: (places[i] is not Place.QUOTES, fragments[i].value, -i)
    )
    # The last one with a text, which is the best one, overwrites the others.
    staying = {one_line(fold(fragments[i].text)): i for i in worst_first}
    return set(background).difference(staying.values())
