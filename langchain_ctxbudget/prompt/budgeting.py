"""Dividing a budget and filling it: what must be sent is measured, the rest divided.

Leftovers flow to other layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_ctxbudget import budget as budgets
from langchain_ctxbudget import errors
from langchain_ctxbudget.budget import Allocation, Exchange, Fragment, Layer, Reason, Situation
from langchain_ctxbudget.history import (
    CONTEXT_FRAME,
    Conversation,
    compact,
    with_headings,
    work_state,
)
from langchain_ctxbudget.knowledge import MAX_TOPICS, facts, subjects
from langchain_ctxbudget.messages import distinct, fences, is_user, joined_repairs, newest_that_fit
from langchain_ctxbudget.prompt.assembly import (
    NO_FIRST_QUESTION,
    group_tokens,
    has_human,
    layer_tokens,
)
from langchain_ctxbudget.prompt.fitting import (
    JOINS,
    advice,
    counted_extras,
    excess_tokens,
    floors,
    pruned,
)
from langchain_ctxbudget.prompt.plan import LAST_STAGE, Plan, PlannedTurn, Preferences
from langchain_ctxbudget.prompt.turn import (
    MOST_TURNS,
    SMALL_ROOM,
    GrowingTurn,
    ReadTurn,
    Rooms,
    next_tokens,
    reference_of,
)
from langchain_ctxbudget.retrieval import MIXED_SECTION, OWN_SECTION, Pool, recall_tool, select
from langchain_ctxbudget.worker import keep_newest

LEAST_WORTH: dict[budgets.Emphasis, float] = {"balanced": 0.2, "cache": 1.0}
"""How likely a text must be needed if it takes the whole budget; if it takes a share, that share of
it is enough."""
SUMMARY_SHARE = 0.04
"""The share of the budget that the summary may take at a step, whatever else wants room."""
WEAK_SHARE = 0.05
"""The most that quotes may take of the budget if hardly anything that was said has to do with the
message."""
TURN_SHARES = (0.25, 0.5, 0.75)
"""The share of what the system prompt leaves that a turn gets once it outgrows its room, stage by
stage."""
FRAMED = 1.1
"""Estimates texts with their headings and fences: this many times their own tokens."""
CODE_SHARE = 0.75
"""The share of a turn's room for lines of files once older steps give way; of a small one the room
over so many."""
LAST_SHARE = 0.5
"""The most that the last exchange costs to stay whole, calls and results included."""
RECENT_MESSAGES = 6
"""If the newest messages, so many, have calls, the conversation is an agent's, and its next turn
will have some too."""
LONGEST_WALK = 1_000
"""How many messages are looked at to find the newest exchanges."""


def allocate(plan: Plan) -> Plan:
    """Divides what the usage tier lets in, or all of the limit where what must be sent needs more, if that fits."""
    plan = plan.but(extras=counted_extras(plan))
    identity = _identity_tokens(plan)
    lowered = plan.but(limit_tokens=int(plan.limit_tokens * plan.request.tier.budget_share))
    try:
        return _allocated(lowered, identity)
    except errors.BudgetError:
        if lowered.limit_tokens == plan.limit_tokens:
            raise
        return _allocated(
            plan, identity
        )  # what must be sent is sent, however little is left of a usage limit


def _identity_tokens(plan: Plan) -> int:
    text = plan.request.system_prompt
    window = plan.request.window.tokens
    share = plan.request.settings.max_system_share
    tokens = plan.counter.count_text(text) if text else 0
    if window is not None and tokens > window * share:
        most = f"{share:.0%} of the model's window of {window:,} tokens"
        raise errors.SystemPromptTooLargeError(
            tokens, int(window * share), most, "max_system_share"
        )
    return tokens


def _allocated(plan: Plan, identity: int) -> Plan:
    """Fits the turn into its room, and asks the strategy what every layer gets."""
    counter = plan.counter
    conversation = plan.conversation
    settings = plan.request.settings
    framing = counter.count_messages([]) + (
        counter.count_message(SystemMessage("")) if identity else 0
    )
    if not isinstance(plan.request.turn[0], HumanMessage):
        framing += counter.count_message(HumanMessage(NO_FIRST_QUESTION))
    plan = plan.but(turn=_planned_turn(plan, identity, framing))
    is_limited = plan.request.tier.history_messages is not None
    exchanges = newest_exchanges(conversation)
    newest, keep = _newest_costs(plan, exchanges)
    if not is_limited:
        keep = max(
            keep,
            newest_that_fit(newest, int(plan.limit_tokens * compact.keep_share(plan.limit_tokens))),
        )
    situation = _situation(plan, identity, framing, exchanges, sum(newest[len(newest) - keep :]))
    allocation = _checked(settings.allocation.allocate(situation), situation)
    if allocation.keep_messages is not None and not is_limited:
        # As many of those as fit what the strategy gave them.
        wanted = compact.newest_costs(conversation, allocation.keep_messages, plan.limit_tokens)
        keep = newest_that_fit(wanted, allocation.tokens[Layer.HISTORY])
    tokens = dict(allocation.tokens)
    tokens[Layer.ARC] += plan.turn.work_tokens + plan.turn.own_work_tokens
    tokens[Layer.MESSAGE] -= plan.turn.own_work_tokens
    return plan.but(allocation=replace(allocation, tokens=tokens, keep_messages=keep))


def _situation(
    plan: Plan, identity: int, framing: int, exchanges: tuple[Exchange, ...], keep_tokens: int
) -> Situation:
    """Measures what a strategy divides the budget by."""
    settings = plan.request.settings
    conversation = plan.conversation
    count = plan.counter.count_text
    preferences = facts.preference_fragments(settings, count)
    memories = facts.memory_fragments(settings, count)
    remembered = plan.request.remembered
    known_facts = (remembered.shown, remembered.all)[: 1 + bool(remembered.learned_since)]
    facts_tokens = max(facts.facts_tokens(known, count) for known in known_facts)
    kept_by_hand = ([fact for fact in known if fact.is_kept_by_hand] for known in known_facts)
    by_hand_tokens = max(facts.facts_tokens(kept, count) for kept in kept_by_hand)
    topics = [count(one.line) for one in plan.detected.topics if one.line][:MAX_TOPICS]
    entities = [count(one.line) for one in plan.detected.entities if one.line][
        : settings.entity_context.most_entities
    ]
    fences_tokens = sum(map(count, _fence_texts(plan, has_preferences=bool(preferences))))
    heading_tokens = count(budgets.MEMORIES_HEADING) if memories else 0
    return Situation(
        total_tokens=plan.level_tokens or plan.limit_tokens,
        overhead_tokens=framing + sum(plan.extras.values()) + fences_tokens + plan.turn.work_tokens,
        identity_tokens=identity,
        preferences_tokens=sum(fragment.tokens for fragment in preferences),
        memory_tokens=facts_tokens + sum(part.tokens for part in memories) + heading_tokens,
        learned_tokens=max(0, facts_tokens - by_hand_tokens),
        message_tokens=plan.turn.tokens + plan.turn.free_tokens,
        message_count=len(conversation.entries),
        history_tokens=compact.history_tokens(conversation, plan.limit_tokens),
        keep_tokens=keep_tokens,
        pinned_tokens=compact.pinned_tokens(
            conversation, plan.limit_tokens, settings.keep_important
        ),
        exchanges=exchanges,
        topic_count=len(topics),
        topic_tokens=sum(topics),
        entity_count=len(entities),
        entity_tokens=sum(entities),
        custom=tuple(layer.spec for layer in settings.layers),
        depth=settings.depth,
        prioritize_history=settings.prioritize_history,
        emphasis=settings.emphasis,
        grown_tokens=plan.limit_tokens,
    )


def newest_exchanges(conversation: Conversation) -> tuple[Exchange, ...]:
    """Returns the newest exchanges of a conversation, newest first."""
    exchanges: list[Exchange] = []
    messages = tokens = 0
    end = len(conversation.entries)
    for at in range(
        end - 1, max(0, end - LONGEST_WALK) - 1, -1
    ):  # no more is decoded than is looked at
        messages = messages + 1
        tokens = tokens + conversation.costs[at]
        if is_user(conversation.entries[at].message):
            exchanges.append(Exchange(messages, tokens))
            messages = tokens = 0
            if len(exchanges) == budgets.MOST_EXCHANGES:
                break
    return tuple(exchanges)


def _newest_costs(plan: Plan, exchanges: Sequence[Exchange]) -> tuple[list[int], int]:
    """Returns the costs of the newest messages that are to stay, and the number of them that do in any case."""
    wanted = plan.request.settings.keep_messages
    sizes = [exchange.messages for exchange in exchanges[: wanted // 2]]
    newest = compact.newest_costs(plan.conversation, max(wanted, sum(sizes)), plan.limit_tokens)
    last = min(wanted, exchanges[0].messages) if exchanges else 0
    if sizes and sum(newest[len(newest) - sizes[0] :]) <= plan.limit_tokens * LAST_SHARE:
        last = sizes[0]
    return newest, last


def _checked(allocation: object, situation: Situation) -> Allocation:
    if not isinstance(allocation, Allocation):
        raise errors.InvalidSettingsError(
            f"A strategy gives an Allocation, as `share_out` does, not {allocation!r}"
        )
    shared = {
        layer: allocation.tokens.get(layer, 0)
        for layer in (*Layer, *(spec.layer for spec in situation.custom))
        if layer not in (Layer.IDENTITY, Layer.MESSAGE)
    }
    given = {**shared, "reserve": allocation.reserve_tokens}
    whole = all(type(tokens) is int and tokens >= 0 for tokens in given.values())
    if not whole or sum(given.values()) > situation.free_tokens:
        raise errors.InvalidAllocationError(allocation.strategy, situation.free_tokens, given)
    required: dict[str, int] = {
        Layer.IDENTITY: situation.identity_tokens,
        Layer.MESSAGE: situation.message_tokens,
    }
    return replace(allocation, tokens={**shared, **required})


def whole_turn(plan: Plan) -> PlannedTurn:
    """Returns the turn as it was given, counted once for all the ways in which the prompt may be divided."""
    columns = plan.conversation.columns
    known: ReadTurn = columns.turn_read or ReadTurn()
    read = known.read(plan.request.turn, plan.counter, plan.conversation.longest_call_id)
    columns.turn_read = read
    return read.planned


def _room_of_turn(plan: Plan, room: int) -> tuple[int, int, int]:
    """Returns the tokens that a turn may take of a prompt's room, the stage, and its groups when that was planned.

    A share is kept free for calls and results, so that nothing before them changes while an agent
    loops. A turn that outgrows it gets what its next steps will need as well, up to
    `TURN_SHARES[-1]`, until they have taken that.
    """
    settings = plan.request.settings
    turn = plan.turn
    conversation = plan.conversation
    whole_tokens = sum(turn.costs)
    said_tokens = turn.said_tokens
    planned_cut, long_cut = (
        cut if cut and cut.begun == len(conversation.entries) else None for cut in plan.cuts
    )
    if plan.goes_on and planned_cut is long_cut is None:
        return whole_tokens, 0, 0
    has_calls = bool(
        plan.request.tools or turn.steps or _estimated_calls(conversation, RECENT_MESSAGES)
    )
    reserve = int(max(0, room - said_tokens) * settings.tool_reserve) if has_calls else 0
    if not plan.grows or (long_cut and long_cut.turn_groups > len(turn.whole)):
        long_cut = None
    if long_cut is None and whole_tokens <= said_tokens + reserve:
        return said_tokens + reserve, 0, 0
    if (
        long_cut
        and plan.goes_on
        and (whole_tokens <= long_cut.turn_tokens or long_cut.long == LAST_STAGE)
    ):
        return long_cut.turn_tokens, long_cut.long, long_cut.turn_groups
    texts = (*settings.manner, *settings.preferences, *settings.memories)
    beside = conversation.total_tokens + sum(map(plan.counter.count_text, texts))
    beside += sum(part.tokens for part in plan.fixed or ())
    beside = int(beside * FRAMED)  # all else that could go into the prompt
    ahead = next_tokens(turn.steps, room) if plan.grows else 0
    first_stage = long_cut.long if long_cut else 1
    rooms = {
        stage: room - min(int(room * (1 - share)), beside)
        for stage, share in enumerate(TURN_SHARES, start=1)
    }
    fitting = (
        stage
        for stage, tokens in rooms.items()
        if stage >= first_stage and whole_tokens + ahead <= tokens
    )
    stage = next(fitting, LAST_STAGE)
    tokens = rooms.get(stage, rooms[len(TURN_SHARES)])
    if plan.grows and stage < LAST_STAGE:
        tokens = min(tokens, whole_tokens + max(ahead, whole_tokens // 2))
    return tokens, stage, len(turn.whole) if plan.grows else 0


def _planned_turn(plan: Plan, identity: int, framing: int) -> PlannedTurn:
    """Plans the room of the current turn, and fits the turn into it.

    Where it is too large for the last stage, older steps give way, and what they have left behind
    is told.
    """
    counter = plan.counter
    settings = plan.request.settings
    whole = sum(plan.turn.costs)
    room = plan.limit_tokens - identity - framing - sum(plan.extras.values())
    planned, long, rebuilt_groups = _room_of_turn(plan, room)
    work = own = code = 0
    if long == LAST_STAGE:
        left = max(0, min(planned, room) - plan.turn.said_tokens)
        own = work_state.most_tokens(LONGEST_WALK, left)
        code = int(left * min(CODE_SHARE, left / SMALL_ROOM))
    elif plan.conversation.total_tokens + planned > room:
        work = work_state.most_tokens(_estimated_calls(plan.conversation), plan.limit_tokens)
    rooms = Rooms(
        budget_tokens=min(planned, room),
        most_tokens=room,
        kept_tokens=own,
        code_tokens=code,
        rebuilt_groups=rebuilt_groups,
        clip_human=settings.oversized_message == "clip",
        tool_kinds=tuple(sorted(settings.tool_kinds.items())),
    )
    fitted = (
        _fitted(plan, rooms)
        if own or whole > rooms.budget_tokens
        else PlannedTurn(groups=plan.turn.whole)
    )
    if isinstance(fitted, int):
        needs = floors(identity, fitted, plan.extras, framing)
        raise errors.BudgetTooSmallError(plan.limit_tokens, needs, advice(plan))
    tokens = sum(group_tokens(part, counter) for part in fitted.groups)
    note = ""
    own += fitted.work_when_shortened.code_tokens if fitted.work_when_shortened else 0
    if fitted.left_out and has_human(fitted.groups):
        text = f"[Left out: {len(fitted.left_out)} of the steps taken for this message, calls with their results.]\n"
        cost = counter.count_text(text) + JOINS
        if tokens + cost <= room:
            note = text
            tokens = tokens + cost
    return replace(
        plan.turn,
        groups=fitted.groups,
        left_out=fitted.left_out,
        clipped=fitted.clipped,
        renewed=fitted.renewed,
        work_when_shortened=fitted.work_when_shortened,
        work=(),
        repairs=plan.turn.given_repairs,
        note=note,
        tokens=tokens,
        room_tokens=min(planned, room),
        free_tokens=max(0, min(planned, room) - tokens) if whole <= room or long else 0,
        long=long,
        work_tokens=work,
        own_work_tokens=own if tokens + own <= planned else 0,
    )


def _fitted(plan: Plan, rooms: Rooms) -> PlannedTurn | int:
    conversation = plan.conversation
    places = plan.turn.places
    first = len(conversation.entries) + 1
    turns = conversation.columns.turns
    key = (rooms, first)
    if (turn := turns.pop(key, None)) is None:  # nobody else goes on with it meanwhile
        said = [entry.sent for entry in conversation.entries[-RECENT_MESSAGES:]]
        before = conversation.read_work(first - 1, plan.request.settings.tool_kinds)
        turn = GrowingTurn(plan.counter, rooms, before=before, said_before=said)
    # The numbers by which the recall tool gives messages of the turn follow those that are stored.
    turn.name = lambda one: (
        f"#{first + places[key]}" if (key := reference_of(one)) in places else None
    )
    fitted: PlannedTurn | int = turn.fitted(plan.turn.whole)
    keep_newest(turns, key, turn, MOST_TURNS)
    return fitted


def _fence_texts(plan: Plan, *, has_preferences: bool) -> list[str]:
    """Returns the fences that this prompt may need, whose cost must not be promised to a layer."""
    texts = [
        *CONTEXT_FRAME,
        *(subjects.SECTIONS[layer] for layer, found in plan.detected.subjects.items() if found),
    ]
    if has_preferences or plan.request.settings.memories or plan.request.remembered.all:
        texts += [fences.opening(fences.PREFERENCES), fences.closing(fences.PREFERENCES)]
    return texts


def with_bundles(plan: Plan) -> Plan:
    """Makes the text of topics, entities and the application's own layers within their budgets."""
    if plan.fixed is not None or not has_human(
        plan.turn.groups
    ):  # there it would have no place to stand
        return plan
    return plan.but(bundles=_bundles(plan, plan.allocated.tokens))


def _bundles(plan: Plan, tokens: Mapping[str, int]) -> subjects.Bundles:
    """Writes the layers of the background, except retrieval, without what an earlier background of the prompt says."""
    count = plan.counter.count_text
    layers = plan.request.settings.layers
    known = subjects.render(
        plan.detected,
        count,
        topic_tokens=tokens[Layer.TOPICS],
        entity_tokens=tokens[Layer.ENTITIES],
        most_entities=plan.request.settings.entity_context.most_entities,
    )
    own = [
        subjects.render_own(layer, plan.own_items[layer.name], count, tokens[layer.name])
        for layer in layers
    ]
    said = {
        (part.layer, part.text)
        for background in plan.history.backgrounds.values()
        for part in background.fragments
    }
    made = (part for bundles in (known, *own) for part in bundles.fragments)
    return replace(
        known,
        fragments=tuple(part for part in made if (part.layer, part.text) not in said),
        omitted=tuple(item for bundles in (known, *own) for item in bundles.omitted),
    )


def with_preferences(plan: Plan) -> Plan:
    """Writes the preferences and the facts about the user within the budget of their layer."""
    settings = plan.request.settings
    count = plan.counter.count_text
    known = plan.request.remembered
    known = known.renewed() if plan.history.is_rebuilt and not plan.adds else known
    given = facts.preference_fragments(settings, count)
    memories = facts.memory_fragments(settings, count)
    room = plan.allocated.tokens[Layer.PREFERENCES]
    cut = plan.history.record
    if plan.goes_on and cut is not None:
        room = max(
            room, cut.preferences_tokens
        )  # with less, something would go that the last prompt has shown
    preferences = facts.packed(given, count, room)
    room -= sum(fragment.tokens for fragment in preferences)
    most = (
        None if (items := plan.request.tier.knowledge_items) is None else items // 2
    )  # the smaller half
    shown = facts.packed(memories, count, room)[:most]
    room -= sum(fragment.tokens for fragment in shown) + (count(shown[0].heading) if shown else 0)
    most_facts = None if most is None else most - len(shown)
    lines, facts_shown = facts.fact_fragments(
        known.shown, count, room, titled=bool(shown), most=most_facts
    )
    chosen = Preferences(shown=(*preferences, *shown, *lines), facts=facts_shown, remembered=known)
    since = {fact.id for fact in known.learned_since}
    limited = most_facts is not None and len(facts_shown) >= most_facts
    left_out = (
        *(part for part in (*given, *memories) if part not in chosen.shown),
        *(
            facts.left_out(fact, count, since=fact.id in since, limited=limited)
            for fact in chosen.facts_left_out
        ),
    )
    return plan.but(preferences=replace(chosen, left_out=left_out))


def history_plan(plan: Plan) -> compact.HistoryPlan:
    """Returns the history's part of the budget, from which it decides its cut."""
    allocation = plan.allocated
    return compact.HistoryPlan(
        conversation=plan.conversation,
        settings=plan.request.settings,
        fits_whole=allocation.fits_whole,
        cut_key=plan.cut_key,
        budget_tokens=plan.limit_tokens,
        history_tokens=allocation.tokens[Layer.HISTORY],
        arc_tokens=allocation.tokens[Layer.ARC] - plan.turn.work_tokens - plan.turn.own_work_tokens,
        work_tokens=plan.turn.work_tokens,
        keep=allocation.keep_messages or 0,
        summary_tokens=int(plan.limit_tokens * SUMMARY_SHARE) if plan.grows else 0,
        grows=plan.grows,
        goes_on=plan.goes_on,
        clips_new=plan.clips_new,
        most_messages=plan.request.tier.history_messages,
        recall_tool=recall_tool(plan.request.tools),
    )


def with_history(plan: Plan, view: compact.HistoryView) -> Plan:
    """Takes in the history, and makes the preferences, which change with it."""
    groups, repairs = distinct(plan.turn.groups, view.groups, plan.conversation.longest_call_id)
    turn = replace(
        plan.turn, groups=tuple(groups), repairs=tuple(joined_repairs(plan.turn.repairs, repairs))
    )
    if not turn.work and (work := _work_of_turn(plan, view)):
        told = "".join(
            (fences.opening(fences.ARC), *with_headings(work), fences.closing(fences.ARC))
        )
        free = max(0, turn.free_tokens - plan.counter.count_text(told))
        turn = replace(turn, note=turn.note + told, work=work, free_tokens=free)
    return with_preferences(plan.but(turn=turn, history=view))


def _estimated_calls(conversation: Conversation, messages: int = LONGEST_WALK) -> int:
    """Estimates how many calls the newest messages have, by the places where no cut is safe."""
    return list(conversation.safe[-messages:]).count(False)


def _work_of_turn(plan: Plan, view: compact.HistoryView) -> tuple[Fragment, ...]:
    """Returns the work state of the turn as it was when steps of it gave way last."""
    turn = plan.turn
    step = plan.turn.work_when_shortened
    count = plan.counter.count_text
    most = turn.own_work_tokens - sum(
        map(count, (fences.opening(fences.ARC), fences.closing(fences.ARC)))
    )
    if step is None or most <= 0 or not has_human(turn.groups):
        return ()
    # What is sent of later steps changes nothing: the work state is written at steps only.
    later = {part.positions for part in turn.whole[turn.renewed :]}
    shown = (*view.groups, *(part for part in turn.groups if part.positions not in later))
    said = "".join(part.text for part in view.arc) + work_state.told_by(
        m for part in shown for m in part.messages
    )
    if step.key != (key := (most, said)):
        step.lines = step.state.lines(count, most - step.code_tokens, said, step)
        step.key = key
    return compact.fragments(Layer.ARC, step.lines, count)


def with_leftovers(plan: Plan) -> Plan:
    """Gives left-over tokens to the layers of the volatile zone that have more to say, in order of priority.

    Each gets one turn and grows at most to what its strategy allows. Retrieval is one of them: it
    takes what the layers before it leave. The stable zone does not grow: a summary that changed
    with the current message would rewrite the prompt.
    """
    if not has_human(plan.turn.groups):
        return plan
    allocation = plan.allocated
    count = plan.counter.count_text
    content = plan.content
    spare = -excess_tokens(plan, content)
    if plan.adds:
        used = sum(_used_tokens(plan, name) for name in {part.layer for part in content.volatile})
        spare = min(spare, plan.new_tokens - used)
    elif plan.level_tokens:
        spare -= plan.limit_tokens - plan.level_tokens
    frame = 0 if content.volatile else sum(map(count, CONTEXT_FRAME))
    left = max(0, spare - frame - JOINS)
    rooms = dict(allocation.tokens)
    own = {layer.name: layer for layer in plan.request.settings.layers}
    names = [Layer.TOPICS, Layer.ENTITIES, Layer.RETRIEVAL, *own]
    for spec in sorted(
        map(allocation.spec_of, names), key=lambda spec: (-spec.priority, spec.layer)
    ):
        name = spec.layer
        limit = spec.limit_tokens
        before = _used_tokens(plan, name)
        if name == Layer.RETRIEVAL:
            plan = _with_retrieved(plan, min(left, limit))
        elif _wants_more(plan, name):
            heading = (
                0 if name in own else count(subjects.SECTIONS[Layer(name)])
            )  # others' rooms are for lines alone
            wider = max(rooms[name], min(before + left - heading, limit))
            if wider >= max(spec.min_tokens, own[name].min_tokens if name in own else 0):
                rooms[name] = wider
                plan = plan.but(bundles=_bundles(plan, rooms))
        left -= _used_tokens(plan, name) - before
    return plan


def with_shrunk_background(plan: Plan) -> Plan:
    """Takes out of the background chosen before what no longer has room, the least valuable first."""
    names = {part.layer for part in plan.fixed or ()}
    order = sorted(names, key=lambda name: (plan.allocated.spec_of(name).priority, name))
    content, gone = pruned(plan, plan.content, order)
    return plan.but(fixed=content.volatile, pruned=(*plan.pruned, *gone))


def _with_retrieved(plan: Plan, budget_tokens: int) -> Plan:
    pool = plan.pool
    tier = plan.request.tier
    history = plan.history
    counter = plan.counter
    if pool is None:
        return plan
    if tier.history_messages is not None and not (pool.others or pool.named):
        # What a usage limit takes from verbatim history must not come back as quotes, where all of
        # it is small.
        shown_tokens = sum(group_tokens(part, counter) for part in history.groups)
        shown_tokens += sum(part.tokens for part in (*history.summary, *history.arc))
        budget_tokens = min(
            budget_tokens, int(plan.conversation.total_tokens * tier.budget_share) - shown_tokens
        )
    if plan.grows and pool.evidence.is_weak:
        budget_tokens = min(budget_tokens, int(plan.limit_tokens * WEAK_SHARE))
    before = (
        position for part in history.groups for position in part.positions if position < history.cut
    )
    is_cold = plan.grows and plan.cold and not (plan.adds or plan.turn.long)
    retrieved = select(
        plan.conversation,
        pool,
        history.cut,
        max(0, budget_tokens - max(map(counter.count_text, (OWN_SECTION, MIXED_SECTION)))),
        shown={*before, *history.quoted},
        given={
            part.id for background in history.backgrounds.values() for part in background.fragments
        },
        in_short=history.shortened.difference(history.quoted),
        prices=_prices(plan, pool),
        transient_tokens=budget_tokens // 2
        if is_cold
        else 0,  # the next prompt keeps the other half, and can grow
        numbered=bool(recall_tool(plan.request.tools)),
        limits=plan.request.settings.retrieval,
    )
    return plan.but(retrieved=retrieved)


def _prices(plan: Plan, pool: Pool) -> tuple[float, float]:
    """Returns how likely a text must be needed for each token that it costs, and one of another conversation.

    At a step that has nothing to lose, what was said in this conversation has no price.
    """
    if not plan.grows or pool.question.is_broad:
        return 0.0, 0.0
    settings = plan.request.settings
    price = LEAST_WORTH[settings.emphasis] / budgets.DEPTH_FACTOR[settings.depth]
    price /= plan.limit_tokens
    is_free = plan.cold and not plan.adds and not pool.evidence.is_weak
    return 0.0 if is_free else price, price


def _wants_more(plan: Plan, name: str) -> bool:
    if plan.bundles.is_given:
        return False
    shrunk = any(
        part.layer == name and part.status is budgets.Status.SHRUNK
        for part in plan.bundles.fragments
    )
    return shrunk or any(
        layer == name and item.reason is Reason.NO_ROOM for layer, item in plan.bundles.omitted
    )


def _used_tokens(plan: Plan, name: str) -> int:
    fragments = [fragment for fragment in plan.content.volatile if fragment.layer == name]
    return sum(layer_tokens(fragments, plan.counter)) if fragments else 0
