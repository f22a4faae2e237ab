"""Measuring what must be sent, refusing what cannot fit, and dividing the rest: the step `compute_budget`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.allocation import MOST_EXCHANGES, Allocation, Exchange, Situation
from langchain_ctxbudget.core.assembly import (
    CONTEXT_INTRO,
    NO_FIRST_QUESTION,
    Content,
    asking,
    build,
    group_tokens,
    has_human,
    turn_note,
)
from langchain_ctxbudget.core.calls import is_user
from langchain_ctxbudget.core.last_resort import MEMORIES_HEADING
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.core.messages import as_sent
from langchain_ctxbudget.core.tiers import TIERS
from langchain_ctxbudget.core.turn_fit import fit_turn
from langchain_ctxbudget.core.turns import group, newest_that_fit
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.errors import (
    BudgetError,
    BudgetTooSmallError,
    InvalidAllocationError,
    InvalidSettingsError,
    SystemPromptTooLargeError,
)
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import remembered, subjects
from langchain_ctxbudget.knowledge.bundles import MAX_ENTITIES, MAX_TOPICS

CONTEXT_FRAME = (fences.opening(fences.CONTEXT), CONTEXT_INTRO, fences.closing(fences.CONTEXT))
JOINS = 2
"""Tokens that may come about where what stands in front of the user's words meets them."""
TURN_SHARES = (0.25, 0.5, 0.75)
"""Of what the system prompt leaves, what a current turn that outgrows its room gets, stage by stage; after the last one
its oldest calls give way."""
MOST_REQUIRED = 0.5
"""What must be sent may take so much of a budget that a usage tier has lowered."""
FRAMED, FRAMES_TOKENS = 1.1, 64
"""What texts cost with the headings and fences around them, about: so many times as much, and so much more."""
MESSAGES_OF_EXCHANGE = 2
"""Of an exchange without calls: so `keep_messages` tells how many exchanges stay."""
LAST_SHARE = 0.5
"""What the last exchange may cost to stay whole, calls and results included; of a larger one, its last messages do."""
LONGEST_WALK = 1_000
"""Messages that are looked at to find the newest exchanges."""


def compute_budget(draft: Draft) -> None:
    """Measure what must be sent, refuse what cannot fit, and divide the rest.

    Raises:
        BudgetTooSmallError: system prompt, current turn and tool schemas alone are over the budget.
        InvalidAllocationError: a strategy of the application's own gave away more than there is.
        SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
    """
    settings, counter = draft.settings, draft.counter
    draft.limit_tokens = _limit(draft)
    if draft.window.tokens is None and settings.output_reserve_tokens:
        draft.failures.append(
            f"output reserve of {settings.output_reserve_tokens:,} tokens not kept: the model's window is not known "
            f"(set window_tokens)"
        )
    draft.extras = {
        name: tokens
        for name, tokens in (
            ("tool schemas", counter.count_tools(draft.tools)),
            ("response format", counter.count_response_format(draft.response_format)),
        )
        if tokens
    }
    identity = _identity_tokens(draft)
    whole, draft.limit_tokens = draft.limit_tokens, _lowered(draft, identity)
    try:
        _divide(draft, identity)
    except BudgetError:
        if draft.limit_tokens == whole:
            raise
        # What must be sent is sent, however little is left of a usage limit.
        draft.limit_tokens, draft.long_turn, draft.turn_note = whole, 0, ""
        _divide(draft, identity)


def _divide(draft: Draft, identity: int) -> None:
    settings, counter, conversation = draft.settings, draft.counter, draft.conversation
    framing = counter.count_messages([]) + (counter.count_message(SystemMessage("")) if identity else 0)
    if not isinstance(draft.turn[0], HumanMessage):
        framing += counter.count_message(HumanMessage(NO_FIRST_QUESTION))
    _fit_turn(draft, identity, framing)
    exchanges = newest_exchanges(conversation)
    newest, last = _newest(draft, exchanges)
    keep = max(last, newest_that_fit(newest, int(draft.limit_tokens * compact.KEEP_SHARE)))
    if draft.tier.history_messages is not None:
        keep = last
    draft.preferences = remembered.preference_fragments(settings, counter.count_text)
    memories = remembered.memory_fragments(settings, counter.count_text)
    memory_heading = counter.count_text(MEMORIES_HEADING) if memories else 0
    learned = max(remembered.facts_tokens(part, counter.count_text) for part in draft.remembered.either)
    topics = [one for one in draft.detected.topics if one.line][:MAX_TOPICS]
    entities = [one for one in draft.detected.entities if one.line][:MAX_ENTITIES]
    window = draft.window.tokens
    situation = Situation(
        total_tokens=draft.limit_tokens,
        overhead_tokens=framing
        + sum(draft.extras.values())
        + sum(counter.count_text(text) for text in _fence_texts(draft)),
        identity_tokens=identity,
        preferences_tokens=sum(fragment.tokens for fragment in draft.preferences),
        memory_tokens=sum(fragment.tokens for fragment in memories) + memory_heading + learned,
        learned_tokens=learned,
        message_tokens=draft.turn_tokens + draft.turn_free_tokens,
        message_count=len(conversation.entries),
        history_tokens=compact.history_tokens(conversation, draft.limit_tokens),
        keep_tokens=sum(newest[len(newest) - keep :]),
        pinned_tokens=compact.pinned_tokens(conversation, draft.limit_tokens),
        exchanges=exchanges,
        exchange_tokens=conversation.total_tokens // max(1, conversation.exchanges),
        topic_count=len(topics),
        topic_tokens=sum(counter.count_text(topic.line) for topic in topics),
        entity_count=len(entities),
        entity_tokens=sum(counter.count_text(entity.line) for entity in entities),
        custom=tuple(layer.spec for layer in settings.layers),
        reserved_tokens=0 if window is None else min(settings.max_context_tokens, window) - draft.limit_tokens,
        compacted=draft.made_for in conversation.cuts,
        depth=settings.depth,
        prioritize_history=settings.prioritize_history,
        emphasis=settings.emphasis,
    )
    for mark in fences.marks():  # so that a forecast, which tokenizes nothing, knows what they cost
        counter.count_text(mark)
    allocation = _checked(settings.strategy.allocate(situation), situation)
    if allocation.keep_messages is not None and draft.tier.history_messages is None:
        # As many of those as fit what the strategy gave them.
        wanted = compact.newest_costs(conversation, allocation.keep_messages, draft.limit_tokens)
        keep = newest_that_fit(wanted, allocation.tokens[Layer.HISTORY])
    draft.allocation = replace(allocation, keep_messages=keep)


def _newest(draft: Draft, exchanges: Sequence[Exchange]) -> tuple[list[int], int]:
    """What the newest messages cost that are to stay, and how many of them do in any case.

    An exchange in which an agent has called tools counts as one, however many messages it has.
    """
    wanted = draft.settings.keep_messages
    sizes = [exchange.messages for exchange in exchanges[: wanted // MESSAGES_OF_EXCHANGE]]
    newest = compact.newest_costs(draft.conversation, max(wanted, sum(sizes)), draft.limit_tokens)
    last = min(wanted, exchanges[0].messages) if exchanges else 0
    if sizes and sum(newest[len(newest) - sizes[0] :]) <= draft.limit_tokens * LAST_SHARE:
        last = sizes[0]
    return newest, last


def _checked(allocation: Allocation, situation: Situation) -> Allocation:
    """An allocation with every layer in it.

    Raises:
        InvalidAllocationError: it gives away more than there is, or less than nothing.
    """
    _require_allocation(allocation)
    shared = {
        layer: allocation.tokens.get(layer, 0)
        for layer in (*Layer, *(spec.layer for spec in situation.custom))
        if layer not in (Layer.IDENTITY, Layer.MESSAGE)
    }
    given = {**shared, "reserve": allocation.reserve_tokens}
    if min(given.values()) < 0 or sum(given.values()) > situation.free_tokens:
        raise InvalidAllocationError(allocation.strategy, situation.free_tokens, given)
    required: dict[str, int] = {Layer.IDENTITY: situation.identity_tokens, Layer.MESSAGE: situation.message_tokens}
    return replace(allocation, tokens={**shared, **required})


def _require_allocation(allocation: object) -> None:
    """Refuse what a strategy of the application's own cannot mean.

    Raises:
        InvalidSettingsError: it is no allocation, or something in it is no count.
    """
    if not isinstance(allocation, Allocation):
        raise InvalidSettingsError(f"A strategy must give an Allocation, as `share_out` does, not {allocation!r}")
    if not isinstance(allocation.strategy, str) or not isinstance(allocation.tokens, Mapping):
        raise InvalidSettingsError(
            f"An Allocation has the strategy's name and a mapping of tokens, not {allocation.strategy!r} and "
            f"{allocation.tokens!r}"
        )
    keep = 0 if allocation.keep_messages is None else allocation.keep_messages
    counts = {**allocation.tokens, "reserve_tokens": allocation.reserve_tokens, "keep_messages": keep}
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or (name == "keep_messages" and count < 0):
            raise InvalidSettingsError(
                f"The strategy {allocation.strategy!r} gave {count!r} for {name}, not a whole number"
            )


def _limit(draft: Draft) -> int:
    window = draft.window.tokens
    if window is None:
        return draft.settings.max_context_tokens
    return min(draft.settings.max_context_tokens, max(0, window - draft.output_reserve_tokens))


def _lowered(draft: Draft, identity: int) -> int:
    """The share of the limit that the usage tier lets in, or the next larger one of which half is left.

    Where what must be sent takes more than half of every share, it is the whole limit. It does not depend on what an
    agent adds to its turn: the prompt of a loop keeps its beginning.
    """
    asked = asking(draft.turn)
    said = 0 if asked is None else draft.counter.count_message(draft.turn[asked])
    required = identity + said + sum(draft.extras.values())
    shares = sorted({share for tier in TIERS if (share := tier.budget_share) >= draft.tier.budget_share})
    lowered = (int(draft.limit_tokens * share) for share in shares)
    return next((tokens for tokens in lowered if required <= tokens * MOST_REQUIRED), draft.limit_tokens)


def _identity_tokens(draft: Draft) -> int:
    if not draft.system_prompt:
        return 0
    tokens = draft.counter.count_text(draft.system_prompt)
    window, share = draft.window.tokens, draft.settings.max_system_share
    if window is not None and tokens > window * share:
        most = f"{share:.0%} of the model's window of {window:,} tokens"
        raise SystemPromptTooLargeError(tokens, int(window * share), most, "max_system_share")
    return tokens


def newest_exchanges(conversation: Conversation) -> tuple[Exchange, ...]:
    """The newest exchanges of a conversation, newest first."""
    exchanges: list[Exchange] = []
    messages = tokens = 0
    for entry in reversed(conversation.entries[-LONGEST_WALK:]):
        messages, tokens = messages + 1, tokens + entry.tokens
        if is_user(entry.message):
            exchanges.append(Exchange(messages, tokens))
            messages = tokens = 0
            if len(exchanges) == MOST_EXCHANGES:
                break
    return tuple(exchanges)


def _fit_turn(draft: Draft, identity: int, framing: int) -> None:
    """Plan the room of the current turn, and fit the turn into it.

    Where the request has tools, a share is kept free for calls and results, so that nothing before them changes while
    an agent loops. A turn that grows larger than its room gets more in a few stages, up to `TURN_SHARES[-1]`; at each,
    history and context block are planned anew for what it leaves them.

    Raises:
        BudgetTooSmallError: not even the smallest form fits.
    """
    counter, settings = draft.counter, draft.settings
    groups, repairs = group([as_sent(message) for message in draft.turn])
    draft.turn_repairs = tuple(repairs)
    room = draft.limit_tokens - identity - framing - sum(draft.extras.values())
    whole = sum(group_tokens(part, counter) for part in groups)
    said = sum(group_tokens(part, counter) for part in groups if has_human([part]))
    reserve = int(max(0, room - said) * settings.tool_reserve) if draft.tools else 0
    beside = _beside_turn(draft)
    most = [room - min(int(room * (1 - share)), beside) for share in TURN_SHARES]
    planned = said + reserve
    if whole > planned:
        draft.long_turn = next((stage for stage, tokens in enumerate(most, start=1) if whole <= tokens), len(most))
        planned = most[draft.long_turn - 1]
    fitted = fit_turn(
        groups,
        counter,
        budget_tokens=whole if whole <= min(planned, room) else min(planned, most[-1]),
        room_tokens=room,
        clip_human=settings.oversized_message == "clip",
        name=_numbered(draft),
    )
    if isinstance(fitted, int):
        needed_tokens = floors(identity, fitted, draft.extras, framing)
        raise BudgetTooSmallError(draft.limit_tokens, needed_tokens, advice(draft))
    draft.turn_groups, draft.turn_left_out, draft.turn_clipped = fitted.groups, fitted.left_out, fitted.clipped
    draft.turn_tokens = sum(group_tokens(part, counter) for part in fitted.groups)
    if fitted.left_out and has_human(fitted.groups):
        note = turn_note(len(fitted.left_out))
        cost = counter.count_text(note) + JOINS
        if draft.turn_tokens + cost <= room:
            draft.turn_note, draft.turn_tokens = note, draft.turn_tokens + cost
    draft.turn_free_tokens = max(0, min(planned, room) - draft.turn_tokens) if whole <= room or draft.long_turn else 0


def excess_tokens(draft: Draft, content: Content) -> int:
    """By how many tokens a prompt is over its limit when its turn takes all of its room; below 0: what is left.

    It is counted with the user's words alone, and the planned room for the rest of the turn: so it is the same at every
    call of a loop, to the token, however far its steps have come, and what gives way is the same, too.
    """
    words = tuple(part for part in content.turn if has_human([part]))
    planned = draft.turn_tokens + draft.turn_free_tokens - sum(group_tokens(part, draft.counter) for part in words)
    begun = draft.counter.count_messages(build(replace(content, turn=words, turn_note="")).messages)
    now = draft.counter.count_messages(build(content).messages)
    limit = draft.limit_tokens - draft.allocated.reserve_tokens - sum(draft.extras.values())
    return max(begun + planned, now) - limit


def _numbered(draft: Draft) -> Callable[[BaseMessage], str | None]:
    """The numbers by which the recall tool gives the messages of the turn: they go on after those that are stored."""
    first = len(draft.conversation.entries) + 1
    numbers: dict[object, str] = {}
    for number, message in enumerate(draft.turn, start=first):
        numbers[message.id or getattr(message, "tool_call_id", None)] = f"#{number}"

    def name(message: BaseMessage) -> str | None:
        return numbers.get(message.id or getattr(message, "tool_call_id", ""))

    return name


def _beside_turn(draft: Draft) -> int:
    """What everything else that could go into the prompt costs, in tokens, its frames included."""
    counter, settings = draft.counter, draft.settings
    said = (*settings.manner, *settings.preferences, *settings.memories)
    known = sum(counter.count_text(text) for text in said)
    tokens = draft.conversation.total_tokens + known + sum(part.tokens for part in draft.fixed or ())
    return int(tokens * FRAMED) + FRAMES_TOKENS if tokens else 0


def floors(identity: int, message: int, extras: Mapping[str, int], framing: int) -> dict[str, int]:
    """What each part of a request needs at least, in tokens, by its name in errors."""
    return {"L0 system prompt": identity, "L7 current message": message, **extras, "framing": framing}


def advice(draft: Draft) -> str:
    """What to change when the parts that must be sent do not fit."""
    clips = draft.settings.oversized_message == "clip"
    clip = "" if clips else ' oversized_message="clip" keeps head and tail of the message.'
    window = draft.window.tokens
    if window is not None and draft.limit_tokens < draft.settings.max_context_tokens:
        return (
            f"The model's window of {window:,} tokens less the output reserve of "
            f"{draft.output_reserve_tokens:,} is the limit: use a model with a larger window, lower "
            f"output_reserve_tokens, or shorten these parts.{clip}"
        )
    return (
        f"Raise max_context_tokens (now {draft.settings.max_context_tokens:,}) to at least the sum, "
        f"or shorten these parts; none of them is ever cut silently.{clip}"
    )


def _fence_texts(draft: Draft) -> list[str]:
    """The fences that this prompt may need, so that what they cost is not promised to a layer."""
    texts = [*CONTEXT_FRAME]
    if draft.detected.topics:
        texts.append(subjects.TOPICS_SECTION)
    if draft.detected.entities:
        texts.append(subjects.ENTITIES_SECTION)
    if draft.preferences or draft.settings.memories or draft.remembered.all:
        texts += [fences.opening(fences.PREFERENCES), fences.closing(fences.PREFERENCES)]
    return texts
