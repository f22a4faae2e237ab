"""Fitting a finished prompt into its budget: a few items give way, or the last resort is taken."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.messages import (
    Group,
    clip_message,
    fold,
    has_media,
    newest_that_fit,
    one_line,
    without_media,
)
from langchain_ctxbudget.prompt import assembly
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.tokens import TokenCounter

JOIN_TOKENS = 2
"""How many tokens more two texts may cost together than apart, as background and user's words."""
SMALL_EXCESS_TOKENS = 64
"""An excess up to this is taken back from a few items, a larger one by the last resort."""
SMALL_EXCESS_SHARE = 0.02
"""The same as a share of the limit; the larger one counts."""
FIRST_MESSAGES = 2
"""The messages that the measure `middle-out` keeps at the beginning of the history."""
LAST_MESSAGES = 6
"""The messages that it keeps at the end."""
CLIPPED_RESULT_TOKENS = 64
"""The most that a tool's result in the history costs after the measure `extreme`."""

Groups = tuple[Group, ...]
_BLANKS = re.compile(r"(?<=\S)\s{2,}")
_BLANK_LINES = re.compile(r"\n{3,}")


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
    human_tokens = sum(assembly.group_tokens(group, plan.counter) for group in human)
    rounds_tokens = turn.room_tokens - human_tokens
    others = assembly.build(replace(content, turn=human, turn_note="")).messages
    return sum(map(plan.cost, others)) + rounds_tokens + JOIN_TOKENS - limit


def pruned(
    plan: Plan, content: assembly.Content, order: list[str]
) -> tuple[assembly.Content, tuple[Fragment, ...]]:
    """Removes what exceeds the limit from the layers of `order`, the least valuable first.

    Also returns what was removed.
    """
    removed: list[Fragment] = []
    while (excess := excess_tokens(plan, content)) > 0:
        smaller, taken = assembly.without_least(content, plan.counter, excess, order)
        if smaller == content:
            break
        content = smaller
        removed += taken
    return content, _omitted(removed, Reason.PRUNED)


def fit_prompt(plan: Plan) -> Settled:
    """Builds the messages, counts them exactly, and takes out what is over the limit.

    What the turn's next rounds will need counts as taken. A large excess, as where a strategy of
    the application's own leaves no room, is first brought down by the last resort. What is then
    still over is taken from the layers by the strategy's priorities.
    """
    limit = plan.limit_tokens - plan.allocated.reserve_tokens
    content = plan.content
    excess = excess_tokens(plan, content)
    if excess > _small_excess(limit):
        plan, content = _by_last_resort(plan, content, excess, limit)
        excess = excess_tokens(plan, content)
    if excess > 0:
        content, removed = pruned(plan, content, _layers_by_priority(plan))
        plan = replace(plan, pruned=(*plan.pruned, *removed))

    extras_tokens = sum(plan.extras.values())
    built = assembly.build(content)
    measured = assembly.measure(content, built, plan.counter, plan.cost, extras_tokens)
    if measured.total_tokens > limit:
        identity = measured.items_tokens[Layer.IDENTITY]
        message = measured.items_tokens[Layer.MESSAGE]
        rest = measured.total_tokens - identity - message - extras_tokens
        needs = floors(identity, message, plan.extras, rest)
        raise BudgetTooSmallError(limit, needs, advice(plan))
    return Settled(plan, content, built, measured)


def _small_excess(limit: int) -> int:
    """Returns up to how many tokens an excess is small."""
    return max(SMALL_EXCESS_TOKENS, int(limit * SMALL_EXCESS_SHARE))


def _by_last_resort(
    plan: Plan, content: assembly.Content, excess: int, limit: int
) -> tuple[Plan, assembly.Content]:
    """Shortens a prompt that is far over its limit.

    Returns the plan, which notes the measures and what they took out, and the smaller content.
    """
    history = without_large(content.history, plan.counter, excess, limit)
    if history != content.history:
        content = replace(content, history=history)
        plan = replace(plan, last_resort=(*plan.last_resort, LARGE_BLOCKS))
        excess = excess_tokens(plan, content)
    if excess > _small_excess(limit):
        content, taken, removed = reduce(
            content, plan.counter, lambda smaller: excess_tokens(plan, smaller)
        )
        plan = replace(
            plan,
            last_resort=(*plan.last_resort, *taken),
            pruned=(*plan.pruned, *_omitted(removed, Reason.COMPRESSED)),
        )
    return plan, content


def _layers_by_priority(plan: Plan) -> list[str]:
    """Returns the layers that may give way, the least important first."""
    required = (Layer.IDENTITY, Layer.MESSAGE)
    layers = [layer for layer in plan.allocated.tokens if layer not in required]
    return sorted(layers, key=lambda layer: (plan.allocated.spec_of(layer).priority, layer))


def _omitted(fragments: Sequence[Fragment], reason: Reason) -> tuple[Fragment, ...]:
    """Returns fragments as a report names them once they are taken out."""
    return tuple(replace(fragment, status=Status.OMITTED, reason=reason) for fragment in fragments)


def counted_extras(plan: Plan) -> dict[str, int]:
    """Returns what tools and response format cost, if anything, by their names in errors."""
    costs = {
        "tool schemas": plan.counter.count_tools(plan.request.tools),
        "response format": plan.counter.count_response_format(plan.request.response_format),
    }
    return {name: tokens for name, tokens in costs.items() if tokens}


def floors(identity: int, message: int, extras: Mapping[str, int], framing: int) -> dict[str, int]:
    """Returns the tokens that each part of a request needs at least, by its name in errors."""
    return {
        "L0 system prompt": identity,
        "L7 current message": message,
        **extras,
        "framing": framing,
    }


def advice(plan: Plan) -> str:
    """Returns what to change when the parts that must be sent do not fit."""
    settings = plan.request.settings
    window = plan.request.window.tokens
    clip = ""
    if settings.oversized_message != "clip":
        clip = ' oversized_message="clip" shows the message in short.'
    if window is not None and plan.limit_tokens < settings.max_context_tokens:
        return (
            f"The model's window of {window:,} tokens less the output reserve of "
            f"{plan.request.output_reserve_tokens:,} is the limit: use a model with a larger "
            f"window, lower output_reserve_tokens, or shorten these parts.{clip}"
        )
    return (
        f"Raise max_context_tokens (now {settings.max_context_tokens:,}) to at least the sum, "
        f"or shorten these parts; none of them is ever cut silently.{clip}"
    )


# The last resort: what its measures do to the history


def _with_fewer_blanks(message: BaseMessage, counter: TokenCounter) -> BaseMessage:
    """Returns a message without needless blanks, if that is shorter.

    Results of tools, and messages with code, stay as they are: blanks may mean something there.
    """
    if isinstance(message, ToolMessage) or not isinstance(message.content, str):
        return message
    if "```" in message.content:
        return message
    lines = [_BLANKS.sub(" ", line).rstrip() for line in message.content.split("\n")]
    text = _BLANK_LINES.sub("\n\n", "\n".join(lines))
    shorter = message.model_copy(update={"content": text})
    return shorter if counter.count_message(shorter) < counter.count_message(message) else message


def _newer_half(history: Groups, counter: TokenCounter) -> Groups:
    """Returns the newest exchanges that cost at most half of the history, at least the last one."""
    costs = [assembly.group_tokens(group, counter) for group in history]
    half = len(costs) - newest_that_fit(costs, sum(costs) // 2)
    questions = _questions(history)
    start = next((number for number in questions if number >= half), questions[-1])
    return history[start:]


def _last_exchange(history: Groups, _counter: TokenCounter) -> Groups:
    """Returns the last exchange alone."""
    return history[_questions(history)[-1] :]


def _unchanged(history: Groups, _counter: TokenCounter) -> Groups:
    """Returns the history as it is."""
    return history


def _clipped_result(message: BaseMessage, counter: TokenCounter) -> BaseMessage:
    """Returns a tool's result in short, and any other message as it is."""
    if not isinstance(message, ToolMessage):
        return message
    clipped = clip_message(
        message,
        counter.count_message,
        counter.count_text,
        CLIPPED_RESULT_TOKENS,
        reference=message.id,
    )
    return message if clipped is None else clipped


def _middle_out(history: Groups, _counter: TokenCounter) -> Groups:
    """Returns the groups that have one of the first or of the last messages."""
    ends = list(accumulate(len(group.messages) for group in history))
    return tuple(
        group
        for group, end in zip(history, ends, strict=True)
        if end - len(group.messages) < FIRST_MESSAGES or end > ends[-1] - LAST_MESSAGES
    )


def without_large(
    history: Groups, counter: TokenCounter, excess_tokens: int, limit_tokens: int
) -> Groups:
    """Returns a history without what is large, so that its neighbours need not give way.

    Left out are all groups that cost more than the whole limit (large messages are in short
    already), then media, the oldest first, until the excess is gone.
    """
    kept: list[Group] = []
    for group in history:
        tokens = assembly.group_tokens(group, counter)
        if tokens > limit_tokens:
            excess_tokens -= tokens
        else:
            kept.append(group)
    for number, group in enumerate(kept):
        if excess_tokens <= 0:
            break
        if not any(map(has_media, group.messages)):
            continue
        messages = [without_media(it) if has_media(it) else it for it in group.messages]
        kept[number] = replace(group, messages=tuple(messages))
        excess_tokens -= assembly.group_tokens(group, counter)
        excess_tokens += assembly.group_tokens(kept[number], counter)
    return tuple(kept)


def _questions(history: Groups) -> list[int]:
    """Returns the numbers of the groups in which a human speaks, or that of the first group.

    Cut there, a history begins as providers want it.
    """
    numbers = [number for number, group in enumerate(history) if assembly.has_human([group])]
    return numbers or [0]


def _each(
    change: Callable[[BaseMessage, TokenCounter], BaseMessage],
) -> Callable[[Groups, TokenCounter], Groups]:
    """Returns a function that applies a change to every message of a history."""
    return lambda groups, counter: tuple(
        replace(group, messages=tuple(change(message, counter) for message in group.messages))
        for group in groups
    )


# The measures, and what they do to fragments

LARGE_BLOCKS = "large blocks"
"""The name in a report of `without_large`, which is tried before the measures."""
EXPENDABLE = "expendable"
"""The kind of facts that need not stay where room is short."""
GIVEN = "given memory"
"""The kind of memories that the settings give."""
FACT = "fact"
"""The kind of all other facts."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """One measure of the last resort."""

    shorten: Callable[[Groups, TokenCounter], Groups]
    """Returns what stays of the history."""
    staying: Mapping[str, int | float] = field(default_factory=dict)
    """How many fragments of a kind stay, the most valuable ones.

    An `int` is their number: all others go. A `float` is a share of them: it stays in any case, and
    of the others no more go than are needed."""


LADDER: Mapping[str, _Measure] = {
    "light": _Measure(_each(_with_fewer_blanks)),
    "medium": _Measure(_newer_half, {Layer.RETRIEVAL: 3}),
    "heavy": _Measure(_last_exchange, {Layer.ENTITIES: 3, Layer.RETRIEVAL: 2, Layer.HISTORY: 0.5}),
    "extreme": _Measure(
        _each(_clipped_result), {Layer.ENTITIES: 1, Layer.RETRIEVAL: 1, Layer.HISTORY: 1}
    ),
    "middle-out": _Measure(_middle_out, {Layer.ARC: 0.25}),
    "memory reduction": _Measure(_unchanged, {EXPENDABLE: 0, GIVEN: 0.5}),
    "memories left out": _Measure(_unchanged, {GIVEN: 0, FACT: 0}),
}
"""The measures by their names in a report, in the order in which they are taken. The first one also
takes out what the background says twice. `Layer.HISTORY` is the summary."""


def _kind(fragment: Fragment) -> str:
    """Returns the kind by which a measure knows a fragment; empty for what no measure takes."""
    if fragment.layer != Layer.PREFERENCES:
        return fragment.layer
    if fragment.expendable:
        return EXPENDABLE
    if fragment.id.startswith("memory "):
        return GIVEN
    return FACT if fragment.id.startswith("fact/") else ""


def reduce(
    content: assembly.Content, counter: TokenCounter, over: Callable[[assembly.Content], int]
) -> tuple[assembly.Content, tuple[str, ...], tuple[Fragment, ...]]:
    """Takes one measure of the last resort after the other until a content fits, or none is left.

    Args:
        content: the content of a prompt.
        counter: counts its messages.
        over: returns how many tokens a content is over its limit.

    Returns:
        The smaller content, the names of the measures, and the fragments that were taken out.
    """
    taken: list[str] = []
    removed: list[Fragment] = []
    for name, measure in LADDER.items():
        excess = over(content)
        if excess <= 0:
            break
        fragments = content.fragments
        gone = _least_valuable(fragments, measure.staying, excess)
        if name == "light":
            gone |= _repeated(fragments)
        smaller = replace(
            content,
            fragments=tuple(part for i, part in enumerate(fragments) if i not in gone),
            history=measure.shorten(content.history, counter),
        )
        if smaller != content:
            taken.append(name)
            removed += [fragments[i] for i in sorted(gone)]
            content = smaller
    return content, tuple(taken), tuple(removed)


def _least_valuable(
    fragments: Sequence[Fragment], staying: Mapping[str, int | float], excess: int
) -> set[int]:
    """Returns the places of the fragments that go by a measure, see `_Measure.staying`.

    The least valuable of each kind go first.
    """
    gone: set[int] = set()
    by_value = sorted(range(len(fragments)), key=lambda i: fragments[i].value)
    for kind, stays in staying.items():
        of_kind = [i for i in by_value if _kind(fragments[i]) == kind]
        number_staying = math.ceil(len(of_kind) * stays) if isinstance(stays, float) else stays
        for i in of_kind[: max(0, len(of_kind) - number_staying)]:
            if excess > 0 or isinstance(stays, int):
                excess -= fragments[i].tokens
                gone.add(i)
    return gone


def _repeated(fragments: Sequence[Fragment]) -> set[int]:
    """Returns the places of the background's items that say what another one says that stays.

    Of several that say the same, one that is no quote stays, and of quotes the most valuable one.
    """
    background = [i for i, part in enumerate(fragments) if part.layer not in assembly.STABLE_LAYERS]
    worst_first = sorted(
        background, key=lambda i: (fragments[i].layer != Layer.RETRIEVAL, fragments[i].value, -i)
    )
    # The last one with a text, which is the best one, overwrites the others.
    staying = {one_line(fold(fragments[i].text)): i for i in worst_first}
    return set(background).difference(staying.values())
