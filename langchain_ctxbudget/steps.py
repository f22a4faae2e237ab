"""The six steps from a message to a prompt, each a flow over one draft.

detect_topics -> compute_budget -> fetch_bundles -> compact_history -> retrieve -> assemble
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.accounting import account
from langchain_ctxbudget.budgeting import advice, compute_budget
from langchain_ctxbudget.core.assembly import build, has_human, measure, without_least
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.draft import AssembledContext, Draft
from langchain_ctxbudget.errors import BudgetTooSmallError, StoreDataError
from langchain_ctxbudget.filling import fill_history, fill_knowledge, fill_leftovers
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import custom
from langchain_ctxbudget.knowledge.declared import detect
from langchain_ctxbudget.retrieval import evicted
from langchain_ctxbudget.settings import LayerRequest
from langchain_ctxbudget.stores.message_log import CUTS
from langchain_ctxbudget.stores.records import CutRecord

Step = Callable[[Draft, BaseStore, Embeddings | None], Flow[None]]


def detect_topics(draft: Draft) -> None:
    """Find the declared topics and entities that the message names."""
    draft.detected = detect(draft.query, draft.settings)


def fetch_bundles(draft: Draft, _store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
    """Ask the application's own layers for their items, and make the text of everything that is known."""
    scope = draft.conversation.scope
    for layer in draft.settings.layers:
        request = LayerRequest(
            query=draft.query,
            budget_tokens=draft.allocated.tokens[layer.name],
            user_id=scope.user_id,
            conversation_id=scope.conversation_id,
        )
        try:
            draft.own_items[layer.name] = yield from custom.fetch(layer, request)
        except Exception as error:  # noqa: BLE001 - whatever an application's function raises
            draft.own_items[layer.name] = ()
            draft.failures.append(f"layer {layer.name!r}: {type(error).__name__}: {error}")
    fill_knowledge(draft)


def compact_history(draft: Draft, store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
    """Choose what of the history is verbatim; a new cut is stored, so that a restart goes on with it."""
    fill_history(draft)
    conversation = draft.conversation
    if draft.history.step and conversation.cut is not None:
        place = cut_place(conversation)
        record = conversation.cut.model_dump(mode="json")
        try:
            yield from batch(store, [PutOp(place.namespace, place.key, record, index=False)])
        except Exception as error:  # noqa: BLE001 - derived data: the next step writes it again
            draft.failures.append(f"compaction cut not saved: {type(error).__name__}: {error}")


def cut_place(conversation: Conversation) -> GetOp:
    """Where the compaction cut of a conversation is kept."""
    return GetOp(conversation.scope.namespace(CUTS), "cut")


def take_up_cut(conversation: Conversation, found: object) -> str | None:
    """Take up the stored cut if it was made for these messages; what failed, if anything."""
    failure = None
    try:
        stored = CutRecord.read(found.value, "the compaction cut") if isinstance(found, Item) else None
        if stored is not None and conversation.cut_is_valid(stored):
            conversation.cut = stored
    except StoreDataError as error:  # derived data: it is made again
        failure = f"compaction cut not read: {error}"
    if conversation.cut is not None and not conversation.cut_is_valid(conversation.cut):
        conversation.cut = None
    return failure


def retrieve(draft: Draft, _store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Fill what is left of the budget, above all with messages that are no longer verbatim and answer this one."""
    end = draft.history.cut
    if end and has_human(draft.turn_groups):
        draft.relevances, failure = yield from evicted.rank(draft.conversation, end, draft.query, embeddings)
        if failure:
            draft.failures.append(failure)
    fill_leftovers(draft)


def assemble(draft: Draft) -> None:
    """Build the messages, recount them exactly, prune what is over, and give the account."""
    content = draft.content
    prompt = build(content)
    measured = measure(content, prompt, draft.counter, draft.extras)
    allocation = draft.allocated
    limit = draft.limit_tokens - allocation.reserve_tokens
    order = sorted(
        (layer for layer in allocation.tokens if layer not in (Layer.IDENTITY, Layer.MESSAGE)),
        key=lambda layer: (allocation.priority_of(layer), layer),
    )
    while measured.total_tokens > limit:
        excess = measured.total_tokens - limit
        smaller, gone = without_least(content, draft.counter, excess, order)
        if smaller == content:
            needed: dict[str, int] = {layer: measured.items_tokens[layer] for layer in (Layer.IDENTITY, Layer.MESSAGE)}
            floors = {**needed, "overhead": measured.total_tokens - sum(needed.values())}
            raise BudgetTooSmallError(limit, floors, advice(draft))
        draft.pruned += [replace(f, status=Status.OMITTED, reason=Reason.PRUNED) for f in gone]
        content = smaller
        prompt = build(content)
        measured = measure(content, prompt, draft.counter, draft.extras)
    report = account(draft, content, prompt, measured)
    costs = [draft.counter.count_message(message) for message in prompt.messages]
    draft.conversation.previous = list(zip(prompt.messages, costs, strict=True))
    # Copies: what a caller does to its prompt must not change the next one.
    draft.context = AssembledContext(messages=[m.model_copy(deep=True) for m in prompt.messages], report=report)


def _without_io(step: Callable[[Draft], None]) -> Step:
    def flow(draft: Draft, _store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
        step(draft)
        yield from ()

    return flow


STEPS: dict[str, Step] = {
    "detect_topics": _without_io(detect_topics),
    "compute_budget": _without_io(compute_budget),
    "fetch_bundles": fetch_bundles,
    "compact_history": compact_history,
    "retrieve": retrieve,
    "assemble": _without_io(assemble),
}


def run(name: str, draft: Draft, store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Run one step by its name and note how long it took."""
    started = time.perf_counter()
    yield from STEPS[name](draft, store, embeddings)
    draft.timings_ms[name] = (time.perf_counter() - started) * 1000
    if draft.context is not None:
        report = replace(draft.context.report, timings_ms=dict(draft.timings_ms))
        draft.context = replace(draft.context, report=report)
