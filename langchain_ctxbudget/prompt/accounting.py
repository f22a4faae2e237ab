"""From a finished plan to its report: every candidate with its reason, numbers that add up."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

from langchain_ctxbudget import report
from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.messages import Group, Repair, plain_text
from langchain_ctxbudget.prompt import assembly
from langchain_ctxbudget.prompt.assembly import Content, Measure
from langchain_ctxbudget.prompt.fitting import Settled, counted_extras
from langchain_ctxbudget.prompt.growing import next_rebuild, whole_tokens
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.tokens import CalibratedCounter, TokenCounter, effective_tokens, encodable


def account(settled: Settled) -> Callable[[], report.ContextReport]:
    """Returns what makes the report of a finished prompt once it is looked at."""
    plan = settled.plan
    measured = settled.measured
    stability = _stability(settled)
    calls = plan.counter.calls - plan.request.calls_before
    uncorrected = measured.total_tokens
    if isinstance(plan.counter, CalibratedCounter):
        plain = plan.but(counter=plan.counter.inner)
        uncorrected = plain.counter.count_messages(settled.built.messages) + sum(
            counted_extras(plain).values()
        )
    plan = plan.but(pool=None, conversation=plan.conversation.but(last=None, cuts={}, clips={}))
    made = partial(_report, plan, settled.content, measured)
    return cache(partial(made, stability=stability, uncorrected_tokens=uncorrected, calls=calls))


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

    def named(ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(request.knowledge.names_by_id.get(key, (key,))[0] for key in ids)

    replaced = (
        it for it in assembly.build(content).messages if encodable(text := plain_text(it)) != text
    )
    halves = (
        Repair("characters", it.id or "", "halves of characters are sent joined, or as �")
        for it in replaced
    )
    repairs = [*view.repairs, *plan.turn.repairs, *halves]
    if not content.summary and assembly.opening_note(content) == assembly.NO_FIRST_QUESTION:
        repairs.append(
            Repair(
                "first_message", "", f"{assembly.NO_FIRST_QUESTION} stands before a first answer"
            )
        )
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
        layers=tuple(
            report.layer_report(
                layer,
                allocated=plan.allocated.tokens.get(layer, 0),
                items=items,
                overhead=measured.layer_overhead_tokens[layer],
                more=more.get(layer, {}),
            )
            for layer, items in _items(plan, content).items()
        ),
        overhead_tokens={**plan.extras, "framing": measured.framing_tokens},
        coverage=coverage,
        stability=stability,
        repairs=tuple(repairs),
        failures=tuple(dict.fromkeys(plan.failures)),
        summary_lines=dict(view.made_by),
        summaries_waiting=len(view.waiting),
        last_resort=plan.last_resort,
        tokenizer_calls=calls,
        timings_ms={},
        usage=request.usage,
        topics=named(one.id for one in plan.detected.topics),
        entities=named(one.id for one in plan.detected.entities),
        predicted=named(request.expected),
        cache_hits={layer: sum(texts.values()) for layer, texts in plan.compiled.items() if texts},
        cache_misses={
            layer: len(texts) - sum(texts.values())
            for layer, texts in plan.compiled.items()
            if texts
        },
    )


def _items(plan: Plan, content: Content) -> dict[str, list[report.ReportItem]]:
    turn = plan.turn
    items: defaultdict[str, list[report.ReportItem]] = defaultdict(list)
    for layer in (*Layer, *(own.name for own in plan.request.settings.layers)):
        items[layer] = []
    if said := content.system_prompt:
        tokens = plan.counter.count_text(said)
        items[Layer.IDENTITY] = [
            _item("system prompt", tokens, Status.INCLUDED, Reason.REQUIRED, said)
        ]
    before = (replace(part, reason=Reason.AS_SENT) for part in content.sent_again)
    for part in (*before, *content.fragments, *content.turn_work, *plan.pruned):
        scores = part.scores or plan.retrieved.scores(part.source, part.id)
        item = _item(part.id, part.tokens, part.status, part.reason, part.text)
        items[part.layer].append(replace(item, source=part.source, scores=scores))
    for part in plan.preferences.left_out:
        reason = part.reason if part.status is Status.OMITTED else Reason.NO_ROOM
        items[Layer.PREFERENCES].append(
            _item(part.id, part.tokens, Status.OMITTED, reason, part.text)
        )
    items[Layer.HISTORY] += _of_history(plan, content)
    for group in content.turn:
        clipped = group.positions[0] in turn.clipped
        status, reason = (
            (Status.SHRUNK, Reason.CLIPPED) if clipped else (Status.INCLUDED, Reason.REQUIRED)
        )
        items[Layer.MESSAGE].append(_of_group(group, plan.counter, status, reason))
    items[Layer.MESSAGE] += [
        _of_group(group, plan.counter, Status.OMITTED, Reason.NO_ROOM) for group in turn.left_out
    ]
    sent = {position for group in (*turn.groups, *turn.left_out) for position in group.positions}
    items[Layer.MESSAGE] += [
        _item(
            it.id or it.type,
            plan.counter.count_message(it),
            Status.OMITTED,
            Reason.REPAIRED,
            plain_text(it),
        )
        for position, it in enumerate(plan.request.turn)
        if position not in sent
    ]
    for layer, item in plan.bundles.omitted:
        items[layer].append(item)
    items[Layer.RETRIEVAL] += plan.retrieved.omitted()
    return items


def _of_history(plan: Plan, content: Content) -> list[report.ReportItem]:
    """Returns the items of the verbatim history: sent, pruned, or impossible to send."""
    view = plan.history
    conversation = plan.conversation
    counter = plan.counter
    shortened = _shortened(plan, content)
    sent = _positions(content.history)
    pinned = {*conversation.kept}
    items: list[report.ReportItem] = []
    for group in content.bare_history:
        status = Status.INCLUDED
        reason = Reason.RECENT
        if shortened.intersection(group.positions):
            status = Status.SHRUNK
            reason = Reason.SHORTENED
        elif group.positions[0] < view.cut:
            reason = Reason.PINNED if pinned.intersection(group.positions) else Reason.IMPORTANT
        items.append(_of_group(group, counter, status, reason))
    gone = (group for group in view.groups if not sent.intersection(group.positions))
    items += [_of_group(group, counter, Status.OMITTED, Reason.PRUNED) for group in gone]
    shown = _positions(view.groups)
    for position in sorted(pinned.union(range(view.cut, len(conversation.entries)))):
        if position not in shown:
            entry = conversation.entries[position]
            tokens = conversation.costs[position]
            reason = Reason.NO_ROOM
            if position >= view.cut and position not in view.shortened:
                tokens = counter.count_message(entry.sent)
                reason = Reason.DROPPED if entry.preservation == "drop" else Reason.REPAIRED
            items.append(_item(entry.id, tokens, Status.OMITTED, reason, entry.text))
    return items


def _positions(groups: Iterable[Group]) -> set[int]:
    return {position for group in groups for position in group.positions}


def _shortened(plan: Plan, content: Content) -> set[int]:
    """Returns positions of messages of the history that are not sent whole.

    By the compaction, or as a last resort.
    """
    chosen = {group.positions: group.messages for group in plan.history.groups}
    changed = (group for group in content.history if chosen.get(group.positions) != group.messages)
    return {*plan.history.shortened, *_positions(changed)}


def _of_group(
    group: Group, counter: TokenCounter, status: Status, reason: Reason
) -> report.ReportItem:
    name = report.JOINED.join(message.id or message.type for message in group.messages)
    return _item(
        name, assembly.group_tokens(group, counter), status, reason, plain_text(group.messages[0])
    )


def _item(name: str, tokens: int, status: Status, reason: Reason, text: str) -> report.ReportItem:
    return report.ReportItem(
        id=name, tokens=tokens, status=status, reason=reason, preview=report.preview(text)
    )


def _more_omitted(
    plan: Plan, coverage: Sequence[report.CoverageRange]
) -> dict[str, dict[Reason, int]]:
    """Returns the candidates that are counted rather than listed.

    Above all the messages before the cut.
    """
    cut = plan.history.cut
    counts: Counter[report.CoverageState] = Counter()
    for part in coverage:
        counts[part.state] += max(0, min(part.last, cut) - part.first + 1)
    dropped = bisect_left(plan.conversation.dropped, cut)
    history = {Reason.SUMMARIZED: counts["summarized"] + counts["retrieved"]}
    omitted = counts["omitted"] - dropped
    # Those that are too weak would not come with more room.
    weak = min(omitted, plan.retrieved.more_omitted.get(Reason.LOW_RELEVANCE, 0))
    history |= {Reason.DROPPED: dropped, Reason.LOW_RELEVANCE: weak, Reason.NO_ROOM: omitted - weak}
    more: dict[str, dict[Reason, int]] = {
        Layer.HISTORY: {reason: count for reason, count in history.items() if count}
    }
    more |= {layer: dict(reasons) for layer, reasons in plan.bundles.more_omitted.items()}
    if plan.retrieved.more_omitted:
        more[Layer.RETRIEVAL] = dict(plan.retrieved.more_omitted)
    return more


def _coverage(plan: Plan, content: Content) -> tuple[report.CoverageRange, ...]:
    conversation = plan.conversation
    cut = plan.history.cut
    sent = _positions(content.history)
    marks: dict[int, report.CoverageState] = dict.fromkeys(conversation.dropped, "omitted")
    marks |= {
        position: "omitted"
        for position in range(cut, len(conversation.entries))
        if position not in sent
    }
    marks |= {position: "verbatim" for position in sent if position < cut}
    marks |= dict.fromkeys(_shortened(plan, content) & sent, "summarized")
    marks |= dict.fromkeys(
        plan.positions_of((*content.sent_again, *content.of(Layer.RETRIEVAL))), "retrieved"
    )
    covered = [
        one.covers
        for one in (*content.summary, *content.of(Layer.ARC))
        if one.covers[0] < one.covers[1]
    ]
    return report.ranges(len(conversation.entries), cut, covered, marks)


def is_squeezed(settled: Settled) -> bool:
    """Tells whether something of the stable zone had to be left out or shortened for this turn."""
    plan = settled.plan
    content = settled.content
    stable: list[Fragment] = [
        part for part in content.fragments if part.layer in assembly.STABLE_LAYERS
    ]
    view = plan.history
    return (
        stable != [*plan.preferences.shown, *view.arc, *view.summary]
        or content.history != view.groups
    )


def _is_rewritten(settled: Settled, same: int) -> bool:
    """Tells whether a prompt was written anew, of which so many messages are the same as in the previous one."""
    plan = settled.plan
    last = settled.plan.conversation.last
    step = settled.plan.history.is_rebuilt
    sent = plan.conversation.sent
    newest = max((at for at in sent if at < len(plan.conversation.entries)), default=-1)
    was_longer = (
        newest in plan.history.backgrounds and plan.history.backgrounds[newest] != sent[newest]
    )
    if last is None:
        return was_longer or (step and plan.history.cut > 0)
    # A zone that was squeezed for one turn is another one at the next.
    squeezed = (
        is_squeezed(settled)
        or last.squeezed
        or (plan.turn.stage, plan.turn.groups_when_shortened) != last.long_turn
    )
    changed = same < last.stable or (step and same < settled.built.stable)
    gave_way = (was_longer or plan.turn.groups_when_shortened != last.long_turn[1]) and same < len(
        last.messages
    )
    return gave_way or (changed and (step or squeezed or plan.clips_new))


def _stability(settled: Settled) -> report.Stability:
    """Returns what this prompt has in common with the conversation's previous one, from the start."""
    plan = settled.plan
    built = settled.built
    costs = settled.measured.costs
    last = plan.conversation.last
    warm = plan.cached is not None
    stable = sum(costs[: built.stable])
    total = sum(costs)
    extras = sum(plan.extras.values())
    whole = whole_tokens(plan)
    turns, step_tokens = next_rebuild(plan, total + extras) if plan.grows else (None, None)
    shared, same = assembly.common_prefix(
        built.messages, costs, last.messages if last else (), plan.counter
    )
    return report.Stability(
        stable_zone_tokens=stable,
        shared_tokens=shared if last else None,
        stable_zone_share=(1.0 if same >= built.stable else min(shared, stable) / stable)
        if last
        else None,
        prompt_share=(shared / total if total else 1.0) if last else None,
        compaction_step=_is_rewritten(settled, same),
        effective_tokens=round(
            effective_tokens(total + extras, warm * (shared + (extras if shared else 0)))
        ),
        whole_effective_tokens=round(
            effective_tokens(whole, warm * min(whole, last.whole_tokens if last else 0))
        ),
        saved_tokens=max(0, whole - total - extras),
        turns_to_step=turns,
        step_tokens=step_tokens,
    )
