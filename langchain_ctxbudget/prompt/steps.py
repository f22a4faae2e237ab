"""The six steps from a message to a prompt; each returns the plan with its own part filled in.

What decides is pure. The steps that ask somebody (embeddings, the application's layers, a summary
model, the store) are flows, and only read: what a prompt changes is in its `Changes`, for whoever
sends it to write.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore
from numpy.typing import NDArray

from langchain_ctxbudget import history, retrieval
from langchain_ctxbudget.errors import TokenCountError
from langchain_ctxbudget.flow import Flow, embed_query, with_fallback
from langchain_ctxbudget.history import Background, Conversation, HistoryPlan, HistoryView
from langchain_ctxbudget.knowledge import detect, facts, within_tier
from langchain_ctxbudget.layers import PromptLayer, noted_tokens
from langchain_ctxbudget.messages import plain_text
from langchain_ctxbudget.prompt import budgeting, leftovers
from langchain_ctxbudget.prompt.accounting import account, is_squeezed, whole_tokens_shared
from langchain_ctxbudget.prompt.assembly import asking, has_human, request_copy
from langchain_ctxbudget.prompt.bound_thoughts import with_answer, with_bound_thoughts
from langchain_ctxbudget.prompt.fitting import Settled, excess_tokens, fit_prompt
from langchain_ctxbudget.prompt.growing import divide_budget
from langchain_ctxbudget.prompt.last_prompt import prefix_of
from langchain_ctxbudget.prompt.mode import Growth
from langchain_ctxbudget.prompt.plan import AssembledContext, Changes, Findings, Plan, Prompt
from langchain_ctxbudget.prompt.recount import (
    MADE_AGAIN,
    own_total,
    require_recount,
    without_caches,
)
from langchain_ctxbudget.prompt.tools import has_tools_to_choose_from, servers_in_use
from langchain_ctxbudget.prompt.turn_room import RECENT_MESSAGES
from langchain_ctxbudget.providers import (
    Repair,
    finished,
    marks_beside,
    with_cache_marks,
    with_system_mark,
)
from langchain_ctxbudget.report import ContextReport, Mode
from langchain_ctxbudget.search import Encoder
from langchain_ctxbudget.settings import LayerRequest
from langchain_ctxbudget.stores import CutRecord, embeddings_name
from langchain_ctxbudget.tools import ranked, ranked_by_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything that the steps may ask."""

    store: BaseStore
    embeddings: Embeddings | None = None
    encoder: Encoder | None = None
    sources: retrieval.Sources | None = None
    reranker: BaseDocumentCompressor | None = None


def detect_topics(plan: Plan, access: Access) -> Flow[Plan]:
    """Finds the topics and entities that the message is about, declared and learned."""
    request = plan.request
    problems: list[str] = []
    plan = yield from _with_embedded_query(plan, access, problems)
    vector = _query_vector(plan, access, problems)
    detected = detect(
        plan.query,
        request.settings,
        request.user.knowledge,
        recent=_recent(plan),
        query=vector,
        expected=request.user.expected,
        places=request.user.places,
        count=plan.counter.count_text,
    )
    detected = within_tier(detected, request.allowance.tier, plan.counter.count_text)
    findings = replace(plan.findings, detected=detected)
    return replace(plan, findings=findings).with_failures(*problems)


def _with_embedded_query(plan: Plan, access: Access, problems: list[str]) -> Flow[Plan]:
    """Embeds the query, where the user's topics have vectors."""
    if (
        access.embeddings is None
        or not plan.query
        or not plan.request.user.knowledge.vectors_made_by
    ):
        return plan
    query = retrieval.without_names(plan.query, list(plan.conversation.names))
    embedding = embed_query(access.embeddings, query)
    vector = yield from with_fallback(embedding, None, "topics not compared by vectors", problems)
    if vector is None:
        return plan
    return replace(plan, findings=replace(plan.findings, embedded_query=(query, vector)))


def _query_vector(plan: Plan, access: Access, problems: list[str]) -> NDArray[np.float32] | None:
    """Returns the vector of the query, if the topics' vectors are of the same model."""
    if access.embeddings is None or plan.findings.embedded_query is None:
        return None
    vector = np.asarray(plan.findings.embedded_query[1], np.float32)
    made_by = (embeddings_name(access.embeddings), vector.size)
    topics_made_by = plan.request.user.knowledge.vectors_made_by
    if topics_made_by is None or made_by == topics_made_by:
        return vector
    theirs = _vectors_text(topics_made_by)
    problems.append(
        f"topics found by their words alone: their vectors are of {theirs}, "
        f"not of {_vectors_text(made_by)}"
    )
    return None


def _vectors_text(made_by: tuple[str, int]) -> str:
    model, size = made_by
    return f"{model} ({size} dimensions)"


def _recent(plan: Plan) -> tuple[str, ...]:
    """Returns the texts of the newest messages."""
    return tuple(entry.text for entry in plan.conversation.entries[-RECENT_MESSAGES:])


def compute_budget(plan: Plan, access: Access) -> Flow[Plan]:
    """Measures what must be sent, refuses what cannot fit, and divides the rest."""
    plan = yield from _with_ranked_tools(plan, access)
    return divide_budget(plan)


def _with_ranked_tools(plan: Plan, access: Access) -> Flow[Plan]:
    """Compares the tools of the call with its message, where not all of them may be bound.

    The vector of the message is kept: what is quoted is found by the same one.
    """
    if not has_tools_to_choose_from(plan):
        return plan
    tools = plan.request.call.tools
    problems: list[str] = []
    query = _asked_for(plan)
    servers = servers_in_use(plan)
    ranking = ranked(tools, query, access.embeddings, servers)
    scores = yield from with_fallback(ranking, None, "tools found by words alone", problems)
    findings = plan.findings
    if scores is None:
        scores = ranked_by_words(tools, query, servers)
    elif access.embeddings is not None and findings.embedded_query is None and plan.query:
        vector = yield from tools.vector_of(query, access.embeddings)
        findings = replace(findings, embedded_query=(query, vector))
    findings = replace(findings, tool_scores=scores)
    return replace(plan, findings=findings).with_failures(*problems)


def _asked_for(plan: Plan) -> str:
    """Returns what tools are looked for by: the message, else the texts of the turn."""
    if plan.query:
        return retrieval.without_names(plan.query, list(plan.conversation.names))
    return "\n".join(plain_text(message) for message in plan.request.turn[-RECENT_MESSAGES:])


def fetch_bundles(plan: Plan, _access: Access) -> Flow[Plan]:
    """Asks the application's own layers for their items, and writes the background's layers.

    These are topics, entities and the application's own.
    """
    scope = plan.conversation.scope
    items: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    layers: list[PromptLayer] = []
    if plan.fixed is None:
        layers = [layer for layer in plan.layers if layer.is_asked]
    left_tokens = plan.turn.free_tokens
    if layers and plan.growth.mode.extends_last:
        left_tokens = max(0, -excess_tokens(plan, plan.content))
    for layer in layers:
        request = LayerRequest(
            query=plan.query,
            budget_tokens=plan.allocated.tokens[layer.name],
            user_id=scope.user_id,
            conversation_id=scope.conversation_id,
            left_tokens=left_tokens,
        )
        fetched = layer.fetched(request)
        texts = yield from with_fallback(fetched, None, f"layer {layer.name!r}", problems)
        if texts is not None:
            items[layer.name] = texts
    plan = replace(plan, findings=replace(plan.findings, own_items=items))
    return budgeting.with_bundles(plan.with_failures(*problems))


def compact_history(plan: Plan, access: Access) -> Flow[Plan]:
    """Chooses the verbatim part of the history, and what stands in place of the rest.

    A prompt that extends the last one has its history already.
    """
    if not plan.growth.mode.extends_last:
        view, problems = yield from choose_history(budgeting.history_plan(plan), access)
        return budgeting.with_history(plan, view).with_failures(*problems)

    record = plan.history.record
    has_news = False
    if plan.growth.mode is Mode.REPEATED and record is not None:
        has_news = yield from _has_news(plan.conversation, record, access)
    if record is None or not has_news:
        return plan.with_failures(*_summary_failures(plan.conversation, plan.history))
    # Nothing of the last rebuild was answered yet, so its summary may change; its cut stays.
    choice = history.CutChoice(
        cut=record.position, cleared=record.cleared, media_from=record.media_from
    )
    return budgeting.with_history(plan, history.history_view(budgeting.history_plan(plan), choice))


def choose_history(planned: HistoryPlan, access: Access) -> Flow[tuple[HistoryView, list[str]]]:
    """Chooses the verbatim part of a history; also returns problems for the report."""
    choice = history.choose_cut(planned)
    problems: list[str] = []
    conversation = planned.conversation
    summaries = conversation.table.span_digests
    if summaries.maker and not choice.whole and choice.record is None:
        _, waiting = conversation.spans(planned.settings.span_messages).before(choice.cut)
        look_up = history.look_up(access.store, conversation.scope, summaries, waiting)
        yield from with_fallback(look_up, None, "summaries", problems)  # extraction stands instead
    view = history.history_view(planned, choice)
    return view, [*problems, *_summary_failures(conversation, view)]


def _has_news(conversation: Conversation, record: CutRecord, access: Access) -> Flow[bool]:
    """Returns whether a model has by now summarized messages that it had not at the rebuild."""
    summaries = conversation.table.span_digests
    if summaries.maker and record.waiting:
        with suppress(Exception):  # extraction stands instead
            yield from history.look_up(access.store, conversation.scope, summaries, record.waiting)
    return summaries.has_news(record.waiting)


def _summary_failures(conversation: Conversation, view: HistoryView) -> list[str]:
    """Returns why a model has not summarized the messages before the cut, each reason once."""
    summaries = conversation.table.span_digests
    if not summaries.maker or not view.waiting:
        return []
    reasons = dict.fromkeys(summaries.failures.values())
    return [f"summaries: {reason}; extraction stands instead" for reason in reasons]


def retrieve(plan: Plan, access: Access) -> Flow[Plan]:
    """Fills the rest of the budget, above all with earlier messages that answer this one.

    Not with those that stand verbatim in the prompt.
    """
    if plan.fixed is not None:
        return plan
    if not has_human(plan.turn.groups):
        return leftovers.with_leftovers(plan)
    problems: list[str] = []
    query = history.Query(
        plan.query,
        access.embeddings,
        retrieval.without_names(plan.query, list(plan.conversation.names)),
        plan.findings.embedded_query,
    )
    findings = _Findings()
    if access.sources is not None:
        findings = yield from _read_sources(plan, access.sources, query, problems)
    is_cut = bool(plan.history.cut or plan.history.shortened)
    if is_cut or findings.texts or findings.named_documents:
        pool = yield from _pool(plan, access, query, findings, problems)
        plan = replace(plan, findings=replace(plan.findings, pool=pool))
    return leftovers.with_leftovers(plan.with_failures(*problems))


@dataclass(frozen=True, slots=True)
class _Findings:
    """What was found outside the conversation."""

    texts: tuple[retrieval.Other, ...] = ()
    elsewhere: history.Elsewhere = history.NOWHERE
    """What is known of other conversations."""
    named_documents: tuple[retrieval.NamedDocument, ...] = ()
    """The documents whose names were said."""


def _read_sources(
    plan: Plan, sources: retrieval.Sources, query: history.Query, problems: list[str]
) -> Flow[_Findings]:
    """Searches facts that are not shown, other conversations and documents."""
    memories = facts.as_candidates(
        plan.preferences.memories_left_out,
        plan.preferences.facts_left_out,
        conversation_id=plan.conversation.scope.conversation_id,
    )
    if plan.request.allowance.tier.knowledge_items is not None:
        memories = ()  # what a usage limit leaves out must not come back as quotes
    sources = replace(sources, memories=memories)
    texts, elsewhere = yield from sources.read(query, problems)
    recent = [*_recent(plan), plan.query]
    named = yield from sources.read_named(recent, plan.limit_tokens, problems)
    return _Findings(texts, elsewhere, named)


def _pool(
    plan: Plan, access: Access, query: history.Query, findings: _Findings, problems: list[str]
) -> Flow[retrieval.Pool]:
    """Ranks the texts that may be quoted."""
    conversation = plan.conversation
    now = plan.request.now
    searched = replace(
        retrieval.Searched.of(conversation),
        embedded_query=query.embedded,
        elsewhere=access.sources.vectors if access.sources else {},
        encoder=access.encoder,
    )
    pool = yield from retrieval.in_order(
        searched,
        plan.query,
        access.embeddings,
        problems,
        others=findings.texts,
        found=findings.elsewhere,
        conversation=conversation,
        ordering=retrieval.Ordering(
            settings=plan.request.settings.retrieval,
            names=plan.findings.detected.entity_names(plan.request.user.knowledge),
            today=None if now is None else now.date(),
            reranker=access.reranker,
        ),
    )
    return replace(pool, named_documents=findings.named_documents)


def settle(plan: Plan) -> Settled:
    """Builds the messages, and notes the background that is chosen with them."""
    if plan.fixed is not None:
        plan = leftovers.with_shrunk_background(plan)
    settled, prompt_digest = with_bound_thoughts(fit_prompt(plan))
    plan = settled.plan
    background = plan.background
    asked = asking(plan.request.turn)
    if background is None and asked is not None:
        background = Background.of(
            plan.request.turn[asked],
            plan.conversation.digest,
            settled.content.volatile,
            position=len(plan.conversation.entries) + asked,
            cut_key=plan.cut_key if plan.grows else "",
        )
    if background is not None and plan.grows:
        # At every call of a loop: a long one keeps the cache warm.
        background = replace(background, at=plan.request.now)
    if background is not None and prompt_digest:
        background = with_answer(background, settled, prompt_digest)
    return replace(settled, plan=replace(plan, background=background))


def assemble(plan: Plan) -> Prompt:
    """Makes the messages to send, their report, and the changes to write.

    Raises:
        TokenCountError: the recount differs; then the prompt is to be made again from a plan
            `without_caches`.
    """
    settled = settle(plan)
    request = settled.plan.request
    built = settled.built
    # Copies: what a caller does to its prompt must not change the next one.
    copies = [*map(request_copy, built.messages)]
    sent, last_repairs = _as_sent(copies, built.stable, settled.plan)
    require_recount(settled.plan, copies, sent, settled.measured.total_tokens)
    problem = own_total(plan.counter, copies)
    if problem:
        settled = replace(settled, plan=settled.plan.with_failures(problem))
    accounts = account(settled, last_repairs)
    context = AssembledContext(
        messages=sent,
        tools=[*settled.plan.tools.given],
        turn=[*request.turn],
        account=accounts.whole,
        receipt=accounts.receipt,
    )
    return Prompt(context=context, changes=_changes(settled, accounts.whole), plan=settled.plan)


def _as_sent(
    messages: Sequence[BaseMessage], stable: int, plan: Plan
) -> tuple[list[BaseMessage], list[Repair]]:
    """Returns the messages of a prompt as they are sent, with marks for a cache, and repairs.

    Args:
        messages: the messages, which are not changed.
        stable: how many of them stand before the current turn.
        plan: the finished plan.
    """
    request = plan.request
    profile = plan.conversation.profile
    beside = marks_beside(plan.tools.given, request.call.cache_mark)
    marked, repairs = with_system_mark(messages, request.system_mark, profile)
    if request.settings.cache_markers == "anthropic" and profile.cache.most_marks:
        marks_left = profile.cache.most_marks - beside.count
        marked = with_cache_marks(marked, stable, marks_left, request.cache_terms.mark)
    sent, further_repairs = finished(marked, profile, beside)
    return sent, [*repairs, *further_repairs]


def _changes(settled: Settled, report: Callable[[], ContextReport]) -> Changes:
    """Returns what a prompt changes in the store, and what its conversation remembers of it."""
    plan = settled.plan
    built = settled.built
    remembered = plan.preferences.remembered
    snapshot = None
    if remembered.is_snapshot_due:
        rules = plan.request.user.rules.elsewhere
        snapshot = facts.snapshot_of(plan.preferences.facts, remembered.edited, rules)
    used: dict[str, bool] = {}
    for texts in plan.compiled.values():
        used |= texts
    return Changes(
        cut=_noted_cut(settled),
        is_rebuilt=plan.history.is_rebuilt,
        snapshot=snapshot,
        last=history.LastPrompt(
            messages=built.messages,
            costs=settled.measured.costs,
            stable=built.stable,
            turn_state=(plan.turn.stage, plan.turn.fitted.groups_when_shortened),
            squeezed=is_squeezed(settled),
            whole_tokens=whole_tokens_shared(settled),
            turn=plan.request.turn,
            background=plan.background,
            settings=plan.request.settings,
            coverage=lambda: report().coverage,
            at=plan.request.now,
            sent_with=plan.sent_with,
        ),
        used=used,
    )


def _noted_cut(settled: Settled) -> CutRecord | None:
    """Returns the cut of a prompt; that of a rebuild with what the next prompts must know of it."""
    plan = settled.plan
    cut = plan.history.record
    is_rebuild = plan.history.is_rebuilt and plan.grows and not plan.growth.mode.adds_background
    if cut is None or not is_rebuild:
        return cut
    background_tokens = sum(fragment.tokens for fragment in settled.content.volatile)
    spent_tokens = int(
        plan.request.cache_terms.cost(settled.measured.total_tokens - background_tokens)
    )
    return cut.model_copy(
        update={
            "prefix": prefix_of(plan),
            "tools": plan.names_of_chosen_tools,
            "at": plan.request.now,
            "saved_tokens": (plan.growth.afforded_tokens or 0) - spent_tokens,
            "level_tokens": plan.growth.level_tokens,
            "preferences_tokens": noted_tokens(plan.allocated.tokens),
            "long": plan.turn.stage,
            "turn_tokens": plan.turn.room_tokens,
            "turn_groups": len(plan.turn.given.groups),
        }
    )


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
    """Returns the report that a finished prompt would have had with another budget, in tokens.

    Does no I/O.
    """
    try:
        other = assemble(_planned_for(prompt, budget))
    except TokenCountError as error:
        again = _planned_for(prompt, budget, uses_known_costs=False)
        other = assemble(again.with_failures(MADE_AGAIN.format(problem=error)))
    return replace(other.context.report, forecast=True)


def _planned_for(prompt: Prompt, budget: int, *, uses_known_costs: bool = True) -> Plan:
    """Returns the plan of a finished prompt for another budget, all steps but the last one done."""
    plan = _begun_for(prompt, budget)
    if not uses_known_costs:
        plan = without_caches(plan)
    plan = budgeting.with_bundles(divide_budget(plan))
    if not plan.growth.mode.extends_last:
        planned = budgeting.history_plan(plan)
        plan = budgeting.with_history(
            plan, history.history_view(planned, history.choose_cut(planned))
        )
    if plan.fixed is not None:
        return plan
    pool = prompt.plan.findings.pool
    if pool is None:
        # Nobody holds the conversation's lock: an index of its own, and words alone.
        searched = retrieval.Searched.of(plan.conversation, history.MessageIndex())
        pool = retrieval.pooled(searched, plan.query)
    plan = replace(plan, findings=replace(plan.findings, pool=pool))
    return leftovers.with_leftovers(plan)


def _begun_for(prompt: Prompt, budget: int) -> Plan:
    """Returns the plan of a finished prompt for another budget, with what was found for it."""
    before = prompt.plan
    cuts = dict(before.conversation.cuts)
    cut = prompt.changes.cut
    if cut is not None:
        cuts[cut.cut_key] = cut
    conversation = before.conversation.with_cuts_alone(cuts, clips=dict(before.conversation.clips))
    request = replace(
        before.request,
        settings=before.request.settings.override({"max_context_tokens": budget}),
        user=replace(before.request.user, remembered=before.preferences.remembered),
        background=None if before.fixed is None else before.background,
        texts_counted_before=before.conversation.counter.calls,
        failures=before.failures,
    )
    return replace(
        Plan.begin(conversation, request),
        findings=Findings(detected=before.findings.detected, own_items=before.findings.own_items),
        growth=Growth(
            mode=before.growth.mode,
            cause=before.growth.cause,
            is_cold=before.growth.is_cold,
            is_given=True,
            afforded_tokens=before.growth.afforded_tokens,
        ),
    )
