"""From a finished plan to its report: every candidate with its reason, numbers that add up."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

from langchain_ctxbudget import report
from langchain_ctxbudget.budget import TITLES, Fragment, Layer, Reason, Status
from langchain_ctxbudget.history import LastPrompt
from langchain_ctxbudget.messages import Group, Repair, plain_text
from langchain_ctxbudget.prompt import assembly
from langchain_ctxbudget.prompt.assembly import Content, Measure, positions_of
from langchain_ctxbudget.prompt.fitting import Settled, counted_extras
from langchain_ctxbudget.prompt.growing import next_rebuild
from langchain_ctxbudget.prompt.mode import Mode
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.provider_cache import common_prefix
from langchain_ctxbudget.prompt.savings import whole_tokens
from langchain_ctxbudget.tokens import CalibratedCounter, TokenCounter, effective_tokens, encodable


def account(settled: Settled) -> Callable[[], report.ContextReport]:
    """Returns a function that makes the report of a finished prompt, once it is looked at."""
    plan = settled.plan
    measured = settled.measured
    uncorrected_tokens = measured.total_tokens
    if isinstance(plan.counter, CalibratedCounter):
        uncorrected = replace(plan, counter=plan.counter.inner)
        uncorrected_tokens = uncorrected.counter.count_messages(settled.built.messages)
        uncorrected_tokens += sum(counted_extras(uncorrected).values())
    make = partial(
        _report,
        # Without what is large and of no use to a report.
        replace(
            plan, pool=None, conversation=plan.conversation.with_parts(last=None, cuts={}, clips={})
        ),
        settled.content,
        measured,
        stability=_stability(settled),
        uncorrected_tokens=uncorrected_tokens,
        calls=plan.counter.calls - plan.request.texts_counted_before,
    )
    return cache(make)


def _report(
    plan: Plan,
    content: Content,
    measured: Measure,
    *,
    stability: report.Stability,
    uncorrected_tokens: int,
    calls: int,
) -> report.ContextReport:
    request = plan.request
    view = plan.history
    scope = plan.conversation.scope
    coverage = _coverage(plan, content)
    more = _more_omitted(plan, coverage)
    layers = [
        report.layer_report(
            layer,
            title=TITLES.get(layer, layer),
            allocated=plan.allocated.tokens.get(layer, 0),
            items=items,
            overhead=measured.layer_overhead_tokens[layer],
            more=more.get(layer, {}),
        )
        for layer, items in _items(plan, content).items()
    ]
    compiled = {layer: texts for layer, texts in plan.compiled.items() if texts}
    hits = {layer: sum(texts.values()) for layer, texts in compiled.items()}
    misses = {layer: len(texts) - hits[layer] for layer, texts in compiled.items()}
    return report.ContextReport(
        user_id=scope.user_id,
        conversation_id=scope.conversation_id,
        budget_tokens=plan.limit_tokens,
        window_tokens=request.window.tokens,
        window_source=request.window.source,
        window_detail=request.window.detail,
        output_reserve_tokens=request.output_reserve_tokens + plan.allocated.reserve_tokens,
        total_tokens=measured.total_tokens,
        count_mode=plan.counter.mode,
        tokenizer=plan.counter.name,
        uncorrected_tokens=uncorrected_tokens,
        settings_from=request.settings_from,
        allocation_strategy=plan.allocated.strategy,
        history_strategy=view.strategy,
        layers=tuple(layers),
        overhead_tokens={**plan.extras, "framing": measured.framing_tokens},
        coverage=coverage,
        stability=stability,
        repairs=_repairs(plan, content),
        failures=tuple(dict.fromkeys(plan.failures)),
        summary_lines=dict(view.made_by),
        summaries_waiting=len(view.waiting),
        last_resort=plan.last_resort,
        tokenizer_calls=calls,
        timings_ms={},
        usage=request.usage,
        topics=_names(plan, (topic.id for topic in plan.detected.topics)),
        entities=_names(plan, (entity.id for entity in plan.detected.entities)),
        predicted=_names(plan, request.expected),
        cache_hits=hits,
        cache_misses=misses,
    )


def _names(plan: Plan, ids: Iterable[str]) -> tuple[str, ...]:
    """Returns the first names of topics and entities, or the id of one that has none."""
    names_by_id = plan.request.knowledge.names_by_id
    return tuple(names_by_id.get(key, (key,))[0] for key in ids)


def _repairs(plan: Plan, content: Content) -> tuple[Repair, ...]:
    """Returns what was changed in the messages so that providers accept them."""
    repairs = [*plan.history.repairs, *plan.turn.repairs]
    for message in assembly.build(content).messages:
        text = plain_text(message)
        if encodable(text) != text:
            detail = "halves of characters are sent joined, or as �"
            repairs.append(Repair("characters", message.id or "", detail))
    if not content.summary and assembly.opening_note(content) == assembly.NO_FIRST_QUESTION:
        detail = f"{assembly.NO_FIRST_QUESTION} stands before a first answer"
        repairs.append(Repair("first_message", "", detail))
    return tuple(repairs)


# The items of each layer


def _items(plan: Plan, content: Content) -> dict[str, list[report.ReportItem]]:
    """Returns all candidates by their layers, each with its status and reason."""
    items: defaultdict[str, list[report.ReportItem]] = defaultdict(list)
    for layer in (*Layer, *(own.name for own in plan.request.settings.layers)):
        items[layer] = []
    if content.system_prompt:
        items[Layer.IDENTITY].append(_system_prompt_item(plan, content.system_prompt))
    sent_again = [replace(part, reason=Reason.AS_SENT) for part in content.sent_again]
    for part in (*sent_again, *content.fragments, *content.turn_work, *plan.pruned):
        items[part.layer].append(_fragment_item(plan, part))
    items[Layer.PREFERENCES] += [_left_out_item(part) for part in plan.preferences.left_out]
    items[Layer.HISTORY] += _history_items(plan, content)
    items[Layer.MESSAGE] += _turn_items(plan, content)
    for layer, item in plan.bundles.omitted:
        items[layer].append(item)
    items[Layer.RETRIEVAL] += plan.retrieved.omitted()
    return items


def _system_prompt_item(plan: Plan, text: str) -> report.ReportItem:
    tokens = plan.counter.count_text(text)
    return _item("system prompt", tokens, Status.INCLUDED, Reason.REQUIRED, text)


def _fragment_item(plan: Plan, part: Fragment) -> report.ReportItem:
    scores = part.scores or plan.retrieved.scores(part.source, part.id)
    item = _item(part.id, part.tokens, part.status, part.reason, part.text)
    return replace(item, source=part.source, scores=scores)


def _left_out_item(part: Fragment) -> report.ReportItem:
    """Returns the item of a preference or a fact that is not shown."""
    reason = part.reason if part.status is Status.OMITTED else Reason.NO_ROOM
    return _item(part.id, part.tokens, Status.OMITTED, reason, part.text)


def _turn_items(plan: Plan, content: Content) -> list[report.ReportItem]:
    """Returns the items of the turn: sent, left out, or impossible to send."""
    turn = plan.turn
    counter = plan.counter
    items: list[report.ReportItem] = []
    for group in content.turn:
        if group.positions[0] in turn.fitted.clipped:
            items.append(_group_item(group, counter, Status.SHRUNK, Reason.CLIPPED))
        else:
            items.append(_group_item(group, counter, Status.INCLUDED, Reason.REQUIRED))
    items += [
        _group_item(group, counter, Status.OMITTED, Reason.NO_ROOM)
        for group in turn.fitted.left_out
    ]
    known = positions_of((*turn.groups, *turn.fitted.left_out))
    for position, message in enumerate(plan.request.turn):
        if position not in known:
            name = message.id or message.type
            tokens = counter.count_message(message)
            text = plain_text(message)
            items.append(_item(name, tokens, Status.OMITTED, Reason.REPAIRED, text))
    return items


def _history_items(plan: Plan, content: Content) -> list[report.ReportItem]:
    """Returns the items of the verbatim history: sent, pruned, or impossible to send."""
    view = plan.history
    counter = plan.counter
    shortened = _shortened(plan, content)
    pinned = {*plan.conversation.kept_positions}
    items: list[report.ReportItem] = []
    for group in content.bare_history:
        status = Status.INCLUDED
        reason = Reason.RECENT
        if shortened.intersection(group.positions):
            status = Status.SHRUNK
            reason = Reason.SHORTENED
        elif group.positions[0] < view.cut:
            is_pinned = bool(pinned.intersection(group.positions))
            reason = Reason.PINNED if is_pinned else Reason.IMPORTANT
        items.append(_group_item(group, counter, status, reason))
    sent = positions_of(content.history)
    pruned = [group for group in view.groups if not sent.intersection(group.positions)]
    items += [_group_item(group, counter, Status.OMITTED, Reason.PRUNED) for group in pruned]
    shown = positions_of(view.groups)
    end = len(plan.conversation.entries)
    missing = sorted(pinned.union(range(view.cut, end)) - shown)
    return [*items, *(_missing_item(plan, position) for position in missing)]


def _missing_item(plan: Plan, position: int) -> report.ReportItem:
    """Returns the item of a message that was to be verbatim, and is not."""
    view = plan.history
    entry = plan.conversation.entries[position]
    if position < view.cut or position in view.shortened:
        tokens = plan.conversation.costs[position]
        return _item(entry.id, tokens, Status.OMITTED, Reason.NO_ROOM, entry.text)
    reason = Reason.DROPPED if entry.preservation == "drop" else Reason.REPAIRED
    tokens = plan.counter.count_message(entry.sent_message)
    return _item(entry.id, tokens, Status.OMITTED, reason, entry.text)


def _shortened(plan: Plan, content: Content) -> set[int]:
    """Returns positions of messages of the history that are sent in short.

    The compaction has shortened them, or the last resort.
    """
    chosen = {group.positions: group.messages for group in plan.history.groups}
    changed = [group for group in content.history if chosen.get(group.positions) != group.messages]
    return {*plan.history.shortened, *positions_of(changed)}


def _group_item(
    group: Group, counter: TokenCounter, status: Status, reason: Reason
) -> report.ReportItem:
    name = report.JOINED.join(message.id or message.type for message in group.messages)
    tokens = assembly.group_tokens(group, counter)
    return _item(name, tokens, status, reason, plain_text(group.messages[0]))


def _item(name: str, tokens: int, status: Status, reason: Reason, text: str) -> report.ReportItem:
    return report.ReportItem(
        id=name, tokens=tokens, status=status, reason=reason, preview=report.preview(text)
    )


# What is counted rather than listed, and what the prompt covers


def _more_omitted(
    plan: Plan, coverage: Sequence[report.CoverageRange]
) -> dict[str, dict[Reason, int]]:
    """Returns the candidates that are counted rather than listed, by layer and reason."""
    more: dict[str, dict[Reason, int]] = {Layer.HISTORY: _more_of_history(plan, coverage)}
    for layer, reasons in plan.bundles.more_omitted.items():
        more[layer] = dict(reasons)
    if plan.retrieved.more_omitted:
        more[Layer.RETRIEVAL] = dict(plan.retrieved.more_omitted)
    return more


def _more_of_history(plan: Plan, coverage: Sequence[report.CoverageRange]) -> dict[Reason, int]:
    """Returns how many messages before the cut are not verbatim, by their reasons."""
    cut = plan.history.cut
    counts: Counter[report.CoverageState] = Counter()
    for part in coverage:
        counts[part.state] += max(0, min(part.last, cut) - part.first + 1)
    dropped = bisect_left(plan.conversation.dropped_positions, cut)
    omitted = counts["omitted"] - dropped
    # Those that are too weak would not come with more room.
    weak = min(omitted, plan.retrieved.more_omitted.get(Reason.LOW_RELEVANCE, 0))
    by_reason = {
        Reason.SUMMARIZED: counts["summarized"] + counts["retrieved"],
        Reason.DROPPED: dropped,
        Reason.LOW_RELEVANCE: weak,
        Reason.NO_ROOM: omitted - weak,
    }
    return {reason: count for reason, count in by_reason.items() if count}


def _coverage(plan: Plan, content: Content) -> tuple[report.CoverageRange, ...]:
    """Returns how each message of the conversation is in the prompt, as ranges."""
    conversation = plan.conversation
    cut = plan.history.cut
    end = len(conversation.entries)
    sent = positions_of(content.history)
    quoted = plan.positions_quoted_whole((*content.sent_again, *content.of(Layer.RETRIEVAL)))
    # What stands below overrides what stands above.
    states: dict[int, report.CoverageState] = {}
    states |= dict.fromkeys(conversation.dropped_positions, "omitted")
    states |= dict.fromkeys(set(range(cut, end)) - sent, "omitted")
    states |= dict.fromkeys((position for position in sent if position < cut), "verbatim")
    states |= dict.fromkeys(_shortened(plan, content) & sent, "summarized")
    states |= dict.fromkeys(quoted, "retrieved")
    lines = (*content.summary, *content.of(Layer.ARC))
    covered = [line.covers for line in lines if line.covers[0] < line.covers[1]]
    return report.ranges(end, cut, covered, states)


# What the prompt has in common with the one before it


def is_squeezed(settled: Settled) -> bool:
    """Tells whether something of the stable zone had to be left out or shortened for this turn."""
    content = settled.content
    view = settled.plan.history
    chosen: list[Fragment] = [*settled.plan.preferences.shown_fragments, *view.arc, *view.summary]
    stable = [part for part in content.fragments if part.layer in assembly.STABLE_LAYERS]
    return stable != chosen or content.history != view.groups


def _is_rewritten(settled: Settled, same: int) -> bool:
    """Tells whether a prompt was written anew, where it could have gone on.

    Args:
        settled: the prompt.
        same: how many of its messages are the same as in the one before, from the start.
    """
    plan = settled.plan
    last = plan.conversation.last
    is_rebuilt = plan.history.is_rebuilt
    was_longer = _was_background_longer(plan)
    if last is None:
        return was_longer or (is_rebuilt and plan.history.cut > 0)

    _, last_groups_when_shortened = last.turn_state
    gave_way = was_longer or plan.turn.fitted.groups_when_shortened != last_groups_when_shortened
    if gave_way and same < len(last.messages):
        return True
    if is_rebuilt:
        return same < max(last.stable, settled.built.stable)
    return same < last.stable and (
        plan.growth.mode is Mode.CLIPPED or _is_squeezed_otherwise(settled, last)
    )


def _is_squeezed_otherwise(settled: Settled, last: LastPrompt) -> bool:
    """Tells whether this prompt or the last one had to make room for its turn."""
    turn = settled.plan.turn
    is_other_turn = (turn.stage, turn.fitted.groups_when_shortened) != last.turn_state
    # A zone that was squeezed for one turn is another one at the next.
    return is_other_turn or last.squeezed or is_squeezed(settled)


def _was_background_longer(plan: Plan) -> bool:
    """Tells whether the newest background of the history is sent with less than before."""
    sent = plan.conversation.backgrounds
    end = len(plan.conversation.entries)
    newest = max((position for position in sent if position < end), default=-1)
    shown = plan.history.backgrounds.get(newest)
    return shown is not None and shown != sent[newest]


def _stability(settled: Settled) -> report.Stability:
    """Returns what this prompt has in common with the one before it, from the start."""
    plan = settled.plan
    built = settled.built
    costs = settled.measured.costs
    last = plan.conversation.last
    stable_tokens = sum(costs[: built.stable])
    messages_tokens = sum(costs)
    extras_tokens = sum(plan.extras.values())
    total_tokens = messages_tokens + extras_tokens
    all_tokens = whole_tokens(plan)
    turns_to_rebuild = rebuilt_tokens = None
    if plan.grows:
        turns_to_rebuild, rebuilt_tokens = next_rebuild(plan, total_tokens)

    shared_tokens, same = common_prefix(
        built.messages, costs, last.messages if last else (), plan.counter
    )
    stable_share = prompt_share = None
    if last is not None:
        stable_share = prompt_share = 1.0
        if same < built.stable:
            stable_share = min(shared_tokens, stable_tokens) / stable_tokens
        if messages_tokens:
            prompt_share = shared_tokens / messages_tokens

    cached_tokens = all_cached_tokens = 0
    if last is not None and plan.cached_prompt is not None:
        cached_tokens = shared_tokens + (extras_tokens if shared_tokens else 0)
        all_cached_tokens = min(all_tokens, last.whole_tokens)
    return report.Stability(
        stable_zone_tokens=stable_tokens,
        shared_tokens=None if last is None else shared_tokens,
        stable_zone_share=stable_share,
        prompt_share=prompt_share,
        compaction_step=_is_rewritten(settled, same),
        effective_tokens=round(effective_tokens(total_tokens, cached_tokens)),
        whole_effective_tokens=round(effective_tokens(all_tokens, all_cached_tokens)),
        saved_tokens=max(0, all_tokens - total_tokens),
        turns_to_step=turns_to_rebuild,
        step_tokens=rebuilt_tokens,
    )
