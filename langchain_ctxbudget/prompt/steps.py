"""The six steps from a message to a prompt; each returns the plan with its own part filled in.

What decides is pure. The steps that ask somebody (embeddings, the application's layers, a summary
model, the store) are flows, and only read: what a prompt changes is in its `Changes`, for whoever
sends it to write.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget import history, retrieval
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import TokenCountError
from langchain_ctxbudget.flow import Flow, embed_query, with_fallback
from langchain_ctxbudget.history import Background, Conversation, HistoryPlan, HistoryView
from langchain_ctxbudget.knowledge import facts, subjects
from langchain_ctxbudget.prompt import budgeting, leftovers
from langchain_ctxbudget.prompt.accounting import account, is_squeezed
from langchain_ctxbudget.prompt.assembly import (
    MOST_MARKERS,
    asking,
    has_human,
    request_copy,
    with_cache_markers,
)
from langchain_ctxbudget.prompt.fitting import Settled, excess_tokens, fit_prompt
from langchain_ctxbudget.prompt.growing import divide_budget, prefix_of, whole_tokens
from langchain_ctxbudget.prompt.plan import AssembledContext, Changes, Plan, Prompt
from langchain_ctxbudget.prompt.recount import (
    MADE_AGAIN,
    own_total,
    require_recount,
    without_caches,
)
from langchain_ctxbudget.prompt.turn_room import RECENT_MESSAGES
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.settings import LayerRequest
from langchain_ctxbudget.stores import CutRecord, embeddings_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything that the steps may ask."""

    store: BaseStore
    embeddings: Embeddings | None = None
    sources: retrieval.Sources | None = None
    reranker: BaseDocumentCompressor | None = None


def detect_topics(plan: Plan, access: Access) -> Flow[Plan]:
    """Finds the topics and entities that the message is about, declared and learned."""
    request = plan.request
    problems: list[str] = []
    vector = None
    if access.embeddings is not None and plan.query and request.knowledge.vectors_made_by:
        query = retrieval.without_names(plan.query, list(plan.conversation.names))
        embedding = embed_query(access.embeddings, query)
        embedded = yield from with_fallback(
            embedding, None, "topics not compared by vectors", problems
        )
        if embedded is not None:
            plan = plan.but(embedded_query=(query, embedded))
            vector = np.asarray(embedded, np.float32)
            made_by = embeddings_name(access.embeddings), vector.size
            if made_by != request.knowledge.vectors_made_by:
                both = (request.knowledge.vectors_made_by, made_by)
                theirs, ours = (f"{model} ({size} dimensions)" for model, size in both)
                problems.append(
                    f"topics found by their words alone: their vectors are of {theirs}, not of {ours}"
                )
                vector = None
    detected = subjects.detect(
        plan.query,
        request.settings,
        request.knowledge,
        recent=_recent(plan),
        query=vector,
        expected=request.expected,
        count=plan.counter.count_text,
    )
    detected = subjects.within(detected, request.tier, plan.counter.count_text)
    return plan.but(detected=detected).failed(*problems)


def _recent(plan: Plan) -> tuple[str, ...]:
    return tuple(entry.text for entry in plan.conversation.entries[-RECENT_MESSAGES:])


def compute_budget(plan: Plan, _access: Access) -> Flow[Plan]:
    """Measures what must be sent, refuses what cannot fit, and divides the rest."""
    yield from ()
    return divide_budget(plan)


def fetch_bundles(plan: Plan, _access: Access) -> Flow[Plan]:
    """Asks the application's own layers for their items, and makes the text of these, of topics and of entities."""
    scope = plan.conversation.scope
    items: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    for layer in plan.request.settings.layers if plan.fixed is None else ():
        request = LayerRequest(
            query=plan.query,
            budget_tokens=plan.allocated.tokens[layer.name],
            user_id=scope.user_id,
            conversation_id=scope.conversation_id,
            left_tokens=max(0, -excess_tokens(plan, plan.content))
            if plan.goes_on
            else plan.turn.free_tokens,
        )
        fetched = subjects.fetch(layer, request)
        items[layer.name] = yield from with_fallback(fetched, (), f"layer {layer.name!r}", problems)
    return budgeting.with_bundles(plan.but(own_items=items).failed(*problems))


def compact_history(plan: Plan, access: Access) -> Flow[Plan]:
    """Chooses the verbatim part of the history, and the summary and arc in place of the rest."""
    if plan.goes_on:
        record = plan.history.record
        planned = budgeting.history_plan(plan)
        if not (
            plan.repeats_rebuild
            and record
            and (yield from _has_news(plan.conversation, record, access))
        ):
            return plan.failed(*_summary_failures(plan.conversation, plan.history))
        stays = history.Decision(
            cut=record.position, cleared=record.cleared, media_from=record.media_from
        )
        return budgeting.with_history(plan, planned.view(stays))
    view, problems = yield from choose_history(budgeting.history_plan(plan), access)
    return budgeting.with_history(plan, view).failed(*problems)


def choose_history(planned: HistoryPlan, access: Access) -> Flow[tuple[HistoryView, list[str]]]:
    """Chooses the verbatim part of a history; also returns lines for the report."""
    decision = planned.decide()
    problems = list[str]()
    conversation = planned.conversation
    made = planned.conversation.table.made
    if made.maker and not decision.whole and decision.record is None:
        _, waiting = conversation.spans(planned.settings.span_messages).before(decision.cut)
        look_up = history.look_up(access.store, conversation.scope, made, waiting)
        yield from with_fallback(look_up, None, "summaries", problems)  # extraction stands instead
    view = planned.view(decision)
    return view, [*problems, *_summary_failures(conversation, view)]


def _has_news(conversation: Conversation, record: CutRecord, access: Access) -> Flow[bool]:
    """Returns whether a model has by now summarized the messages behind the cut of a step."""
    made = conversation.table.made
    if made.maker and record.waiting:
        with suppress(Exception):  # extraction stands
            yield from history.look_up(access.store, conversation.scope, made, record.waiting)
    return made.has_news(record.waiting)


def _summary_failures(conversation: Conversation, view: HistoryView) -> list[str]:
    """Returns why a model has not summarized the messages behind the cut."""
    made = conversation.table.made
    failures = dict.fromkeys(made.failures.values() if made.maker and view.waiting else ())
    return [f"summaries: {problem}; extraction stands instead" for problem in failures]


def retrieve(plan: Plan, access: Access) -> Flow[Plan]:
    """Fills the rest of the budget, above all with earlier messages that answer this one and are not verbatim."""
    if plan.fixed is not None:
        return plan
    if not has_human(plan.turn.groups):
        return leftovers.with_leftovers(plan)
    conversation = plan.conversation
    problems = list[str]()
    others: tuple[retrieval.Other, ...] = ()
    found = history.NOWHERE
    spoken = retrieval.without_names(plan.query, list(conversation.names))
    query = history.Query(plan.query, access.embeddings, spoken, plan.embedded_query)
    named: tuple[retrieval.Named, ...] = ()
    if access.sources is not None:
        preferences = plan.preferences
        name = conversation.scope.conversation_id
        known = facts.as_candidates(
            preferences.left_out, preferences.facts_left_out, conversation_id=name
        )
        memories = () if plan.request.tier.knowledge_items is not None else known
        sources = replace(access.sources, memories=memories)
        others, found = yield from sources.read(query, problems)
        named = yield from sources.read_named(
            [*_recent(plan), plan.query], plan.limit_tokens, problems
        )
    if plan.history.cut or plan.history.shortened or others or named:
        limits = plan.request.settings.retrieval
        today = plan.request.now and plan.request.now.date()
        vectors = access.sources.vectors if access.sources else {}
        searched = replace(
            retrieval.Searched.of(conversation),
            asked=query.embedded,
            today=today,
            elsewhere=vectors,
        )
        pool = yield from retrieval.gather(
            searched, plan.query, access.embeddings, problems, others, found=found
        )
        pool = replace(pool, named=named)
        names_by_id = plan.request.knowledge.names_by_id
        names = [names_by_id.get(one.id, (one.id,))[0] for one in plan.detected.entities]
        pool = retrieval.boosted(
            retrieval.weighted(pool, limits.memory_weights, today), limits, names, today
        )
        if access.reranker is not None:
            pool = yield from retrieval.rerank(
                pool, access.reranker, problems, conversation, limits.candidates
            )
        plan = plan.but(pool=pool)
    return leftovers.with_leftovers(plan.failed(*problems))


def settle(plan: Plan) -> Settled:
    """Builds the messages, and keeps the background that is chosen with them."""
    settled = fit_prompt(plan if plan.fixed is None else leftovers.with_shrunk_background(plan))
    plan = settled.plan
    if plan.background is None and (asked := asking(plan.request.turn)) is not None:
        background = Background.of(
            plan.request.turn[asked],
            plan.conversation.digest,
            settled.content.volatile,
            position=len(plan.conversation.entries) + asked,
            cut_key=plan.cut_key if plan.grows else "",
        )
        plan = plan.but(background=background)
    if (
        plan.grows and plan.background is not None
    ):  # at every step of a turn: a long one keeps the cache warm
        plan = plan.but(background=replace(plan.background, at=plan.request.now))
    return replace(settled, plan=plan)


def assemble(plan: Plan) -> Prompt:
    """Makes the messages to send, their report, and the changes to write.

    `TokenCountError` if the recount differs.

    Whoever calls it makes the prompt again then, from a plan `without_caches`.
    """
    settled = settle(plan)
    request = settled.plan.request
    built = settled.built
    # Copies: what a caller does to its prompt must not change the next one.
    messages = [*map(request_copy, built.messages)]
    sent = messages
    if request.settings.cache_markers == "anthropic":
        on_tools = sum(
            "cache_control" in str(tool) for tool in request.tools if isinstance(tool, dict)
        )
        sent = with_cache_markers(messages, built.stable, MOST_MARKERS - on_tools)
    require_recount(settled.plan, messages, sent, settled.measured.total_tokens)
    if problem := own_total(plan.counter, messages):
        settled = replace(settled, plan=settled.plan.failed(problem))
    report = account(settled)
    context = AssembledContext(messages=sent, turn=[*request.turn], account=report)
    return Prompt(context=context, changes=_changes(settled, report), plan=settled.plan)


def _changes(settled: Settled, report: Callable[[], ContextReport]) -> Changes:
    plan = settled.plan
    built = settled.built
    remembered = plan.preferences.remembered
    return Changes(
        cut=_noted_cut(settled),
        is_rebuilt=plan.history.is_rebuilt,
        snapshot=facts.snapshot_of(plan.preferences.facts, remembered.edited)
        if remembered.due
        else None,
        last=history.LastPrompt(
            messages=built.messages,
            costs=settled.measured.costs,
            stable=built.stable,
            long_turn=(plan.turn.stage, plan.turn.groups_when_shortened),
            squeezed=is_squeezed(settled),
            whole_tokens=whole_tokens(plan),
            turn=plan.request.turn,
            background=plan.background,
            settings=plan.request.settings,
            coverage=lambda: report().coverage,
            at=plan.request.now,
            sent_with=plan.sent_with,
        ),
        used={key: is_hit for texts in plan.compiled.values() for key, is_hit in texts.items()},
    )


def _noted_cut(settled: Settled) -> CutRecord | None:
    """Returns the cut of a prompt.

    At a step, with what the next prompts must know to go on from it.
    """
    plan = settled.plan
    cut = settled.plan.history.record
    if cut is None or not plan.history.is_rebuilt or not plan.grows or plan.only_adds:
        return cut
    background_tokens = sum(fragment.tokens for fragment in settled.content.volatile)
    noted = {
        "prefix": prefix_of(plan),
        "at": plan.request.now,
        "saved_tokens": (plan.afforded_tokens or 0)
        + background_tokens
        - settled.measured.total_tokens,
        "level_tokens": plan.level_tokens,
        "preferences_tokens": plan.allocated.tokens[Layer.PREFERENCES],
        "long": plan.turn.stage,
        "turn_tokens": plan.turn.room_tokens,
        "turn_groups": len(plan.turn.whole),
    }
    return cut.model_copy(update=noted)


STEPS: Mapping[str, Callable[[Plan, Access], Flow[Plan]]] = {
    "detect_topics": detect_topics,
    "compute_budget": compute_budget,
    "fetch_bundles": fetch_bundles,
    "compact_history": compact_history,
    "retrieve": retrieve,
}
"""The steps before the last one, `assemble`, by name."""
LAST_STEP = "assemble"


def what_if(prompt: Prompt, budget: int) -> ContextReport:
    """Returns the report that another budget, in tokens, would have given a finished prompt.

    Does no I/O.
    """
    try:
        other = assemble(_planned_for(prompt, budget))
    except TokenCountError as error:
        again = _planned_for(prompt, budget, uses_known_costs=False)
        other = assemble(again.failed(MADE_AGAIN.format(problem=error)))
    return replace(other.context.report, forecast=True)


def _planned_for(prompt: Prompt, budget: int, *, uses_known_costs: bool = True) -> Plan:
    """Returns the plan of a finished prompt for another budget, all steps but the last one done."""
    before = prompt.plan
    cut = prompt.changes.cut
    cuts = {**before.conversation.cuts, **({cut.cut_key: cut} if cut else {})}
    request = replace(
        before.request,
        settings=before.request.settings.override({"max_context_tokens": budget}),
        remembered=before.preferences.remembered,
        background=before.background if before.fixed is not None else None,
        calls_before=before.conversation.counter.calls,
        failures=before.failures,
    )
    conversation = before.conversation.but(
        cuts=cuts, last=None, clips=dict(before.conversation.clips)
    )
    asked = {name: getattr(before, name) for name in ("goes_on", "cold", "afforded_tokens")} | {
        "is_redone": True
    }
    plan = Plan.begin(conversation, request).but(
        detected=before.detected, own_items=before.own_items, **asked
    )
    plan = plan if uses_known_costs else without_caches(plan)
    plan = budgeting.with_bundles(divide_budget(plan))
    if not plan.goes_on:
        planned = budgeting.history_plan(plan)
        plan = budgeting.with_history(plan, planned.view(planned.decide()))
    if plan.fixed is None:
        # Nobody holds the conversation's lock: an index of its own, and words alone.
        pool = before.pool
        if pool is None:
            pool = retrieval.pooled(
                retrieval.Searched.of(plan.conversation, history.MessageIndex()), plan.query
            )
        plan = leftovers.with_leftovers(plan.but(pool=pool))
    return plan
