"""Fitting a finished prompt into its budget, by priorities or by the last resort (seed 004, then seed 001)."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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

JOINS = 2
"""Tokens that may come about where what stands in front of the user's words meets them."""
SMALL_EXCESS_TOKENS = 64
SMALL_EXCESS_SHARE = 0.02
"""Up to this, in tokens or of the budget, an excess is a matter of a few items, not of the last
resort."""
FIRST_MESSAGES = 2
LAST_MESSAGES = 6
"""Messages that middle-out trimming keeps at both ends (seed 001)."""
CLIPPED_RESULT_TOKENS = 64
"""The most that a result in the history costs at the extreme level, framing included."""
Groups = tuple[Group, ...]
_BLANKS = re.compile(r"(?<=\S)\s{2,}")
_BLANK_LINES = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan whose messages are built and fit."""

    plan: Plan
    content: assembly.Content
    built: assembly.BuiltPrompt
    measured: assembly.Measure


def excess_tokens(plan: Plan, content: assembly.Content) -> int:
    """Returns how many tokens a prompt is over its limit once its turn takes all its room.

    Below 0: how many are left.

    While a turn grows in that room, its steps count as all of it: what gives way is the same at
    every call of a loop.
    """
    turn = plan.turn
    limit = plan.limit_tokens - plan.allocated.reserve_tokens - sum(plan.extras.values())
    limit -= plan.counter.count_messages([])
    if not turn.free_tokens:
        return (
            sum(map(plan.cost, assembly.build(content).messages))
            + (JOINS if turn.note else 0)
            - limit
        )
    said = tuple(part for part in content.turn if assembly.has_human([part]))
    steps_tokens = turn.room_tokens - sum(
        assembly.group_tokens(part, plan.counter) for part in said
    )
    head = assembly.build(replace(content, turn=said, turn_note="")).messages
    return sum(map(plan.cost, head)) + steps_tokens + JOINS - limit


def pruned(
    plan: Plan, content: assembly.Content, order: list[str]
) -> tuple[assembly.Content, tuple[Fragment, ...]]:
    """Removes what exceeds the limit from the layers of `order`, the least valuable first.

    Returns that, too.
    """
    gone: list[Fragment] = []
    while (excess := excess_tokens(plan, content)) > 0:
        smaller, taken = assembly.without_least(content, plan.counter, excess, order)
        if smaller == content:
            break
        content = smaller
        gone += taken
    return content, _omitted(gone, Reason.PRUNED)


def fit_prompt(plan: Plan) -> Settled:
    """Builds the messages, recounts them exactly, and takes back what is over, or what the turn's steps will need.

    A little by the strategy's priorities; much, as where a strategy of the application's own leaves
    no room, first by the steps of the last resort, each as far as needed.
    """
    limit = plan.limit_tokens - plan.allocated.reserve_tokens
    content = plan.content
    small_tokens = max(SMALL_EXCESS_TOKENS, int(limit * SMALL_EXCESS_SHARE))
    excess = excess_tokens(plan, content)
    if excess > small_tokens:
        smaller = replace(
            content, history=without_large(content.history, plan.counter, excess, limit)
        )
        if smaller.history != content.history:
            plan = plan.but(last_resort=(*plan.last_resort, LARGE_BLOCKS))
            content = smaller
            excess = excess_tokens(plan, content)
    if excess > small_tokens:
        content, taken, compressed = reduce(
            content, plan.counter, lambda one: excess_tokens(plan, one)
        )
        plan = plan.but(
            last_resort=(*plan.last_resort, *taken),
            pruned=(*plan.pruned, *_omitted(compressed, Reason.COMPRESSED)),
        )
    if excess > 0:
        layers = [
            layer for layer in plan.allocated.tokens if layer not in (Layer.IDENTITY, Layer.MESSAGE)
        ]
        order = sorted(layers, key=lambda layer: (plan.allocated.spec_of(layer).priority, layer))
        content, gone = pruned(plan, content, order)
        plan = plan.but(pruned=(*plan.pruned, *gone))
    built = assembly.build(content)
    measured = assembly.measure(content, built, plan.counter, plan.cost, sum(plan.extras.values()))
    if measured.total_tokens > limit:
        identity = measured.items_tokens[Layer.IDENTITY]
        message = measured.items_tokens[Layer.MESSAGE]
        rest = measured.total_tokens - identity - message - sum(plan.extras.values())
        raise BudgetTooSmallError(limit, floors(identity, message, plan.extras, rest), advice(plan))
    return Settled(plan, content, built, measured)


def _omitted(fragments: Sequence[Fragment], reason: Reason) -> tuple[Fragment, ...]:
    return tuple(replace(fragment, status=Status.OMITTED, reason=reason) for fragment in fragments)


def counted_extras(plan: Plan) -> dict[str, int]:
    """Returns the cost of tools and response format, by their names in errors."""
    counter = plan.counter
    request = plan.request
    tools = counter.count_tools(request.tools)
    form = counter.count_response_format(request.response_format)
    return {
        name: tokens
        for name, tokens in {"tool schemas": tools, "response format": form}.items()
        if tokens
    }


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
    clip = (
        ""
        if settings.oversized_message == "clip"
        else ' oversized_message="clip" shows the message in short.'
    )
    if window is not None and plan.limit_tokens < settings.max_context_tokens:
        return (
            f"The model's window of {window:,} tokens less the output reserve of "
            f"{plan.request.output_reserve_tokens:,} is the limit: use a model with a larger window, lower "
            f"output_reserve_tokens, or shorten these parts.{clip}"
        )
    return (
        f"Raise max_context_tokens (now {settings.max_context_tokens:,}) to at least the sum, "
        f"or shorten these parts; none of them is ever cut silently.{clip}"
    )


# The last resort


def _simpler(message: BaseMessage, counter: TokenCounter) -> BaseMessage:
    """Collapses blanks in the dialogue; in results of tools and in code they may mean something."""
    if (
        isinstance(message, ToolMessage)
        or not isinstance(message.content, str)
        or "```" in message.content
    ):
        return message
    text = "\n".join(_BLANKS.sub(" ", line).rstrip() for line in message.content.split("\n"))
    changed = message.model_copy(update={"content": _BLANK_LINES.sub("\n\n", text)})
    return changed if counter.count_message(changed) < counter.count_message(message) else message


def _newer_half(history: Groups, counter: TokenCounter) -> Groups:
    """Keeps the newest exchanges that cost half of the history together, the last one in any case."""
    costs = [assembly.group_tokens(group, counter) for group in history]
    newest = len(costs) - newest_that_fit(costs, sum(costs) // 2)
    return history[next((i for i in _questions(history) if i >= newest), _questions(history)[-1]) :]


def _clipped_result(message: BaseMessage, counter: TokenCounter) -> BaseMessage:
    if not isinstance(message, ToolMessage):
        return message
    count = counter.count_message
    return (
        clip_message(
            message, count, counter.count_text, CLIPPED_RESULT_TOKENS, reference=message.id
        )
        or message
    )


def _middle_out(history: Groups, _counter: TokenCounter) -> Groups:
    """Keeps the groups that have one of the first 2 or of the last 6 messages."""
    ends = list(accumulate(len(group.messages) for group in history))
    return tuple(
        group
        for group, end in zip(history, ends, strict=True)
        if end - len(group.messages) < FIRST_MESSAGES or end > ends[-1] - LAST_MESSAGES
    )


def without_large(
    history: Groups, counter: TokenCounter, excess_tokens: int, limit_tokens: int
) -> Groups:
    """Returns a history of which what is large alone has given way, so that its neighbours need not.

    First what costs more than the whole limit and cannot be shown in short, then media, the oldest
    first, as needed.
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
        if any(map(has_media, group.messages)):
            told = tuple(without_media(it) if has_media(it) else it for it in group.messages)
            kept[number] = replace(group, messages=told)
            excess_tokens -= assembly.group_tokens(group, counter) - assembly.group_tokens(
                kept[number], counter
            )
    return tuple(kept)


def _questions(history: Groups) -> list[int]:
    """Returns where a human speaks: cut there, a history begins as providers want it."""
    return [i for i, group in enumerate(history) if assembly.has_human([group])] or [0]


def _each(
    change: Callable[[BaseMessage, TokenCounter], BaseMessage],
) -> Callable[[Groups, TokenCounter], Groups]:
    """Returns a step that changes every message."""
    return lambda groups, counter: tuple(
        replace(group, messages=tuple(change(message, counter) for message in group.messages))
        for group in groups
    )


LARGE_BLOCKS = "large blocks"
"""The name of what comes before the steps of the last resort, in a report."""
EXPENDABLE = "expendable"
GIVEN = "given memory"
FACT = "fact"
LADDER: Mapping[str, tuple[Callable[[Groups, TokenCounter], Groups], Mapping[str, int | float]]] = {
    "light": (_each(_simpler), {}),
    "medium": (_newer_half, {Layer.RETRIEVAL: 3}),
    "heavy": (
        lambda it, _: it[_questions(it)[-1] :],
        {Layer.ENTITIES: 3, Layer.RETRIEVAL: 2, Layer.HISTORY: 0.5},
    ),
    "extreme": (_each(_clipped_result), {Layer.ENTITIES: 1, Layer.RETRIEVAL: 1, Layer.HISTORY: 1}),
    "middle-out": (_middle_out, {Layer.ARC: 0.25}),
    "memory reduction": (lambda history, _: history, {EXPENDABLE: 0, GIVEN: 0.5}),
    "memories left out": (lambda history, _: history, {GIVEN: 0, FACT: 0}),
}
"""The steps in the order in which they are taken: what becomes of the history, and of each kind of
fragment the number that stays, the most valuable ones, or the share that stays in any case."""


def _kind(fragment: Fragment) -> str:
    """Returns the name by which a step knows a fragment."""
    if fragment.layer == Layer.PREFERENCES:
        if fragment.expendable:
            return EXPENDABLE
        return (
            GIVEN
            if fragment.id.startswith("memory ")
            else FACT
            if fragment.id.startswith("fact/")
            else ""
        )
    return fragment.layer


def reduce(
    content: assembly.Content, counter: TokenCounter, over: Callable[[assembly.Content], int]
) -> tuple[assembly.Content, tuple[str, ...], tuple[Fragment, ...]]:
    """Takes one step of the last resort after the other until a content fits, or no step is left."""
    taken: list[str] = []
    gone: list[Fragment] = []
    for name, (shorter, most) in LADDER.items():
        if (excess := over(content)) <= 0:
            break
        fragments = content.fragments
        out = _repeated(fragments) if name == "light" else set[int]()
        by_value = sorted(range(len(fragments)), key=lambda i: fragments[i].value)
        for kind, stays in most.items():
            those = [i for i in by_value if _kind(fragments[i]) == kind]
            number = math.ceil(len(those) * stays) if isinstance(stays, float) else stays
            for i in those[: max(0, len(those) - number)]:
                if excess > 0 or isinstance(stays, int):
                    excess -= fragments[i].tokens
                    out.add(i)
        left = tuple(part for i, part in enumerate(fragments) if i not in out)
        smaller = replace(content, fragments=left, history=shorter(content.history, counter))
        if smaller != content:
            taken.append(name)
            gone += [fragments[i] for i in sorted(out)]
            content = smaller
    return content, tuple(taken), tuple(gone)


def _repeated(fragments: Sequence[Fragment]) -> set[int]:
    """Returns the items of the background that say what another says.

    One not retrieved stays, else the most valuable.
    """
    background = [i for i, part in enumerate(fragments) if part.layer not in assembly.STABLE_LAYERS]
    best_last = sorted(
        background, key=lambda i: (fragments[i].layer != Layer.RETRIEVAL, fragments[i].value, -i)
    )
    return set(background).difference(
        {one_line(fold(fragments[i].text)): i for i in best_last}.values()
    )
