"""From a finished draft to its report: every candidate with its reason, numbers that add up."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.core.assembly import (
    NO_FIRST_QUESTION,
    Content,
    Fragment,
    Measure,
    Prompt,
    group_tokens,
    has_human,
    opening_note,
)
from langchain_ctxbudget.core.calibration import CalibratedCounter
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.messages import plain_text
from langchain_ctxbudget.core.prefix import common_prefix
from langchain_ctxbudget.core.report import (
    ContextReport,
    CoverageRange,
    CoverageState,
    ReportItem,
    Stability,
    layer_report,
    preview,
    ranges,
)
from langchain_ctxbudget.core.report_parts import JOINED
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.core.turns import Group, Repair
from langchain_ctxbudget.draft import Draft


def account(draft: Draft, content: Content, prompt: Prompt, measured: Measure) -> ContextReport:
    """The report of a finished prompt.

    Args:
        draft: what the steps chose.
        content: what is left of it after pruning.
        prompt: what is sent.
        measured: what it costs.
    """
    items = _items(draft, content)
    coverage = _coverage(draft, content)
    more = _more_omitted(draft, coverage)
    return ContextReport(
        user_id=draft.conversation.scope.user_id,
        conversation_id=draft.conversation.scope.conversation_id,
        budget_tokens=draft.limit_tokens,
        window_tokens=draft.window.tokens,
        window_source=draft.window.source,
        window_detail=draft.window.detail,
        output_reserve_tokens=draft.output_reserve_tokens + draft.allocated.reserve_tokens,
        total_tokens=measured.total_tokens,
        count_mode=draft.counter.mode,
        tokenizer=draft.counter.name,
        uncorrected_tokens=_uncorrected(draft, prompt),
        settings_from=draft.settings_from,
        allocation_strategy=draft.allocated.strategy,
        history_strategy=draft.history.strategy,
        layers=tuple(
            layer_report(
                layer,
                allocated=draft.allocated.tokens.get(layer, 0),
                items=items[layer],
                overhead=measured.layer_overhead_tokens.get(layer, 0),
                more=more.get(layer, {}),
            )
            for layer in items
        ),
        overhead_tokens=measured.request_overhead_tokens,
        coverage=coverage,
        stability=_stability(draft, content, prompt),
        repairs=(*draft.history.repairs, *draft.turn_repairs, *_opening(content)),
        failures=tuple(dict.fromkeys(draft.failures)),
        summary_lines=dict(draft.history.made_by),
        summaries_waiting=len(draft.history.waiting),
        last_resort=draft.last_resort,
        tokenizer_calls=draft.counter.calls - draft.calls_before,
        timings_ms={},
        usage=draft.usage,
    )


def _uncorrected(draft: Draft, prompt: Prompt) -> int:
    """What the counter said before usage that was observed corrected it."""
    counter = draft.counter.inner if isinstance(draft.counter, CalibratedCounter) else draft.counter
    extras = counter.count_tools(draft.tools) + counter.count_response_format(draft.response_format)
    return counter.count_messages(prompt.messages) + extras


def _opening(content: Content) -> tuple[Repair, ...]:
    if content.summary or opening_note(content) != NO_FIRST_QUESTION:
        return ()
    return (Repair("first_message", "", f"{NO_FIRST_QUESTION} stands before an answer that comes first"),)


def _items(draft: Draft, content: Content) -> dict[str, list[ReportItem]]:
    before = draft.block.left_out if draft.fixed is not None and draft.block is not None else ()
    named = [*(layer.name for layer in draft.settings.layers), *(part.layer for part in draft.fixed or ()), *before]
    items: dict[str, list[ReportItem]] = {layer: [] for layer in (*Layer, *draft.own, *named)}
    for pruned in draft.pruned:
        items.setdefault(pruned.layer, [])
    if content.system_prompt:
        tokens = draft.counter.count_text(content.system_prompt)
        items[Layer.IDENTITY].append(
            _item("system prompt", tokens, Status.INCLUDED, Reason.REQUIRED, content.system_prompt)
        )
    shown = (*content.preferences, *content.arc, *content.summary, *content.volatile, *draft.pruned)
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
        for left in draft.preferences_left_out
    ]
    items[Layer.HISTORY] += _of_history(draft, content)
    cut = draft.turn_clipped
    for part in content.turn:
        clipped = part.positions[0] in cut
        status, reason = (Status.SHRUNK, Reason.CLIPPED) if clipped else (Status.INCLUDED, Reason.REQUIRED)
        items[Layer.MESSAGE] += _of_groups([part], draft.counter, status, reason)
    items[Layer.MESSAGE] += _of_groups(draft.turn_left_out, draft.counter, Status.OMITTED, Reason.NO_ROOM)
    sent = {position for part in (*draft.turn_groups, *draft.turn_left_out) for position in part.positions}
    items[Layer.MESSAGE] += _repaired(draft.turn, sent, draft.counter)
    nowhere = not has_human(draft.turn_groups)
    for layer, item in (*draft.bundles.omitted, *((n, it) for n, own in draft.own.items() for it in own.omitted)):
        no_place = nowhere and item.reason is Reason.NO_ROOM
        items[layer].append(replace(item, reason=Reason.NO_HUMAN_MESSAGE) if no_place else item)
    if not content.volatile:
        items = _without_human(draft, items)
    items[Layer.RETRIEVAL] += draft.retrieved.omitted
    return items


def _shortened(draft: Draft, content: Content) -> set[int]:
    """Positions of the messages of the history that are not sent whole: by the compaction, or as a last resort."""
    chosen = {part.positions: part.messages for part in draft.history.groups}
    changed = (part.positions for part in content.history if chosen.get(part.positions) != part.messages)
    return {*draft.history.shortened, *(position for positions in changed for position in positions)}


def _of_history(draft: Draft, content: Content) -> list[ReportItem]:
    """The verbatim part of the history: what is sent, what was pruned, what cannot be sent."""
    view, entries = draft.history, draft.conversation.entries
    shortened = _shortened(draft, content)
    sent = {position for part in content.history for position in part.positions}
    items: list[ReportItem] = []
    for part in content.history:
        status, reason = Status.INCLUDED, Reason.RECENT
        if shortened.intersection(part.positions):
            status, reason = Status.SHRUNK, Reason.SHORTENED
        elif part.positions[0] < view.cut:
            reason = Reason.PINNED
        items += _of_groups([part], draft.counter, status, reason)
    gone = [part for part in view.groups if not sent.intersection(part.positions)]
    items += _of_groups(gone, draft.counter, Status.OMITTED, Reason.PRUNED)
    shown = {position for part in view.groups for position in part.positions}
    for position in draft.conversation.kept:
        if position < view.cut and position not in shown:
            entry = entries[position]
            items.append(_item(entry.id, entry.tokens, Status.OMITTED, Reason.NO_ROOM, entry.text))
    for position in range(view.cut, len(entries)):
        if position not in shown:
            entry = entries[position]
            reason = Reason.DROPPED if entry.preservation == "drop" else Reason.REPAIRED
            tokens = draft.counter.count_message(entry.sent)
            items.append(_item(entry.id, tokens, Status.OMITTED, reason, entry.text))
    return items


def _without_human(draft: Draft, items: dict[str, list[ReportItem]]) -> dict[str, list[ReportItem]]:
    """A turn without a human message has no place for topics, entities and the application's own layers."""
    pruned = {fragment.id for fragment in draft.pruned}
    own = (fragment for rendered in draft.own.values() for fragment in rendered.fragments)
    for fragment in (*draft.bundles.fragments, *own):
        if fragment.id not in pruned:
            items[fragment.layer].append(
                _item(fragment.id, fragment.tokens, Status.OMITTED, Reason.NO_HUMAN_MESSAGE, fragment.text)
            )
    return items


def _more_omitted(draft: Draft, coverage: Sequence[CoverageRange]) -> dict[str, dict[Reason, int]]:
    """Omitted candidates that are counted rather than listed: above all the messages before the cut."""
    cut = draft.history.cut
    counts: Counter[CoverageState] = Counter()
    for part in coverage:
        counts[part.state] += max(0, min(part.last, cut) - part.first + 1)
    dropped = bisect_left(draft.conversation.dropped, cut)
    history = {
        Reason.SUMMARIZED: counts["summarized"] + counts["retrieved"],
        Reason.DROPPED: dropped,
        Reason.NO_ROOM: counts["omitted"] - dropped,
    }
    more: dict[str, dict[Reason, int]] = {Layer.HISTORY: {reason: count for reason, count in history.items() if count}}
    more |= {layer: dict(counts) for layer, counts in draft.bundles.more_omitted.items()}
    if draft.retrieved.more_omitted:
        more[Layer.RETRIEVAL] = dict(draft.retrieved.more_omitted)
    if draft.fixed is not None and draft.block is not None:
        more |= {layer: dict(counts) for layer, counts in draft.block.left_out.items()}
    return more


def left_out(draft: Draft) -> dict[str, dict[Reason, int]]:
    """How many candidates for the context block were not chosen, by layer and reason."""
    counts: defaultdict[str, Counter[Reason]] = defaultdict(Counter)
    omitted: list[tuple[str, ReportItem]] = [*draft.bundles.omitted]
    omitted += [(name, item) for name, rendered in draft.own.items() for item in rendered.omitted]
    omitted += [(Layer.RETRIEVAL, item) for item in draft.retrieved.omitted]
    stable = (Layer.PREFERENCES, Layer.ARC, Layer.HISTORY)
    for part in draft.pruned:
        if part.layer not in stable:
            counts[part.layer][part.reason] += 1
    for layer, item in omitted:
        counts[layer][item.reason] += 1
    for layer, number in draft.bundles.more_omitted.items():
        counts[layer].update(number)
    counts[Layer.RETRIEVAL].update(draft.retrieved.more_omitted)
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


def _coverage(draft: Draft, content: Content) -> tuple[CoverageRange, ...]:
    """Every message of the conversation in exactly one state."""
    conversation, view = draft.conversation, draft.history
    sent = {position for part in content.history for position in part.positions}
    marks: dict[int, CoverageState] = dict.fromkeys(conversation.dropped, "omitted")
    marks |= {position: "omitted" for position in range(view.cut, len(conversation.entries)) if position not in sent}
    marks |= {position: "verbatim" for position in sent if position < view.cut}
    marks |= dict.fromkeys(_shortened(draft, content) & sent, "summarized")
    included = {fragment.id for fragment in content.volatile if fragment.layer == Layer.RETRIEVAL}
    for position in draft.retrieved.positions:
        if conversation.entries[position].id in included:
            marks[position] = "retrieved"
    return ranges(len(conversation.entries), view.cut, _covered(content), marks)


def is_squeezed(draft: Draft, content: Content) -> bool:
    """Whether something of the stable zone had to be left out or shortened for this turn."""
    view = draft.history
    chosen = (draft.preferences, view.arc, view.summary, view.groups)
    return (content.preferences, content.arc, content.summary, content.history) != chosen


def _stability(draft: Draft, content: Content, prompt: Prompt) -> Stability:
    """What this prompt has in common with the conversation's previous one, from the start."""
    counter = draft.counter
    costs = [counter.count_message(message) for message in prompt.messages]
    stable = sum(costs[: prompt.stable])
    previous = draft.conversation.previous
    if not previous:
        return Stability(
            stable_zone_tokens=stable,
            shared_tokens=None,
            stable_zone_share=None,
            prompt_share=None,
            compaction_step=draft.history.step,
        )
    shared, same = common_prefix(prompt.messages, costs, [message for message, _ in previous], counter)
    # A zone that was squeezed for one turn is another one at the next.
    squeezed = is_squeezed(draft, content) or draft.conversation.squeezed
    squeezed = squeezed or draft.long_turn != draft.conversation.previous_long
    changed = same < draft.conversation.previous_stable or (draft.history.step and same < prompt.stable)
    rewritten = changed and (draft.history.step or squeezed)
    within = min(shared, stable)
    total = sum(costs)
    return Stability(
        stable_zone_tokens=stable,
        shared_tokens=shared,
        stable_zone_share=1.0 if same >= prompt.stable else within / stable,
        prompt_share=shared / total if total else 1.0,
        compaction_step=rewritten,
    )
