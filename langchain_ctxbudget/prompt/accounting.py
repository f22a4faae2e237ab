"""From a finished plan to its report: every candidate with its reason, numbers that add up."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from langchain_core.messages import BaseMessage, SystemMessage

from langchain_ctxbudget import report
from langchain_ctxbudget.budget import Fragment, Reason
from langchain_ctxbudget.content import has_media
from langchain_ctxbudget.history import LastPrompt
from langchain_ctxbudget.layers import (
    FormerLayer,
    PromptLayer,
    Sent,
    View,
    place_of,
    positions_of,
    shortened_positions,
)
from langchain_ctxbudget.prompt import assembly
from langchain_ctxbudget.prompt.assembly import Content, Measure
from langchain_ctxbudget.prompt.extension import GROWTH_POLICY
from langchain_ctxbudget.prompt.fitting import Settled, counted_extras
from langchain_ctxbudget.prompt.growing import next_rebuild
from langchain_ctxbudget.prompt.lost_values import (
    LOSS_POLICY,
    GoneValue,
    PromptBefore,
    values_lost_since,
)
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.prompt.provider_cache import common_prefix
from langchain_ctxbudget.prompt.savings import whole_tokens
from langchain_ctxbudget.prompt.unsendable_media import unsent_media
from langchain_ctxbudget.providers import NO_FIRST_QUESTION, Repair
from langchain_ctxbudget.report import ContextReport, Mode, Receipt
from langchain_ctxbudget.tokens import CalibratedCounter, CountMode


@dataclass(frozen=True, slots=True)
class Account:
    """The report of a finished prompt, and its numbers: each is made once it is looked at."""

    whole: Callable[[], ContextReport]
    receipt: Callable[[], Receipt]


def account(settled: Settled, last_repairs: Sequence[Repair]) -> Account:
    """Returns the account of a finished prompt.

    `last_repairs` are those of the finished request; the plan knows the earlier ones.
    """
    plan = settled.plan
    measured = settled.measured
    stability = _stability(settled)
    uncorrected_tokens = measured.total_tokens
    if isinstance(plan.counter, CalibratedCounter):
        uncorrected = replace(plan, counter=plan.counter.inner)
        uncorrected_tokens = uncorrected.counter.count_messages(settled.built.messages)
        uncorrected_tokens += sum(counted_extras(uncorrected).values())
    finished = _Finished(
        # Without what is large and of no use to a report.
        plan=replace(
            plan,
            findings=replace(plan.findings, pool=None),
            conversation=plan.conversation.with_cuts_alone({}, clips={}),
        ),
        content=settled.content,
        measured=measured,
        messages=settled.built.messages,
        stability=stability,
        uncorrected_tokens=uncorrected_tokens,
        tokenizer_calls=plan.counter.calls - plan.request.texts_counted_before,
        last_repairs=last_repairs,
        before=_prompt_before(settled, stability),
    )
    return Account(
        whole=cache(partial(_report, finished)), receipt=cache(partial(_receipt, finished))
    )


@dataclass(frozen=True, kw_only=True)
class _Finished:
    """A finished prompt, and what is known of it."""

    plan: Plan
    content: Content
    measured: Measure
    messages: Sequence[BaseMessage]
    stability: report.Stability
    uncorrected_tokens: int
    tokenizer_calls: int
    last_repairs: Sequence[Repair]
    before: PromptBefore | None

    @property
    def count_mode(self) -> CountMode:
        """Whether counts are exact. What media cost follows rules that providers may change."""
        return "estimated" if any(map(has_media, self.messages)) else self.plan.counter.mode

    @cached_property
    def lost_values(self) -> Sequence[GoneValue]:
        """The values that went with the last prompt."""
        if self.before is None:
            return ()
        return values_lost_since(self.before, self.plan, self.messages)

    @cached_property
    def coverage(self) -> "_Coverage":
        """How each message of the conversation is in the prompt."""
        return _coverage(self.plan, self.content)


def _prompt_before(settled: Settled, stability: report.Stability) -> PromptBefore | None:
    """Returns the last prompt, where something that it had at its end is not in this one."""
    plan = settled.plan
    last = plan.conversation.last
    if last is None or (stability.shared_tokens or 0) >= sum(last.costs):
        return None
    first = min((cut.position for cut in plan.cuts if cut is not None), default=0)
    return PromptBefore(last.messages, first)


def _receipt(finished: _Finished) -> Receipt:
    """Returns the numbers of a finished prompt."""
    plan = finished.plan
    measured = finished.measured
    return Receipt(
        conversation_id=plan.conversation.scope.conversation_id,
        allocation_strategy=plan.allocated.strategy,
        count_mode=finished.count_mode,
        budget_tokens=plan.limit_tokens,
        total_tokens=measured.total_tokens,
        overhead_tokens=sum(plan.extras_beside_tools.values()) + measured.framing_tokens,
        layer_tokens=_layer_tokens(plan, measured),
        messages=finished.coverage.counts(),
        stability=finished.stability,
        failures=_failures(plan),
        repairs=len(_repairs(plan, finished.content, finished.last_repairs)),
        last_resorts=len(plan.gave_way.last_resort),
        lost_values=len(finished.lost_values),
    )


def _layer_tokens(plan: Plan, measured: Measure) -> dict[str, int]:
    """Returns what each layer uses; the items of one were counted together."""
    view = plan.view
    tokens = {layer.name: layer.schemas_tokens(view) for layer in plan.layers}
    for name in {**tokens, **measured.items_tokens}:
        own_tokens = measured.items_tokens[name] + measured.layer_overhead_tokens[name]
        tokens[name] = tokens.get(name, 0) + own_tokens
    return tokens


def _report(finished: _Finished) -> ContextReport:
    """Returns the report of a finished prompt."""
    plan = finished.plan
    content = finished.content
    measured = finished.measured
    request = plan.request
    view = plan.history
    scope = plan.conversation.scope
    coverage = finished.coverage.ranges()
    lost_values = [value.told(coverage) for value in finished.lost_values]
    compiled = {layer: texts for layer, texts in plan.compiled.items() if texts}
    hits = {layer: sum(texts.values()) for layer, texts in compiled.items()}
    misses = {layer: len(texts) - hits[layer] for layer, texts in compiled.items()}
    return ContextReport(
        user_id=scope.user_id,
        conversation_id=scope.conversation_id,
        budget_tokens=plan.limit_tokens,
        window_tokens=request.allowance.window.tokens,
        window_source=request.allowance.window.source,
        window_detail=request.allowance.window.detail,
        output_reserve_tokens=request.output_reserve_tokens + plan.allocated.reserve_tokens,
        total_tokens=measured.total_tokens,
        count_mode=finished.count_mode,
        tokenizer=plan.counter.name,
        uncorrected_tokens=finished.uncorrected_tokens,
        settings_from=request.settings_from,
        allocation_strategy=plan.allocated.strategy,
        history_strategy=view.strategy,
        layers=_Outcome(plan, content, measured, coverage).layers(),
        overhead_tokens={**plan.extras_beside_tools, "framing": measured.framing_tokens},
        coverage=coverage,
        stability=finished.stability,
        repairs=_repairs(plan, content, finished.last_repairs),
        failures=_failures(plan),
        summary_lines=dict(view.made_by),
        summaries_waiting=len(view.waiting),
        last_resort=plan.gave_way.last_resort,
        tokenizer_calls=finished.tokenizer_calls,
        timings_ms={},
        usage=request.allowance.usage,
        topics=_names(plan, (topic.id for topic in plan.findings.detected.topics.subjects)),
        entities=_names(plan, (entity.id for entity in plan.findings.detected.entities.subjects)),
        predicted=_names(plan, request.user.expected),
        cache_hits=hits,
        cache_misses=misses,
        notes=_notes(plan),
        lost_values=tuple(lost_values[: LOSS_POLICY.most_listed]),
        more_lost_values=len(lost_values[LOSS_POLICY.most_listed :]),
    )


def _names(plan: Plan, ids: Iterable[str]) -> tuple[str, ...]:
    """Returns the first names of topics and entities, or the id of one that has none."""
    names_by_id = plan.request.user.knowledge.names_by_id
    return tuple(names_by_id.get(key, (key,))[0] for key in ids)


def _repairs(plan: Plan, content: Content, last_repairs: Sequence[Repair]) -> tuple[Repair, ...]:
    """Returns what was changed in the messages so that providers accept them."""
    repairs = [*plan.history.repairs, *plan.turn.repairs, *plan.gave_way.repairs, *last_repairs]
    if not content.summary and assembly.opening_note(content) == NO_FIRST_QUESTION:
        detail = f"{NO_FIRST_QUESTION} stands before a first answer"
        repairs.append(Repair("first_message", "", detail))
    return tuple(repairs)


# What has become of each layer


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A finished prompt, as its layers explain it."""

    plan: Plan
    content: Content
    measured: Measure
    coverage: Sequence[report.CoverageRange]

    def layers(self) -> tuple[report.LayerReport, ...]:
        """Returns the reports of all layers, in their order."""
        by_layer = self._fragments_by_layer()
        layers = self.plan.layers
        known = {layer.name for layer in layers}
        layers += [FormerLayer(name) for name in by_layer if name not in known]
        view = self.plan.view
        sent = Sent(
            shortened=shortened_positions(self.plan.history, self.content.history),
            coverage=self.coverage,
            irrelevant=self._irrelevant(),
        )
        reports: list[report.LayerReport] = []
        for layer in layers:
            groups = self.content.groups_at(layer.place)
            of_layer = replace(sent, fragments=tuple(by_layer[layer.name]), groups=groups)
            reports.append(self._report_of(layer, of_layer, view))
        return tuple(reports)

    def _report_of(self, layer: PromptLayer, sent: Sent, view: View) -> report.LayerReport:
        """Returns the report of a layer: every candidate with its reason, and what all cost."""
        chosen = self.plan.chosen_by(layer)
        return report.layer_report(
            layer.name,
            title=layer.title,
            allocated=self.plan.allocated.tokens.get(layer.name, 0),
            items=layer.explained(view, sent, chosen),
            overhead=self.measured.layer_overhead_tokens[layer.name] + layer.tokens_beside(view),
            more=layer.counted(view, sent, chosen),
        )

    def _fragments_by_layer(self) -> dict[str, list[Fragment]]:
        """Returns the items that were sent again, chosen, or taken out, by their layers."""
        content = self.content
        sent_again = [replace(part, reason=Reason.AS_SENT) for part in content.sent_again]
        by_layer: defaultdict[str, list[Fragment]] = defaultdict(list)
        for part in (
            *sent_again,
            *content.fragments,
            *content.turn_work,
            *self.plan.gave_way.pruned,
            *unsent_media(self.plan, content),
        ):
            by_layer[part.layer].append(part)
        return by_layer

    def _irrelevant(self) -> int:
        """Returns how many texts of all layers have too little to do with the message."""
        chosen = self.plan.chosen.values()
        return sum(part.more_left_out.get(Reason.LOW_RELEVANCE, 0) for part in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coverage:
    """How each message of a conversation is in a prompt."""

    messages: int
    cut: int
    covered: Sequence[tuple[int, int]]
    """The positions, end excluded, that lines of a summary stand for."""
    states: Mapping[int, report.CoverageState]
    """The states of single messages, by position, where they differ."""

    def ranges(self) -> tuple[report.CoverageRange, ...]:
        """Returns the states as ranges."""
        return report.ranges(self.messages, self.cut, self.covered, self.states)

    def counts(self) -> dict[report.CoverageState, int]:
        """Returns the number of messages in each state."""
        return report.coverage_counts(self.messages, self.cut, self.covered, self.states)


def _coverage(plan: Plan, content: Content) -> _Coverage:
    """Returns how each message of the conversation is in the prompt."""
    conversation = plan.conversation
    cut = plan.history.cut
    end = len(conversation.entries)
    sent = positions_of(content.history)
    shortened = shortened_positions(plan.history, content.history)
    quoted = plan.positions_quoted_whole((*content.sent_again, *content.volatile))
    # What stands below overrides what stands above.
    states: dict[int, report.CoverageState] = {}
    states |= dict.fromkeys(conversation.dropped_positions, "omitted")
    states |= dict.fromkeys(set(range(cut, end)) - sent, "omitted")
    states |= dict.fromkeys((position for position in sent if position < cut), "verbatim")
    states |= dict.fromkeys(shortened & sent, "summarized")
    states |= dict.fromkeys(quoted, "retrieved")
    lines = [part for part in content.fragments if not place_of(part.layer).is_in_background]
    covered = [line.covers for line in lines if line.covers[0] < line.covers[1]]
    covered.append((0, plan.history.compacted))
    return _Coverage(messages=end, cut=cut, covered=covered, states=states)


# What the prompt has in common with the one before it


def _notes(plan: Plan) -> tuple[str, ...]:
    """Returns what the user may want to know and is no failure."""
    notes: list[str] = []
    messages = sum(end - first for first, end in plan.request.user.suspended)
    if messages:
        which = "1 message" if messages == 1 else f"{messages:,} messages"
        notes.append(f"nothing was learned from {which}: a game, a story or a supposition")
    smallest_tokens = plan.request.cache_terms.smallest_tokens
    rebuilt_tokens = plan.limit_tokens * GROWTH_POLICY.rebuild_share
    if rebuilt_tokens < smallest_tokens <= whole_tokens(plan):
        notes.append(
            f"a budget of {plan.limit_tokens:,} tokens is small beside the {smallest_tokens:,} of "
            "the smallest prompt that the provider caches: sending everything may cost less"
        )
    return tuple(notes)


def _failures(plan: Plan) -> tuple[str, ...]:
    """Returns what has failed, and what layers have to say besides; each once."""
    warnings = [plan.chosen_by(layer).warning for layer in plan.layers]
    return tuple(dict.fromkeys((*plan.failures, *filter(None, warnings))))


def whole_tokens_shared(settled: Settled) -> int:
    """Returns how many tokens of a prompt with everything the next one begins with.

    These are all but those that open the answer.
    """
    opening_tokens = settled.plan.counter.count_messages([])
    return _whole_tokens(settled) - opening_tokens


def _whole_tokens(settled: Settled) -> int:
    """Returns the tokens of a prompt with everything that was said, without any fence."""
    plan = settled.plan
    framing_tokens = plan.counter.count_messages([])
    if plan.request.system_prompt:
        framing_tokens += plan.counter.count_message(SystemMessage(""))
    return whole_tokens(plan) + framing_tokens


def is_squeezed(settled: Settled) -> bool:
    """Tells whether something of the stable zone had to be left out or shortened for this turn."""
    content = settled.content
    view = settled.plan.history
    stable = [part for part in content.fragments if not place_of(part.layer).is_in_background]
    return stable != [*settled.plan.stable_items] or content.history != view.groups


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
    total_tokens = settled.measured.total_tokens
    all_tokens = _whole_tokens(settled)
    turns_to_rebuild = rebuilt_tokens = None
    if plan.grows:
        turns_to_rebuild, rebuilt_tokens = next_rebuild(plan, total_tokens)

    terms = plan.request.cache_terms
    last_messages = last.messages if last else ()
    shared_tokens, same = common_prefix(built.messages, costs, last_messages, plan.counter)
    stable_share = prompt_share = None
    if last is not None:
        stable_share = _share(min(shared_tokens, stable_tokens), stable_tokens)
        prompt_share = _share(shared_tokens, messages_tokens)
    known_tokens = _known_tokens(plan, shared_tokens)
    return report.Stability(
        stable_zone_tokens=stable_tokens,
        shared_tokens=None if last is None else shared_tokens,
        stable_zone_share=stable_share,
        prompt_share=prompt_share,
        compaction_step=_is_rewritten(settled, same),
        cached_tokens=terms.read_tokens(known_tokens)
        if total_tokens >= terms.smallest_tokens
        else 0,
        effective_tokens=round(terms.cost(total_tokens, known_tokens)),
        whole_effective_tokens=_whole_effective_tokens(plan, all_tokens),
        saved_tokens=max(0, all_tokens - total_tokens),
        mode=plan.growth.mode.value,
        cause=plan.growth.cause.value if plan.growth.cause else "",
        turns_to_step=turns_to_rebuild,
        step_tokens=rebuilt_tokens,
    )


def _share(shared_tokens: int, tokens: int) -> float:
    """Returns the share of tokens that the last prompt had, too: from 0 to 1, also of none."""
    return shared_tokens / tokens if tokens else 1.0


def _known_tokens(plan: Plan, shared_tokens: int) -> int:
    """Returns how many tokens of a prompt a cache may hold that begins as the last one.

    Tools and response format stand in front of the messages that both share.
    """
    if not shared_tokens or plan.cached_prompt is None:
        return 0
    return shared_tokens + sum(plan.extras.values())


def _whole_effective_tokens(plan: Plan, all_tokens: int) -> int:
    """Returns what a prompt with everything that was said would cost, in new tokens."""
    cached_tokens = 0
    if plan.cached_prompt is not None:
        cached_tokens = min(all_tokens, plan.cached_prompt.whole_tokens)
    return round(plan.request.cache_terms.cost(all_tokens, cached_tokens))
