"""From a finished draft to its report: every candidate with its reason, numbers that add up."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.budget.layers import Fragment, Layer, Reason, Status
from langchain_ctxbudget.messages.messages import plain_text
from langchain_ctxbudget.messages.turns import Group, Repair
from langchain_ctxbudget.prompt.assembly import (
    NO_FIRST_QUESTION,
    BuiltPrompt,
    Content,
    Measure,
    group_tokens,
    has_human,
    opening_note,
)
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.prefix import common_prefix
from langchain_ctxbudget.report.report import (
    ContextReport,
    CoverageRange,
    CoverageState,
    ReportItem,
    Stability,
    layer_report,
    preview,
    ranges,
)
from langchain_ctxbudget.report.view import JOINED
from langchain_ctxbudget.tokens.counters import TokenCounter
from langchain_ctxbudget.tokens.target import CalibratedCounter


def account(plan: Plan, content: Content, prompt: BuiltPrompt, measured: Measure) -> ContextReport:
    """The report of a finished prompt.

    Args:
        plan: what the steps chose.
        content: what is left of it after pruning.
        prompt: what is sent.
        measured: what it costs.
    """
    items = _items(plan, content)
    coverage = _coverage(plan, content)
    more = _more_omitted(plan, coverage)
    return ContextReport(
        user_id=plan.conversation.scope.user_id,
        conversation_id=plan.conversation.scope.conversation_id,
        budget_tokens=plan.limit_tokens,
        window_tokens=plan.request.window.tokens,
        window_source=plan.request.window.source,
        window_detail=plan.request.window.detail,
        output_reserve_tokens=plan.request.output_reserve_tokens + plan.allocated.reserve_tokens,
        total_tokens=measured.total_tokens,
        count_mode=plan.counter.mode,
        tokenizer=plan.counter.name,
        uncorrected_tokens=_uncorrected(plan, prompt),
        settings_from=plan.request.settings_from,
        allocation_strategy=plan.allocated.strategy,
        history_strategy=plan.history.strategy,
        layers=tuple(
            layer_report(
                layer,
                allocated=plan.allocated.tokens.get(layer, 0),
                items=items[layer],
                overhead=measured.layer_overhead_tokens.get(layer, 0),
                more=more.get(layer, {}),
            )
            for layer in items
        ),
        overhead_tokens=measured.request_overhead_tokens,
        coverage=coverage,
        stability=_stability(plan, content, prompt),
        repairs=(*plan.history.repairs, *plan.turn.repairs, *_opening(content)),
        failures=tuple(dict.fromkeys(plan.failures)),
        summary_lines=dict(plan.history.made_by),
        summaries_waiting=len(plan.history.waiting),
        last_resort=plan.last_resort,
        tokenizer_calls=plan.counter.calls - plan.request.calls_before,
        timings_ms={},
        usage=plan.request.usage,
    )


def _uncorrected(plan: Plan, prompt: BuiltPrompt) -> int:
    """What the counter said before usage that was observed corrected it."""
    counter = plan.counter.inner if isinstance(plan.counter, CalibratedCounter) else plan.counter
    extras = counter.count_tools(plan.request.tools) + counter.count_response_format(plan.request.response_format)
    return counter.count_messages(prompt.messages) + extras


def _opening(content: Content) -> tuple[Repair, ...]:
    if content.summary or opening_note(content) != NO_FIRST_QUESTION:
        return ()
    return (Repair("first_message", "", f"{NO_FIRST_QUESTION} stands before an answer that comes first"),)


def _items(plan: Plan, content: Content) -> dict[str, list[ReportItem]]:
    before = plan.block.left_out if plan.fixed is not None and plan.block is not None else ()
    named = [
        *(layer.name for layer in plan.request.settings.layers),
        *(part.layer for part in plan.fixed or ()),
        *before,
    ]
    items: dict[str, list[ReportItem]] = {layer: [] for layer in (*Layer, *plan.own, *named)}
    for pruned in plan.pruned:
        items.setdefault(pruned.layer, [])
    if content.system_prompt:
        tokens = plan.counter.count_text(content.system_prompt)
        items[Layer.IDENTITY].append(
            _item("system prompt", tokens, Status.INCLUDED, Reason.REQUIRED, content.system_prompt)
        )
    shown = (*content.preferences, *content.arc, *content.summary, *content.volatile, *plan.pruned)
    for fragment in shown:
        items[fragment.layer].append(_of_fragment(fragment))
    items[Layer.PREFERENCES] += [
        _item(
            left.id,
            left.tokens,
            Status.OMITTED,
            left.reason if left.status is Status.OMITTED else Reason.NO_ROOM,
            left.text,
        )
        for left in plan.preferences.left_out
    ]
    items[Layer.HISTORY] += _of_history(plan, content)
    cut = plan.turn.clipped
    for part in content.turn:
        clipped = part.positions[0] in cut
        status, reason = (Status.SHRUNK, Reason.CLIPPED) if clipped else (Status.INCLUDED, Reason.REQUIRED)
        items[Layer.MESSAGE] += _of_groups([part], plan.counter, status, reason)
    items[Layer.MESSAGE] += _of_groups(plan.turn.left_out, plan.counter, Status.OMITTED, Reason.NO_ROOM)
    sent = {position for part in (*plan.turn.groups, *plan.turn.left_out) for position in part.positions}
    items[Layer.MESSAGE] += _repaired(plan.request.turn, sent, plan.counter)
    nowhere = not has_human(plan.turn.groups)
    for layer, item in (*plan.bundles.omitted, *((n, it) for n, own in plan.own.items() for it in own.omitted)):
        no_place = nowhere and item.reason is Reason.NO_ROOM
        items[layer].append(replace(item, reason=Reason.NO_HUMAN_MESSAGE) if no_place else item)
    if not content.volatile:
        items = _without_human(plan, items)
    items[Layer.RETRIEVAL] += plan.retrieved.omitted
    return items


def _shortened(plan: Plan, content: Content) -> set[int]:
    """Positions of the messages of the history that are not sent whole: by the compaction, or as a last resort."""
    chosen = {part.positions: part.messages for part in plan.history.groups}
    changed = (part.positions for part in content.history if chosen.get(part.positions) != part.messages)
    return {*plan.history.shortened, *(position for positions in changed for position in positions)}


def _of_history(plan: Plan, content: Content) -> list[ReportItem]:
    """The verbatim part of the history: what is sent, what was pruned, what cannot be sent."""
    view, entries = plan.history, plan.conversation.entries
    shortened = _shortened(plan, content)
    sent = {position for part in content.history for position in part.positions}
    items: list[ReportItem] = []
    for part in content.history:
        status, reason = Status.INCLUDED, Reason.RECENT
        if shortened.intersection(part.positions):
            status, reason = Status.SHRUNK, Reason.SHORTENED
        elif part.positions[0] < view.cut:
            reason = Reason.PINNED
        items += _of_groups([part], plan.counter, status, reason)
    gone = [part for part in view.groups if not sent.intersection(part.positions)]
    items += _of_groups(gone, plan.counter, Status.OMITTED, Reason.PRUNED)
    shown = {position for part in view.groups for position in part.positions}
    for position in plan.conversation.kept:
        if position < view.cut and position not in shown:
            entry = entries[position]
            items.append(_item(entry.id, plan.conversation.costs[position], Status.OMITTED, Reason.NO_ROOM, entry.text))
    for position in range(view.cut, len(entries)):
        if position not in shown:
            entry = entries[position]
            reason = Reason.DROPPED if entry.preservation == "drop" else Reason.REPAIRED
            tokens = plan.counter.count_message(entry.sent)
            items.append(_item(entry.id, tokens, Status.OMITTED, reason, entry.text))
    return items


def _without_human(plan: Plan, items: dict[str, list[ReportItem]]) -> dict[str, list[ReportItem]]:
    """A turn without a human message has no place for topics, entities and the application's own layers."""
    pruned = {fragment.id for fragment in plan.pruned}
    own = (fragment for rendered in plan.own.values() for fragment in rendered.fragments)
    for fragment in (*plan.bundles.fragments, *own):
        if fragment.id not in pruned:
            items[fragment.layer].append(
                _item(fragment.id, fragment.tokens, Status.OMITTED, Reason.NO_HUMAN_MESSAGE, fragment.text)
            )
    return items


def _more_omitted(plan: Plan, coverage: Sequence[CoverageRange]) -> dict[str, dict[Reason, int]]:
    """Omitted candidates that are counted rather than listed: above all the messages before the cut."""
    cut = plan.history.cut
    counts: Counter[CoverageState] = Counter()
    for part in coverage:
        counts[part.state] += max(0, min(part.last, cut) - part.first + 1)
    dropped = bisect_left(plan.conversation.dropped, cut)
    history = {
        Reason.SUMMARIZED: counts["summarized"] + counts["retrieved"],
        Reason.DROPPED: dropped,
        Reason.NO_ROOM: counts["omitted"] - dropped,
    }
    more: dict[str, dict[Reason, int]] = {Layer.HISTORY: {reason: count for reason, count in history.items() if count}}
    more |= {layer: dict(counts) for layer, counts in plan.bundles.more_omitted.items()}
    if plan.retrieved.more_omitted:
        more[Layer.RETRIEVAL] = dict(plan.retrieved.more_omitted)
    if plan.fixed is not None and plan.block is not None:
        more |= {layer: dict(counts) for layer, counts in plan.block.left_out.items()}
    return more


def left_out(plan: Plan) -> dict[str, dict[Reason, int]]:
    """How many candidates for the context block were not chosen, by layer and reason."""
    counts: defaultdict[str, Counter[Reason]] = defaultdict(Counter)
    omitted: list[tuple[str, ReportItem]] = [*plan.bundles.omitted]
    omitted += [(name, item) for name, rendered in plan.own.items() for item in rendered.omitted]
    omitted += [(Layer.RETRIEVAL, item) for item in plan.retrieved.omitted]
    stable = (Layer.PREFERENCES, Layer.ARC, Layer.HISTORY)
    for part in plan.pruned:
        if part.layer not in stable:
            counts[part.layer][part.reason] += 1
    for layer, item in omitted:
        counts[layer][item.reason] += 1
    for layer, number in plan.bundles.more_omitted.items():
        counts[layer].update(number)
    counts[Layer.RETRIEVAL].update(plan.retrieved.more_omitted)
    return {layer: dict(reasons) for layer, reasons in counts.items() if reasons}


def _of_fragment(fragment: Fragment) -> ReportItem:
    item = _item(fragment.id, fragment.tokens, fragment.status, fragment.reason, fragment.text)
    if not fragment.scores and not fragment.source:
        return item
    return replace(item, scores=fragment.scores, source=fragment.source)


def _of_groups(groups: Iterable[Group], counter: TokenCounter, status: Status, reason: Reason) -> list[ReportItem]:
    return [
        _item(
            JOINED.join(message.id or message.type for message in part.messages),
            group_tokens(part, counter),
            status,
            reason,
            plain_text(part.messages[0]),
        )
        for part in groups
    ]


def _repaired(messages: Sequence[BaseMessage], shown: set[int], counter: TokenCounter) -> list[ReportItem]:
    """Messages that could not be sent as they stand and were left out."""
    return [
        _item(
            message.id or message.type,
            counter.count_message(message),
            Status.OMITTED,
            Reason.REPAIRED,
            plain_text(message),
        )
        for position, message in enumerate(messages)
        if position not in shown
    ]


def _item(name: str, tokens: int, status: Status, reason: Reason, text: str) -> ReportItem:
    return ReportItem(id=name, tokens=tokens, status=status, reason=reason, preview=preview(text))


def _covered(content: Content) -> list[tuple[int, int]]:
    """The spans of messages that a line of summary or arc stands for."""
    return [part.covers for part in (*content.summary, *content.arc) if part.covers[0] < part.covers[1]]


def _coverage(plan: Plan, content: Content) -> tuple[CoverageRange, ...]:
    """Every message of the conversation in exactly one state."""
    conversation, view = plan.conversation, plan.history
    sent = {position for part in content.history for position in part.positions}
    marks: dict[int, CoverageState] = dict.fromkeys(conversation.dropped, "omitted")
    marks |= {position: "omitted" for position in range(view.cut, len(conversation.entries)) if position not in sent}
    marks |= {position: "verbatim" for position in sent if position < view.cut}
    marks |= dict.fromkeys(_shortened(plan, content) & sent, "summarized")
    included = {fragment.id for fragment in content.volatile if fragment.layer == Layer.RETRIEVAL}
    for position in plan.retrieved.positions:
        if conversation.entries[position].id in included:
            marks[position] = "retrieved"
    return ranges(len(conversation.entries), view.cut, _covered(content), marks)


def is_squeezed(plan: Plan, content: Content) -> bool:
    """Whether something of the stable zone had to be left out or shortened for this turn."""
    view = plan.history
    chosen = (plan.preferences.shown, view.arc, view.summary, view.groups)
    return (content.preferences, content.arc, content.summary, content.history) != chosen


def _stability(plan: Plan, content: Content, prompt: BuiltPrompt) -> Stability:
    """What this prompt has in common with the conversation's previous one, from the start."""
    counter = plan.counter
    costs = [counter.count_message(message) for message in prompt.messages]
    stable = sum(costs[: prompt.stable])
    last = plan.conversation.last
    if last is None:
        return Stability(
            stable_zone_tokens=stable,
            shared_tokens=None,
            stable_zone_share=None,
            prompt_share=None,
            compaction_step=plan.history.step,
        )
    shared, same = common_prefix(prompt.messages, costs, last.messages, counter)
    # A zone that was squeezed for one turn is another one at the next.
    squeezed = is_squeezed(plan, content) or last.squeezed
    squeezed = squeezed or plan.turn.long != last.long_turn
    changed = same < last.stable or (plan.history.step and same < prompt.stable)
    rewritten = changed and (plan.history.step or squeezed)
    within = min(shared, stable)
    total = sum(costs)
    return Stability(
        stable_zone_tokens=stable,
        shared_tokens=shared,
        stable_zone_share=1.0 if same >= prompt.stable else within / stable,
        prompt_share=shared / total if total else 1.0,
        compaction_step=rewritten,
    )
