"""The six steps from a message to a prompt; each returns the plan with its own part filled in.

detect_topics -> compute_budget -> fetch_bundles -> compact_history -> retrieve -> assemble

What decides is pure. The steps that ask somebody (embeddings, the application's layers, a summary model, the store) are
flows, and only read: what a prompt changes is in its `Changes`, for whoever sends it to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.budget.layers import Fragment, Layer, Reason, Status
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.flow import Flow, Lock, embed_query
from langchain_ctxbudget.history.compact import Decision, HistoryPlan, HistoryView
from langchain_ctxbudget.history.conversation import Conversation, LastPrompt, TurnBlock
from langchain_ctxbudget.history.other_conversations import OtherConversations
from langchain_ctxbudget.history.summarizing import look_up
from langchain_ctxbudget.knowledge import custom, facts_layer, subjects
from langchain_ctxbudget.messages.messages import request_copy
from langchain_ctxbudget.prompt.accounting import account, is_squeezed, left_out
from langchain_ctxbudget.prompt.assembly import (
    BuiltPrompt,
    Content,
    Measure,
    asking,
    build,
    has_human,
    measure,
    without_least,
)
from langchain_ctxbudget.prompt.budgeting import advice, compute_budget, counted_extras, excess_tokens, floors
from langchain_ctxbudget.prompt.cache_markers import with_cache_marker
from langchain_ctxbudget.prompt.filling import (
    history_plan,
    with_bundles,
    with_history,
    with_leftovers,
    with_shrunk_block,
)
from langchain_ctxbudget.prompt.last_resort import reduce
from langchain_ctxbudget.prompt.plan import AssembledContext, Changes, Plan, Prompt, uncorrected_note
from langchain_ctxbudget.retrieval.pool import Named, Searched, gather, without_names
from langchain_ctxbudget.retrieval.search import Sources, rerank
from langchain_ctxbudget.search.packing import Candidate
from langchain_ctxbudget.settings import LayerRequest
from langchain_ctxbudget.stores.operations import embeddings_name

SMALL_EXCESS_TOKENS, SMALL_EXCESS_SHARE = 64, 0.02
"""Up to this, in tokens or of the budget, an excess is a matter of a few items, not of the last resort."""
RECENT_MESSAGES = 6
"""The newest messages in which a document may be named, and of which who was spoken of may still be meant."""

WriteSummaries = Callable[[Conversation], Flow[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Whom the steps may ask."""

    store: BaseStore
    lock: Lock
    """Of the conversation; it is held."""
    embeddings: Embeddings | None = None
    sources: Sources | None = None
    """Where retrieval looks besides the conversation."""
    other_conversations: OtherConversations = field(default_factory=OtherConversations)
    """What was read before of the user's other conversations."""
    reranker: BaseDocumentCompressor | None = None
    write_summaries: WriteSummaries | None = None
    """Has the summary model write now, where the turn is to wait for it."""


Step = Callable[[Plan, Access], Flow[Plan]]


def detect_topics(plan: Plan, access: Access) -> Flow[Plan]:
    """Finds the topics and entities that the message is about, declared and learned."""
    request, embeddings = plan.request, access.embeddings
    made_by = request.knowledge.vectors_made_by
    vector = None
    if embeddings is not None and plan.query and made_by:
        text = without_names(plan.query, list(plan.conversation.names))
        try:
            plan = plan.but(asked=(text, (yield from embed_query(embeddings, text))))
        except Exception as error:  # noqa: BLE001 - names and words find topics, too
            plan = plan.failed(f"topics not compared by vectors: {type(error).__name__}: {error}")
        else:
            assert plan.asked is not None  # noqa: S101 - set above
            vector = np.asarray(plan.asked[1], np.float32)
            if made_by != (mine := (embeddings_name(embeddings), vector.size)):
                plan = plan.but(lacks_vectors=embeddings_name(embeddings)).failed(
                    "topics found by their words alone: their vectors are of {} ({} dimensions), the embeddings are {} "
                    "({} dimensions); they are made anew in the background".format(*made_by, *mine)
                )
                vector = None
    detected = subjects.detect(
        plan.query,
        request.settings,
        request.knowledge,
        now=request.now,
        recent=_recent(plan),
        query=vector,
        expected=request.expected,
        count=plan.counter.count_text,
    )
    return plan.but(detected=subjects.within(detected, request.tier, plan.counter.count_text))


def _recent(plan: Plan) -> tuple[str, ...]:
    return tuple(entry.text for entry in plan.conversation.entries[-RECENT_MESSAGES:])


def fetch_bundles(plan: Plan, access: Access) -> Flow[Plan]:
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
        )
        try:
            items[layer.name] = yield from custom.fetch(layer, request, access.lock)
        except Exception as error:  # noqa: BLE001 - whatever an application's function raises
            items[layer.name] = ()
            problems.append(f"layer {layer.name!r}: {type(error).__name__}: {error}")
    return with_bundles(plan.but(own_items=items).failed(*problems))


def compact_history(plan: Plan, access: Access) -> Flow[Plan]:
    """Chooses what of the history is verbatim, and what stands for the rest."""
    view, problems = yield from choose_history(history_plan(plan), access)
    return with_history(plan, view).failed(*problems)


def choose_history(history: HistoryPlan, access: Access) -> Flow[tuple[HistoryView, list[str]]]:
    """Chooses what of a history is verbatim; returns it, and what is to be reported."""
    decision, problems, made = history.decide(), list[str](), history.conversation.made
    if made.maker:
        decision = yield from _with_summaries(history, decision, access, problems)
    view = history.view(decision)
    if made.maker and view.waiting:
        failures = dict.fromkeys(problems[-1] for problems in made.failures.values())
        problems += [f"summaries: {problem}; extraction stands instead" for problem in failures]
    return view, problems


def _with_summaries(history: HistoryPlan, decision: Decision, access: Access, problems: list[str]) -> Flow[Decision]:
    """Takes up what a model has written about the spans before a new cut, or has it written now."""
    conversation, write = history.conversation, access.write_summaries
    made = conversation.made
    waits = write is not None and made.asked_until < decision.cut
    if not ((decision.is_step or waits) and (waiting := history.waiting(decision))):
        return decision
    try:
        found = yield from look_up(access.store, conversation.scope, made, waiting)
        if write is not None:
            made.segment_messages, made.until = history.settings.segment_messages, decision.cut
            yield from write(conversation)
            made.asked_until, found = decision.cut, True
    except Exception as error:  # noqa: BLE001 - extraction stands
        problems.append(f"summaries: {type(error).__name__}: {error}")
        found = True
    return history.decide(renew=True) if found and not decision.is_step else decision


def retrieve(plan: Plan, access: Access) -> Flow[Plan]:
    """Fills what is left of the budget, above all with messages that are no longer verbatim and answer this one."""
    if plan.fixed is not None:
        return with_shrunk_block(plan)
    if not has_human(plan.turn.groups):
        return with_leftovers(plan)
    conversation, problems = plan.conversation, list[str]()
    others: tuple[Candidate, ...] = ()
    named: tuple[Named, ...] = ()
    if access.sources is not None:
        known = facts_layer.as_candidates(
            plan.preferences.left_out,
            plan.preferences.facts_left_out,
            conversation_id=conversation.scope.conversation_id,
        )
        memories = () if plan.request.tier.knowledge_items is not None else known
        sources = replace(access.sources, memories=memories)
        others = yield from sources.read(plan.query, problems, other_conversations=access.other_conversations)
        named = yield from sources.read_named([*_recent(plan), plan.query], plan.limit_tokens, problems)
    if plan.history.cut or plan.history.shortened or others or named:
        searched = replace(Searched.of(conversation), asked=plan.asked)
        pool, problem = yield from gather(searched, plan.query, access.embeddings, others)
        pool = replace(pool, named=named)
        problems += [problem] if problem else []
        if access.reranker is not None:
            pool, problem = yield from rerank(pool, plan.query, access.reranker, conversation)
            problems += [problem] if problem else []
        plan = plan.but(pool=pool)
    return with_leftovers(plan.failed(*problems))


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan whose messages are built and fit."""

    plan: Plan
    content: Content
    built: BuiltPrompt
    measured: Measure


def settle(plan: Plan) -> Settled:
    """Builds the messages, recounts them exactly, and takes back what is over, or what the turn's steps will need.

    A little by the strategy's priorities; much, as where a strategy of the application's own leaves no room, first by
    the steps of the last resort, each as far as needed.

    Raises:
        BudgetTooSmallError: nothing is left that could give way.
    """
    allocation = plan.allocated
    limit = plan.limit_tokens - allocation.reserve_tokens
    over = partial(excess_tokens, plan)
    content = plan.content
    pruned = list(plan.pruned)
    if over(content) > max(SMALL_EXCESS_TOKENS, int(limit * SMALL_EXCESS_SHARE)):
        content, taken, gone = reduce(content, plan.counter, over)
        pruned += [_omitted(fragment, Reason.COMPRESSED) for fragment in gone]
        plan = plan.but(last_resort=taken)
    built = build(content)
    measured = measure(content, built, plan.counter, plan.extras)
    order = sorted(
        (layer for layer in allocation.tokens if layer not in (Layer.IDENTITY, Layer.MESSAGE)),
        key=lambda layer: (allocation.priority_of(layer), layer),
    )
    while (excess := over(content)) > 0:
        smaller, gone_now = without_least(content, plan.counter, excess, order)
        if smaller == content:
            if measured.total_tokens > limit:
                plan, measured = _uncorrected(plan, content, built, measured, limit)
            break
        pruned += [_omitted(fragment, Reason.PRUNED) for fragment in gone_now]
        content = smaller
        built = build(content)
        measured = measure(content, built, plan.counter, plan.extras)
    plan = plan.but(pruned=tuple(pruned))
    if plan.block is None and (asked := asking(plan.request.turn)) is not None:
        begun_with = plan.conversation.digest
        block = TurnBlock.of(plan.request.turn[asked], begun_with, content.volatile, left_out(plan))
        plan = plan.but(block=block)
    return Settled(plan, content, built, measured)


def _omitted(fragment: Fragment, reason: Reason) -> Fragment:
    return replace(fragment, status=Status.OMITTED, reason=reason)


def _uncorrected(
    plan: Plan, content: Content, built: BuiltPrompt, measured: Measure, limit: int
) -> tuple[Plan, Measure]:
    """Sends what must be sent where only corrected counts say that it is too much.

    Raises:
        BudgetTooSmallError: it is too much without corrections, too.
    """
    identity, message = measured.items_tokens[Layer.IDENTITY], measured.items_tokens[Layer.MESSAGE]
    rest = measured.total_tokens - identity - message - sum(plan.extras.values())
    refused = BudgetTooSmallError(limit, floors(identity, message, plan.extras, rest), advice(plan))
    plain = plan.uncorrected()
    if plain is plan:
        raise refused
    plain = plain.but(extras=counted_extras(plain))
    counted = measure(content, built, plain.counter, plain.extras)
    if counted.total_tokens > limit:
        raise refused
    return plain.failed(uncorrected_note(measured.total_tokens, counted.total_tokens, limit)), counted


def assemble(plan: Plan) -> Prompt:
    """Makes the messages that are sent, their account, and what they change."""
    settled = settle(plan)
    plan, content, built = settled.plan, settled.content, settled.built
    report = account(settled.plan, content, built, settled.measured)
    settings, remembered_now = plan.request.settings, plan.preferences.remembered
    marked = settings.cache_markers == "anthropic"
    sent = with_cache_marker(built.messages, built.stable) if marked else built.messages
    snapshot = None
    if remembered_now.due:
        snapshot = facts_layer.snapshot_of(plan.preferences.facts, remembered_now.edited)
    changes = Changes(
        cut=plan.history.record,
        step=plan.history.step,
        snapshot=snapshot,
        last=LastPrompt(
            messages=built.messages,
            costs=[plan.counter.count_message(message) for message in built.messages],
            stable=built.stable,
            long_turn=plan.turn.long,
            squeezed=is_squeezed(plan, content),
            turn=plan.request.turn,
            block=plan.block,
            settings=settings,
            coverage=report.coverage,
        ),
        hits=plan.detected.hits,
        misses=plan.detected.misses,
        lacks_vectors=plan.lacks_vectors,
    )
    # Copies: what a caller does to its prompt must not change the next one.
    context = AssembledContext(messages=[*map(request_copy, sent)], report=report)
    return Prompt(context=context, changes=changes, plan=plan)


def _without_io(step: Callable[[Plan], Plan]) -> Step:
    def flow(plan: Plan, _access: Access) -> Flow[Plan]:
        yield from ()
        return step(plan)

    return flow


STEPS: Mapping[str, Step] = {
    "detect_topics": detect_topics,
    "compute_budget": _without_io(compute_budget),
    "fetch_bundles": fetch_bundles,
    "compact_history": compact_history,
    "retrieve": retrieve,
}
"""The steps before the last one, `assemble`, by name."""
LAST_STEP = "assemble"
WITHOUT_LOCK = frozenset({"detect_topics", "fetch_bundles"})
"""Steps that need nothing of the conversation: in the graph a slow layer of the application's own holds nobody up."""
