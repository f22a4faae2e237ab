"""Measuring what must be sent, refusing what cannot fit, and dividing the rest: the step `compute_budget`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.budget import MOST_EXCHANGES, Allocation, Exchange, Situation
from langchain_ctxbudget.budget.layers import MEMORIES_HEADING, Layer
from langchain_ctxbudget.budget.tiers import TIERS
from langchain_ctxbudget.errors import (
    BudgetError,
    BudgetTooSmallError,
    InvalidAllocationError,
    InvalidSettingsError,
    SystemPromptTooLargeError,
)
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import facts_layer, subjects
from langchain_ctxbudget.knowledge.facts import is_kept_by_hand
from langchain_ctxbudget.knowledge.subjects import MAX_ENTITIES, MAX_TOPICS
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.messages.calls import is_user
from langchain_ctxbudget.messages.messages import as_sent
from langchain_ctxbudget.messages.turns import group, newest_that_fit
from langchain_ctxbudget.prompt.assembly import (
    CONTEXT_INTRO,
    NO_FIRST_QUESTION,
    Content,
    asking,
    build,
    group_tokens,
    has_human,
    turn_note,
)
from langchain_ctxbudget.prompt.plan import Plan, PlannedTurn, uncorrected_note
from langchain_ctxbudget.prompt.turn_fit import fit_turn

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


def compute_budget(plan: Plan) -> Plan:
    """Measures what must be sent, refuses what cannot fit, and divides the rest.

    Raises:
        BudgetTooSmallError: system prompt, current turn and tool schemas alone are over the budget.
        InvalidAllocationError: a strategy of the application's own gave away more than there is.
        SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
    """
    reserve = plan.request.settings.output_reserve_tokens
    if plan.request.window.tokens is None and reserve:
        plan = plan.failed(
            f"output reserve of {reserve:,} tokens not kept: the model's window is not known (set window_tokens)"
        )
    plan = plan.but(limit_tokens=_limit(plan))
    try:
        return _divided(plan)
    except BudgetTooSmallError as refused:
        return _divided_uncorrected(plan, refused)


def _divided(plan: Plan) -> Plan:
    """Divides what the usage tier lets in, or all of the limit where what must be sent needs more."""
    plan = plan.but(extras=counted_extras(plan))
    identity, problems = _identity_tokens(plan)
    plan = plan.failed(*problems)
    lowered = plan.but(limit_tokens=_lowered(plan, identity))
    try:
        return _allocated(lowered, identity)
    except BudgetError:
        if lowered.limit_tokens == plan.limit_tokens:
            raise
        return _allocated(plan, identity)  # what must be sent is sent, however little is left of a usage limit


def counted_extras(plan: Plan) -> dict[str, int]:
    """Returns what tools and response format cost, by their names in errors."""
    counter, request = plan.counter, plan.request
    tools, form = counter.count_tools(request.tools), counter.count_response_format(request.response_format)
    counted = {"tool schemas": tools, "response format": form}
    return {name: tokens for name, tokens in counted.items() if tokens}


def _divided_uncorrected(plan: Plan, refused: BudgetTooSmallError) -> Plan:
    """Sends what must be sent, and nothing else, where only corrected counts say that it does not fit.

    What a provider measured for other prompts is no proof that this one is too large. Refused, it would not be measured
    either, and the correction would never be put right.

    Raises:
        BudgetTooSmallError: it does not fit without corrections, either.
    """
    plain = plan.uncorrected()
    if plain is plan:
        raise refused
    limit = 0
    try:
        plain = _divided(plain.but(limit_tokens=0))
    except BudgetTooSmallError as least:
        limit = sum(least.floors.values())
    if limit > plan.limit_tokens:
        raise refused
    return _divided(
        plain.but(limit_tokens=limit).failed(uncorrected_note(sum(refused.floors.values()), limit, plan.limit_tokens))
    )


def _allocated(plan: Plan, identity: int) -> Plan:
    """Fits the turn into its room, and asks the strategy what every layer gets."""
    request, counter, conversation = plan.request, plan.counter, plan.conversation
    settings, tier = request.settings, request.tier
    framing = counter.count_messages([]) + (counter.count_message(SystemMessage("")) if identity else 0)
    if not isinstance(request.turn[0], HumanMessage):
        framing += counter.count_message(HumanMessage(NO_FIRST_QUESTION))
    plan = plan.but(turn=_planned_turn(plan, identity, framing))
    exchanges = newest_exchanges(conversation)
    newest, last = _newest(plan, exchanges)
    keep = max(last, newest_that_fit(newest, int(plan.limit_tokens * compact.KEEP_SHARE)))
    if tier.history_messages is not None:
        keep = last
    preferences = facts_layer.preference_fragments(settings, counter.count_text)
    memories = facts_layer.memory_fragments(settings, counter.count_text)
    memory_heading = counter.count_text(MEMORIES_HEADING) if memories else 0
    given = request.remembered
    known, by_hand = (
        max(facts_layer.facts_tokens(filter(which, part), counter.count_text) for part in (given.shown, given.all))
        for which in (None, is_kept_by_hand)
    )
    topics = [one for one in plan.detected.topics if one.line][:MAX_TOPICS]
    entities = [one for one in plan.detected.entities if one.line][:MAX_ENTITIES]
    window = request.window.tokens
    fences_tokens = sum(counter.count_text(text) for text in _fence_texts(plan, has_preferences=bool(preferences)))
    situation = Situation(
        total_tokens=plan.limit_tokens,
        overhead_tokens=framing + sum(plan.extras.values()) + fences_tokens,
        identity_tokens=identity,
        preferences_tokens=sum(fragment.tokens for fragment in preferences),
        memory_tokens=sum(fragment.tokens for fragment in memories) + memory_heading + known,
        learned_tokens=max(0, known - by_hand),
        message_tokens=plan.turn.tokens + plan.turn.free_tokens,
        message_count=len(conversation.entries),
        history_tokens=compact.history_tokens(conversation, plan.limit_tokens),
        keep_tokens=sum(newest[len(newest) - keep :]),
        pinned_tokens=compact.pinned_tokens(conversation, plan.limit_tokens),
        exchanges=exchanges,
        exchange_tokens=conversation.total_tokens // max(1, conversation.exchanges),
        topic_count=len(topics),
        topic_tokens=sum(counter.count_text(topic.line) for topic in topics),
        entity_count=len(entities),
        entity_tokens=sum(counter.count_text(entity.line) for entity in entities),
        custom=tuple(layer.spec for layer in settings.layers),
        reserved_tokens=0 if window is None else min(settings.max_context_tokens, window) - plan.limit_tokens,
        compacted=plan.cut_key in conversation.cuts,
        depth=settings.depth,
        prioritize_history=settings.prioritize_history,
        emphasis=settings.emphasis,
    )
    allocation = _checked(settings.strategy.allocate(situation), situation)
    if allocation.keep_messages is not None and tier.history_messages is None:
        # As many of those as fit what the strategy gave them.
        wanted = compact.newest_costs(conversation, allocation.keep_messages, plan.limit_tokens)
        keep = newest_that_fit(wanted, allocation.tokens[Layer.HISTORY])
    return plan.but(allocation=replace(allocation, keep_messages=keep))


def _newest(plan: Plan, exchanges: Sequence[Exchange]) -> tuple[list[int], int]:
    """What the newest messages cost that are to stay, and how many of them do in any case.

    An exchange in which an agent has called tools counts as one, however many messages it has.
    """
    wanted = plan.request.settings.keep_messages
    sizes = [exchange.messages for exchange in exchanges[: wanted // MESSAGES_OF_EXCHANGE]]
    newest = compact.newest_costs(plan.conversation, max(wanted, sum(sizes)), plan.limit_tokens)
    last = min(wanted, exchanges[0].messages) if exchanges else 0
    if sizes and sum(newest[len(newest) - sizes[0] :]) <= plan.limit_tokens * LAST_SHARE:
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


def _limit(plan: Plan) -> int:
    window, most = plan.request.window.tokens, plan.request.settings.max_context_tokens
    return most if window is None else min(most, max(0, window - plan.request.output_reserve_tokens))


def _lowered(plan: Plan, identity: int) -> int:
    """Returns the share of the limit that the usage tier lets in, or the next larger one of which half is left.

    Where what must be sent takes more than half of every share, it is the whole limit. It does not depend on what an
    agent adds to its turn: the prompt of a loop keeps its beginning.
    """
    turn = plan.request.turn
    asked = asking(turn)
    said = 0 if asked is None else plan.counter.count_message(turn[asked])
    required = identity + said + sum(plan.extras.values())
    shares = sorted({share for tier in TIERS if (share := tier.budget_share) >= plan.request.tier.budget_share})
    lowered = (int(plan.limit_tokens * share) for share in shares)
    return next((tokens for tokens in lowered if required <= tokens * MOST_REQUIRED), plan.limit_tokens)


def _identity_tokens(plan: Plan) -> tuple[int, tuple[str, ...]]:
    """Returns what the system prompt costs, and what is to be reported of it.

    Raises:
        SystemPromptTooLargeError: it takes more than its share of the model's window.
    """
    text = plan.request.system_prompt
    if not text:
        return 0, ()
    tokens = plan.counter.count_text(text)
    window, share = plan.request.window.tokens, plan.request.settings.max_system_share
    if window is None or tokens <= window * share:
        return tokens, ()
    if plan.uncorrected().counter.count_text(text) > window * share:
        most = f"{share:.0%} of the model's window of {window:,} tokens"
        raise SystemPromptTooLargeError(tokens, int(window * share), most, "max_system_share")
    return tokens, ("the system prompt counts as more than its share only with what usage corrected: it stays",)


def newest_exchanges(conversation: Conversation) -> tuple[Exchange, ...]:
    """The newest exchanges of a conversation, newest first."""
    exchanges: list[Exchange] = []
    messages = tokens = 0
    newest = zip(
        reversed(conversation.entries[-LONGEST_WALK:]), reversed(conversation.costs[-LONGEST_WALK:]), strict=True
    )
    for entry, cost in newest:
        messages, tokens = messages + 1, tokens + cost
        if is_user(entry.message):
            exchanges.append(Exchange(messages, tokens))
            messages = tokens = 0
            if len(exchanges) == MOST_EXCHANGES:
                break
    return tuple(exchanges)


def _planned_turn(plan: Plan, identity: int, framing: int) -> PlannedTurn:
    """Plans the room of the current turn, and fits the turn into it.

    Where the request has tools, a share is kept free for calls and results, so that nothing before them changes while
    an agent loops. A turn that grows larger than its room gets more in a few stages, up to `TURN_SHARES[-1]`; at each,
    history and context block are planned anew for what it leaves them.

    Raises:
        BudgetTooSmallError: not even the smallest form fits.
    """
    counter, request = plan.counter, plan.request
    groups, repairs = group([as_sent(message) for message in request.turn])
    room = plan.limit_tokens - identity - framing - sum(plan.extras.values())
    whole = sum(group_tokens(part, counter) for part in groups)
    said = sum(group_tokens(part, counter) for part in groups if has_human([part]))
    reserve = int(max(0, room - said) * request.settings.tool_reserve) if request.tools else 0
    beside = _beside_turn(plan)
    most = [room - min(int(room * (1 - share)), beside) for share in TURN_SHARES]
    planned, long = said + reserve, 0
    if whole > planned:
        long = next((stage for stage, tokens in enumerate(most, start=1) if whole <= tokens), len(most))
        planned = most[long - 1]
    fitted = fit_turn(
        groups,
        counter,
        budget_tokens=whole if whole <= min(planned, room) else min(planned, most[-1]),
        room_tokens=room,
        clip_human=request.settings.oversized_message == "clip",
        name=_numbered(plan),
    )
    if isinstance(fitted, int):
        needed_tokens = floors(identity, fitted, plan.extras, framing)
        raise BudgetTooSmallError(plan.limit_tokens, needed_tokens, advice(plan))
    tokens = sum(group_tokens(part, counter) for part in fitted.groups)
    note = turn_note(len(fitted.left_out)) if fitted.left_out and has_human(fitted.groups) else ""
    cost = counter.count_text(note) + JOINS if note else 0
    if tokens + cost > room:
        note = ""
    else:
        tokens += cost
    return PlannedTurn(
        groups=fitted.groups,
        left_out=fitted.left_out,
        clipped=fitted.clipped,
        repairs=tuple(repairs),
        note=note,
        tokens=tokens,
        free_tokens=max(0, min(planned, room) - tokens) if whole <= room or long else 0,
        long=long,
    )


def excess_tokens(plan: Plan, content: Content) -> int:
    """Returns by how many tokens a prompt is over its limit when its turn takes all of its room; below 0: what is left.

    It is counted with the user's words alone, and the planned room for the rest of the turn: so it is the same at every
    call of a loop, to the token, however far its steps have come, and what gives way is the same, too.
    """
    words = tuple(part for part in content.turn if has_human([part]))
    planned = plan.turn.tokens + plan.turn.free_tokens - sum(group_tokens(part, plan.counter) for part in words)
    begun = plan.counter.count_messages(build(replace(content, turn=words, turn_note="")).messages)
    now = plan.counter.count_messages(build(content).messages)
    limit = plan.limit_tokens - plan.allocated.reserve_tokens - sum(plan.extras.values())
    return max(begun + planned, now) - limit


def _numbered(plan: Plan) -> Callable[[BaseMessage], str | None]:
    """Returns the numbers by which the recall tool gives messages of the turn; they follow those that are stored."""
    first = len(plan.conversation.entries) + 1
    numbers: dict[object, str] = {}
    for number, message in enumerate(plan.request.turn, start=first):
        numbers[message.id or getattr(message, "tool_call_id", None)] = f"#{number}"

    def name(message: BaseMessage) -> str | None:
        return numbers.get(message.id or getattr(message, "tool_call_id", ""))

    return name


def _beside_turn(plan: Plan) -> int:
    """Returns what everything else that could go into the prompt costs, in tokens, its frames included."""
    counter, settings = plan.counter, plan.request.settings
    said = (*settings.manner, *settings.preferences, *settings.memories)
    known = sum(counter.count_text(text) for text in said)
    tokens = plan.conversation.total_tokens + known + sum(part.tokens for part in plan.fixed or ())
    return int(tokens * FRAMED) + FRAMES_TOKENS if tokens else 0


def floors(identity: int, message: int, extras: Mapping[str, int], framing: int) -> dict[str, int]:
    """Returns what each part of a request needs at least, in tokens, by its name in errors."""
    return {"L0 system prompt": identity, "L7 current message": message, **extras, "framing": framing}


def advice(plan: Plan) -> str:
    """Returns what to change when the parts that must be sent do not fit."""
    settings, window = plan.request.settings, plan.request.window.tokens
    clip = (
        "" if settings.oversized_message == "clip" else ' oversized_message="clip" keeps head and tail of the message.'
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


def _fence_texts(plan: Plan, *, has_preferences: bool) -> list[str]:
    """Returns the fences that this prompt may need, so that what they cost is not promised to a layer."""
    texts = [*CONTEXT_FRAME]
    if plan.detected.topics:
        texts.append(subjects.TOPICS_SECTION)
    if plan.detected.entities:
        texts.append(subjects.ENTITIES_SECTION)
    if has_preferences or plan.request.settings.memories or plan.request.remembered.all:
        texts += [fences.opening(fences.PREFERENCES), fences.closing(fences.PREFERENCES)]
    return texts
